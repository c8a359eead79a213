"""What the tests of the page share. `make test-page` sets up what they need and runs them.

The tests drive Chromium with Playwright. They run against `reverb serve`, whose clients are of the Python package.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil

from driver import Watched
from playwright.sync_api import sync_playwright
from program import ServerProgram, free_port
import pytest

import reverb

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Playwright gives each browser an empty profile.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",  # which root cannot use
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("REVERB_PROGRAM", ROOT / "build/dev/apps/reverb"))
    assert path.exists(), f"{path} does not exist; build it with make build, or set REVERB_PROGRAM"
    return path.resolve()


@pytest.fixture(scope="session")
def browser():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path, "chromium was not found; install it with apt-get install chromium, or set CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


class PageServer(ServerProgram):
    """`reverb serve` with an admin port that stays the same in all of its lives."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, tables: tuple[str, ...], config: str) -> None:
        """Starts the server with `tables` as on the command line, and `config`, the text of a configuration file."""
        admin_port = free_port()
        self.url = f"{'https' if '[tls]' in config else 'http'}://127.0.0.1:{admin_port}/"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "server.toml"
        file.write_text(f'[admin]\nlisten = "127.0.0.1:{admin_port}"\n{config}', encoding="utf-8")
        super().__init__(program, tables, folder, arguments=("--config", str(file)))

    def client(self, name: str = "", **options) -> reverb.Client:
        return reverb.Client(self.address, name=name, in_process=False, **options)


@pytest.fixture
def start_server(program, tmp_path):
    """Returns start(*tables, config="…"), which starts a process that serves them and the page, and is ready."""
    with contextlib.ExitStack() as stack:
        count = 0

        def start(*tables: str, config: str = "") -> PageServer:
            nonlocal count
            count += 1
            server = PageServer(program, tmp_path / f"server-{count}", tables, config)
            stack.callback(server.close)
            server.await_ready()
            return server

        yield start


@pytest.fixture
def open_page(browser):
    """Returns start(url, width=, height=, scheme=), which makes a page. An error on it that was not expected fails the test."""
    with contextlib.ExitStack() as stack:
        pages = []

        def start(url: str, *, width: int = 1280, height: int = 900, scheme: str = "light", **options) -> Watched:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", **options
            )
            stack.callback(context.close)
            page = Watched(context.new_page(), url)
            pages.append(page)
            return page

        yield start
        for page in pages:
            page.assert_no_problems()
