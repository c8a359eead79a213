"""Tests starting and stopping a server: configuration files, flags, signals."""

import contextlib
import re
import resource
import signal
import socket
import subprocess
import time

import frame
from frame import BAD_USAGE, FAILED, OK, PATIENCE, UNREACHABLE, ProgramTest, run, wait_until


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
        said = self.expect(("serve", "--check", "--config", frame.source / "examples/server.toml"), OK)
        for part in ("127.0.0.1:8000", "replay", "prioritized=0.6", "8 within", "jobs", "4 GiB", "action: int32[]"):
            self.assertIn(part, said)

    def test_what_the_example_calls_a_default_is_one(self):
        text = (frame.source / "examples/server.toml").read_text()
        plain = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.M)
        self.assertNotEqual(plain, text)
        self.assertIn("max_disconnected_bytes", plain)
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
            ('[log]\nlevel = "loud"\n' + good, "server.toml:2:", '"log.level"', "debug, info, warning, error", '"loud"'),
            ('[log]\nformat = "xml"\n' + good, "server.toml:2:", '"log.format"', "text, json", '"xml"'),
            ('[log]\nwait_after = "soon"\n' + good, "server.toml:2:", '"log.wait_after"', '"5 min"', 'got "soon"'),
            ("[log]\nlevle = 1\n" + good, "server.toml:2:", '"log.levle"', 'Did you mean "level"?'),
            ('[server]\nlocal = "everyone"\n' + good, "server.toml:2:", '"server.local"', 'true, false or "any user"'),
            ("[server]\nlocal_path = 3\n" + good, "server.toml:2:", '"server.local_path"', "the path of a socket", "got 3"),
            ("[limits]\nstalled_client_timeout = 0\n" + good, "server.toml:2:", "stalled_client_timeout", "above 0"),
            ("[server]\nkeepalive_timeout = 0.5\n" + good, "server.toml:2:", '"server.keepalive_timeout"', "at least 1 s"),
            ("[limits]\nsequence_number_ttl = []\n" + good, "server.toml:2:", '"limits.sequence_number_ttl"', '"5 min"'),
            ("[limits]\nmax_remembered_writers = -1\n" + good, "server.toml:2:", '"limits.max_remembered_writers"', "got -1"),
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
            ('[limits]\ndisconnected_session_ttl = "long"\n' + good, "server.toml:2:", '"limits.disconnected_session_ttl"', '"5 min"'),
            ("[limits]\ninsert_window_bytes = 0\n" + good, "server.toml:2:", "insert_window_bytes", "above 0", "got 0"),
            ('[limits]\nmax_message_bytes = "0 MB"\n' + good, "server.toml:2:", "above 0", 'got "0 MB"'),
            ("[limits]\nmax_streams = 0\n" + good, "server.toml:2:", '"limits.max_streams"', "from 1 on", "got 0"),
            ("[limits]\nclient = 3\n" + good, "server.toml:2:", '"limits.client"', "[limits.client]", "got 3"),
            ("[limits.client]\nmax_stream = 3\n" + good, "server.toml:2:", "limits.client.max_stream", 'Did you mean "max_streams"?'),
            ("[limits.client]\nmax_streams = 0\n" + good, "server.toml:2:", '"limits.client.max_streams"', "from 1 on"),
            ('[limits.client]\nmax_waiting_bytes = "0 B"\n' + good, "server.toml:2:", '"limits.client.max_waiting_bytes"', "above 0"),
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
            (good + 'layout = "some"\n', "server.toml:3:", '"table.layout"', '"first" or "any"', '"some"'),
            (good + good, "server.toml:4:", 'two tables named "t"'),
            ("[[table]]\nmax_size = 1\n", "server.toml:1:", '"table.name" is missing'),
            (f'[[table]]\nname = "{"x" * 1025}"\n', "server.toml:", "1025 bytes", "at most 1024"),
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

    def test_a_file_without_end(self):
        self.expect(("serve", "--check", "--config", "/dev/zero"), BAD_USAGE, "/dev/zero", "16 MiB", "TOML file")

    def test_a_pipe(self):
        ended = run("serve", "--check", "--config", "/dev/stdin", stdin=None, input='[[table]]\nname = "piped"\n')
        self.assertEqual(ended.returncode, OK, ended.stderr)
        self.assertIn("piped", ended.stdout)

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
            (("--table", "a", "--max-bytes", "0"), "--max-bytes", '"0"', "leave the flag out", "no bound"),
            (("--table", "a", "--max-bytes", "0.2"), "--max-bytes", '"0.2"', "no bound"),
            (("--table", "x" * 1025), "1025 bytes", "at most 1024"),
            (("--table", "caf\udce9"), "UTF-8"),  # the byte E9 alone
            (("--table", "a", "--port", "70000"), "--port"),
            (("--table", "a", "--log-level", "loud"), "--log-level", "loud", "warning"),
            (("--table", "a", "--log-format", "xml"), "--log-format", "xml", "json"),
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
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve("--table", "t")
            self.insert(server, "t", 3)
            start = time.monotonic()
            out, _ = server.stop(number)
            self.assertEqual(server.process.returncode, OK)
            self.assertLess(time.monotonic() - start, 5)
            self.assertIn(signal.Signals(number).name, out)
            self.assertIn("3 items", out)
            self.assertFalse(server.port_file.exists())

    def test_ignored_signals_stay_ignored(self):
        def ignore():
            for number in (signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)

        server = self.serve("--table", "t", prepare=ignore)
        for number in (signal.SIGHUP, signal.SIGINT):
            server.process.send_signal(number)
        self.info(server)
        out, _ = server.stop()
        self.assertEqual(server.process.returncode, OK)
        self.assertIn("SIGTERM: stopping", out)

    def test_waiting_clients_get_an_error(self):
        server = self.serve("--table", "t:uniform:fifo:10:min_size=5")
        words = [frame.program, "sample", server.address, "t", "--timeout", "20"]
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

    def test_listens_on_given_addresses(self):
        server = self.serve("--table", "t", "--host", "0.0.0.0")
        self.expect(("info", f"127.0.0.1:{server.port}"), OK, "t")
        out, _ = server.stop()
        self.assertNotIn("this machine only", out)

    def test_serves_again_after_it_ran_out_of_descriptors(self):
        def few_descriptors():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        server = self.serve("--table", "t", prepare=few_descriptors)
        with contextlib.ExitStack() as connections:
            for _ in range(80):
                connections.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE))
            self.expect(("info", server.address), UNREACHABLE, "closes new connections", "file descriptors")
        wait_until("an answer", lambda: run("info", server.address).returncode == OK)
        self.insert(server, "t", 3)
        _, err = server.stop()
        self.assertEqual(server.process.returncode, OK)
        self.assertRegex(err, r"warning: refused a connection .* 64 file descriptors .*ulimit -n")

    def test_uses_all_descriptors_that_the_system_allows(self):
        def low_soft_limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        server = self.serve("--table", "t", prepare=low_soft_limit)
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        self.assertEqual(soft, hard)
