"""`reverb bench` against a server of its own and a running one."""

import json

from frame import BAD_USAGE, FAILED, NOT_FOUND, OK, ProgramTest


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

    def test_measures_each_transport(self):
        for transport in ("inproc", "local", "grpc"):
            words = ("bench", "latency", "--transport", transport, *self.BRIEF)
            for line in self.expect(words, OK).splitlines():
                row = json.loads(line)
                self.assertEqual(row["transport"], transport)
                self.assertGreater(row["items_per_s"], 0)

    def test_a_blocked_table_ends_it(self):
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
