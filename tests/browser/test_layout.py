"""The page on a desk and on a phone, in light and dark, with a keyboard alone."""

from __future__ import annotations

import threading

from driver import assert_focused, assert_gone, assert_text, assert_visible
import pytest

# Returns the visible texts whose contrast with what is behind them is below 4.5, or 3 if they are large or disabled.
LOW_CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3])).concat(1);
  const background = (node) => {
    if (!node) return [255, 255, 255, 1];
    const own = parse(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, background(node.parentElement));
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(node.tagName) || !node.checkVisibility()) continue;
    ++count;
    const style = getComputedStyle(node);
    const behind = background(node);
    const colour = over(parse(style.color), behind);
    const [a, b] = [luminance(colour), luminance(behind)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5 && !node.closest(':disabled')) found.push(`${text}: ${ratio.toFixed(2)}`);
  }
  return {found, count};
}"""


@pytest.fixture
def busy(start_server):
    """A server on which something waits, with items, rows and a client."""
    config = '[[row_table]]\nname = "rollouts"\nconsumers = ["train"]\n'
    server = start_server("replay:uniform:fifo:1000", "jobs:queue:1", config=config)
    client = server.client("a client with a name of some length")
    for i in range(20):
        client.insert({"observation": [float(i)] * 40}, {"replay": float(i)})
    client.insert([1], {"jobs": 1.0})
    client.rows("rollouts").put(["a", "b"], {"tokens": [[1, 2], [3]]})
    threading.Thread(target=lambda: client.insert([2], {"jobs": 1.0}), daemon=True).start()
    return server


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(busy, open_page, scheme):
    page = open_page(busy.url, scheme=scheme).open()
    page.assert_state("Live")
    assert_text(page.find("#waits"), "1 call waits")
    for table, section in (("jobs", "#tables"), ("replay", "#tables"), ("rollouts", "#row-tables")):
        page.open_table(table, section)
        result = page.evaluate(LOW_CONTRAST)
        assert result["count"] > 50
        assert result["found"] == []
    page.find(".detail .primary").click()
    assert_visible(page.find("#items-list .item").first)
    assert page.evaluate(LOW_CONTRAST)["found"] == []


@pytest.mark.parametrize("width", [375, 768, 1280, 1920])
def test_nothing_is_wider_than_the_screen(busy, open_page, width):
    page = open_page(busy.url, width=width, height=800).open()
    page.assert_state("Live")
    for table, section in (("replay", "#tables"), ("jobs", "#tables"), ("rollouts", "#row-tables")):
        page.open_table(table, section)
        page.assert_no_horizontal_scroll()
    page.find(".detail .primary").click()
    assert_visible(page.find("#items-list .item").first)
    page.assert_no_horizontal_scroll()
    box = page.find("#items").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def background(page) -> list[int]:
    return page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")


def test_light_and_dark_follow_the_system_and_the_switch(busy, open_page):
    light = open_page(busy.url, scheme="light").open()
    light.assert_state("Live")
    dark = open_page(busy.url, scheme="dark").open()
    dark.assert_state("Live")
    assert min(background(light)) > 200
    assert max(background(dark)) < 60

    dark.page.get_by_role("button", name="Light").click()
    assert background(dark) == background(light)
    assert dark.page.get_by_role("button", name="Light").get_attribute("aria-pressed") == "true"
    dark.page.reload()
    dark.assert_state("Live")
    assert background(dark) == background(light)
    dark.page.get_by_role("button", name="Auto").click()
    assert max(background(dark)) < 60
    dark.page.emulate_media(color_scheme="light")
    assert background(dark) == background(light)


def test_a_keyboard_is_enough(busy, open_page):
    page = open_page(busy.url).open()
    page.assert_state("Live")
    keyboard = page.page.keyboard
    replay, jobs = (
        page.page.get_by_role("button", name=name, exact=False).and_(page.find(".opener"))
        for name in ("replay", "jobs")
    )
    assert_visible(replay)
    keyboard.press("Escape")  # what the page has opened
    assert_gone(page.find("tr.detail"))
    page.page.get_by_role("button", name="Dark").focus()
    # The next stops: headings of the columns that sort, then the first table.
    for _ in range(20):
        keyboard.press("Tab")
        if replay.evaluate("(node) => node === document.activeElement"):
            break
    assert_focused(replay)
    outline = replay.evaluate("(node) => getComputedStyle(node).outlineStyle")
    assert outline == "solid"
    keyboard.press("Enter")
    assert_text(page.find("tr.detail h2"), "replay")
    assert replay.get_attribute("aria-expanded") == "true"
    keyboard.press("Tab")
    look = page.page.get_by_role("button", name="Look at items")
    assert_focused(look)
    keyboard.press("Enter")
    assert_visible(page.page.get_by_role("dialog", name="replay"))
    assert_text(page.find("#items-status"), "1 to 10 of 20 items")
    keyboard.press("Escape")
    assert_gone(page.find("#items"))
    assert_focused(look)
    keyboard.press("Escape")
    assert_gone(page.find("tr.detail"))
    assert_focused(replay)
    keyboard.press("ArrowDown")
    assert_focused(jobs)
    keyboard.press("Space")
    assert_text(page.find("tr.detail h2"), "jobs")


def test_parts_have_roles_and_names(busy, open_page):
    page = open_page(busy.url).open()
    page.assert_state("Live")
    page.open_table("jobs")
    for role, name in (
        ("banner", None), ("main", None), ("table", "Tables"), ("table", "Row tables"), ("table", "Clients"),
        ("region", "Tables"), ("group", "Theme"), ("columnheader", "Inserts/s"),
    ):  # fmt: skip
        assert_visible(page.page.get_by_role(role, name=name, exact=True).first)
    assert_visible(page.page.get_by_role("img", name="Limiter: cursor 1 between 0 and 1").first)
    unnamed = page.evaluate("""() => Array.from(document.querySelectorAll('button, input, [role=img]'))
        .filter((node) => node.checkVisibility())
        .filter((node) => !(node.textContent.trim() || node.getAttribute('aria-label') || node.labels?.length))
        .map((node) => node.outerHTML)""")
    assert unnamed == []


def test_an_address_opens_its_table(busy, open_page):
    page = open_page(busy.url).open("#rows=rollouts")
    assert_text(page.find("#row-tables tr.detail h2"), "rollouts")
    assert page.find("#tables tr.detail").count() == 0
    page.open_table("jobs")
    assert page.evaluate("location.hash") == "#table=jobs"
    assert page.find("#row-tables tr.detail").count() == 0
