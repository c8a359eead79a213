"""Tests command lines: help, wrong arguments, versions, manual page, completion."""

import re
import shutil
import socket
import subprocess
import time
import unittest

import frame
from frame import BAD_USAGE, OK, UNREACHABLE, ProgramTest


class Usage(ProgramTest):
    def test_without_words_it_shows_the_help(self):
        self.expect((), BAD_USAGE, "Usage: reverb COMMAND", "serve", "Example")

    def test_every_command_has_help_with_an_example(self):
        text = self.expect(("--help",), OK, "Exit codes:")
        commands = re.findall(r"^  ([a-z]+)  ", text.partition("Commands:")[2].partition("Options:")[0], re.M)
        self.assertEqual(
            commands,
            [
                "serve",
                "info",
                "top",
                "peek",
                "sample",
                "set",
                "reset",
                "delete",
                "table",
                "checkpoint",
                "token",
                "export",
                "import",
                "doctor",
                "bench",
                "completion",
            ],
        )
        for command in commands:
            page = self.expect((command, "--help"), OK, f"Usage: reverb {command}", "Example", "--help")
            self.assertEqual(self.expect(("help", command), OK), page)
        below = re.findall(r"^  ([a-z]+)  ", self.expect(("checkpoint", "--help"), OK, "COMMAND"), re.M)
        self.assertEqual(below, ["inspect", "verify", "copy", "import", "save"])
        for command in below:
            self.expect(("checkpoint", command, "--help"), OK, f"Usage: reverb checkpoint {command}", "Example")

    def test_wrong_words_are_answered_with_what_was_meant(self):
        self.expect(("serv",), BAD_USAGE, 'there is no command "serv"', 'Did you mean "serve"?')
        self.expect(("serve", "--tabel", "x"), BAD_USAGE, 'no option "--tabel"', 'Did you mean "--table"?')
        self.expect(("--verbose",), BAD_USAGE, 'no option "--verbose"', "--version")
        self.expect(("info",), BAD_USAGE, "ADDRESS is required", "Usage: reverb info ADDRESS")
        self.expect(("info", "a:1", "b"), BAD_USAGE, 'one word too many: "b"')
        self.expect(("set", "a:1", "t", "sampler", "x"), BAD_USAGE, "limiter")
        self.expect(("checkpoint",), BAD_USAGE, "a command is missing", "inspect", "Usage: reverb checkpoint COMMAND")
        self.expect(("checkpoint", "verfy"), BAD_USAGE, 'no command "verfy"', 'Did you mean "verify"?')
        self.expect(("checkpoint", "verify"), BAD_USAGE, "PATH is required", "Usage: reverb checkpoint verify PATH")
        self.expect(("checkpoint", "import", "a"), BAD_USAGE, "NEW is required")
        self.expect(("checkpoint", "--jsn"), BAD_USAGE, 'no option "--jsn"', "--help")
        self.expect(("checkpoint", "inspect", "x", "--jsn"), BAD_USAGE, 'no option "--jsn"', 'Did you mean "--json"?')

    def test_wrong_addresses_are_reported_at_once(self):
        start = time.monotonic()
        self.expect(("info", "localhost"), BAD_USAGE, "has no port", "localhost:8000")
        self.expect(("info", "localhost:1"), UNREACHABLE, "localhost:1", "Connection refused", "reverb serve --port 1")
        self.assertLess(time.monotonic() - start, 4)
        self.expect(("info", "host.invalid:1"), UNREACHABLE, "host.invalid", "not known")
        for words in (("peek", "localhost:1", "t"), ("sample", "localhost:1", "t"), ("reset", "localhost:1", "t")):
            self.expect(words, UNREACHABLE, "Connection refused")

    def test_times_are_numbers_in_range(self):
        for word in ("nan", "-1", "0", "inf", "1e9", "soon"):
            with self.subTest(word):
                self.expect(("info", "localhost:1", f"--timeout={word}"), BAD_USAGE, "--timeout", "0.001", word)
                self.expect(("info", "localhost:1", "--watch", f"--every={word}"), BAD_USAGE, "--every", "0.05", word)
        self.expect(("bench", "insert", "--seconds", "nan"), BAD_USAGE, "--seconds")

    def test_what_is_no_server_is_not_waited_for_longer_than_asked(self):
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen()
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            start = time.monotonic()
            self.expect(("info", address, "--timeout", "0.5"), UNREACHABLE, "no answer", "0.5 s")
            self.assertLess(time.monotonic() - start, 5)

    def test_version_names_the_commit(self):
        text = self.expect(("--version",), OK)
        self.assertRegex(text, r"^reverb \d+\.\d+\.\d+( \(commit [0-9a-f]+(, changed)?\))?\n$")

    def test_needs_no_shared_library_but_those_of_libc(self):
        if not frame.is_static or shutil.which("readelf") is None:
            self.skipTest("this build links shared libraries, or there is no readelf")
        text = subprocess.run(["readelf", "-d", frame.program], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", text))
        names = {name.partition(".so")[0] for name in needed}
        self.assertLessEqual(names, {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"})


class Pages(ProgramTest):
    def test_man_page(self):
        page = self.expect(("man",), OK, ".TH REVERB 1", ".SH EXIT STATUS", r"\-\-port\-file", "NO_COLOR")
        for command in ("serve", "info", "peek", "sample", "set", "reset", "delete", "bench", "completion"):
            self.assertIn(f".SS reverb {command}\n", page)
        if shutil.which("groff"):
            words = ["groff", "-man", "-Tutf8", "-ww"]
            shown = subprocess.run(words, input=page, capture_output=True, text=True, check=True)
            self.assertEqual(shown.stderr, "")

    def complete(self, *words: str) -> list[str]:
        line = " ".join(words)
        script = (
            f"source <({frame.program} completion bash)\n"
            f"COMP_WORDS=({' '.join(repr(word) for word in words)}) COMP_CWORD={len(words) - 1} COMP_LINE={line!r}\n"
            '_reverb\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        words = ["bash", "--norc", "-c", script]
        ended = subprocess.run(words, capture_output=True, text=True, check=True, cwd=self.folder)
        self.assertEqual(ended.stderr, "")
        return ended.stdout.split()

    @unittest.skipIf(shutil.which("bash") is None, "there is no bash")
    def test_completion(self):
        self.assertEqual(self.complete("reverb", "se"), ["serve", "set"])
        self.assertEqual(self.complete("reverb", "serve", "--po"), ["--port", "--port-file"])
        self.assertEqual(self.complete("reverb", "do"), ["doctor"])
        self.assertEqual(self.complete("reverb", "bench", "sam"), ["sample"])
        self.assertEqual(self.complete("reverb", "bench", "insert", "--transport", "i"), ["inproc"])
        self.assertEqual(self.complete("reverb", "completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.complete("reverb", "serve", "--log-format", "j"), ["json"])
        self.assertIn("--version", self.complete("reverb", "--"))
        (self.folder / "server.toml").write_text("")
        self.assertEqual(self.complete("reverb", "serve", "--config", "ser"), ["server.toml"])
        self.assertEqual(self.complete("reverb", "info", "localhost:1", "--every", ""), [])
        self.assertEqual(self.complete("reverb", "checkpoint", "i"), ["inspect", "import"])
        self.assertEqual(self.complete("reverb", "checkpoint", "inspect", "ser"), ["server.toml"])
        self.assertEqual(self.complete("reverb", "checkpoint", "verify", "x", "--j"), ["--json"])
        self.assertEqual(self.complete("reverb", "checkpoint", "inspect", "x", "--items", ""), [])
