"""Draws the pictures of the page in docs/operations.md: tools/page.sh --pictures.

Runs a server with actors, a learner and a row table, and takes pictures in light, in dark and on a phone.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil
import tempfile
import threading

from conftest import CHROMIUM_ARGUMENTS, ROOT, PageServer
from driver import Watched, assert_number, assert_text, assert_visible
from load import inserting, running, sampling
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import reverb

FOLDER = ROOT / "docs/pictures"
MAX_BYTES = 150_000
CONFIG = """
[server]
max_bytes = "256 MiB"

[[table]]
name = "replay"
sampler = "prioritized=0.6"
remover = "fifo"
max_size = 2000
[table.limiter]
min_size = 100
samples_per_insert = 4
error_buffer = 400

[[table]]
name = "evaluation"
max_size = 1000
[table.limiter]
min_size = 500

[[row_table]]
name = "rollouts"
max_rows = 5000
group_size = 4
consumers = ["logprob", "reward", "train"]
staleness = { max_lag = 1, when_stale = "keep", batch = 64 }
"""


def frame(i: int) -> np.ndarray:
    """Returns a picture of a ball in a field."""
    y, x = np.mgrid[0:64, 0:64]
    ball = (x - 32 - 20 * np.cos(i / 9)) ** 2 + (y - 32 - 20 * np.sin(i / 7)) ** 2 < 50
    field = np.stack([20 + x // 2, 60 + y // 2, np.full_like(x, 90)], axis=-1).astype(np.uint8)
    field[ball] = (250, 210, 80)
    return field


def rollout(client: reverb.Client):
    """Returns a work that puts groups of rows."""
    rows = client.rows("rollouts")
    random = np.random.default_rng(1)

    def work(stop) -> None:
        rows.put(
            [f"open/{i}" for i in range(6)], {"tokens": [[1]] * 6}, groups=["open-a"] * 3 + ["open-b"] * 3, open=True
        )
        group = 0
        while not stop.wait(0.15):  # sets the rate
            keys = [f"{group}/{i}" for i in range(4)]
            tokens = [random.integers(0, 50_000, random.integers(40, 400)) for _ in keys]
            with contextlib.suppress(reverb.DeadlineExceededError):
                rows.put(
                    keys,
                    {"tokens": tokens},
                    tags=[{"prompt": group}] * 4,
                    groups=[group] * 4,
                    version=group // 40,
                    timeout=1,
                )
            if group % 40 == 0:
                rows.set_version(group // 40)
            group += 1

    return work


def train(client: reverb.Client):
    """Returns a work that consumes groups, for one consumer after the other, and holds some."""
    rows = client.rows("rollouts")

    def work(stop) -> None:
        held = rows.claim("train", 24, needs=["tokens"], lease=600.0)
        while not stop.wait(0.2):  # sets the rate
            with contextlib.suppress(reverb.DeadlineExceededError):
                rows.claim("logprob", 8, at_least=1, needs=["tokens"], whole_groups=False, timeout=1).ack()
                rows.claim("train", 4, needs=["tokens"], timeout=1).ack()
        held.release()

    return work


def save(page: Watched, name: str, **options) -> None:
    """Saves a picture with few colours: text on plain areas needs no more."""
    image = Image.open(io.BytesIO(page.page.screenshot(**options))).convert("RGB")
    path = FOLDER / name
    image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    assert size < MAX_BYTES, f"{path} has {size} bytes, more than {MAX_BYTES}"
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")


def draw(server: PageServer, browser) -> None:
    """Takes the pictures of a server whose clients run."""

    def open_page(width: int, height: int, scheme: str) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = Watched(context.new_page(), server.url).open("#table=replay")
        page.assert_state("Live")
        return page

    pages = [open_page(1280, 1240, "light"), open_page(1280, 1180, "dark"), open_page(375, 812, "light")]
    for page in pages:
        assert_text(page.find("#waits"), "evaluation: 1 sample waits: too few items to sample")
        # The lines are worth looking at once the page has run for a while.
        path = page.row("replay").locator(".cell-inserts path.line").element_handle()
        page.page.wait_for_function("(path) => path.getAttribute('d').split('L').length > 26", arg=path, timeout=60_000)
        assert_number(page.row("replay").locator(".cell-samples .value"), lambda rate: rate > 1, "samples")
    light, dark, phone = pages
    save(light, "page_light.png")
    dark.open_table("rollouts", "#row-tables")
    dark.page.evaluate("document.querySelector('#tables').scrollIntoView()")
    dark.page.evaluate("window.scrollBy(0, -60)")
    save(dark, "page_dark.png")
    phone.page.evaluate("document.querySelector('#tables').scrollIntoView()")
    save(phone, "page_phone.png")
    light.find("#tables .detail .primary").click()
    assert_visible(light.find("#items-list canvas").first)
    save(light, "page_items.png", clip=light.find("#items").bounding_box())
    for page in pages:
        page.assert_no_problems()


def main() -> None:
    """Runs the server and its clients."""
    program = pathlib.Path(os.environ.get("REVERB_PROGRAM", ROOT / "build/dev/apps/reverb")).resolve()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = PageServer(program, folder / "server", (), CONFIG)
        stack.callback(server.close)
        server.await_ready()
        actors = [server.client(f"actor-{i}", local=i > 0) for i in range(3)]
        learner = server.client("learner")
        random = np.random.default_rng(0)
        for i in range(420):
            actors[0].insert({"score": np.float32(i)}, {"evaluation": 1.0})

        def make(i: int) -> dict:
            return {"observation": frame(i), "action": np.int32(i % 4), "reward": np.float32(np.sin(i / 9)),
                    "tokens": np.arange(i, i + 120, dtype=np.int32)}  # fmt: skip

        works = [
            inserting(actor, "replay", make, pause=0.02, priority=lambda i: float(random.lognormal()))
            for actor in actors
        ]
        works += [sampling(learner, "replay", pause=0.002) for _ in range(2)]
        works += [rollout(server.client("rollout-worker")), train(server.client("trainer"))]
        evaluator = server.client("evaluator")
        with running(*works):
            threading.Thread(target=lambda: next(evaluator.sample("evaluation")), daemon=True).start()
            judge = server.client("judge").rows("rollouts")
            threading.Thread(target=lambda: judge.claim("reward", 4, needs=["tokens", "score"]), daemon=True).start()
            server.client().checkpoint()
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
                draw(server, browser)
                browser.close()
            # Ends the waits, so that nothing is left when the program ends.
            judge.put([f"last/{i}" for i in range(4)], {"tokens": [[1]] * 4, "score": [1.0] * 4}, groups=["last"] * 4)
            for i in range(80):
                actors[0].insert({"score": np.float32(i)}, {"evaluation": 1.0})


if __name__ == "__main__":
    main()
