"""Tests the output of `reverb info` and of its watch mode, and the documented fields of its JSON."""

import json
import re
import signal
import subprocess

from documented_fields import COLUMN_FIELDS, ITEM_FIELDS, check_fields, documented
import frame
from frame import OK, PATIENCE, UNREACHABLE, ProgramTest, Terminal, environment, run, wait_until

HOME = "\x1b[H"  # moves the cursor to the corner: the start of a page


class Info(ProgramTest):
    def test_json_has_the_documented_fields(self):
        table = "t:prioritized=0.8:fifo:100:min_size=2"
        server = self.serve("--table", table, "--table", "q:queue:2", "--max-bytes", "1GiB")
        self.insert(server, "t", 3)
        info = self.info(server)
        documents = frame.source / "docs"
        check_fields(self, info, documented(documents, "The server"))
        for table in info["tables"]:
            check_fields(self, table, documented(documents, "A table"))
            check_fields(self, table["rate_limiter"], documented(documents, "A table", inside="rate_limiter"))
        table = info["tables"][0]
        self.assertEqual((table["name"], table["size"], table["max_size"], table["inserts"]), ("t", 3, 100, 3))
        self.assertEqual((table["sampler"], table["remover"]), ("prioritized=0.8", "fifo"))
        check_fields(self, info["memory"], documented(documents, "`memory`"))
        self.assertGreaterEqual(info["memory"]["used"], info["stored_bytes"])
        self.assertEqual(info["memory"]["stored"], info["stored_bytes"])
        self.assertEqual(info["max_bytes"], 1 << 30)
        self.assertGreater(info["stored_bytes"], 0)
        self.assertRegex(info["server"], r"^reverb \d")
        self.assertIsNone(table["rate_limiter"]["max_diff"])
        self.assertEqual(info["tables"][1]["rate_limiter"]["max_diff"], 2)
        text = (documents / "program.md").read_text()
        for name in (*ITEM_FIELDS, *COLUMN_FIELDS):
            self.assertIn(f"`{name}`", text)

    def test_several_servers_and_their_sum(self):
        servers = []
        for shard, count in ((11, 3), (12, 5)):
            folder = self.folder / str(shard)
            folder.mkdir()
            register = f"file://{self.folder}/servers"
            server = frame.Server(folder, "--table", "t", "--shard", str(shard), "--register", register)
            self.end_with_test(server.process)
            self.insert(server, "t", count)
            servers.append(server)
        for address in (",".join(server.address for server in servers), f"file://{self.folder}/servers"):
            info = json.loads(self.expect(("info", address, "--json"), OK))
            self.assertEqual([(table["name"], table["size"]) for table in info["tables"]], [("t", 8)])
            found = {server["shard"]: server["tables"][0]["size"] for server in info["servers"]}
            self.assertEqual(found, {11: 3, 12: 5})
            self.assertIsNone(info["transport"])
            page = self.expect(("info", address), OK, "(2 servers)", "SHARD")
            self.assertRegex(page, r"localhost:\d+ +11 +3 |127\.0\.0\.1:\d+ +11 +3 ")
        servers[0].process.kill()
        servers[0].process.wait()
        address = ",".join(server.address for server in servers)
        info = json.loads(self.expect(("info", address, "--json", "--timeout", "3"), OK))
        self.assertEqual(info["tables"][0]["size"], 5)
        self.assertIn("error", info["servers"][0])
        self.expect(("info", address, "--timeout", "3"), OK, "does not answer")

    def test_shows_the_transport(self):
        server = self.serve("--table", "t")
        info = self.info(server)
        self.assertEqual(info["transport"], "local")
        self.assertTrue(info["local_path"].endswith(f"-{server.port}.sock"), info["local_path"])
        self.assertIn(f" at {server.address} (local), up ", self.expect(("info", server.address), OK))
        over_grpc = run("info", server.address, env=environment(REVERB_LOCAL="0"))
        self.assertIn(f" at {server.address} (gRPC), up ", over_grpc.stdout)

    def test_shows_the_memory_of_streams(self):
        server = self.serve("--table", "t:uniform:fifo:100:min_size=5", "--memory-limit", "16MiB")
        for _ in range(2):
            self.start_client("sample", server.address, "t", 1)
        wait_until("two streams", lambda: self.info(server)["memory"]["sessions"] >= 2 << 14)
        self.assertRegex(self.expect(("info", server.address), OK), r"\nmemory: .*, [0-9.]+ KiB sessions\n")

    def test_a_server_without_a_local_endpoint(self):
        (self.folder / "server.toml").write_text('[server]\nlocal = false\n[[table]]\nname = "t"\n')
        info = self.info(self.serve("--config", self.folder / "server.toml"))
        self.assertEqual((info["transport"], info["local_path"]), ("gRPC", ""))

    def test_a_local_socket_of_another_path(self):
        path = self.folder / "replay.sock"
        (self.folder / "server.toml").write_text(
            f'[server]\nlocal = "any user"\nlocal_path = "{path}"\n[[table]]\nname = "t"\n'
        )
        server = self.serve("--config", self.folder / "server.toml")
        self.assertIn(f" at unix:{path} (local), up ", self.expect(("info", f"unix:{path}"), OK))
        self.assertEqual(self.info(server)["transport"], "gRPC")
        self.expect(("info", f"unix:{self.folder}/none"), UNREACHABLE, "no server at", "No such file", "local_path")
        server.stop()
        self.expect(("info", f"unix:{path}"), UNREACHABLE, "no server at")

    def test_lists_waiting_clients_and_reasons(self):
        server = self.serve("--table", "t:uniform:fifo:100:min_size=5", "--table", "q:queue:2")
        self.start_client("sample", server.address, "t", 7)
        self.start_client("insert", server.address, "q", 3)

        def both():
            info = self.info(server)
            return info if len(info["waiters"]) == 2 else None

        info = wait_until("two that wait", both)
        for waiter in info["waiters"]:
            check_fields(self, waiter, documented(frame.source / "docs", "A waiter"))
            self.assertRegex(waiter["address"], r"^pid \d+$")
        by_table = {waiter["table"]: waiter for waiter in info["waiters"]}
        self.assertEqual((by_table["t"]["operation"], by_table["t"]["reason"]), ("sample", "min_size"))
        self.assertEqual((by_table["t"]["client"], by_table["t"]["count"]), ("test sample", 7))
        self.assertEqual((by_table["q"]["operation"], by_table["q"]["reason"]), ("insert", "too_many_inserts"))
        self.assertEqual((by_table["q"]["client"], by_table["q"]["count"]), ("test insert", 1))
        page = self.expect(("info", server.address), OK)
        self.assertIn("1 sample waits: too few items to sample (0 of 5)\n", page)
        self.assertRegex(page, r"\n +test sample at pid \d+, 7 samples, for ")
        self.assertIn("1 insert waits: too many inserts per sample (cursor 2, most 2)\n", page)
        self.assertRegex(page, r"\n +test insert at pid \d+, 1 item, for ")
        self.assertIn("cursor 2 between 0 and 2 [-----------------------#]", page)

    def test_page_has_sizes_rates_and_limiters(self):
        server = self.serve("--table", "t:uniform:fifo:1000:min_size=5")
        self.insert(server, "t", 12)
        page = self.expect(("info", server.address), OK, "min size 5 reached", "sampler uniform, remover fifo", "up ")
        row = next(line for line in page.splitlines() if line.startswith("t "))
        self.assertRegex(row, r"^t +12 +1,000 +[\d.]+ \w+ +12 +[\d.]+ +0 +0 +-$")


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

    def test_rates_do_not_jump_when_a_server_of_a_set_answers_again(self):
        """Counters are saved, rates are not: those of a server that was restored from a checkpoint are 0."""
        saved = ("--table", "t", "--checkpoint", str(self.folder / "checkpoints"), "--checkpoint-on-stop")
        server = self.serve(*saved)
        self.insert(server, "t", 500)
        server.stop()
        servers = [self.serve(*saved)]
        for name in ("b", "c"):
            folder = self.folder / name
            folder.mkdir()
            servers.append(frame.Server(folder, "--table", "t"))
            self.end_with_test(servers[-1].process)
        address = ",".join(one.address for one in servers)
        watch = subprocess.Popen(
            [frame.program, "info", address, "--watch", "--json", "--every", "0.05", "--timeout", "0.5"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.end_with_test(watch)

        def next_with(count: int) -> dict:
            while True:
                info = json.loads(watch.stdout.readline())
                if sum("error" not in one for one in info["servers"]) == count:
                    return info

        next_with(3)
        servers[0].process.send_signal(signal.SIGSTOP)
        self.assertEqual(next_with(2)["tables"][0]["inserts"], 0)
        servers[0].process.send_signal(signal.SIGCONT)
        table = next_with(3)["tables"][0]
        self.assertEqual((table["inserts"], table["inserts_per_second"]), (500, 0))

    def test_ends_with_control_c(self):
        server = self.serve("--table", "replay")
        screen = Terminal("info", server.address, "--watch")
        screen.wait_for("replay")
        screen.type("\x03")
        self.assertEqual(screen.end(), OK)
        self.assertTrue(screen.text.endswith("\x1b[?25h\x1b[?1049l"))

    def test_ignored_signals_stay_ignored(self):
        server = self.serve("--table", "replay")
        process = subprocess.Popen(
            [frame.program, "info", server.address, "--watch", "--json", "--every", "0.05"],
            stdout=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        try:
            self.assertTrue(process.stdout.readline())
            process.send_signal(signal.SIGHUP)
            for _ in range(3):
                self.assertTrue(process.stdout.readline())
            process.terminate()
            process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, OK)
        finally:
            process.kill()
            process.communicate()

    def test_keeps_to_the_size_of_the_window(self):
        tables = [word for i in range(20) for word in ("--table", f"table{i}")]
        server = self.serve(*tables)
        screen = Terminal("info", server.address, "--watch", "--every", "0.1", rows=10, columns=40)
        screen.wait_for("table1")
        screen.resize(10, 40)
        drawn = screen.text.count(HOME)
        wait_until("two more pages", lambda: screen.read() and screen.text.count(HOME) >= drawn + 2)
        screen.type("q")
        self.assertEqual(screen.end(), OK)
        page = screen.text.split(HOME)[-1].partition("\x1b[?25h")[0]
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", page).split("\r\n")
        self.assertLessEqual(len(lines), 10)
        self.assertLessEqual(max(map(len, lines)), 40)

    def test_goes_on_when_the_server_comes_back(self):
        port = frame.lasting_port()
        server = self.serve("--table", "replay", port=port)
        screen = Terminal("info", server.address, "--watch", "--every", "0.1", "--timeout", "0.5")
        screen.wait_for("replay")
        server.stop()
        screen.wait_for("trying again")
        seen = len(screen.text)
        words = [frame.program, "serve", "--table", "second", "--port", str(port)]
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
            check_fields(self, json.loads(line), documented(frame.source / "docs", "The server"))

    def test_colours_on_a_terminal_unless_unwanted(self):
        server = self.serve("--table", "replay")
        for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            screen = Terminal("info", server.address, **more)
            self.assertEqual(screen.end(), OK)
            self.assertEqual("\x1b[" in screen.text, coloured, more)
