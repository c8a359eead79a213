"""Tests what the program does with row tables: the file, info, peek, changes, checkpoints."""

import json
import signal

import frame
from documented_fields import COLUMN_FIELDS, ROW_FIELDS, check_fields, documented
from frame import BAD_USAGE, NOT_CONFIRMED, NOT_FOUND, OK, ProgramTest, run, wait_until

CONFIG = """
[[table]]
name = "t"

[[row_table]]
name = "rollouts"
max_rows = 50
group_size = 2
consumers = ["logprob", "train"]
order = "ready"
max_running = 9
drop_consumed = false
staleness = { max_lag = 2, when_stale = "keep", batch = 8 }
"""


class RowTables(ProgramTest):
    def serve_rows(self, *words: str) -> frame.Server:
        (self.folder / "server.toml").write_text(CONFIG)
        return self.serve("--config", str(self.folder / "server.toml"), *words)

    def row_table(self, server: frame.Server) -> dict:
        return self.info(server)["row_tables"][0]

    def test_the_file_describes_row_tables(self):
        server = self.serve_rows()
        settings = self.row_table(server)["settings"]
        self.assertEqual(
            settings,
            {
                "name": "rollouts", "max_rows": 50, "group_size": 2, "consumers": ["logprob", "train"],
                "staleness": {"max_lag": 2, "when_stale": "keep", "batch": 8}, "order": "ready", "max_running": 9,
                "drop_consumed": False,
            },
        )  # fmt: skip
        said = self.expect(("serve", "--check", "--config", self.folder / "server.toml"), OK, "ROW TABLE", "logprob, train")
        self.assertIn("groups of 2, order ready, max lag 2 (keep), 8 rows per version, at most 9 reserved", said)

    def test_mistakes_in_the_file(self):
        good = '[[row_table]]\nname = "r"\n'
        for text, *parts in (
            ("[[row_table]]\nmax_rows = 3\n", "server.toml:1:", '"row_table.name" is missing'),
            (good + "max_rows = 0\n", "server.toml:3:", '"row_table.max_rows"', "from 1"),
            (good + 'order = "lifo"\n', "server.toml:3:", '"fifo" or "version" or "ready"'),
            (good + 'consumers = "train"\n', "server.toml:3:", '"row_table.consumers"', "a list of names"),
            (good + 'consumers = ["resume"]\n', "server.toml:1:", '"resume"', "use another name"),
            (good + "groupsize = 2\n", "server.toml:3:", 'of row table "r"', 'Did you mean "group_size"?'),
            (good + "staleness = 2\n", "server.toml:3:", "max_lag = 2"),
            (good + 'staleness = { when_stale = "drop" }\n', "server.toml:3:", '"row_table.staleness.max_lag" is missing'),
            (good + 'staleness = { max_lag = 1, when_stale = "wait" }\n', "set batch"),
            (good + good, "server.toml:4:", 'two tables named "r"'),
            ('[[table]]\nname = "r"\n' + good, "server.toml:4:", 'two tables named "r"'),
            ("[row_table]\n", "server.toml:1:", "[[row_table]], with two brackets"),
            (good.replace("row_table", "row_tables"), "server.toml:1:", 'Did you mean "row_table"?'),
        ):
            (self.folder / "server.toml").write_text(text)
            ended = run("serve", "--check", "--config", "server.toml", cwd=self.folder)
            self.assertEqual(ended.returncode, BAD_USAGE, text)
            for part in parts:
                self.assertIn(part, ended.stderr, text)

    def test_info_shows_them(self):
        server = self.serve_rows()
        self.insert(server, "rollouts", 6, verb="put_rows")
        self.insert(server, "rollouts", 3, verb="claim_rows")
        waiting = self.start_client("wait_rows", server.address, "rollouts", 2)
        wait_until("the claim waits", lambda: self.row_table(server)["waiting_claims"] == 1)
        table = self.row_table(server)
        documents = frame.source / "docs"
        check_fields(self, table, documented(documents, "A row table"))
        check_fields(self, table["consumers"][0], {"name": str, "ready": int, "leased": int, "consumed": int})
        self.assertEqual((table["rows"], table["open"], table["groups"], table["complete_groups"]), (6, 1, 3, 2))
        self.assertEqual({each["name"]: each["leased"] for each in table["consumers"]}, {"logprob": 0, "train": 2, "resume": 0})
        self.assertIn('lack "missing"', table["claim_reason"])
        self.assertIsNone(table["write_reason"])
        self.assertGreater(table["bytes"], 100)
        self.assertEqual(table["state_bytes"], len("the state"))
        page = self.expect(("info", server.address), OK, "ROW TABLE", "1 open, 0 stale; 3 groups, 2 complete", "CONSUMER")
        self.assertIn("1 claim waits: consumer", page)
        page = self.expect(("info", server.address, "--watch", "--count", "2", "--every", "0.05"), OK)
        self.assertEqual(page.count("ROW TABLE"), 2)
        waiting.send_signal(signal.SIGKILL)

    def test_peek_shows_rows(self):
        server = self.serve_rows()
        self.insert(server, "rollouts", 4, verb="put_rows")
        self.insert(server, "rollouts", 2, verb="claim_rows")
        page = self.expect(("peek", server.address, "rollouts", "--n", "9"), OK, "key k0  group g0  version 0")
        for part in (
            "consumed by train", "leased by train", "open", "reward = 0.25", 'split = "math"', "done = true", "int64[3]",
            "float32[]", "4 rows of row table", "not claimed",
        ):  # fmt: skip
            self.assertIn(part, page)
        lines = self.expect(("peek", server.address, "rollouts", "--n", "2", "--json"), OK).splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            check_fields(self, json.loads(line), ROW_FIELDS)
            for column in json.loads(line)["columns"]:
                check_fields(self, column, COLUMN_FIELDS)
        first = json.loads(lines[0])
        self.assertEqual(first["tags"], {"reward": 0.0, "split": "math", "done": True, "prompt": 0})
        self.assertEqual(first["columns"][0]["first_values"], [0, 1, -1])
        self.assertEqual(first["consumed_by"], ["train"])
        self.expect(("sample", server.address, "rollouts"), NOT_FOUND, "is a row table")
        self.expect(("peek", server.address, "rolouts"), NOT_FOUND, 'Did you mean "rollouts"?')

    def test_rows_are_deleted_and_tables_removed(self):
        server = self.serve_rows()
        self.insert(server, "rollouts", 6, verb="put_rows")
        self.expect(("delete", server.address, "rollouts", "k0"), NOT_CONFIRMED, "nothing was changed")
        self.expect(("delete", server.address, "rollouts", "k0", "k1", "--yes"), OK, "Deleted 2 rows", "holds 4")
        self.assertEqual(run("delete", server.address, "rollouts", "k0", "--yes").returncode, frame.FAILED)
        self.expect(("reset", server.address, "rollouts"), NOT_CONFIRMED, "nothing was changed")
        self.expect(("reset", server.address, "rollouts", "--yes"), OK, "4 rows removed")
        self.assertEqual(self.row_table(server)["rows"], 0)
        self.expect(("table", "resize", server.address, "rollouts", "5"), NOT_FOUND, "is a row table")
        self.expect(("table", "remove", server.address, "rollouts", "--yes"), OK, "0 rows are removed")
        self.assertEqual(self.info(server)["row_tables"], [])

    def test_a_row_table_is_added(self):
        server = self.serve("--table", "t")
        words = ("table", "add", server.address, "new:rows:70", "--consumers", "a,b", "--group-size", "4")
        self.expect((*words, "--max-lag", "3", "--when-stale", "keep", "--order", "version"), OK, 'Row table "new" is there')
        settings = self.row_table(server)["settings"]
        self.assertEqual((settings["max_rows"], settings["group_size"], settings["consumers"]), (70, 4, ["a", "b"]))
        self.assertEqual((settings["order"], settings["staleness"]["when_stale"]), ("version", "keep"))
        self.expect(words, frame.FAILED, '"new" exists already', "other settings")
        self.expect(("table", "add", server.address, "t:rows"), frame.FAILED, "there is a table of items")
        self.expect(("table", "add", server.address, "x:rows:many"), BAD_USAGE, "max rows")
        self.expect(("table", "add", server.address, "x:rows", "--max-age", "1h"), BAD_USAGE, "a row table has no")

    def test_checkpoints_hold_them(self):
        root = self.folder / "checkpoints"
        server = self.serve_rows("--checkpoint", str(root), "--checkpoint-on-stop")
        self.insert(server, "rollouts", 5, verb="put_rows")
        self.insert(server, "rollouts", 3, verb="claim_rows")
        out, _ = server.stop()
        self.assertIn("0 items and 5 rows", out)
        page = self.expect(("checkpoint", "inspect", root), OK, "ROW TABLE", "groups of 2")
        self.assertIn("rollouts", page)
        told = json.loads(self.expect(("checkpoint", "inspect", root, "--json"), OK))["row_tables"][0]
        self.assertEqual((told["name"], told["rows"], told["state_bytes"]), ("rollouts", 5, 9))
        self.expect(("checkpoint", "inspect", root, "--items", "rollouts"), OK, "key k0", "consumed by train", "5 rows of row")
        lines = self.expect(("checkpoint", "inspect", root, "--items", "rollouts", "--json"), OK).splitlines()
        for line in lines:
            check_fields(self, json.loads(line), ROW_FIELDS)
        self.assertEqual([json.loads(line)["leased_by"] for line in lines], [[]] * 5, "leases end with the server")
        self.expect(("checkpoint", "verify", root), OK, "5 rows in 1 row table")
        self.expect(("checkpoint", "copy", root, self.folder / "copy"), OK)
        again = self.serve_rows("--checkpoint", str(self.folder / "copy"))
        table = self.row_table(again)
        self.assertEqual((table["rows"], table["leases"], table["state_bytes"]), (5, 0, 9))
        self.assertEqual(table["consumers"][1]["consumed"], 1)

    def test_a_killed_server_returns_with_its_checkpoint(self):
        root = self.folder / "checkpoints"
        server = self.serve_rows("--checkpoint", str(root))
        self.insert(server, "rollouts", 6, verb="put_rows")
        self.insert(server, "rollouts", 3, verb="claim_rows")  # acknowledges k0 and dies with k1 and k2
        self.expect(("checkpoint", "save", server.address), OK)
        self.expect(("delete", server.address, "rollouts", "k1", "--yes"), OK)  # lost with the server
        server.stop(signal.SIGKILL)
        server.port_file.unlink()

        again = self.serve_rows("--checkpoint", str(root))
        self.insert(again, "rollouts", 4, verb="claim_rows")
        lines = self.expect(("peek", again.address, "rollouts", "--n", "9", "--values", "0", "--json"), OK).splitlines()
        rows = {row["key"]: row for row in map(json.loads, lines)}
        self.assertEqual(sorted(rows), [f"k{i}" for i in range(6)])
        consumed = [key for key, row in rows.items() if row["consumed_by"] == ["train"]]
        self.assertEqual(consumed, ["k0", "k1"], "k0 did not come again, and k1 is the next")
        leased = [key for key, row in rows.items() if row["leased_by"] == ["train"]]
        self.assertEqual(leased, ["k2", "k3", "k4"])
        self.assertTrue(rows["k5"]["open"])
