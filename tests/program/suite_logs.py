"""Tests the log of `reverb serve`: formats, levels, repetitions, what is in it, and SIGHUP."""

import datetime
import json
import pathlib
import re
import signal
import socket
import subprocess

import frame
from frame import OK, PATIENCE, ProgramTest, Terminal, run, wait_until

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"


class LogTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.log = self.folder / "log"
        self.config = self.folder / "server.toml"

    def configure(self, log: str, tables: str = '[[table]]\nname = "t"\n') -> tuple[str, str]:
        self.config.write_text(f"[log]\n{log}\n{tables}")
        return ("--config", str(self.config))

    def records(self) -> list[dict]:
        """The complete lines of a JSON log. Fails if one is not an object of JSON in UTF-8."""
        return [json.loads(line) for line in self.log.read_bytes().decode().split("\n")[:-1]]

    def events(self, name: str) -> list[dict]:
        return [record for record in self.records() if record.get("event") == name]

    def await_event(self, name: str, count: int = 1) -> list[dict]:
        wait_until(f"{count} records of {name}", lambda: len(self.events(name)) >= count)
        return self.events(name)


class Logs(LogTest):
    def test_lines_of_text_have_time_stamps(self):
        server = self.serve("--table", "t", "--checkpoint", str(self.folder / "c"), log=self.log)
        self.insert(server, "t", 1)
        self.expect(("checkpoint", "save", server.address), OK)
        server.stop()
        (line,) = [line for line in self.log.read_text().splitlines() if "wrote checkpoint" in line]
        self.assertRegex(line, rf"^{STAMP} info: wrote checkpoint ")
        written = datetime.datetime.fromisoformat(line.split(" ")[0])
        now = datetime.datetime.now(datetime.timezone.utc)
        self.assertLess(abs((now - written).total_seconds()), PATIENCE * 10)

    def test_json_is_one_object_per_line_and_nothing_else_is_printed(self):
        words = ("--table", "t", "--log-format", "json", "--checkpoint", str(self.folder / "c"))
        server = self.serve(*words, log=self.log)
        self.insert(server, "t", 1)
        path = self.expect(("checkpoint", "save", server.address), OK).strip()
        out, _ = server.stop()
        self.assertEqual(out, "")
        records = self.records()
        for record in records:
            self.assertEqual(list(record)[:3], ["time", "level", "message"])
            self.assertRegex(record["time"], rf"^{STAMP}$")
        self.assertIn(f"listens on 127.0.0.1:{server.port} and serves 1 table", records[0]["message"])
        (checkpoint,) = self.events("checkpoint")
        self.assertEqual(checkpoint["path"], path)
        self.assertGreater(checkpoint["bytes"], 0)
        self.assertGreater(checkpoint["seconds"], 0)
        self.assertIn("SIGTERM", self.events("stop")[0]["message"])

    def test_errors_at_the_start_are_json_too(self):
        taken = self.serve("--table", "t")
        ended = run("serve", "--table", "t", "--port", taken.port, "--log-format", "json")
        record = [json.loads(line) for line in ended.stderr.splitlines()][-1]  # warnings may come before
        self.assertEqual(record["level"], "error")
        self.assertIn("taken", record["message"])

    def test_warnings_at_the_start_are_json_too(self):
        server = self.serve("--table", "t", "--host", "0.0.0.0", "--log-format", "json", log=self.log)
        server.stop()
        for record in self.events("exposure"):
            self.assertEqual((record["level"], record["endpoint"]), ("warning", "0.0.0.0"))
        self.assertEqual(len(self.events("exposure")), 2)

    def test_the_audit_log_has_fields_and_every_action(self):
        tokens = self.folder / "tokens"
        paths = {}
        for name, right in (("operators", "admin"), ("readers", "read")):
            words = ("token", "new", name, "--rights", right, "--file", tokens)
            paths[name] = self.folder / f"{name}.token"
            paths[name].write_text(self.expect(words, OK))
        words = ("--table", "t", "--tokens-file", str(tokens), "--log-format", "json")
        server = self.serve(*words, log=self.log)
        for _ in range(3):  # within ten seconds: repetitions are not left out
            self.expect(("reset", server.address, "t", "--yes", "--token-file", paths["operators"]), OK)
        self.expect(("reset", server.address, "t", "--yes", "--token-file", paths["readers"]), frame.FAILED)
        server.stop()
        records = self.events("audit")
        actions = [(record["token"], record["call"], record["table"], record["result"]) for record in records]
        done = ("operators", "Reset", "t", "OK")
        self.assertEqual(actions, [done] * 3 + [("readers", "Reset", "t", "PERMISSION_DENIED")])
        self.assertEqual([record["level"] for record in records], ["info"] * 3 + ["warning"])
        for record in records:
            self.assertIn(f'client="{record["client"]}"', record["message"])

    def test_a_long_wait_is_logged_once_with_who_and_why(self):
        tables = '[[table]]\nname = "t"\nmax_size = 10\nlimiter = "min_size=5"\n'
        server = self.serve(*self.configure('format = "json"\nwait_after = "100 ms"', tables), log=self.log)
        self.start_client("sample", server.address, "t", 1, "learner")
        (wait,) = self.await_event("wait")
        self.assertEqual((wait["table"], wait["operation"], wait["client"]), ("t", "sample", "learner"))
        self.assertGreaterEqual(wait["seconds"], 0.1)
        self.assertTrue(wait["address"])
        self.assertTrue(wait["session"])
        self.assertRegex(wait["message"], r'^table "t": learner at .* has waited .* to sample 1 item: .*5')
        # Later checks do not log the same wait again.
        self.start_client("sample", server.address, "t", 1, "second")
        waits = self.await_event("wait", 2)
        self.assertEqual([record["client"] for record in waits], ["learner", "second"])
        self.insert(server, "t", 5)
        server.stop()
        self.assertEqual(len(self.events("wait")), 2)

    def test_a_blocked_writer_is_logged_and_so_is_its_disconnect(self):
        tables = '[[table]]\nname = "q"\nkind = "queue"\nmax_size = 1\n'
        server = self.serve(*self.configure('format = "json"\nwait_after = "100 ms"', tables), log=self.log)
        writer = self.start_client("insert", server.address, "q", 3, "actor")
        (wait,) = self.await_event("wait")
        self.assertEqual((wait["table"], wait["operation"], wait["client"]), ("q", "insert", "actor"))
        self.assertRegex(wait["session"], "^[0-9a-f]{32}$")
        writer.kill()
        (gone,) = self.await_event("disconnect")
        self.assertEqual((gone["table"], gone["client"], gone["session"]), ("q", "actor", wait["session"]))
        self.assertGreater(gone["items"], 0)
        server.stop()
        self.assertEqual(len(self.events("disconnect")), 1)

    def test_refusals_are_logged(self):
        tables = '[[table]]\nname = "t"\n'
        server = self.serve(*self.configure('format = "json"', tables), log=self.log)
        refused = self.start_client("insert", server.address, "elsewhere", 1, "actor")
        self.assertNotEqual(refused.communicate(timeout=PATIENCE)[0], "done\n")
        (refusal,) = self.await_event("refusal")
        self.assertEqual((refusal["table"], refusal["client"], refusal["level"]), ("elsewhere", "actor", "warning"))
        self.assertTrue(refusal["code"])
        refused = self.start_client("sample", server.address, "nowhere", 1, "learner")
        self.assertNotEqual(refused.communicate(timeout=PATIENCE)[0], "done\n")
        refusal = self.await_event("refusal", 2)[-1]
        self.assertEqual((refusal["table"], refusal["client"], refusal["code"]), ("nowhere", "learner", "NOT_FOUND"))
        # A single call: the server has no checkpoint path.
        self.assertNotEqual(run("checkpoint", "save", server.address).returncode, OK)
        refusal = self.await_event("refusal", 3)[-1]
        self.assertEqual((refusal["call"], refusal["code"]), ("Checkpoint", "INVALID_ARGUMENT"))
        server.stop()
        self.assertEqual(len(self.events("refusal")), 3)

    def test_a_checkpoint_that_fails_is_logged_once(self):
        words = ("--table", "t", "--log-format", "json", "--checkpoint", str(self.folder / "c"))
        server = self.serve(*words, log=self.log)
        (self.folder / "c").write_text("in the way")
        self.assertNotEqual(run("checkpoint", "save", server.address).returncode, OK)
        (failed,) = self.await_event("checkpoint")
        self.assertEqual((failed["level"], failed["path"]), ("error", str(self.folder / "c")))
        server.stop()
        self.assertEqual(len(self.events("checkpoint")) + len(self.events("refusal")), 1)

    def test_hostile_names_stay_inside_their_line(self):
        name = 'evil"\\\n\x1b[31m\u2028<script>'
        tables = f'[[table]]\nname = {json.dumps(name)}\nmax_size = 10\nlimiter = "min_size=5"\n'
        client = 'c"\n{"level":"error"}\x1b[2J'
        for form in ("json", "text"):
            server = self.serve(*self.configure(f'format = "{form}"\nwait_after = "100 ms"', tables), log=self.log)
            self.start_client("sample", server.address, name, 1, client)
            if form == "json":
                (wait,) = self.await_event("wait")
                self.assertEqual((wait["table"], wait["client"]), (name, client))
            else:
                wait_until("the wait", lambda: "has waited" in self.log.read_text())
            server.stop()
            text = self.log.read_text()
            self.assertNotIn("\x1b", text)
            for line in text.split("\n")[:-1] if form == "text" else ():
                self.assertRegex(line, rf"^{STAMP} (info|warning|error): ")

    def test_level(self):
        for level, is_there in (("info", True), ("warning", False)):
            server = self.serve(
                "--table", "t", "--log-level", level, "--checkpoint", str(self.folder / level), log=self.log
            )
            self.expect(("checkpoint", "save", server.address), OK)
            server.stop()
            self.assertEqual("wrote checkpoint" in self.log.read_text(), is_there, level)

    def test_flags_override_the_file(self):
        server = self.serve(*self.configure('format = "text"\nlevel = "error"'), "--log-format", "json",
                            "--log-level", "info", log=self.log)  # fmt: skip
        server.stop()
        self.assertTrue(self.events("start"))

    def test_the_journal_gets_priorities_instead_of_time_stamps(self):
        mine, journal = socket.socketpair()
        with mine, journal:
            status = pathlib.Path(f"/proc/self/fd/{journal.fileno()}").stat()
            environment = frame.environment(JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
            words = [frame.program, "serve", "--table", "t:uniform:fifo:10:min_size=20", "--port", "0"]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=journal, env=environment)
            self.end_with_test(process)
            journal.close()
            mine.settimeout(PATIENCE)
            first = mine.makefile().readline()
            self.assertRegex(first, "^<4>warning: table \"t\"")


class Reload(LogTest):
    def test_a_hangup_reads_the_level_again(self):
        server = self.serve(*self.configure('format = "json"\nlevel = "warning"'), log=self.log)
        self.assertEqual(self.records(), [])
        self.configure('format = "json"\nlevel = "debug"\nwait_after = "never"')
        server.process.send_signal(signal.SIGHUP)
        (reload,) = self.await_event("reload")
        self.assertEqual((reload["part"], reload["level"]), ("log", "info"))
        self.assertIn("level debug, no waits", reload["message"])
        # A file with a mistake changes nothing.
        self.config.write_text("[log]\nlevel = 3\n")
        server.process.send_signal(signal.SIGHUP)
        failed = self.await_event("reload", 2)[-1]
        self.assertEqual(failed["level"], "error")
        self.assertIn("server.toml:2:", failed["message"])
        self.info(server)
        server.stop()
        self.assertEqual(server.process.returncode, OK)

    def test_without_a_file_a_hangup_changes_nothing(self):
        server = self.serve("--table", "t", "--log-format", "json", log=self.log)
        server.process.send_signal(signal.SIGHUP)
        self.assertIn("level info", self.await_event("reload")[0]["message"])
        server.stop()
        self.assertEqual(server.process.returncode, OK)

    def test_a_pipe_cannot_be_read_again(self):
        port = str(self.folder / "port")
        words = [frame.program, "serve", "--config", "/dev/stdin", "--port", "0", "--port-file", port]
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=frame.environment()
            )
        self.end_with_test(process)
        process.stdin.write(b'[log]\nformat = "json"\n[[table]]\nname = "t"\n')
        process.stdin.close()
        process.stdin = None
        wait_until("the port file", (self.folder / "port").exists)
        process.send_signal(signal.SIGHUP)
        (reload,) = self.await_event("reload")
        self.assertEqual(reload["level"], "error")
        self.assertIn("/dev/stdin is not a file that can be read again", reload["message"])
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), OK)

    def test_the_end_of_its_terminal_ends_it(self):
        port = self.folder / "port"
        screen = Terminal("serve", "--table", "t", "--port", "0", "--port-file", str(port))
        screen.wait_for("Ready.")
        self.assertTrue(port.exists())
        # Closing the other side is what a terminal window does: the kernel sends SIGHUP.
        code = screen.hang_up()
        self.assertEqual(code, OK)
        self.assertFalse(port.exists())
