#!/usr/bin/env python3
"""Drives the program `reverb` as a user would: command lines, files, signals, a terminal.

    program_test.py --program build/dev/apps/reverb --client build/dev/tests/program/program_client \\
                    --source . [Suite[.test_name]]...
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PATIENCE = 30.0  # seconds; a test that waits this long has failed

# What is documented in docs/program.md.
OK, FAILED, BAD_USAGE, UNREACHABLE, NOT_FOUND, TIMED_OUT, NOT_CONFIRMED = range(7)

program = ""
client = ""
is_static = False
source = pathlib.Path()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    return kept | {"TERM": "xterm"} | more


def run(*words: object, **options) -> subprocess.CompletedProcess:
    """The program with these words, without a terminal."""
    options = {"stdin": subprocess.DEVNULL, "timeout": PATIENCE, "env": environment()} | options
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, **options)


def wait_until(what: str, happens) -> None:
    """Looks until happens() gives something, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if found := happens():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.02)


class Server:
    """`reverb serve`, as a process."""

    def __init__(self, folder: pathlib.Path, *words: str):
        self.port_file = folder / "port"
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "--port-file", self.port_file, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        wait_until("the port file", lambda: self.port_file.exists() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.process.communicate()}")
        self.port = int(self.port_file.read_text())
        self.address = f"localhost:{self.port}"

    def stop(self, number: int = signal.SIGTERM) -> tuple[str, str]:
        self.process.send_signal(number)
        return self.process.communicate(timeout=PATIENCE)


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    if sys.version_info < (3, 11):

        def enterContext(self, context):  # noqa: N802: the name that unittest gives it from 3.11 on
            value = context.__enter__()
            self.addCleanup(context.__exit__, None, None, None)
            return value

    def serve(self, *words: str) -> Server:
        server = Server(self.folder, *words)

        def end():
            if server.process.poll() is None:
                server.process.kill()
            server.process.communicate()

        self.addCleanup(end)
        return server

    def start_client(self, *words: object) -> subprocess.Popen:
        process = subprocess.Popen([client, *map(str, words)], stdout=subprocess.PIPE, text=True)

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def insert(self, server: Server, table: str, count: int) -> None:
        process = self.start_client("insert", server.address, table, count)
        self.assertEqual(process.communicate(timeout=PATIENCE)[0], "done\n")

    def expect(self, words: tuple, code: int, *parts: str) -> str:
        """The program ends with `code`, having said each of `parts`: on stdout if all is well, else on stderr."""
        ended = run(*words)
        said = ended.stdout if code == OK else ended.stderr
        self.assertEqual(ended.returncode, code, f"{words}: {ended.stdout}{ended.stderr}")
        for part in parts:
            self.assertIn(part, said, f"{words}")
        if code != OK:
            self.assertNotIn("terminate called", ended.stderr)
        self.assertNotIn("\x1b", ended.stdout + ended.stderr, "no colours without a terminal")
        return said

    def info(self, server: Server) -> dict:
        return json.loads(self.expect(("info", server.address, "--json"), OK))

    def table(self, server: Server, name: str) -> dict:
        return next(table for table in self.info(server)["tables"] if table["name"] == name)


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
                "peek",
                "sample",
                "set",
                "reset",
                "delete",
                "checkpoint",
                "bench",
                "completion",
            ],
        )
        for command in commands:
            page = self.expect((command, "--help"), OK, f"Usage: reverb {command}", "Example", "--help")
            self.assertEqual(self.expect(("help", command), OK), page)
        below = re.findall(r"^  ([a-z]+)  ", self.expect(("checkpoint", "--help"), OK, "COMMAND"), re.M)
        self.assertEqual(below, ["inspect", "verify", "import", "save"])
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

    def test_wrong_addresses_are_told_at_once(self):
        start = time.monotonic()
        self.expect(("info", "localhost"), BAD_USAGE, "has no port", "localhost:8000")
        self.expect(("info", "localhost:1"), UNREACHABLE, "localhost:1", "Connection refused", "reverb serve --port 1")
        self.assertLess(time.monotonic() - start, 4)
        self.expect(("info", "host.invalid:1"), UNREACHABLE, "host.invalid", "not known")
        for words in (("peek", "localhost:1", "t"), ("sample", "localhost:1", "t"), ("reset", "localhost:1", "t")):
            self.expect(words, UNREACHABLE, "Connection refused")

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
        if not is_static or shutil.which("readelf") is None:
            self.skipTest("this build links shared libraries, or there is no readelf")
        text = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", text))
        names = {name.partition(".so")[0] for name in needed}
        self.assertLessEqual(names, {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"})


class Config(ProgramTest):
    def check(self, text: str, code: int, *parts: str) -> str:
        (self.folder / "server.toml").write_text(text)
        ended = run("serve", "--check", "--config", "server.toml", cwd=self.folder)
        said = ended.stdout if code == OK else ended.stderr
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        for part in parts:
            self.assertIn(part, said)
        return said

    def test_the_example_is_good(self):
        said = self.expect(("serve", "--check", "--config", source / "examples/server.toml"), OK)
        for part in ("127.0.0.1:8000", "replay", "prioritized=0.6", "8 within", "jobs", "4 GiB", "action: int32[]"):
            self.assertIn(part, said)

    def test_what_the_example_calls_a_default_is_one(self):
        text = (source / "examples/server.toml").read_text()
        plain = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.M)
        self.assertNotEqual(plain, text)
        self.assertIn("away_bytes", plain)
        self.check(plain, OK, "replay")

    def test_errors_name_file_line_key_and_what_was_expected(self):
        good = '[[table]]\nname = "t"\n'
        for text, *parts in (
            ('[server]\nport = "x"\n' + good, "server.toml:2:", '"server.port"', "from 0 to 65535", 'got "x"'),
            ("[server]\nport = 70000\n" + good, "server.toml:2:", '"server.port"', "got 70000"),
            ("[server]\nhots = 1\n" + good, "server.toml:2:", '"server.hots"', 'Did you mean "host"?'),
            ("[sever]\n" + good, "server.toml:1:", '"sever"', 'Did you mean "server"?'),
            ('[server]\nmax_bytes = "4 Gi"\n' + good, "server.toml:2:", '"server.max_bytes"', '"4 GiB"', 'got "4 Gi"'),
            ('[server]\nwhen_full = "drop"\n' + good, "server.toml:2:", '"wait" or "evict"'),
            ('[server]\ncheckpoint_dir = "/x"\n' + good, "server.toml:2:", '"server.checkpoint_dir"', "[checkpoint]"),
            ("[checkpoint]\non_stop = true\n" + good, "server.toml:1:", '"checkpoint.path" is missing'),
            ("[checkpoint]\npath = 3\n" + good, "server.toml:2:", '"checkpoint.path"', "a folder", "got 3"),
            ('[checkpoint]\npath = ""\n' + good, "server.toml:2:", '"checkpoint.path"', "a folder"),
            ('[checkpoint]\npath = "x"\nintervall = 3\n' + good, "server.toml:3:", 'Did you mean "interval"?'),
            ('[checkpoint]\npath = "x"\ninterval = 0\n' + good, "server.toml:3:", "above 0"),
            ('[checkpoint]\npath = "x"\nkeep_latest = 0\n' + good, "server.toml:3:", "from 1", "got 0"),
            ('[checkpoint]\npath = "x"\non_stop = "yes"\n' + good, "server.toml:3:", "true or false", 'got "yes"'),
            (
                '[checkpoint]\npath = "x"\n[checkpoint.restore]\nsizes = "mine"\n' + good,
                "server.toml:4:",
                '"checkpoint.restore.sizes"',
                '"saved" or "given"',
            ),
            ('[limits]\nwriter_memory = "long"\n' + good, "server.toml:2:", '"limits.writer_memory"', '"5 min"'),
            ("[limits]\nmax_streams = 0\n" + good, "server.toml:2:", '"limits.max_streams"', "from 1 on", "got 0"),
            (good + "max_sise = 5\n", "server.toml:3:", '"max_sise" of table "t"', 'Did you mean "max_size"?'),
            (good + "max_size = 0\n", "server.toml:3:", '"table.max_size"', "from 1 on"),
            (good + 'sampler = "unform"\n', "server.toml:3:", '"table.sampler"', 'Did you mean "uniform"?'),
            (good + "sampler = 3\n", "server.toml:3:", '"table.sampler"', "a selector", "got 3"),
            (good + 'sampler = {kind = "fifo", exponent = 1}\n', "server.toml:3:", '"table.sampler.exponent"'),
            (good + 'sampler = "prioritized=-1"\n', "server.toml:3:", '"table.sampler"', "-1"),
            (good + 'limiter = "min_sise=3"\n', "server.toml:3:", 'Did you mean "min_size"?'),
            (good + "[table.limiter]\nmin_size = true\n", "server.toml:4:", '"table.limiter.min_size"', "a number"),
            (good + "limiter = {samples_per_insert = 4, error_buffer = 1}\n", "server.toml:3:", '"table.limiter"'),
            (good + '[table.signature]\na = "float33[]"\n', "server.toml:4:", '"table.signature.a"', '"float32"'),
            (good + '[table.signature]\na = "float32[x]"\n', "server.toml:4:", "float32[84, 84]"),
            (good + good, "server.toml:4:", 'two tables named "t"'),
            ("[[table]]\nmax_size = 1\n", "server.toml:1:", '"table.name" is missing'),
            ('[table]\nname = "t"\n', "server.toml:1:", "[[table]]"),
            ('[[table]]\nname = "q"\nkind = "queue"\n', "server.toml:3:", '"table.max_size" is missing'),
            (good + 'kind = "queue"\nmax_size = 3\nremover = "lifo"\n', "server.toml:5:", '"table.remover"'),
            ("[server]\nport = 1\n", "server.toml", "there is no table", "[[table]]"),
            ("[server\n", "server.toml:1:", "no TOML"),
            ('a = "\n', "server.toml:1:", "no TOML"),
        ):
            with self.subTest(text):
                self.check(text, BAD_USAGE, *parts)

    def test_a_file_that_is_not_there(self):
        self.expect(("serve", "--config", "/nowhere.toml"), BAD_USAGE, "/nowhere.toml", "No such file")
        self.expect(("serve", "--config", self.folder), BAD_USAGE, str(self.folder), "cannot be read")

    def test_tables_of_the_command_line(self):
        for words, *parts in (
            ((), "there is no table to serve", "--table replay:uniform:fifo:1000000", "--config server.toml"),
            (("--table", ""), "the name is missing"),
            (("--table", "a:b"), "SAMPLER", 'no selector "b"', "uniform"),
            (("--table", "a:fifo:unform"), "REMOVER", 'Did you mean "uniform"?'),
            (("--table", "a:fifo:fifo:x"), "MAX_SIZE", 'got "x"'),
            (("--table", "a:fifo:fifo:5:nose=1"), "LIMITER", '"nose"'),
            (("--table", "a:queue"), "needs a size", "a:queue:1000"),
            (("--table", "a:queue:5:fifo"), "at most 3"),
            (("--table", "a", "--table", "a"), 'a table "a" already'),
            (("--table", "a", "--max-bytes", "lots"), "--max-bytes", '"4 GiB"'),
            (("--table", "a", "--port", "70000"), "--port"),
        ):
            with self.subTest(words):
                self.expect(("serve", "--check", *words), BAD_USAGE, *parts)
        good = "a:prioritized=0.8:lifo:1_000:min_size=7,max_diff=9"
        self.expect(("serve", "--check", "--table", good), OK, "prioritized=0.8", "lifo", "1,000", "7 items", "9")


class Serve(ProgramTest):
    def test_says_where_it_listens_and_what_it_serves(self):
        server = self.serve("--table", "replay:uniform:fifo:1000", "--table", "jobs:queue:5")
        out, err = server.stop()
        self.assertIn(f"listens on 127.0.0.1:{server.port} (this machine only", out)
        self.assertRegex(out, r"replay +uniform +fifo +1,000")
        self.assertRegex(out, r"jobs +fifo +fifo +5")
        self.assertEqual(err, "")
        self.assertNotIn("\x1b", out)

    def test_signals_end_it_in_order(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            server = self.serve("--table", "t")
            self.insert(server, "t", 3)
            start = time.monotonic()
            out, _ = server.stop(number)
            self.assertEqual(server.process.returncode, OK)
            self.assertLess(time.monotonic() - start, 5)
            self.assertIn(signal.Signals(number).name, out)
            self.assertIn("3 items", out)
            self.assertFalse(server.port_file.exists())

    def test_those_who_wait_are_told(self):
        server = self.serve("--table", "t:uniform:fifo:10:min_size=5")
        words = [program, "sample", server.address, "t", "--timeout", "20"]
        sampler = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        wait_until("a waiting sampler", lambda: self.table(server, "t")["waiting_samples"] == 1)
        server.stop()
        _, err = sampler.communicate(timeout=PATIENCE)
        self.assertNotEqual(sampler.returncode, OK)
        self.assertIn("reverb sample:", err)

    def test_a_port_that_is_taken(self):
        server = self.serve("--table", "t")
        self.expect(("serve", "--table", "t", "--port", server.port), FAILED, f":{server.port}", "taken")

    def test_a_port_file_that_cannot_be_written(self):
        self.expect(("serve", "--table", "t", "--port", "0", "--port-file", "/nowhere/port"), FAILED, "/nowhere/port")

    def test_config_and_flags_together(self):
        (self.folder / "c.toml").write_text('[server]\nport = 1\nmax_bytes = "1 MiB"\n[[table]]\nname = "a"\n')
        server = self.serve("--config", str(self.folder / "c.toml"), "--table", "b", "--host", "127.0.0.1")
        info = self.info(server)
        self.assertEqual([table["name"] for table in info["tables"]], ["a", "b"])
        self.assertEqual(info["max_bytes"], 1 << 20)

    def test_listens_on_other_addresses_when_told(self):
        server = self.serve("--table", "t", "--host", "0.0.0.0")
        self.expect(("info", f"127.0.0.1:{server.port}"), OK, "t")
        out, _ = server.stop()
        self.assertNotIn("this machine only", out)


NUMBER = (int, float)
MAYBE = type(None)
TABLE_FIELDS = {
    "name": str, "size": int, "max_size": int, "bytes": int, "sampler": str, "remover": str,
    "max_times_sampled": (int, MAYBE), "rate_limiter": dict, "cursor": NUMBER, "signature": (str, MAYBE),
    "inserts": int, "samples": int, "deletes": int, "evictions": int, "expirations": int, "explicit_deletes": int,
    "priority_updates": int, "unknown_keys": int, "episodes": int, "inserts_per_second": NUMBER,
    "samples_per_second": NUMBER, "waiting_inserts": int, "waiting_samples": int, "insert_wait_reason": (str, MAYBE),
    "sample_wait_reason": (str, MAYBE), "longest_wait_seconds": NUMBER, "closed": bool,
}  # fmt: skip
INFO_FIELDS = {
    "address": str, "server": str, "uptime_seconds": (*NUMBER, MAYBE), "stored_bytes": int, "live_bytes": int,
    "max_bytes": (int, MAYBE), "chunks": int, "tables": list, "waiters": list,
}  # fmt: skip
LIMITER_FIELDS = {
    "samples_per_insert": NUMBER, "min_size_to_sample": int, "min_diff": (*NUMBER, MAYBE), "max_diff": (*NUMBER, MAYBE),
}  # fmt: skip
WAITER_FIELDS = {
    "table": str, "operation": str, "reason": str, "count": int, "seconds": NUMBER, "client": str, "address": str,
}  # fmt: skip
ITEM_FIELDS = {
    "table": str, "key": str, "priority": NUMBER, "probability": (*NUMBER, MAYBE), "times_sampled": int,
    "age_seconds": (*NUMBER, MAYBE), "columns": list,
}  # fmt: skip
COLUMN_FIELDS = {"name": str, "dtype": str, "shape": list, "first_values": list}


def check_fields(test: unittest.TestCase, value: dict, fields: dict) -> None:
    test.assertEqual(list(value), list(fields))
    for name, kind in fields.items():
        test.assertIsInstance(value[name], kind, name)


class Info(ProgramTest):
    def test_json_has_the_documented_fields(self):
        table = "t:prioritized=0.8:fifo:100:min_size=2"
        server = self.serve("--table", table, "--table", "q:queue:2", "--max-bytes", "1GiB")
        self.insert(server, "t", 3)
        info = self.info(server)
        check_fields(self, info, INFO_FIELDS)
        for table in info["tables"]:
            check_fields(self, table, TABLE_FIELDS)
            check_fields(self, table["rate_limiter"], LIMITER_FIELDS)
        table = info["tables"][0]
        self.assertEqual((table["name"], table["size"], table["max_size"], table["inserts"]), ("t", 3, 100, 3))
        self.assertEqual((table["sampler"], table["remover"]), ("prioritized=0.8", "fifo"))
        self.assertEqual(info["max_bytes"], 1 << 30)
        self.assertGreater(info["stored_bytes"], 0)
        self.assertRegex(info["server"], r"^reverb \d")
        self.assertIsNone(table["rate_limiter"]["max_diff"])
        self.assertEqual(info["tables"][1]["rate_limiter"]["max_diff"], 2)
        documented = (source / "docs/program.md").read_text()
        for fields in (INFO_FIELDS, TABLE_FIELDS, LIMITER_FIELDS, WAITER_FIELDS, ITEM_FIELDS, COLUMN_FIELDS):
            for name in fields:
                self.assertIn(f"`{name}`", documented)

    def test_tells_who_waits_and_why(self):
        server = self.serve("--table", "t:uniform:fifo:100:min_size=5", "--table", "q:queue:2")
        self.start_client("sample", server.address, "t", 7)
        self.start_client("insert", server.address, "q", 3)

        def both():
            info = self.info(server)
            return info if len(info["waiters"]) == 2 else None

        info = wait_until("two that wait", both)
        for waiter in info["waiters"]:
            check_fields(self, waiter, WAITER_FIELDS)
            self.assertRegex(waiter["address"], r"^(127\.0\.0\.1|\[::1\]):\d+$")
        by_table = {waiter["table"]: waiter for waiter in info["waiters"]}
        self.assertEqual((by_table["t"]["operation"], by_table["t"]["reason"]), ("sample", "min_size"))
        self.assertEqual((by_table["t"]["client"], by_table["t"]["count"]), ("test sample", 7))
        self.assertEqual((by_table["q"]["operation"], by_table["q"]["reason"]), ("insert", "too_many_inserts"))
        self.assertEqual((by_table["q"]["client"], by_table["q"]["count"]), ("test insert", 1))
        page = self.expect(("info", server.address), OK)
        self.assertIn("1 sample waits: too few items to sample (0 of 5)\n", page)
        self.assertRegex(page, r"\n +test sample at \S+:\d+, 7 samples, for ")
        self.assertIn("1 insert waits: too many inserts per sample (cursor 2, most 2)\n", page)
        self.assertRegex(page, r"\n +test insert at \S+:\d+, 1 item, for ")
        self.assertIn("cursor 2 between 0 and 2 [-----------------------#]", page)

    def test_page_has_sizes_rates_and_limiters(self):
        server = self.serve("--table", "t:uniform:fifo:1000:min_size=5")
        self.insert(server, "t", 12)
        page = self.expect(("info", server.address), OK, "min size 5 reached", "sampler uniform, remover fifo", "up ")
        row = next(line for line in page.splitlines() if line.startswith("t "))
        self.assertRegex(row, r"^t +12 +1,000 +[\d.]+ \w+ +12 +[\d.]+ +0 +0 +-$")


class Terminal:
    """The program in a terminal of its own."""

    def __init__(self, *words: object, rows: int = 30, columns: int = 100, **more: str):
        self.text = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(program, [program, *map(str, words)], environment(**more))
        self.resize(rows, columns)
        self.status = None

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> bool:
        """More of what it says; False when it has ended."""
        if not select.select([self.descriptor], [], [], 0.05)[0]:
            return True
        with contextlib.suppress(OSError):
            if more := os.read(self.descriptor, 1 << 16):
                self.text += more.decode(errors="replace")
                return True
        return False

    def wait_for(self, part: str, start: int = 0) -> None:
        def is_there():
            self.read()
            return part in self.text[start:]

        try:
            wait_until(repr(part), is_there)
        except AssertionError as error:
            raise AssertionError(f"{error}; there is only {self.text!r}") from None

    def type(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def end(self) -> int:
        """Its exit code, once it has ended."""
        deadline = time.monotonic() + PATIENCE
        while self.read() and time.monotonic() < deadline:
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)


class Watch(ProgramTest):
    def test_refreshes_until_q(self):
        server = self.serve("--table", "replay:uniform:fifo:100")
        screen = Terminal("info", server.address, "--watch", "--every", "0.1")
        screen.wait_for("replay")
        self.assertIn("\x1b[?1049h", screen.text, "a screen of its own")
        seen = len(screen.text)
        self.insert(server, "replay", 42)
        screen.wait_for("42", seen)
        screen.type("q")
        self.assertEqual(screen.end(), OK)
        self.assertTrue(screen.text.endswith("\x1b[?25h\x1b[?1049l"), "the screen is given back")

    def test_ends_with_control_c(self):
        server = self.serve("--table", "replay")
        screen = Terminal("info", server.address, "--watch")
        screen.wait_for("replay")
        screen.type("\x03")
        self.assertEqual(screen.end(), OK)
        self.assertTrue(screen.text.endswith("\x1b[?25h\x1b[?1049l"))

    def test_keeps_to_the_size_of_the_window(self):
        tables = [word for i in range(20) for word in ("--table", f"table{i}")]
        server = self.serve(*tables)
        screen = Terminal("info", server.address, "--watch", "--every", "0.1", rows=10, columns=40)
        screen.wait_for("table1")
        screen.resize(10, 40)
        time.sleep(0.3)
        screen.read()
        screen.type("q")
        self.assertEqual(screen.end(), OK)
        page = screen.text.split("\x1b[H")[-1].partition("\x1b[?25h")[0]
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", page).split("\r\n")
        self.assertLessEqual(len(lines), 10)
        self.assertLessEqual(max(map(len, lines)), 40)

    def test_goes_on_when_the_server_comes_back(self):
        server = self.serve("--table", "replay")
        screen = Terminal("info", server.address, "--watch", "--every", "0.1", "--timeout", "0.5")
        screen.wait_for("replay")
        port = server.port
        server.stop()
        screen.wait_for("trying again")
        seen = len(screen.text)
        words = [program, "serve", "--table", "second", "--port", str(port)]
        again = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            screen.wait_for("second", seen)
            screen.type("q")
            self.assertEqual(screen.end(), OK)
        finally:
            again.terminate()
            again.wait(PATIENCE)

    def test_without_a_terminal_it_prints_page_after_page(self):
        server = self.serve("--table", "replay")
        page = self.expect(("info", server.address, "--watch", "--every", "0.1", "--count", "3"), OK)
        self.assertEqual(page.count("\nreplay\n"), 3)
        words = ("info", server.address, "--watch", "--json", "--every", "0.1", "--count", "2")
        lines = self.expect(words, OK).splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            check_fields(self, json.loads(line), INFO_FIELDS)

    def test_colours_on_a_terminal_unless_unwanted(self):
        server = self.serve("--table", "replay")
        for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            screen = Terminal("info", server.address, **more)
            self.assertEqual(screen.end(), OK)
            self.assertEqual("\x1b[" in screen.text, coloured, more)


class Items(ProgramTest):
    def test_peek_shows_items_and_counts_nothing(self):
        server = self.serve("--table", "t:fifo:fifo:100")
        self.insert(server, "t", 5)
        page = self.expect(("peek", server.address, "t", "--n", 2), OK, "2 items", "holds 5", "not counted")
        self.assertEqual(len(re.findall(r"^key \d+  priority [01]  sampled 0 times  age [\d.]+ m?s$", page, re.M)), 2)
        self.assertRegex(page, r"column 0  float32\[1, 3\] +1 1\.5 -1\n")
        self.assertRegex(page, r"column 1  uint8\[1, 2, 2\] +0 1 254 255\n")
        self.assertIn('"a?[31m"word"??"', page)
        self.assertRegex(page, r"column 3  bool\[1\] +true\n")
        self.assertRegex(page, r"column 4  float16\[1\] +1\.5\n")
        self.assertRegex(page, r"column 5  int64\[1\] +-9223372036854775808\n")
        self.assertEqual(self.table(server, "t")["samples"], 0)

    def test_peek_json(self):
        server = self.serve("--table", "t:fifo:fifo:100")
        self.insert(server, "t", 5)
        lines = self.expect(("peek", server.address, "t", "--n", 100, "--values", 2, "--json"), OK).splitlines()
        items = [json.loads(line) for line in lines]
        self.assertEqual(len(items), 5)
        for item in items:
            check_fields(self, item, ITEM_FIELDS)
            for column in item["columns"]:
                check_fields(self, column, COLUMN_FIELDS)
        self.assertEqual(list(items[2]["columns"][0].values()), ["column 0", "float32", [1, 3], [2, 2.5]])
        self.assertEqual(items[2]["columns"][2]["first_values"], ['a\x1b[31m"word"\x9b\ufffd'])
        self.assertEqual(items[2]["columns"][3]["first_values"], [True])
        self.assertIsNone(items[0]["probability"])
        self.assertTrue(0 <= items[0]["age_seconds"] < 60)

    def test_columns_are_called_what_the_signature_calls_them(self):
        (self.folder / "c.toml").write_text(
            '[[table]]\nname = "t"\n[table.signature]\na = "float32[?, 3]"\nb = "uint8[?, 2, 2]"\nc = "string[?]"\n'
            'd = "bool[?]"\ne = { x = "float16[?]", y = "int64[?]" }\n'
        )
        server = self.serve("--config", str(self.folder / "c.toml"))
        self.insert(server, "t", 1)
        self.expect(("peek", server.address, "t"), OK, "a    float32", "e/x  float16", "e/y  int64")
        self.assertIn("float32[?, 3]", self.table(server, "t")["signature"])

    def test_sample_counts_and_says_so(self):
        server = self.serve("--table", "t:fifo:fifo:100")
        self.insert(server, "t", 5)
        said = self.expect(("sample", server.address, "t", "-n", 3), OK, "3 samples", "counted", "probability 1")
        self.assertIn("sampled 3 times", said)
        self.assertEqual(self.table(server, "t")["samples"], 3)

    def test_sample_waits_no_longer_than_asked_and_says_why(self):
        server = self.serve("--table", "t:fifo:fifo:100:min_size=9")
        self.insert(server, "t", 5)
        self.expect(("sample", server.address, "t", "--timeout", "0.3"), TIMED_OUT, "0.3 s", "5 items", "waits for 9")

    def test_samples_that_were_drawn_are_shown_whatever_comes_then(self):
        server = self.serve("--table", "q:queue:9")
        self.insert(server, "q", 2)
        ended = run("sample", server.address, "q", "-n", "3", "--timeout", "0.3")
        self.assertEqual(ended.returncode, TIMED_OUT)
        self.assertIn("2 samples", ended.stdout)
        self.assertIn("no further sample in 0.3 s", ended.stderr)
        self.assertEqual(self.table(server, "q")["size"], 0)

    def test_tables_that_are_not_there(self):
        server = self.serve("--table", "replay", "--table", "jobs")
        for command in ("peek", "sample", "reset"):
            words = (command, server.address, "reply")
            self.expect(words, NOT_FOUND, '"reply"', 'Did you mean "replay"?', "replay, jobs")
        self.expect(("delete", server.address, "x", 1), NOT_FOUND, "replay, jobs")
        self.expect(("set", server.address, "x", "limiter", "none"), NOT_FOUND, "replay, jobs")


class Change(ProgramTest):
    def test_set_changes_what_is_named(self):
        server = self.serve("--table", "t")
        words = ("samples_per_insert=4", "min_size=100", "error_buffer=50", "--yes")
        said = self.expect(("set", server.address, "t", "limiter", *words), OK, "from", "to")
        self.assertIn("min_diff=350, max_diff=450", said)
        self.assertEqual(
            self.table(server, "t")["rate_limiter"],
            {"samples_per_insert": 4, "min_size_to_sample": 100, "min_diff": 350, "max_diff": 450},
        )
        self.expect(("set", server.address, "t", "limiter", "max_diff=500", "-y"), OK)
        self.assertEqual(self.table(server, "t")["rate_limiter"]["max_diff"], 500)
        self.assertEqual(self.table(server, "t")["rate_limiter"]["min_size_to_sample"], 100)
        self.expect(("set", server.address, "t", "limiter", "none", "--yes"), OK)
        self.assertIsNone(self.table(server, "t")["rate_limiter"]["max_diff"])
        for words, *parts in (
            (("min_sise=3",), 'Did you mean "min_size"?'),
            (("fast",), "KEY=VALUE"),
            (("min_size=many",), "min_size", "whole number"),
            (("min_size=0",), "min_size_to_sample"),
            (("queue=3", "min_size=3"), "queue is a whole limiter"),
        ):
            self.expect(("set", server.address, "t", "limiter", *words, "--yes"), BAD_USAGE, *parts)

    def test_nothing_happens_unless_it_is_confirmed(self):
        server = self.serve("--table", "t")
        self.insert(server, "t", 4)
        self.expect(("reset", server.address, "t"), NOT_CONFIRMED, "nothing was changed", "--yes")
        for answer, code in (("n", NOT_CONFIRMED), ("", NOT_CONFIRMED), ("y", OK)):
            self.assertEqual(self.table(server, "t")["size"], 4)
            screen = Terminal("reset", server.address, "t")
            screen.wait_for("Drop all 4 items of table")
            screen.type(answer + "\n")
            self.assertEqual(screen.end(), code, screen.text)
        self.assertEqual(self.table(server, "t")["size"], 0)

    def test_delete_by_keys(self):
        server = self.serve("--table", "t")
        self.insert(server, "t", 4)
        items = self.expect(("peek", server.address, "t", "-n", 9, "--json"), OK).splitlines()
        keys = [json.loads(item)["key"] for item in items]
        self.expect(("delete", server.address, "t", keys[0], keys[2]), NOT_CONFIRMED, "--yes")
        self.expect(("delete", server.address, "t", keys[0], keys[2], "--yes"), OK, "Deleted 2 items", "holds 2 now")
        self.expect(("delete", server.address, "t", keys[0], "--yes"), FAILED, "1 key was not there")
        self.expect(("delete", server.address, "t", "first", "--yes"), BAD_USAGE, '"first"')
        self.assertEqual(self.table(server, "t")["size"], 2)


class Bench(ProgramTest):
    BRIEF = ("--seconds", 0.2, "--rounds", 1, "--json")

    def test_measures_a_server_that_runs(self):
        server = self.serve("--table", "scratch:uniform:fifo:1000")
        at = ("--address", server.address, "--table", "scratch", *self.BRIEF)
        self.expect(("bench", "sample", *at), FAILED, '"scratch" is empty', "reverb bench insert")
        for workload, rows in (("insert", 1), ("sample", 1), ("latency", 3), ("mixed", 1)):
            words = ("--size", 400) if workload in ("insert", "mixed") else ()
            lines = self.expect(("bench", workload, *words, *at), OK).splitlines()
            self.assertEqual(len(lines), rows)
            for line in lines:
                row = json.loads(line)
                self.assertTrue(row["workload"].startswith(workload))
                self.assertGreater(row["items_per_s"], 0)
                self.assertIsNone(row["ratio"])
        self.assertGreater(self.table(server, "scratch")["inserts"], 0)
        words = ("bench", "insert", "--address", server.address, "--table", "scrath")
        self.expect(words, NOT_FOUND, 'Did you mean "scratch"?')

    def test_a_table_that_lets_nobody_through_ends_it(self):
        server = self.serve("--table", "t:queue:10")
        at = ("--address", server.address, "--table", "t")
        self.expect(("bench", "insert", "--size", 400, *at, *self.BRIEF), FAILED, "DEADLINE_EXCEEDED")

    def test_words_that_do_not_go_together(self):
        for words, *parts in (
            (("insert", "--address", "a:1"), "--table"),
            (("insert", "--table", "t"), "--address"),
            (("per", "--address", "a:1", "--table", "t"), "insert, sample, mixed or latency"),
            (("insert", "--address", "a:1", "--table", "t", "--transport", "inproc"), "--transport"),
            (("fast",), 'no workload "fast"'),
        ):
            self.expect(("bench", *words), BAD_USAGE, *parts)


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
            f"source <({program} completion bash)\n"
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
        self.assertEqual(self.complete("reverb", "bench", "sam"), ["sample"])
        self.assertEqual(self.complete("reverb", "bench", "insert", "--transport", "i"), ["inproc"])
        self.assertEqual(self.complete("reverb", "completion", ""), ["bash"])
        self.assertIn("--version", self.complete("reverb", "--"))
        (self.folder / "server.toml").write_text("")
        self.assertEqual(self.complete("reverb", "serve", "--config", "ser"), ["server.toml"])
        self.assertEqual(self.complete("reverb", "info", "localhost:1", "--every", ""), [])
        self.assertEqual(self.complete("reverb", "checkpoint", "i"), ["inspect", "import"])
        self.assertEqual(self.complete("reverb", "checkpoint", "inspect", "ser"), ["server.toml"])
        self.assertEqual(self.complete("reverb", "checkpoint", "verify", "x", "--j"), ["--json"])
        self.assertEqual(self.complete("reverb", "checkpoint", "inspect", "x", "--items", ""), [])

    def test_packaged_files_name_what_there_is(self):
        unit = (source / "packaging/reverb.service").read_text()
        self.assertIn("reverb serve --config", unit)
        docker = (source / "packaging/Dockerfile").read_text()
        self.assertIn("EXPOSE 8000", docker)


class Checkpoints(ProgramTest):
    """Saved, loaded, looked at, checked, converted."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "checkpoints"

    def saved(self, count: int = 3, *words: str) -> str:
        """The path of a checkpoint of a table `t` with so many items."""
        server = self.serve("--table", "t:fifo:fifo:100", "--checkpoint", str(self.root), *words)
        self.insert(server, "t", count)
        path = self.expect(("checkpoint", "save", server.address), OK).strip()
        server.stop()
        return path

    def test_a_server_goes_on_where_the_other_was(self):
        path = self.saved(5)
        self.assertTrue(path.startswith(str(self.root)), path)
        server = self.serve("--table", "t:fifo:fifo:100", "--checkpoint", str(self.root))
        self.assertEqual(self.table(server, "t")["size"], 5)
        self.assertEqual(self.table(server, "t")["inserts"], 5)
        out, _ = server.stop()
        self.assertIn(f"loaded 5 items from {path}", out)
        self.assertIn(f"checkpoints in {self.root}: when asked for; the latest is kept", out)

    def test_at_the_end_and_every_so_often(self):
        words = ("--checkpoint-on-stop", "--checkpoint-every", "1h")
        server = self.serve("--table", "t", "--checkpoint", str(self.root), *words)
        self.insert(server, "t", 2)
        out, _ = server.stop()
        self.assertEqual(server.process.returncode, OK)
        self.assertIn("every 1 h, at the end", out)
        saved = re.search(r"^Saved as (.*)$", out, re.M)
        self.assertIsNotNone(saved, out)
        self.expect(("checkpoint", "verify", saved.group(1)), OK, "is good: 2 items in 1 table")

    def test_what_cannot_be_saved_at_the_end_is_told(self):
        server = self.serve("--table", "t", "--checkpoint", str(self.root), "--checkpoint-on-stop")
        self.insert(server, "t", 2)
        self.root.write_text("in the way")
        _, err = server.stop()
        self.assertEqual(server.process.returncode, FAILED)
        self.assertIn("could not be written", err)
        self.assertIn(str(self.root), err)

    def test_flags_that_do_not_fit(self):
        self.expect(("serve", "--table", "t", "--checkpoint-every", "1h"), BAD_USAGE, "--checkpoint PATH")
        self.expect(("serve", "--table", "t", "--checkpoint-on-stop"), BAD_USAGE, "--checkpoint PATH")
        words = ("serve", "--table", "t", "--checkpoint", self.root, "--checkpoint-every")
        self.expect((*words, "often"), BAD_USAGE, "--checkpoint-every", '"5 min"')
        self.expect((*words, "0"), BAD_USAGE, "above 0")
        self.expect(("serve", "--table", "t", "--checkpoint", ""), BAD_USAGE, "a folder")

    def test_the_file_says_it_all(self):
        config = self.folder / "server.toml"
        config.write_text(
            f'[checkpoint]\npath = "{self.root}"\ninterval = "1 h"\non_stop = true\nkeep_latest = 3\n'
            '[checkpoint.restore]\nsizes = "given"\nextra_tables = "create"\n[[table]]\nname = "t"\nmax_size = 2\n'
        )
        said = self.expect(("serve", "--check", "--config", config), OK)
        self.assertIn(f"checkpoints in {self.root}: when asked for, every 1 h, at the end; the latest 3 are kept", said)
        server = self.serve("--table", "t", "--table", "u", "--checkpoint", str(self.root), "--checkpoint-on-stop")
        self.insert(server, "t", 5)
        self.insert(server, "u", 1)
        server.stop()
        server = self.serve("--config", str(config))
        self.assertEqual({table["name"]: table["size"] for table in self.info(server)["tables"]}, {"t": 2, "u": 1})

    def test_tables_that_the_server_was_not_given(self):
        self.saved()
        ended = run("serve", "--port", "0", "--table", "other", "--checkpoint", self.root)
        self.assertEqual(ended.returncode, BAD_USAGE, ended.stderr)
        self.assertIn('"t"', ended.stderr)

    def test_servers_without_a_folder_cannot_save(self):
        server = self.serve("--table", "t")
        self.expect(("checkpoint", "save", server.address), BAD_USAGE, "checkpoint")
        self.expect(("checkpoint", "save", "localhost:1"), UNREACHABLE, "reverb checkpoint save")

    def test_inspect(self):
        path = self.saved(3)
        page = self.expect(("checkpoint", "inspect", path), OK, path, "UTC", "TABLE", "fifo", "100")
        self.assertNotIn("In the same folder", page)
        told = json.loads(self.expect(("checkpoint", "inspect", self.root, "--json"), OK))
        self.assertEqual(told["path"], path)
        self.assertEqual([(table["name"], table["size"], table["inserts"]) for table in told["tables"]], [("t", 3, 3)])
        self.assertEqual([entry["path"] for entry in told["folder"]], [path])
        self.assertGreaterEqual(told["file_bytes"], told["payload_bytes"])

    def test_items_of_a_checkpoint(self):
        path = self.saved(12)
        self.expect(("checkpoint", "inspect", path, "--items", "t"), OK, "10 items of table", "which holds 12")
        lines = self.expect(("checkpoint", "inspect", path, "--items", "t", "--n", "12", "--json"), OK).splitlines()
        self.assertEqual(len({json.loads(line)["key"] for line in lines}), 12)
        self.expect(("checkpoint", "inspect", path, "--items", "tt"), NOT_FOUND, 'no table "tt"', 'Did you mean "t"?')

    def test_verify_finds_a_flipped_bit(self):
        path = self.saved(3)
        self.assertEqual(json.loads(self.expect(("checkpoint", "verify", path, "--json"), OK))["good"], True)
        for file in sorted(self.root.rglob("*")):
            if not file.is_file() or file.stat().st_size == 0:
                continue
            good = file.read_bytes()
            bad = bytearray(good)
            bad[len(bad) // 2] ^= 1
            file.write_bytes(bad)
            self.expect(("checkpoint", "verify", path), FAILED, "reverb checkpoint verify: ")
            self.assertEqual(json.loads(run("checkpoint", "verify", path, "--json").stdout)["good"], False)
            file.write_bytes(good)
        self.expect(("checkpoint", "verify", path), OK, "is good")

    def test_what_is_no_checkpoint(self):
        for command in ("inspect", "verify"):
            self.expect(("checkpoint", command, self.folder / "none"), NOT_FOUND, str(self.folder / "none"))
            self.expect(("checkpoint", command, self.folder), NOT_FOUND, str(self.folder))
        self.expect(("checkpoint", "import", self.folder / "none", self.root), NOT_FOUND, str(self.folder / "none"))

    def test_import_writes_it_anew(self):
        # Our own format can be written anew, too; dm-reverb's is tested with the Python package.
        path = self.saved(4)
        new = self.expect(("checkpoint", "import", self.root, self.folder / "new"), OK).strip()
        self.assertTrue(new.startswith(str(self.folder / "new")), new)
        self.expect(("checkpoint", "verify", new), OK, "is good: 4 items in 1 table")
        self.expect(("checkpoint", "verify", path), OK, "is good: 4 items in 1 table")

    def test_completion_and_manual_know_the_commands_below(self):
        script = self.expect(("completion", "bash"), OK)
        for word in ("inspect verify import save", "--items", "--checkpoint-every"):
            self.assertIn(word, script)
        manual = self.expect(("man",), OK)
        for word in (".SS reverb checkpoint verify", ".SS reverb checkpoint import"):
            self.assertIn(word, manual)


def main() -> None:
    global program, client, is_static, source
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--static", default="0", choices=["0", "1"], help="1: the program needs libc alone")
    arguments, rest = parser.parse_known_args()
    program, client, source = arguments.program, arguments.client, arguments.source
    is_static = arguments.static == "1"
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
