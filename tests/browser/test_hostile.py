"""Names and values from clients are shown as they are, and do nothing."""

from __future__ import annotations

import json
import time

from driver import assert_text, assert_visible, send_info
import examples
import pytest

import reverb

SCRIPT = "<script>window.attacked = true</script>"
IMAGE = "<img src=x onerror='window.attacked = true'>"
HUGE = 2**63 - 1


def assert_harmless(page) -> None:
    assert page.evaluate("window.attacked") is None
    assert page.find("img").count() == 0
    assert page.find("script").count() == 1
    page.assert_no_horizontal_scroll()


@pytest.mark.parametrize("name", [SCRIPT, IMAGE], ids=["script", "image"])
def test_names_and_tags_that_contain_markup_are_inert(start_server, open_page, name):
    quoted = name.replace('"', '\\"')
    config = f'[[table]]\nname = "{quoted}"\n[[row_table]]\nname = "rows {quoted}"\nconsumers = ["{quoted}"]\n'
    server = start_server(config=config)
    client = server.client(name)
    client.insert({name: name}, {name: 1.0})
    rows = client.rows(f"rows {name}")
    rows.put([name], {name: [[name, name]]}, tags=[{name: name}])
    writer = client.trajectory_writer(1)

    page = open_page(server.url).open()
    detail = page.open_table(name)
    assert_text(detail.locator("h2"), name)
    assert_visible(page.row(name, "#clients").first)
    detail.get_by_role("button", name="Look at items").click()
    assert_text(page.find("#items-title"), name)
    assert_text(page.find("#items-list .column").first, name)
    page.page.keyboard.press("Escape")

    detail = page.open_table(f"rows {name}", "#row-tables")
    assert_text(detail.locator(".consumer"), name)
    detail.get_by_role("button", name="Look at rows").click()
    assert_text(page.find("#items-list .item-key"), name)
    assert_text(page.find("#items-list .tag"), name)
    assert_harmless(page)
    writer.close()


def test_a_bookmark_with_markup_is_inert(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url).open("#table=%3Cimg%20src=x%20onerror=window.attacked=true%3E")
    page.assert_state("Live")
    assert_visible(page.row("replay"))
    assert_harmless(page)


def test_extreme_values_are_shown_and_stay_within_the_page(start_server, open_page):
    server = start_server("replay")
    bounded = {"samples_per_insert": 1e-9, "min_size_to_sample": HUGE, "min_diff": -1e300, "max_diff": 1e300}
    histogram = {"bounds": [1.0, 1e300], "counts": [0, HUGE, 1]}
    tables = [
        examples.table("x" * 5000, size=HUGE, max_size=HUGE, bytes=HUGE, inserts=HUGE, samples=HUGE, cursor=-1e308),
        examples.table("", rate_limiter=bounded, waiting_samples=HUGE, sample_wait_reason="min_size", waiting_inserts=1,
                       insert_wait_reason="a reason of a newer server"),
        examples.table("\u202egnp.exe\x00\n", age_histogram=histogram, priority_histogram=histogram,
                       times_sampled_histogram={"bounds": [], "counts": []}),
        examples.table("lower bound only", cursor=1e12,
                       rate_limiter={"samples_per_insert": 3.5, "min_size_to_sample": 1, "min_diff": 0.0, "max_diff": None}),
        examples.table("upper bound only", cursor=-7.0,
                       rate_limiter={"samples_per_insert": 3.5, "min_size_to_sample": 1, "min_diff": None, "max_diff": 0.0}),
        examples.table("equal bounds", cursor=0.0,
                       rate_limiter={"samples_per_insert": 1.0, "min_size_to_sample": 1, "min_diff": 0.0, "max_diff": 0.0}),
        examples.table("__proto__", closed=True, sampler="s" * 500, signature="{" + "a: float32[], " * 500 + "}"),
        examples.table("no histograms", wait_seconds=None),
    ]  # fmt: skip
    clients = [{"name": "n" * 3000, "address": "a" * 3000, "transport": "carrier pigeon", "writers": HUGE, "samplers": 0,
                "bytes_in": None, "bytes_out": HUGE, "connected_seconds": None}] * 2  # fmt: skip
    checkpoint = {"path": "/p" * 500, "count": 0, "failures": 3, "last_time_seconds": None, "last_duration_seconds": None,
                  "last_bytes": None, "last_error": "disk full " * 50, "running": False, "disk_free_bytes": None}  # fmt: skip
    waiters = [{"table": "", "operation": "sample", "reason": "min_size", "count": HUGE, "seconds": 1e9, "client": "c" * 500,
                "address": ""}] * 20  # fmt: skip
    info = examples.info(tables, clients=clients, clients_total=HUGE, checkpoint=checkpoint, waiters=waiters, max_bytes=1,
                         errors={"E" * 300: HUGE}, ready=False, not_ready_reason="it loads " * 40)  # fmt: skip
    for width in (1280, 375):
        page = open_page(server.url, width=width)
        send_info(page, info)
        page.open()
        assert_visible(page.find("#content"))
        for table in tables:
            shown = {"": "(no name)", "x" * 5000: "x" * 120 + "…", "\u202egnp.exe\x00\n": "\ufffdgnp.exe\ufffd\ufffd"}
            detail = page.open_table(shown.get(table["name"], table["name"]))
            assert_visible(detail.locator(".track.large"))
            page.assert_no_horizontal_scroll()
            text = detail.inner_text()
            assert "NaN" not in text
            assert "undefined" not in text
        assert_text(page.find("#waits"), "a reason of a newer server")
        assert "undefined" not in page.find("body").inner_text()
        assert_harmless(page)


def test_hundreds_of_tables_are_filtered_and_sorted(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url)
    send_info(page, examples.info([examples.table(f"table-{i:03}", size=i, inserts=i) for i in range(400)]))
    page.open()
    assert_visible(page.row("table-000"))
    rows = page.find("#tables tbody tr.opens")
    assert rows.count() == 25
    page.find("#tables").get_by_role("button", name="Show all 400 tables").click()
    assert rows.count() == 400
    page.find("#tables").get_by_role("searchbox").fill("TABLE-39")
    assert [rows.nth(i).locator(".name").inner_text() for i in range(rows.count())] == [
        f"table-39{i}" for i in range(10)
    ]
    page.find("#tables th").get_by_role("button", name="Items").click()
    assert page.find("#tables th[aria-sort=descending]").inner_text().startswith("Items")
    assert_text(rows.first, "table-399")
    page.find("#tables").get_by_role("searchbox").fill("no such")
    assert_text(page.find("#tables .none"), "No table matches the filter.")


def test_a_server_that_answers_that_it_cannot_is_not_ready(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url)
    page.expect_problems("503")
    error = json.dumps({"error": "the server loads its checkpoint"})
    page.page.route("**/api/v1/stream*", lambda route: route.fulfill(status=503, body=error))
    page.page.clock.install()
    page.open()
    page.assert_state("Not ready")
    assert_text(page.find("#banner"), "the server loads its checkpoint")
    assert_visible(page.find("#retry"))
    # Stops the clock of the page, so that it does not retry by itself.
    page.page.clock.pause_at(time.time() + 60)
    page.assert_state("Not ready")
    page.page.unroute("**/api/v1/stream*")
    page.find("#retry").evaluate("(button) => button.click()")
    page.assert_state("Live")


def test_a_server_without_tables_says_so(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url)
    send_info(page, examples.info([], row_tables=[]))
    page.open()
    assert_text(page.find("#tables .none"), "No tables.")
    assert_text(page.find("#clients .none"), "No clients.")
    assert_text(page.find("#checkpoint"), "no checkpoint folder")


def test_a_table_that_a_client_creates_and_removes_appears_and_disappears(start_server, open_page):
    server = start_server("replay")
    page = open_page(server.url).open()
    assert_visible(page.row("replay"))
    client = server.client()
    client.create_table(
        reverb.Table("later", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1))
    )
    assert_visible(page.row("later"))
    client.remove_table("later")
    page.row("later").wait_for(state="detached")
    assert page.row("later").count() == 0
