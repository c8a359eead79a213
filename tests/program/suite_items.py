"""Tests inspection of items and changes of a running server."""

import json
import re

from documented_fields import COLUMN_FIELDS, ITEM_FIELDS, check_fields
import frame
from frame import (
    BAD_USAGE,
    FAILED,
    NOT_CONFIRMED,
    NOT_FOUND,
    OK,
    TIMED_OUT,
    UNREACHABLE,
    ProgramTest,
    Terminal,
    run,
)


class Items(ProgramTest):
    def test_peek_shows_items_and_counts_nothing(self):
        server = self.serve("--table", "t:fifo:fifo:100")
        self.insert(server, "t", 5)
        page = self.expect(("peek", server.address, "t", "--n", 2), OK, "2 items", "holds 5", "not counted")
        # Any age: the machine's clock may be set while the test runs.
        self.assertEqual(len(re.findall(r"^key \d+  priority [01]  sampled 0 times  age \d.* (d|h|min|s|ms|µs)$", page, re.M)), 2)
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

    def test_columns_are_called_what_the_writer_calls_them(self):
        server = self.serve("--table", "t:fifo:fifo:100")
        self.insert(server, "t", 2, verb="insert_named")
        self.expect(("peek", server.address, "t"), OK, "a  float32[1, 3]", "f  int64[1]")
        self.expect(("sample", server.address, "t"), OK, "a  float32[1, 3]")
        said = self.expect(("peek", server.address, "t", "--json"), OK)
        self.assertEqual([column["name"] for column in json.loads(said)["columns"]], list("abcdef"))
        self.expect(("info", server.address), OK, "items    {a, b, c, d, e, f}")

    def test_layouts(self):
        server = self.serve("--table", "first:queue:9", "--table", "any:queue:9:layout=any", "--table", "a:layout=any")
        self.assertEqual([self.table(server, name)["layout"] for name in ("first", "any", "a")], ["first", "any", "any"])
        self.expect(("info", server.address), OK, "items    any layout")
        self.expect(("serve", "--table", "q:queue:9:layout=some"), BAD_USAGE, "layout=first or layout=any", '"some"')

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
            (("queue=3", "min_size=3"), "queue is a complete limiter"),
        ):
            self.expect(("set", server.address, "t", "limiter", *words, "--yes"), BAD_USAGE, *parts)

    def test_the_servers_of_a_set_that_fail_are_named(self):
        servers = []
        for name in ("a", "b"):
            (self.folder / name).mkdir()
            servers.append(frame.Server(self.folder / name, "--table", "t"))
            self.end_with_test(servers[-1].process)
        servers[1].stop()
        address = ",".join(server.address for server in servers)
        parts = (servers[0].address, f"{servers[1].address}: ", "1 of the 2 servers")
        for words in (("reset", address, "t"), ("set", address, "t", "limiter", "none")):
            said = self.expect((*words, "--yes", "--timeout", "0.5"), UNREACHABLE, *parts)
            self.assertNotIn("Is a server running there?", said)
        servers[0].stop()
        self.expect(("info", address, "--timeout", "0.5"), UNREACHABLE, *(f"{one.address}: " for one in servers))

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
