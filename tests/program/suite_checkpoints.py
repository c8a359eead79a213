"""Checkpoints from the command line, with a server and without."""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess

import frame
from frame import BAD_USAGE, FAILED, NOT_FOUND, OK, UNREACHABLE, ProgramTest, environment, run


class Checkpoints(ProgramTest):
    """Tests saving, loading, inspection, verification and conversion."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "checkpoints"

    def saved(self, count: int = 3, *words: str) -> str:
        """Returns the path of a checkpoint of a table `t` with `count` items."""
        server = self.serve("--table", "t:fifo:fifo:100", "--checkpoint", str(self.root), *words)
        self.insert(server, "t", count)
        path = self.expect(("checkpoint", "save", server.address), OK).strip()
        server.stop()
        return path

    def test_a_server_continues_from_a_checkpoint(self):
        path = self.saved(5)
        self.assertTrue(path.startswith(str(self.root)), path)
        server = self.serve("--table", "t:fifo:fifo:100", "--checkpoint", str(self.root))
        self.assertEqual(self.table(server, "t")["size"], 5)
        self.assertEqual(self.table(server, "t")["inserts"], 5)
        out, _ = server.stop()
        self.assertIn(f"loaded 5 items from {path}", out)
        self.assertIn(f"checkpoints in {self.root}: when asked for; the latest is kept", out)

    def test_a_checkpoint_that_is_larger_than_the_memory_limit(self):
        words = ("--table", "t:uniform:fifo:1000000", "--checkpoint", str(self.root))
        server = self.serve(*words)
        bench = ("bench", "insert", "--address", server.address, "--table", "t", "--size", "1000000")
        self.expect((*bench, "--seconds", "0.3", "--rounds", "1"), OK)
        size = self.table(server, "t")["size"]
        self.expect(("checkpoint", "save", server.address), OK)
        server.stop()
        self.assertGreater(size, 20)
        remedies = ("raise memory_limit to", "[storage]")
        self.expect(("serve", *words, "--memory-limit", "16MiB", "--port", "0"), FAILED, "= 16777216 leaves", *remedies)
        tier = ("--storage-path", str(self.folder / "tier"), "--storage-disk-limit", f"{4 * size + 64}MB")
        server = self.serve(*words, "--memory-limit", "16MiB", *tier)
        self.assertEqual(self.table(server, "t")["size"], size)

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

    def test_a_failed_checkpoint_at_the_end_is_reported(self):
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

    def test_a_file_that_is_not_a_regular_one(self):
        path = self.saved(3)
        for file in (*self.root.glob("segments/*.*"), pathlib.Path(path) / "MANIFEST"):
            with self.subTest(file.name):
                good = file.read_bytes()
                file.unlink()
                os.mkfifo(file)
                for command in ("inspect", "verify"):
                    self.expect(("checkpoint", command, path), FAILED, str(file), "only regular files")
                self.expect(("checkpoint", "import", path, self.folder / "new"), FAILED, str(file))
                ended = run("serve", "--port", "0", "--table", "t", "--checkpoint", self.root)
                self.assertEqual(ended.returncode, FAILED, ended.stderr)
                self.assertIn(str(file), ended.stderr)
                file.unlink()
                file.write_bytes(good)
        for command in ("inspect", "verify"):
            self.expect(("checkpoint", command, "/dev/zero"), FAILED, "/dev/zero", "Not a directory")

    def test_a_server_survives_a_checkpoint_that_does_not_fit(self):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))  # inherited by the server; no file here is longer
        try:
            server = self.serve("--table", "t:fifo:fifo:100", "--checkpoint", str(self.root))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        self.insert(server, "t", 20)
        self.expect(("checkpoint", "save", server.address), FAILED, str(self.root), "File too large", "ulimit -f")
        self.assertEqual(self.table(server, "t")["size"], 20)

    def test_paths_without_a_checkpoint(self):
        for command in ("inspect", "verify"):
            self.expect(("checkpoint", command, self.folder / "none"), NOT_FOUND, str(self.folder / "none"))
            self.expect(("checkpoint", command, self.folder), NOT_FOUND, str(self.folder))
        self.expect(("checkpoint", "import", self.folder / "none", self.root), NOT_FOUND, str(self.folder / "none"))

    def test_import_writes_it_anew(self):
        # Also converts our own format; tests of the Python package cover dm-reverb's.
        path = self.saved(4)
        new = self.expect(("checkpoint", "import", self.root, self.folder / "new"), OK).strip()
        self.assertTrue(new.startswith(str(self.folder / "new")), new)
        self.expect(("checkpoint", "verify", new), OK, "is good: 4 items in 1 table")
        self.expect(("checkpoint", "verify", path), OK, "is good: 4 items in 1 table")

    def test_a_copy_has_all_it_needs(self):
        path = self.saved(4)
        copy = self.folder / "backup" / "copy"
        printed = self.expect(("checkpoint", "copy", self.root, copy), OK).strip()
        self.assertEqual(printed, f"{copy}/{path.rsplit('/', 1)[1]}")
        self.assertNotIn(":", printed.rsplit("/", 1)[1])
        self.expect(("checkpoint", "copy", path, copy), FAILED, str(copy), "exists")
        self.expect(("checkpoint", "copy", self.folder / "none", self.folder / "x"), NOT_FOUND, "none")
        self.root.rename(self.folder / "gone")
        self.expect(("checkpoint", "verify", copy), OK, "is good: 4 items in 1 table")
        server = self.serve("--table", "t:fifo:fifo:100", "--checkpoint", str(copy))
        self.assertEqual(self.table(server, "t")["size"], 4)

    def test_other_formats_are_left_to_python(self):
        told = self.folder / "python"
        told.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\nexit 4\n')
        told.chmod(0o755)
        words = ("export", self.root, "--table", "a b", "--format", "npz", "-o", "x.npz")
        ended = run(*words, env=environment(REVERB_PYTHON=str(told)))
        self.assertEqual(ended.returncode, 4)
        self.assertEqual(ended.stdout, "".join(f"<{word}>\n" for word in ("-m", "reverb", *words)))
        ended = run("import", "x.npz", env=environment(REVERB_PYTHON=str(self.folder / "none")))
        self.assertEqual(ended.returncode, FAILED)
        self.assertIn("REVERB_PYTHON", ended.stderr)
        self.assertIn("python3 -m reverb import", ended.stderr)

    def test_the_python_beside_the_program_comes_first(self):
        words = ("import", "x.npz")
        for folder in ("path", "beside"):
            (self.folder / folder).mkdir()
            python = self.folder / folder / "python3"
            python.write_text(f"#!/bin/sh\necho {folder}\n")
            python.chmod(0o755)
        copy = self.folder / "beside" / "reverb"
        shutil.copy(frame.program, copy)
        path = environment(PATH=f"{self.folder / 'path'}:{os.environ['PATH']}")
        link = self.folder / "link"
        link.symlink_to(copy)
        for program, found in ((frame.program, "path"), (copy, "beside"), (link, "beside")):
            with self.subTest(program=program):
                ended = subprocess.run([program, *words], capture_output=True, text=True, env=path, timeout=60)
                self.assertEqual((ended.returncode, ended.stdout), (OK, f"{found}\n"), ended.stderr)

    def test_completion_and_manual_know_the_commands_below(self):
        script = self.expect(("completion", "bash"), OK)
        for word in ("inspect verify copy import save", "--items", "--checkpoint-every"):
            self.assertIn(word, script)
        manual = self.expect(("man",), OK)
        for word in (".SS reverb checkpoint verify", ".SS reverb checkpoint import"):
            self.assertIn(word, manual)
