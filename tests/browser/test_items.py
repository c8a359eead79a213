"""A look at single items and rows."""

from __future__ import annotations

from driver import assert_gone, assert_text, assert_visible
import numpy as np
import pytest

PIXELS = """(canvas) => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return {width: canvas.width, height: canvas.height, data: Array.from(data)};
}"""


def look(page, table: str, section: str = "#tables"):
    """Opens the dialog with the items of a table, and returns its list."""
    page.open_table(table, section).get_by_role("button", name="Look at").click()
    assert_visible(page.find("#items"))
    return page.find("#items-list")


def pixels_of(canvas) -> np.ndarray:
    drawn = canvas.evaluate(PIXELS)
    return np.array(drawn["data"], np.uint8).reshape(drawn["height"], drawn["width"], 4)


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_an_image_is_drawn_with_its_pixels(start_server, open_page, channels):
    random = np.random.default_rng(7)
    image = random.integers(0, 256, (12, 17) if channels == 0 else (12, 17, channels), np.uint8)
    if channels == 4:
        image[..., 3] = 255  # a canvas keeps the colours of opaque pixels only
    server = start_server("replay")
    server.client().insert({"frame": image, "step": np.int32(3)}, {"replay": 1.0})
    page = open_page(server.url).open()
    items = look(page, "replay")
    canvas = items.locator("canvas")
    assert_visible(canvas)
    drawn = pixels_of(canvas)
    assert drawn.shape == (12, 17, 4)
    colours = image if channels in (3, 4) else np.repeat(image.reshape(12, 17, 1), 3, axis=2)
    np.testing.assert_array_equal(drawn[..., :3], colours[..., :3])
    assert (drawn[..., 3] == 255).all()
    assert_text(items, "17 × 12")


def test_the_last_frame_of_a_trajectory_is_drawn(start_server, open_page):
    server = start_server("replay")
    client = server.client()
    frames = np.random.default_rng(3).integers(0, 256, (4, 8, 8, 3), np.uint8)
    with client.trajectory_writer(4) as writer:
        for frame in frames:
            writer.append({"frame": frame})
        writer.create_item("replay", 1.0, {"frame": writer.history["frame"][:]})
        writer.flush()
    page = open_page(server.url).open()
    items = look(page, "replay")
    np.testing.assert_array_equal(pixels_of(items.locator("canvas"))[..., :3], frames[-1])
    assert_text(items, "the last of 4 frames")


def test_numbers_tokens_and_strings_are_shown_exactly(start_server, open_page):
    server = start_server("replay")
    tokens = np.arange(1000, 3000, dtype=np.int32)
    server.client().insert(
        {"hash": np.uint64(2**64 - 59), "reward": np.float32(0.1), "tokens": tokens, "odd": np.array([np.nan, np.inf, -np.inf]),
         "words": np.array(["<b>", "plain"])},
        {"replay": 0.25},
    )  # fmt: skip
    page = open_page(server.url).open()
    items = look(page, "replay")

    def column(name: str):
        return items.locator(".column").filter(has=page.page.locator(".column-name b", has_text=name))

    assert_text(column("hash"), "18446744073709551557")
    assert_text(column("hash"), "uint64[1]")
    assert_text(column("reward").locator(".numbers"), "0.1")
    assert_text(column("tokens").locator(".chip"), "2,000 values")
    assert_text(column("tokens").locator(".numbers"), "1000 1001 1002 ")
    assert_text(column("tokens"), "more")
    assert_text(column("odd").locator(".numbers"), "nan inf -inf")
    assert_text(column("words").locator(".numbers"), "<b> · plain")
    assert_text(items.locator(".item-head"), "priority 0.25")
    assert_text(items.locator(".item-head"), "sampled 0 times")


def test_pages_show_each_item_once(start_server, open_page):
    server = start_server("replay:fifo:fifo:100")
    client = server.client()
    for i in range(23):
        client.insert({"number": np.int64(i)}, {"replay": 1.0})
    page = open_page(server.url).open()
    items = look(page, "replay")
    following, previous = page.find("#items-next"), page.find("#items-previous")
    seen = []
    keys = []
    for first in (1, 11, 21):
        assert_text(page.find("#items-status"), f"{first} to {min(first + 9, 23)} of 23 items")
        seen.append(items.locator(".numbers").all_inner_texts())
        keys += items.locator(".item-key").all_inner_texts()
        if first < 21:
            following.click()
    assert [len(page) for page in seen] == [10, 10, 3]
    assert sorted(int(number) for page in seen for number in page) == list(range(23))
    assert len(set(keys)) == 23
    assert following.is_disabled()
    previous.click()
    assert_text(page.find("#items-status"), "11 to 20 of 23 items")
    assert items.locator(".numbers").all_inner_texts() == seen[1]
    client.insert({"number": np.int64(99)}, {"replay": 1.0})
    page.find("#items-reload").click()
    assert_text(page.find("#items-status"), "of 24 items")


def test_rows_show_keys_tags_and_states(start_server, open_page):
    server = start_server(config='[[row_table]]\nname = "rollouts"\nconsumers = ["train"]\n')
    rows = server.client().rows("rollouts")
    rows.put(["a/0", "a/1"], {"tokens": [[5, 8, 2], [5, 9]]}, tags=[{"reward": 1.5, "ok": True, "split": "math"}, {}])
    rows.put(["partial"], {"tokens": [[1]]}, open=True)
    rows.claim("train", 1, needs=["tokens"], lease=600.0)
    page = open_page(server.url).open()
    items = look(page, "rollouts", "#row-tables")
    first = items.locator(".item").filter(has=page.page.locator(".item-key", has_text="a/0"))
    for text in ("reward = 1.5", "ok = true", "split = math", "leased by train", "3 values", "5 8 2"):
        assert_text(first, text)
    assert_text(items.locator(".item").filter(has_text="partial"), "open")
    assert_text(page.find("#items-status"), "1 to 3 of 3 rows")


def test_a_table_that_is_gone_is_named(start_server, open_page):
    server = start_server("replay", "other")
    client = server.client()
    page = open_page(server.url).open()
    page.expect_problems("status 404", "404")
    look(page, "other")
    assert_text(page.find("#items-status"), "The table has no items.")
    client.remove_table("other")
    page.find("#items-reload").click()
    assert_text(page.find("#items-status"), "other")
    page.page.keyboard.press("Escape")
    assert_gone(page.find("#items"))
