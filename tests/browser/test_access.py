"""The page asks for a token where the server needs one."""

from __future__ import annotations

import subprocess

from driver import assert_gone, assert_text, assert_visible
import pytest


@pytest.fixture
def guarded(start_server, program, tmp_path):
    """A server with tokens, and the tokens by name: a reader of replay*, a writer, and an operator."""
    file = tmp_path / "tokens"

    def new(name: str, *arguments: str) -> str:
        command = [program, "token", "new", name, "--file", file, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    tokens = {
        "reader": new("reader", "--rights", "read", "--tables", "replay*"),
        "writer": new("writer", "--rights", "write"),
        "operator": new("operator", "--rights", "read,write,admin"),
    }
    server = start_server("replay", "secret", config=f'[auth]\ntokens_file = "{file}"\n')
    server.client(token=tokens["operator"]).insert([1.0], {"replay": 1.0})
    return server, tokens


def enter(page, token: str) -> None:
    page.page.get_by_label("Token with the right").fill(token)
    page.page.keyboard.press("Enter")


def test_asks_for_a_token_until_one_is_valid(guarded, open_page):
    server, tokens = guarded
    page = open_page(server.url).open()
    page.expect_problems("status 401", r"\(Unauthorized\)")
    page.assert_state("Token needed")
    assert_visible(page.find("#token"))
    assert page.page.get_by_label("Token with the right").evaluate("(input) => input === document.activeElement")
    enter(page, "not-a-token")
    assert_visible(page.find("#token"))
    page.assert_state("Token needed")
    assert page.find("#content").is_hidden()
    enter(page, "with spaces and ünïcode")
    assert_text(page.find("#token-reason"), "A token consists of")
    enter(page, tokens["operator"])
    page.assert_state("Live")
    assert_visible(page.row("replay"))
    assert_visible(page.row("secret"))
    # The tab keeps it, and the page never shows it.
    page.page.reload()
    page.assert_state("Live")
    assert tokens["operator"] not in page.page.content()
    assert page.evaluate("Object.keys(localStorage)") == []
    page.find("#forget-token").click()
    page.assert_state("Token needed")


def test_shows_only_the_tables_of_the_token(guarded, open_page):
    server, tokens = guarded
    page = open_page(server.url).open()
    page.expect_problems("status 401", r"\(Unauthorized\)")
    enter(page, tokens["reader"])
    page.open_table("replay").get_by_role("button", name="Look at items").click()
    assert_text(page.find("#items-status"), "1 to 1 of 1 item")
    assert page.row("secret").count() == 0


def test_a_token_without_the_right_is_explained(guarded, open_page):
    server, tokens = guarded
    page = open_page(server.url).open()
    page.expect_problems("status 40[13]", r"\((Unauthorized|Forbidden)\)")
    enter(page, tokens["writer"])
    page.assert_state("Not permitted")
    assert_text(page.find("#banner"), "read")
    assert_text(page.find("#banner"), "writer")
    page.find("#change-token").click()
    enter(page, tokens["reader"])
    page.assert_state("Live")
    assert_gone(page.find("#banner"))


def test_the_question_can_be_dismissed_and_asked_again(guarded, open_page):
    server, tokens = guarded
    page = open_page(server.url).open()
    page.expect_problems("status 401", r"\(Unauthorized\)")
    assert_visible(page.find("#token"))
    page.page.keyboard.press("Escape")
    assert_gone(page.find("#token"))
    page.assert_state("Token needed")
    page.find("#change-token").click()
    enter(page, tokens["operator"])
    page.assert_state("Live")


def test_works_over_tls(start_server, open_page, tmp_path):
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        *subject,
    ]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = start_server("replay", config=f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n')
    server.client(tls=str(certificate)).insert([1.0], {"replay": 1.0})
    page = open_page(server.url, ignore_https_errors=True).open()
    page.assert_state("Live")
    page.open_table("replay").get_by_role("button", name="Look at items").click()
    assert_text(page.find("#items-status"), "1 to 1 of 1 item")
