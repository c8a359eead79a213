"""The page follows a server whose clients work, wait, stop and come back."""

from __future__ import annotations

import re
import threading
import urllib.request

from conditions import wait_for_waiters
from driver import assert_gone, assert_number, assert_text, assert_visible, number_in
from load import inserting, running, sampling
import numpy as np


def test_shows_rates_sizes_and_clients_while_a_writer_and_a_sampler_run(start_server, open_page):
    server = start_server("replay:prioritized=0.6:fifo:500", "other")
    page = open_page(server.url).open()
    page.assert_state("Live")
    actor, learner = server.client("actor-1"), server.client("learner-1", local=False)
    with running(
        inserting(actor, "replay", priority=lambda i: 1.0 + i % 7),
        sampling(learner, "replay"),
        sampling(learner, "replay"),
    ):
        row = page.row("replay")
        assert_number(row.locator(".cell-inserts .value"), lambda rate: 5 < rate < 1000, "a rate of inserts")
        assert_number(row.locator(".cell-samples .value"), lambda rate: 5 < rate < 2000, "a rate of samples")
        assert_number(row.locator(".cell-items .value"), lambda size: size > 20, "items")
        assert_text(row.locator(".cell-items"), "of 500")
        # The line has a point for each update.
        path = row.locator(".cell-inserts path.line")
        assert page.page.wait_for_function(
            "(path) => path.getAttribute('d').split('L').length > 3", arg=path.element_handle()
        )
        assert_text(page.find("#throughput .legend"), "inserts")
        assert_number(page.find("#throughput .legend b").first, lambda rate: rate > 5, "a total rate")
        page.find("#throughput .plot").hover()
        assert_text(page.find("#throughput .readout"), "samples per second")
        assert number_in(page.row("other").locator(".cell-items .value")) == 0

        assert_text(page.row("actor-1", "#clients").first, "same host")
        assert_text(page.row("learner-1", "#clients").first, "gRPC")

        detail = page.open_table("replay")
        assert_text(detail.locator(".limiter"), "Nothing waits.")
        for name in ("Age", "Priority", "Times sampled"):
            histogram = detail.locator(".histogram").filter(has_text=name)
            assert_text(histogram, "half")
            assert histogram.locator(".bar").count() > 0
        assert_text(detail.locator(".terms").last, "prioritized")
    # Without clients the rates return to zero.
    assert_number(page.row("replay").locator(".cell-inserts .value"), lambda rate: rate == 0, "no inserts")


def test_memory_is_shown_with_its_limit(start_server, open_page):
    server = start_server("replay", config='[server]\nmemory_limit = "64 MiB"\n')
    client = server.client("actor")
    for i in range(4):
        client.insert([bytes([i]) * 1_000_000], {"replay": 1.0})
    page = open_page(server.url).open()
    assert_text(page.find("#memory .figure"), "of 64 MiB")
    assert_text(page.find("#memory .legend"), "stored")
    assert_visible(page.find("#memory .mark"))
    assert page.find("#memory .stack").get_attribute("aria-label").startswith("stored ")


def test_the_disk_is_shown_where_data_may_move_to_it(start_server, open_page, tmp_path):
    page = open_page(start_server("replay").url).open()
    assert_gone(page.find("#storage"))
    server = start_server(
        "replay", config=f'[storage]\npath = "{tmp_path}/tier"\nmemory_limit = "4 MB"\ndisk_limit = "256 MiB"\n'
    )
    client = server.client("actor")
    for i in range(40):
        client.insert([np.random.default_rng(i).bytes(400_000)], {"replay": 1.0})
    page = open_page(server.url).open()
    assert_text(page.find("#storage .figure"), re.compile(r"^1\d\S*\sMiB\son disk"))
    assert_text(page.find("#storage .terms"), "of 256 MiB")
    assert_gone(page.find("#storage .sentence"))


def test_follows_a_limiter_that_starts_to_block_and_ends(start_server, open_page):
    server = start_server("jobs:queue:3")
    page = open_page(server.url).open()
    detail = page.open_table("jobs")
    actor = server.client("actor-7")
    for i in range(3):
        actor.insert([i], {"jobs": 1.0})
    assert_text(detail.locator(".sentences"), "Nothing waits. The limiter allows 0 more inserts without a sample")
    assert_gone(page.row("jobs").locator(".wait"))

    writer = threading.Thread(target=lambda: actor.insert([3], {"jobs": 1.0}), daemon=True)
    writer.start()
    wait_for_waiters(server.client(), 1)
    assert_text(page.row("jobs").locator(".cell-waiting"), "1 insert waits: too many inserts per sample")
    assert_text(detail.locator(".sentences"), "Inserts wait: too many inserts per sample.")
    assert_text(detail.locator(".sentences"), "1 more sample would allow the next insert")
    assert_text(detail.locator(".waiters"), "actor-7 at ")
    assert_text(detail.locator(".waiters"), "waits to insert 1 item")
    assert_text(page.find("#waits .figure"), "1 call waits")
    assert_text(page.find("#waits .waiters"), "jobs: 1 insert waits")
    # The cursor is at the upper bound, in the drawing too.
    places = page.evaluate("""() => {
      const box = (name) => document.querySelector(`.track.large .${name}`).getBoundingClientRect();
      return [box('cursor').left + box('cursor').width / 2, box('high').left];
    }""")
    assert abs(places[0] - places[1]) < 3

    next(server.client("learner").sample("jobs"))
    writer.join(30)
    assert not writer.is_alive()
    assert_text(detail.locator(".sentences"), "Nothing waits.")
    assert_text(page.row("jobs").locator(".cell-waiting"), "nothing")
    assert_gone(detail.locator(".waiters"))
    assert_text(page.find("#waits .figure"), "Nothing waits")


def test_samples_that_wait_for_a_minimum_size_are_explained(start_server, open_page):
    server = start_server("replay:uniform:fifo:100:min_size=10")
    client = server.client("learner")
    client.insert([1.0], {"replay": 1.0})
    page = open_page(server.url).open()
    sampler = threading.Thread(target=lambda: next(client.sample("replay")), daemon=True)
    sampler.start()
    detail = page.open_table("replay")
    assert_text(detail.locator(".sentences"), "The table has 1 of the 10 items that samples need")
    for _ in range(9):
        client.insert([1.0], {"replay": 1.0})
    sampler.join(30)
    assert not sampler.is_alive()
    assert_text(detail.locator(".sentences"), "minimum size, which the table has reached")
    assert_text(detail.locator(".terms").nth(1), "Samples: too few items to sample")


def test_row_tables_show_states_consumers_and_reasons(start_server, open_page):
    config = """
[[row_table]]
name = "rollouts"
max_rows = 100
consumers = ["logprob", "train"]
max_running = 4
"""
    server = start_server(config=config)
    client = server.client("trainer")
    rows = client.rows("rollouts")
    rows.put([f"row-{i}" for i in range(5)], {"tokens": [[1, 2, 3]] * 5})
    rows.put(["partial"], {"tokens": [[1]]}, open=True)
    batch = rows.claim("train", 2, needs=["tokens"], lease=600.0)
    page = open_page(server.url).open()
    detail = page.open_table("rollouts", "#row-tables")
    assert_text(page.row("rollouts", "#row-tables").locator(".cell-states"), "1 open, 2 leased, 0 stale")
    train = detail.locator(".consumer").filter(has_text="train")
    assert_text(train.locator(".legend"), "ready 3")
    assert_text(train.locator(".legend"), "leased 2")
    assert_text(train.locator(".legend"), "open 1")

    waiting = threading.Thread(target=lambda: rows.claim("logprob", 2, needs=["missing"]).release(), daemon=True)
    waiting.start()
    assert_text(detail.locator(".waiters"), "1 claim waits:")
    assert_text(detail.locator(".waiters"), "missing")
    assert_text(page.find("#waits .waiters"), "rollouts: 1 claim waits")
    rows.put(["row-0", "row-1"], {"missing": [[1], [2]]}, create=False)
    waiting.join(30)
    assert not waiting.is_alive()
    batch.ack()
    assert_text(detail.locator(".consumer").filter(has_text="train"), "2 consumed in total")
    assert_text(detail, "Nothing waits.")


def test_survives_a_restart_of_the_server(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url).open()
    page.expect_problems(
        "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"
    )
    page.assert_state("Live")
    server.client().insert([1.0], {"replay": 1.0})
    assert_number(page.row("replay").locator(".cell-items .value"), lambda size: size == 1, "one item")
    assert_gone(page.find("#banner"))

    server.kill()
    page.assert_state("Disconnected")
    assert_visible(page.find("#banner"))
    assert_text(page.find("#banner"), "What you see is from the last update.")
    assert page.evaluate("document.body.classList.contains('stale')")
    assert_visible(page.find("#retry"))

    server.start()
    server.await_ready()
    page.assert_state("Live")
    assert_gone(page.find("#banner"))
    client = server.client()
    for _ in range(3):
        client.insert([1.0], {"replay": 1.0})
    assert_number(
        page.row("replay").locator(".cell-items .value"), lambda size: size == 3, "the items of the new server"
    )
    assert not page.evaluate("document.body.classList.contains('stale')")


def test_a_server_that_stops_answering_is_noticed(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url).open()
    page.assert_state("Live")
    server.pause()
    page.assert_state("Disconnected")
    assert_text(page.find("#banner"), "stopped sending updates")
    server.resume()
    page.assert_state("Live")


def test_a_hidden_tab_disconnects_until_it_is_visible(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url)
    page.page.clock.install()
    page.open()
    page.assert_state("Live")
    hide = """(hidden) => {
      Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, True)
    page.page.clock.fast_forward("00:30")
    page.assert_state("Live")
    page.page.clock.fast_forward("00:31")
    page.assert_state("Disconnected")
    assert_text(page.find("#banner"), "in the background")
    page.evaluate(hide, False)
    page.assert_state("Live")


def test_checkpoints_are_shown(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url).open()
    assert_text(page.find("#checkpoint"), "No checkpoint was written yet.")
    client = server.client()
    client.insert([1.0], {"replay": 1.0})
    client.checkpoint()
    assert_text(page.find("#checkpoint"), "Saved ")
    assert_text(page.find("#checkpoint .terms"), "Written1")
    assert_text(page.find("#checkpoint .terms"), "checkpoints")


def test_a_pause_holds_the_figures(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url).open()
    value = page.row("replay").locator(".cell-items .value")
    assert_number(value, lambda size: size == 0, "an empty table")
    page.find("#pause").click()
    page.assert_state("Paused")
    server.client().insert([1.0], {"replay": 1.0})
    with page.page.expect_event("console", lambda message: message.text == "two updates"):
        # Another stream of the same page tells that updates have been sent.
        page.evaluate("""async () => {
          const reader = (await fetch('api/v1/stream?interval=0.5')).body.getReader();
          for (let i = 0; i < 3; ++i) await reader.read();
          await reader.cancel();
          console.info('two updates');
        }""")
    assert number_in(value) == 0
    page.find("#pause").click()
    assert_number(value, lambda size: size == 1, "the item")


def test_the_policy_forbids_everything_else(start_server):
    server = start_server("replay")
    with urllib.request.urlopen(server.url) as reply:
        policy = reply.headers["Content-Security-Policy"]
        assert reply.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "'sha256-" in policy or "'nonce-" in policy
