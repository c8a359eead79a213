"""A page in the browser, with everything that goes wrong in it."""

from __future__ import annotations

import json
import re

from conditions import wait_until
from playwright.sync_api import expect

# Two cores, a server and a browser: most conditions hold within a second.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


class Watched:
    """A Playwright page that records errors of the console, exceptions, failed requests and requests to other hosts."""

    def __init__(self, page, url: str) -> None:
        """Opens the address."""
        self.page = page
        self.url = url
        self.problems: list[str] = []
        self._expected: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", self._on_request)
        page.on("requestfailed", self._on_failure)
        page.on("response", self._on_response)

    def open(self, address: str = "") -> Watched:
        """Loads the page, or a place in it."""
        self.page.goto(self.url + address)
        return self

    def expect_problems(self, *patterns: str) -> None:
        """Permits problems that match one of the patterns."""
        self._expected += patterns

    def assert_no_problems(self) -> None:
        """Fails if anything happened that was not expected."""
        left = [text for text in self.problems if not any(re.search(each, text) for each in self._expected)]
        assert left == []

    def _on_console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.problems.append(f"request to {request.url}")

    def _on_failure(self, request) -> None:
        # The page itself ends requests that it no longer needs.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"request failed: {request.url}: {request.failure}")

    def _on_response(self, response) -> None:
        if response.status >= 400:
            self.problems.append(f"status {response.status}: {response.url}")

    # --- What is on it ---

    def find(self, selector: str, **options):
        return self.page.locator(selector, **options)

    def row(self, name: str, section: str = "#tables"):
        """Returns the row of a table or client, by its whole name."""
        return self.find(f"{section} tbody tr").filter(has=self.page.locator(".name", has_text=exactly(name)))

    def open_table(self, name: str, section: str = "#tables"):
        """Opens the detail of a table, unless it is open, and returns it."""
        button = self.row(name, section).locator(".opener")
        expect(button).to_be_visible()
        if button.get_attribute("aria-expanded") != "true":
            button.click()
        detail = self.find(f"{section} tr.detail")
        expect(detail.locator("h2")).to_have_text(name)
        return detail

    def assert_state(self, state: str) -> None:
        """Waits until the header shows this state: Live, Disconnected, …"""
        expect(self.find("#state")).to_have_text(state)

    def assert_no_horizontal_scroll(self) -> None:
        """Fails if the page is wider than the screen, and names what is too wide."""
        wide = self.page.evaluate("""() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          return Array.from(document.querySelectorAll('body *'))
              .filter((node) => node.getBoundingClientRect().right > width + 0.5)
              .map((node) => `${node.tagName}.${node.className}`);
        }""")
        assert wide == []

    def evaluate(self, script: str, argument=None):
        return self.page.evaluate(script, argument)


def exactly(text: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(text)}$")


def assert_text(locator, text: str | re.Pattern[str]) -> None:
    """Waits until the element contains the text."""
    expect(locator).to_contain_text(text)


def assert_gone(locator) -> None:
    """Waits until nothing matches, or nothing that matches is visible."""
    expect(locator).not_to_be_visible()


def assert_visible(locator) -> None:
    """Waits until the element is visible."""
    expect(locator).to_be_visible()


def assert_focused(locator) -> None:
    """Waits until the element has the focus."""
    expect(locator).to_be_focused()


def number_in(locator) -> float:
    """Returns the number that an element shows: "3.4 k" is 3400, a dash is 0."""
    match = re.match(r"([\d,.]+)\s?([kMG]?)", locator.inner_text())
    return float(match[1].replace(",", "")) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[match[2]] if match else 0.0


def assert_number(locator, condition, what: str) -> None:
    """Waits until condition(number) holds for the number that an element shows."""
    wait_until(lambda: condition(number_in(locator)), what=what, timeout=PATIENCE_MS / 1000)


def send_info(page: Watched, info: dict) -> None:
    """Makes the page receive `info` instead of what the server sends: for values that a server rarely has."""
    body = f"event: info\ndata: {json.dumps(info)}\n\n"
    page.page.route("**/api/v1/stream*", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
