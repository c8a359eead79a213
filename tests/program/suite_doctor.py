"""Tests `reverb doctor`: what it finds at good and bad servers, and what it leaves behind."""

import json
import os
import resource
import socket

from frame import BAD_USAGE, FAILED, OK, UNREACHABLE, ProgramTest, run


class Doctor(ProgramTest):
    def examine(self, *words: object, code: int = OK) -> dict[str, dict]:
        """Returns the findings by check."""
        ended = run("doctor", *words, "--json")
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        report = json.loads(ended.stdout)
        self.assertEqual(report["good"], code == OK)
        self.assertEqual(report["reachable"], code != UNREACHABLE)
        for finding in report["findings"]:
            self.assertEqual(list(finding), ["check", "verdict", "text", "advice"])
            self.assertIn(finding["verdict"], ("ok", "skipped", "warning", "failure"))
            if finding["verdict"] in ("warning", "failure"):
                self.assertTrue(finding["advice"], f"{finding} does not say what to change")
        return {finding["check"]: finding for finding in report["findings"]}

    def test_a_good_server(self):
        root = self.folder / "checkpoints"
        root.mkdir()
        server = self.serve("--table", "t", "--max-bytes", "100MB", "--checkpoint", str(root))
        self.insert(server, "t", 3)
        found = self.examine(server.address)
        for check in ("connect", "answer", "version", "clock", "transport", "tls", "memory", "tables"):
            self.assertEqual(found[check]["verdict"], "ok", found[check])
        # These depend on how fast and how full the machine is.
        for check in ("dns", "disk", "space", "files", "headroom", "huge_pages"):
            self.assertIn(found[check]["verdict"], ("ok", "warning", "skipped"), found[check])
        self.assertIn("localhost is", found["dns"]["text"])
        self.assertIn("local", found["transport"]["text"])
        self.assertIn(f"process {server.process.pid} may open", found["files"]["text"])
        self.assertIn(str(root), found["disk"]["text"])
        self.assertEqual(os.listdir(root), [], "the temporary file is gone")
        text = self.expect(("doctor", server.address), OK, "0 failures", "ok       dns", "MiB")
        self.assertNotIn("\x1b", text)

    def test_a_relative_root_from_the_configuration(self):
        (self.folder / "server.toml").write_text('[checkpoint]\npath = "saved"\n[[table]]\nname = "t"\n')
        server = self.serve("--config", "server.toml", prepare=lambda: os.chdir(self.folder))
        # The folder does not exist before the first checkpoint: the disk is that of its parent.
        self.assertIn(f"{self.folder} writes", self.examine(server.address)["disk"]["text"])
        self.assertFalse((self.folder / "saved").exists())

    def test_what_to_change(self):
        def few_files():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        server = self.serve("--table", "t", prepare=few_files)
        found = self.examine(server.address)
        self.assertEqual(found["files"]["verdict"], "warning")
        self.assertIn("LimitNOFILE", found["files"]["advice"])
        self.assertEqual(found["memory"]["verdict"], "ok")
        self.assertIn("memory_limit", found["memory"]["text"])
        self.assertEqual(found["disk"]["verdict"], "skipped")

    def test_more_memory_promised_than_there_is(self):
        server = self.serve("--table", "t", "--max-bytes", "1000 TiB")
        found = self.examine(server.address)
        self.assertEqual(found["headroom"]["verdict"], "warning")
        self.assertIn("lower max_bytes to", found["headroom"]["advice"])

    def test_a_memory_limit_above_what_there_is(self):
        server = self.serve("--table", "t", "--memory-limit", "1000 TiB")
        found = self.examine(server.address)
        self.assertEqual(found["headroom"]["verdict"], "warning")
        self.assertIn("with memory_limit 1000 TiB it may need", found["headroom"]["text"])
        self.assertIn("lower memory_limit to", found["headroom"]["advice"])

    def test_a_folder_that_cannot_be_written(self):
        server = self.serve("--table", "t")
        found = self.examine(server.address, "--checkpoint", "/proc", code=FAILED)
        self.assertEqual(found["disk"]["verdict"], "failure")
        self.assertIn("/proc", found["disk"]["text"])
        self.assertNotIn("disk", self.examine(server.address, "--checkpoint", "/proc", "--no-disk"))

    def test_nothing_there(self):
        found = self.examine("localhost:1", code=UNREACHABLE)
        self.assertEqual(found["connect"]["verdict"], "failure")
        self.assertIn("Connection refused", found["connect"]["text"])
        found = self.examine("host.invalid:1", code=UNREACHABLE)
        self.assertEqual(found["dns"]["verdict"], "failure")
        found = self.examine(f"unix:{self.folder}/nowhere", code=UNREACHABLE)
        self.assertEqual(found["address"]["verdict"], "failure")
        self.expect(("doctor", "localhost"), BAD_USAGE, "has no port", "localhost:8000")

    def test_another_program(self):
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen()
            found = self.examine(f"127.0.0.1:{deaf.getsockname()[1]}", "--timeout", "0.5", code=UNREACHABLE)
        self.assertEqual(found["connect"]["verdict"], "ok")
        self.assertEqual(found["answer"]["verdict"], "failure")

    def test_each_of_several_servers(self):
        server = self.serve("--table", "t")
        ended = run("doctor", f"{server.address},localhost:1", "--json", "--timeout", "1")
        self.assertEqual(ended.returncode, UNREACHABLE)
        reports = [json.loads(line) for line in ended.stdout.splitlines()]
        self.assertEqual([report["reachable"] for report in reports], [True, False])
