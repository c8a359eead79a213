"""Tests `reverb top` in a terminal: sorting, selection, sizes, signals, and a server that comes and goes."""

import os
import re
import signal
import subprocess

import frame
from frame import BAD_USAGE, OK, PATIENCE, UNREACHABLE, ProgramTest, Terminal

RESTORED = "\x1b[?25h\x1b[?1049l"  # cursor and screen as they were
UP, DOWN = "\x1b[A", "\x1b[B"


def names(page: list[str]) -> list[str]:
    """The tables on a page, in its order."""
    heading = next((i for i, line in enumerate(page) if line.startswith("TABLE")), None)
    found = []
    for line in page[heading + 1 :] if heading is not None else []:
        if not line.strip():
            break
        found.append(line.split()[0])
    return found


def selected(screen: Terminal) -> str:
    """The table whose row has its colours swapped, on the last complete page."""
    pages = screen.text.split("\x1b[H")
    found = re.search("\x1b\\[7m(\\S+)", pages[-2] if len(pages) > 2 else pages[-1])
    return found.group(1) if found else ""


class Top(ProgramTest):
    def top(self, server: frame.Server, *words: object, **options) -> Terminal:
        screen = Terminal("top", server.address, "--every", "0.1", *words, **options)
        screen.wait_for_page("the tables", lambda page: names(page))
        return screen

    def test_sorts_by_keys(self):
        server = self.serve("--table", "b", "--table", "a", "--table", "c")
        self.insert(server, "c", 5)
        self.insert(server, "a", 2)
        screen = self.top(server)
        screen.wait_for_page("names in order", lambda page: names(page) == ["a", "b", "c"])
        screen.type("s")
        page = screen.wait_for_page("the largest first", lambda page: names(page) == ["c", "a", "b"])
        self.assertTrue(page[-1].startswith("by size; every 0.1 s"), page[-1])
        screen.type("s")
        screen.wait_for_page("the smallest first", lambda page: names(page) == ["b", "a", "c"])
        screen.type("n")
        screen.wait_for_page("names in order", lambda page: names(page) == ["a", "b", "c"])
        screen.type("r")
        screen.wait_for_page("names in reverse", lambda page: names(page) == ["c", "b", "a"])
        screen.type("q")
        self.assertEqual(screen.end(), OK)
        self.assertTrue(screen.text.endswith(RESTORED))

    def test_shows_who_waits_for_the_selected_table_and_why(self):
        server = self.serve("--table", "a", "--table", "blocked:uniform:fifo:10:min_size=5")
        self.start_client("sample", server.address, "blocked", 1, "learner")
        screen = self.top(server)
        screen.wait_for_page("a waiting call", lambda page: any("1 sample" in line for line in page))
        self.assertEqual(selected(screen), "a")
        screen.type(DOWN)
        page = screen.wait_for_page("the details", lambda page: any("learner at" in line for line in page))
        text = "\n".join(page)
        self.assertIn("size 0 below min size 5", text)
        self.assertIn("1 sample waits", text)
        self.assertEqual(selected(screen), "blocked")
        screen.type("w")
        screen.wait_for_page("the waiting first", lambda page: names(page)[:1] == ["blocked"])
        screen.type("\r")
        screen.wait_for_page("no details", lambda page: not any("learner at" in line for line in page))
        screen.type(UP + "q")
        self.assertEqual(screen.end(), OK)

    def test_help_and_unknown_keys(self):
        server = self.serve("--table", "a")
        screen = self.top(server)
        screen.type("?")
        screen.wait_for_page("the help", lambda page: any("sort by name" in line for line in page))
        screen.type("\x1b[5~\x1b[1;5Cx?")  # PageUp, Ctrl-Right, and a letter without a meaning
        screen.wait_for_page("no help", lambda page: not any("sort by name" in line for line in page))
        screen.type("+")
        screen.wait_for_page("a longer interval", lambda page: "every 0.2 s" in page[-1])
        screen.type("p")
        screen.wait_for_page("a pause", lambda page: "paused" in page[-1])
        screen.type("q")
        self.assertEqual(screen.end(), OK)

    def test_keeps_to_the_size_of_the_window_and_follows_it(self):
        tables = [word for i in range(30) for word in ("--table", f"table{i:02}")]
        server = self.serve(*tables)
        screen = self.top(server, rows=10, columns=40)
        screen.resize(10, 40)
        page = screen.wait_for_page("a small page", lambda page: len(page) == 10)
        self.assertLessEqual(max(map(len, page)), 40)
        self.assertIn("q end", page[-1])
        screen.resize(50, 120)
        screen.wait_for_page("a large page", lambda page: len(page) == 50 and len(names(page)) == 30)
        screen.resize(10, 40)
        # The selected table stays in sight.
        screen.type(DOWN * 29)
        page = screen.wait_for_page("the last table", lambda page: len(page) == 10 and "table29" in names(page))
        self.assertEqual(selected(screen), "table29")
        screen.type("q")
        self.assertEqual(screen.end(), OK)

    def test_restores_the_terminal_after_signals(self):
        server = self.serve("--table", "a")
        screen = self.top(server)
        screen.type("\x03")
        self.assertEqual(screen.end(), OK)
        self.assertTrue(screen.text.endswith(RESTORED))
        for number in (signal.SIGTERM, signal.SIGHUP):
            screen = self.top(server)
            os.kill(screen.pid, number)
            self.assertEqual(screen.end(), OK)
            self.assertTrue(screen.text.endswith(RESTORED), number)

    def test_reconnects_to_a_server_that_comes_back(self):
        port = frame.lasting_port()
        server = self.serve("--table", "first", port=port)
        screen = self.top(server, "--timeout", "0.5")
        server.stop()
        page = screen.wait_for_page("the loss", lambda page: any("reconnecting" in line for line in page))
        self.assertEqual(names(page), ["first"], "the last answer stays")
        words = [frame.program, "serve", "--table", "second", "--port", str(port)]
        again = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            page = screen.wait_for_page("the new server", lambda page: names(page) == ["second"])
            screen.wait_for_page("no error", lambda page: not any("reconnecting" in line for line in page))
            screen.type("q")
            self.assertEqual(screen.end(), OK)
        finally:
            again.terminate()
            again.wait(PATIENCE)

    def test_keys_work_while_the_server_does_not_answer(self):
        server = self.serve("--table", "a")
        screen = self.top(server, "--timeout", "100")
        server.process.send_signal(signal.SIGSTOP)
        try:
            screen.wait_for_page("the stall", lambda page: any("no answer" in line for line in page))
            screen.type("q")
            self.assertEqual(screen.end(), OK)
            self.assertTrue(screen.text.endswith(RESTORED))
        finally:
            server.process.send_signal(signal.SIGCONT)

    def test_needs_a_terminal(self):
        server = self.serve("--table", "a")
        self.expect(("top", server.address), BAD_USAGE, "terminal", f"reverb info {server.address} --watch")
        screen = Terminal("top", server.address, TERM="dumb")
        self.assertEqual(screen.end(), BAD_USAGE)
        self.assertIn("--watch", screen.text)

    def test_a_wrong_address_is_reported_at_the_start(self):
        screen = Terminal("top", "localhost:1")
        self.assertEqual(screen.end(), UNREACHABLE)
        self.assertIn("Connection refused", screen.text)
        self.assertNotIn("\x1b[?1049h", screen.text)

    def test_names_of_clients_cannot_move_the_cursor(self):
        server = self.serve("--table", "t:uniform:fifo:10:min_size=5")
        self.start_client("sample", server.address, "t", 1, "evil\x1b[2J\x1b]0;title\x07\n")
        screen = self.top(server)
        screen.wait_for_page("the client", lambda page: any("evil" in line for line in page))
        screen.type("q")
        self.assertEqual(screen.end(), OK)
        self.assertNotIn("\x1b[2J", screen.text)
        self.assertNotIn("\x1b]0", screen.text)
