"""The admin port of `reverb serve`: metrics, health, JSON, event streams, and what it refuses."""

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import urllib.parse

from admin_client import Admin, Events, read_all, trusting
import documented_fields
import frame
from frame import BAD_USAGE, FAILED, OK, PATIENCE, ProgramTest, Server, environment, run, wait_until
from suite_access import make_authority, sign

# Names that a page or a metric must not take for markup.
HOSTILE = ["<script>alert(1)</script>", 'quo"te', "back\\slash", "new\nline", "a/b?c=d&e%41#f", "ümläut 💥", "</pre>'"]


def metrics_of(text: str) -> dict[str, float]:
    """Returns each sample of a scrape by its name and labels, as written; a mistake in a line is an error."""
    samples = {}
    families = set()
    family = None
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in families, f"{family} is there twice"
            families.add(family)
            continue
        if line.startswith("# TYPE "):
            assert line.split(" ")[2] == family, line
            assert line.split(" ")[3] in ("counter", "gauge", "histogram"), line
            continue
        found = re.fullmatch(r'(\w+)(\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (\S+)', line)
        assert found, line
        assert found[1] == family or found[1] in (f"{family}_bucket", f"{family}_sum", f"{family}_count"), line
        assert found[1] + (found[2] or "") not in samples, line
        samples[found[1] + (found[2] or "")] = float(found[3])
    return samples


class AdminTest(ProgramTest):
    def admin_words(self) -> tuple[str, ...]:
        return ("--admin-listen", "127.0.0.1:0", "--admin-port-file", str(self.folder / "admin-port"))

    def admin_port(self) -> int:
        return int((self.folder / "admin-port").read_text())

    def serve_admin(self, *words: str, **options) -> tuple[Server, Admin]:
        server = self.serve(*self.admin_words(), *words, **options)
        return server, Admin(self.admin_port())


class AdminPort(AdminTest):
    # --- Answers ---

    def test_metrics_follow_a_table(self):
        server, admin = self.serve_admin("--table", "replay:uniform:fifo:1000:min_size=5", "--max-bytes", "1GiB")
        before = metrics_of(admin.get("/metrics").text)
        self.assertEqual(before['reverb_table_inserts_total{table="replay"}'], 0)
        self.insert(server, "replay", 10)
        answer = admin.get("/metrics")
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        after = metrics_of(answer.text)
        self.assertEqual(after['reverb_table_inserts_total{table="replay"}'], 10)
        self.assertEqual(after['reverb_table_items{table="replay"}'], 10)
        self.assertEqual(after['reverb_table_limiter_min_size{table="replay"}'], 5)
        self.assertEqual(after['reverb_table_limiter_min{table="replay"}'], float("-inf"))
        self.assertEqual(after['reverb_table_item_age_seconds_bucket{table="replay",le="+Inf"}'], 10)
        self.assertEqual(after['reverb_table_item_times_sampled_bucket{table="replay",le="0"}'], 10)
        self.assertEqual(after["reverb_stored_limit_bytes"], 1 << 30)
        self.assertGreater(after["reverb_memory_limit_bytes"], 1 << 30)
        self.assertIn('reverb_memory_bytes{part="in_transit"}', after)
        self.assertGreater(after['reverb_memory_bytes{part="stored"}'], 0)
        self.assertGreater(after['reverb_memory_bytes{part="resident"}'], after['reverb_memory_bytes{part="stored"}'])
        self.assertEqual(after["reverb_server_ready"], 1)
        self.assertGreater(
            after['reverb_messages_total{direction="in"}'], before['reverb_messages_total{direction="in"}']
        )
        self.assertGreater(after['reverb_message_bytes_total{direction="out"}'], 0)

    def test_info_is_that_of_the_program_and_more(self):
        server, admin = self.serve_admin("--table", "replay")
        self.insert(server, "replay", 3)
        ours, theirs = admin.info(), self.info(server)
        self.assertEqual(list(ours)[: len(theirs)], list(theirs))
        self.assertEqual(ours["tables"][0]["inserts"], 3)
        self.assertEqual(
            {
                key: value
                for key, value in ours["tables"][0].items()
                if key in theirs["tables"][0] and "per_second" not in key
            },
            {key: value for key, value in theirs["tables"][0].items() if "per_second" not in key},
        )
        self.assertEqual(ours["address"], f"127.0.0.1:{server.port}")
        self.assertIsNone(ours["transport"])
        self.assertEqual((ours["ready"], ours["not_ready_reason"]), (True, None))
        version = run("--version").stdout.split()[1]
        self.assertEqual(ours["build"]["version"], version)
        self.assertEqual(sum(ours["tables"][0]["age_histogram"]["counts"]), 3)
        self.assertEqual(
            len(ours["tables"][0]["age_histogram"]["counts"]), len(ours["tables"][0]["age_histogram"]["bounds"]) + 1
        )

    def test_clients_and_waits_are_named(self):
        server, admin = self.serve_admin("--table", "t:uniform:fifo:10:min_size=100")
        words = [frame.program, "sample", server.address, "t", "--timeout", "1000"]
        sampler = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        self.end_with_test(sampler)
        wait_until("a waiting sampler", lambda: admin.info()["tables"][0]["waiting_samples"] == 1)
        info = admin.info()
        (client,) = info["clients"]
        self.assertEqual((client["transport"], client["samplers"], client["writers"]), ("local", 1, 0))
        self.assertEqual(info["connections"], {"local": 1, "grpc": 0, "inproc": 0})
        self.assertEqual(info["streams"]["sample"], 1)
        self.assertEqual(info["waiters"][0]["reason"], "min_size")
        samples = metrics_of(admin.get("/metrics").text)
        self.assertEqual(samples['reverb_table_waiting{table="t",operation="sample"}'], 1)
        self.assertGreater(samples['reverb_table_longest_wait_seconds{table="t"}'], 0)
        sampler.send_signal(signal.SIGINT)
        sampler.wait(PATIENCE)
        wait_until("the end of the wait", lambda: not admin.info()["clients"])
        self.assertGreater(admin.info()["tables"][0]["wait_seconds"]["sample"]["min_size"], 0)

    def test_items_are_those_of_peek(self):
        server, admin = self.serve_admin("--table", "t")
        self.insert(server, "t", 25)
        peeked = [
            json.loads(line)
            for line in self.expect(
                ("peek", server.address, "t", "--n", "25", "--values", "4", "--json"), OK
            ).splitlines()
        ]
        seen = []
        after = ""
        while True:
            answer = admin.get(f"/api/v1/tables/t/items?limit=10&values=4{after}").json
            self.assertEqual((answer["table"], answer["kind"], answer["total"]), ("t", "items", 25))
            seen += answer["items"]
            if answer["next"] is None:
                break
            self.assertEqual(len(answer["items"]), 10)
            after = f"&after={answer['next']}"
        for item in (*peeked, *seen):
            documented_fields.check_fields(self, item, documented_fields.ITEM_FIELDS)
            del item["age_seconds"]
        self.assertEqual(seen, peeked)

    def test_names_are_escaped(self):
        config = self.folder / "server.toml"
        config.write_text("".join(f"[[table]]\nname = {json.dumps(name, ensure_ascii=False)}\n" for name in HOSTILE))
        _, admin = self.serve_admin("--config", str(config))
        self.assertEqual([table["name"] for table in admin.info()["tables"]], HOSTILE)
        samples = metrics_of(admin.get("/metrics").text)
        for name in HOSTILE:
            label = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            self.assertEqual(samples[f'reverb_table_items{{table="{label}"}}'], 0)
            answer = admin.get(f"/api/v1/tables/{urllib.parse.quote(name, safe='')}/items")
            self.assertEqual((answer.status, answer.json["table"]), (200, name))
        answer = admin.get("/api/v1/tables/%3Cscript%3E/items")
        self.assertEqual(answer.status, 404)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertIn("<script>", answer.json["error"])

    def test_page_and_openapi_have_safe_headers(self):
        _, admin = self.serve_admin("--table", "t")
        page = admin.get("/")
        self.assertEqual((page.status, page.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = page.headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        for kind in ("script", "style"):
            self.assertRegex(policy, rf"{kind}-src 'sha256-[A-Za-z0-9+/]{{43}}=';")
        self.assertNotIn("'unsafe-", policy)
        self.assertEqual(page.headers["X-Frame-Options"], "DENY")
        paths = admin.get("/openapi.json").json["paths"]
        self.assertIn("/api/v1/info", paths)
        head = admin.get("/", method="HEAD")
        self.assertEqual((head.status, head.body, head.headers["Content-Length"]), (200, b"", str(len(page.body))))

    # --- Health ---

    def test_ready_after_the_load(self):
        """src/api/public_admin_test.cc has the answers during the load."""
        words = ("--table", "t", "--checkpoint", str(self.folder / "root"), "--checkpoint-on-stop")
        server, admin = self.serve_admin(*words)
        self.assertEqual((admin.get("/readyz").status, admin.get("/readyz").text), (200, "ready\n"))
        self.insert(server, "t", 2000)
        server.stop()
        self.assertFalse((self.folder / "admin-port").exists())
        _, admin = self.serve_admin(*words)
        self.assertEqual(admin.get("/readyz").status, 200)
        self.assertEqual(admin.info()["tables"][0]["size"], 2000)

    def test_not_ready_while_inserts_wait_for_memory(self):
        server, admin = self.serve_admin("--table", "t", "--max-bytes", "200kB")
        self.assertEqual(admin.get("/readyz").status, 200)
        self.start_client("insert", server.address, "t", 100_000)
        wait_until("the reason", lambda: "memory is exhausted" in admin.get("/readyz").text)
        answer = admin.get("/readyz")
        self.assertEqual((answer.status, '"t"' in answer.text), (503, True))
        self.assertEqual(metrics_of(admin.get("/metrics").text)["reverb_server_ready"], 0)
        info = admin.info()
        self.assertEqual((info["ready"], "max_bytes" in info["not_ready_reason"]), (False, True))

    def test_checkpoints_are_reported(self):
        server, admin = self.serve_admin("--table", "t", "--checkpoint", str(self.folder / "root"))
        self.insert(server, "t", 5)
        before = admin.info()["checkpoint"]
        self.assertEqual((before["count"], before["last_time_seconds"], before["running"]), (0, None, False))
        self.assertGreater(before["disk_free_bytes"], 0)
        self.expect(("checkpoint", "save", server.address), OK)
        wait_until("the checkpoint", lambda: admin.info()["checkpoint"]["count"] == 1)
        after = admin.info()["checkpoint"]
        self.assertGreater(after["last_bytes"], 0)
        self.assertIsNone(after["last_error"])
        samples = metrics_of(admin.get("/metrics").text)
        self.assertEqual(samples["reverb_checkpoint_writes_total"], 1)
        self.assertLess(samples["reverb_checkpoint_last_age_seconds"], PATIENCE)
        self.assertEqual(samples["reverb_checkpoint_last_bytes"], after["last_bytes"])

    def test_refusals_are_counted(self):
        server, admin = self.serve_admin("--table", "t")
        self.assertEqual(admin.info()["errors"]["NOT_FOUND"], 0)
        self.expect(("sample", server.address, "t2", "--timeout", "5"), frame.NOT_FOUND)
        run("reset", server.address, "t2", "--yes")
        words = [frame.client, "insert", server.address, "missing", "1"]
        subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
        wait_until("a refusal", lambda: admin.info()["errors"]["NOT_FOUND"] > 0)
        self.assertGreater(metrics_of(admin.get("/metrics").text)['reverb_errors_total{code="NOT_FOUND"}'], 0)

    # --- Mistakes ---

    def test_mistakes_are_explained(self):
        _, admin = self.serve_admin("--table", "t")
        for path, status, part in (
            ("/api/v1/tables/t/items?limit=101", 400, "limit"),
            ("/api/v1/tables/t/items?limit=x", 400, '"x"'),
            ("/api/v1/tables/t/items?values=-1", 400, "values"),
            ("/api/v1/tables/t/items?images=yes", 400, "0 or 1"),
            ("/api/v1/tables/t/items?after=abc", 400, "next"),
            ("/api/v1/tables/t/items?limits=1", 400, '"limits"'),
            ("/api/v1/tables/t/items?limit=1&limit=2", 400, "twice"),
            ("/api/v1/stream?interval=0.1", 400, "0.2"),
            ("/api/v1/stream?interval=nan", 400, "interval"),
            ("/api/v1/info?x=1", 400, '"x"'),
            ("/api/v1/tables/%ZZ/items", 400, "%25"),
            ("/api/v1/tables/u/items", 404, '"u"'),
            ("/api/v1/nothing", 404, "/api/v1/info"),
            ("/metrics/", 404, "/metrics"),
        ):
            with self.subTest(path):
                answer = admin.get(path)
                self.assertEqual(answer.status, status, answer.body)
                self.assertIn(part, answer.json["error"])
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
            with self.subTest(method):
                answer = admin.get("/api/v1/info", method=method)
                self.assertEqual((answer.status, answer.headers["Allow"]), (405, "GET, HEAD"))
                self.assertIn("GET", answer.json["error"])

    def test_other_hosts_and_origins_are_refused(self):
        config = self.folder / "server.toml"
        config.write_text('[admin]\nlisten = "127.0.0.1:0"\nhosts = ["Replay.example.org"]\n[[table]]\nname = "t"\n')
        self.serve("--config", str(config), "--admin-port-file", str(self.folder / "admin-port"))
        admin = Admin(self.admin_port())
        port = admin.port
        for host in (
            f"localhost:{port}",
            "localhost:1",
            f"127.0.0.1:{port}",
            "127.1.2.3",
            "[::1]:80",
            "replay.example.org",
            "REPLAY.example.org:9",
        ):
            with self.subTest(host):
                self.assertEqual(admin.get("/api/v1/info", Host=host).status, 200)
                self.assertEqual(admin.get("/api/v1/info", Host=host, Origin=f"http://{host}").status, 200)
                answer = admin.get("/api/v1/info", Host=host, Origin="http://evil.example")
                self.assertEqual((answer.status, "evil.example" in answer.json["error"]), (403, True))
        for path in (
            "/",
            "/metrics",
            "/healthz",
            "/readyz",
            "/openapi.json",
            "/api/v1/info",
            "/api/v1/stream",
            "/api/v1/tables/t/items",
        ):
            for host in (
                "evil.example",
                f"evil.example:{port}",
                "localhost.evil.example",
                "127.0.0.1.evil.example",
                "replay.example.org.evil",
            ):
                with self.subTest(path=path, host=host):
                    answer = admin.get(path, Host=host)
                    self.assertEqual((answer.status, "hosts" in answer.json["error"]), (403, True))
            self.assertEqual(admin.get(path, Origin="null").status, 403)
        for text in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        ):
            with self.subTest(text):
                answer = admin.send(text)
                self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer[:200])
                self.assertIn(b"Connection: close\r\n", answer)

    # --- Hostile clients ---

    def test_malformed_requests_end_their_connection_only(self):
        server, admin = self.serve_admin("--table", "t")
        for text, start in (
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET / HTTP/9.9\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"HTTP/1.1 431 "),
            (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 431 "),
            (
                b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
                b"HTTP/1.1 200 ",
            ),
            (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"HTTP/1.1 400 "),
        ):
            with self.subTest(text[:40]):
                answer = admin.send(text)
                self.assertTrue(answer.startswith(start), answer[:200])
        self.assertEqual(admin.get("/healthz").status, 200)
        self.assertIsNone(server.process.poll())

    def test_a_connection_serves_many_requests(self):
        _, admin = self.serve_admin("--table", "t")
        with contextlib.closing(admin.connect()) as connection:
            for path in ("/healthz", "/api/v1/info", "/metrics", "/nothing", "/healthz"):
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                self.assertEqual(answer.status, 404 if path == "/nothing" else 200)
        # Requests that are sent ahead are answered in order.
        request = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
        answers = admin.send(
            request % (b"healthz", b"") + request % (b"nothing", b"") + request % (b"healthz", b"Connection: close\r\n")
        )
        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", answers), [b"200", b"404", b"200"])

    def test_a_thousand_connections_do_not_lock_others_out(self):
        server, admin = self.serve_admin("--table", "t")
        with contextlib.ExitStack() as stack:
            for _ in range(1000):
                connection = stack.enter_context(admin.raw())
                connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")  # and never the rest
            self.assertEqual(admin.get("/healthz").text, "ok\n")
            self.assertEqual(admin.info()["tables"][0]["name"], "t")
        descriptors = len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))
        self.assertLess(descriptors, 600)
        server.stop()
        self.assertEqual(server.process.returncode, OK)

    def test_slow_clients_are_disconnected(self):
        server, admin = self.serve_admin("--table", "t")
        with admin.raw() as slow:
            slow.sendall(b"GET /metrics HTT")
            # The server ends it after ten seconds, whatever is trickled in.
            self.assertEqual(read_all(slow), b"")
        self.assertEqual(admin.get("/healthz").status, 200)
        self.assertIsNone(server.process.poll())

    # --- Event streams ---

    def test_events_follow_the_server_and_end_with_it(self):
        server, admin = self.serve_admin("--table", "t")
        events = Events(admin)
        self.addCleanup(events.close)
        self.assertEqual(events.answer.headers["Content-Type"], "text/event-stream")
        self.assertEqual(events.next()["tables"][0]["inserts"], 0)
        self.insert(server, "t", 7)
        wait_until("the inserts", lambda: events.next()["tables"][0]["inserts"] == 7)
        server.process.send_signal(signal.SIGTERM)
        last = {}
        while (event := events.next()) is not None:
            last = event
        server.process.communicate(timeout=PATIENCE)
        self.assertEqual(server.process.returncode, OK)
        self.assertIn(last.get("not_ready_reason"), (None, "the server is stopping"))

    def test_event_streams_are_bounded(self):
        _, admin = self.serve_admin("--table", "t")
        with contextlib.ExitStack() as stack:
            streams = []
            for _ in range(64):
                events = Events(admin, "/api/v1/stream?interval=60")
                stack.callback(events.close)
                self.assertEqual(events.answer.status, 200)
                streams.append(events)
            answer = admin.get("/api/v1/stream")
            self.assertEqual((answer.status, "64" in answer.json["error"]), (503, True))
            self.assertEqual(admin.get("/healthz").status, 200)
        wait_until("the streams to be given up", lambda: self.opens_stream(admin))

    def opens_stream(self, admin: Admin) -> bool:
        events = Events(admin)
        events.close()
        return events.answer.status == 200

    # --- Configuration ---

    def test_the_default_port_gives_way(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            words = ("serve", "--port", "0", "--table", "t", "--admin-listen", f"127.0.0.1:{port}")
            self.expect(words, FAILED, f"127.0.0.1:{port}", "is taken")
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # taken already
                stack.enter_context(socket.create_server(("127.0.0.1", 8001)))
            server = self.serve("--table", "t", "--admin-port-file", str(self.folder / "admin-port"))
            self.assertNotEqual(self.admin_port(), 8001)
            self.assertEqual(Admin(self.admin_port()).get("/healthz").status, 200)
            port = self.admin_port()
            out, _ = server.stop()
            self.assertIn(f"http://127.0.0.1:{port}/", out)
        self.assertFalse((self.folder / "admin-port").exists())

    def test_no_admin_port(self):
        server = self.serve("--table", "t", "--admin-listen", "none")
        out, _ = server.stop()
        self.assertNotIn("http://", out)
        config = self.folder / "server.toml"
        config.write_text('[admin]\nlisten = "none"\n[[table]]\nname = "t"\n')
        (self.folder / "port").unlink(missing_ok=True)
        server = self.serve("--config", str(config))
        out, _ = server.stop()
        self.assertNotIn("http://", out)

    def test_mistakes_in_the_configuration(self):
        serve = ("serve", "--port", "0", "--table", "t")
        for address in ("8001", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:80", "no such host:80"):
            with self.subTest(address):
                self.expect(
                    (*serve, "--admin-listen", address),
                    BAD_USAGE,
                    f'"{address.rpartition(":")[0] if "no such" in address else address}"',
                    "admin port",
                )
        config = self.folder / "server.toml"
        for text, part in (
            ("listen = 8001", '"admin.listen"'),
            ('hosts = "a"', '"admin.hosts"'),
            ('host = "a"', 'Did you mean "hosts"?'),
            ('hosts = ["a b"]', '"a b"'),
            ('hosts = ["a:80"]', "without a port"),
        ):
            with self.subTest(text):
                config.write_text(f"[admin]\n{text}\n")
                self.expect((*serve, "--config", config), BAD_USAGE, part)

    def test_exposure_is_warned_of_and_refused_when_strict(self):
        serve = ("--table", "t", "--admin-listen", "0.0.0.0:0")
        server = self.serve(*serve)
        _, err = server.stop()
        self.assertIn("everybody who reaches the admin port", err)
        self.expect(("serve", "--port", "0", *serve, "--strict"), FAILED, "0.0.0.0", "strict")


class AdminAccess(AdminTest):
    def new_token(self, name: str, *words: str) -> str:
        return self.expect(("token", "new", name, "--file", self.folder / "tokens", *words), OK).strip()

    def test_tokens_and_paths(self):
        tokens = {
            "reader": self.new_token("reader", "--rights", "read"),
            "writer": self.new_token("writer", "--rights", "write,admin"),
            "other": self.new_token("other", "--rights", "read", "--tables", "b*"),
            "expired": self.new_token("expired", "--rights", "read", "--expires-in", "0.05 s"),
        }
        wait_until(
            "the token to expire",
            lambda: "(expired)" in self.expect(("token", "list", "--file", self.folder / "tokens"), OK),
        )
        _, admin = self.serve_admin("--table", "a", "--table", "b", "--tokens-file", str(self.folder / "tokens"))
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            self.assertEqual(admin.get(path).status, 200, path)
        for path in ("/metrics", "/api/v1/info", "/api/v1/tables/b/items", "/api/v1/stream"):
            for token, status in (("", 401), ("rvb_unknown", 401), (tokens["expired"], 401), (tokens["writer"], 403)):
                with self.subTest(path=path, status=status):
                    answer = admin.get(path, token=token)
                    self.assertEqual(answer.status, status, answer.body)
                    self.assertIn("token", answer.json["error"])
                    if status == 401:
                        self.assertTrue(answer.headers["WWW-Authenticate"].startswith("Bearer"))
                    if token:
                        self.assertNotIn(token, answer.text)
            if path != "/api/v1/stream":
                self.assertEqual(admin.get(path, token=tokens["reader"]).status, 200)
                self.assertEqual(admin.get(path, token=tokens["other"]).status, 200)
        self.assertIn("read", admin.get("/metrics", token=tokens["writer"]).json["error"])
        info = admin.get("/api/v1/info", token=tokens["other"]).json
        self.assertEqual([table["name"] for table in info["tables"]], ["b"])
        metrics = admin.get("/metrics", token=tokens["other"]).text
        self.assertIn('reverb_table_items{table="b"}', metrics)
        self.assertNotIn('table="a"', metrics)
        self.assertEqual(admin.get("/api/v1/tables/a/items", token=tokens["other"]).status, 403)
        answer = admin.get("/metrics", Authorization=f"Basic {tokens['reader']}")
        self.assertEqual(answer.status, 401)

    def test_a_stream_ends_with_its_token(self):
        token = self.new_token("viewer", "--rights", "read", "--tables", "a")
        _, admin = self.serve_admin("--table", "a", "--table", "b", "--tokens-file", str(self.folder / "tokens"))
        events = Events(admin, token=token)
        self.addCleanup(events.close)
        self.assertEqual([table["name"] for table in events.next()["tables"]], ["a"])
        self.expect(("token", "remove", "viewer", "--file", self.folder / "tokens"), OK)
        wait_until("the end of the stream", lambda: events.next() is None)

    # --- TLS ---

    def tls_words(self) -> tuple[str, ...]:
        return ("--tls-certificate", str(self.folder / "server.crt"), "--tls-key", str(self.folder / "server.key"))

    def test_tls_and_new_certificates(self):
        make_authority(self.folder)
        sign(self.folder, "server")
        server, plain = self.serve_admin("--table", "t", *self.tls_words())
        admin = Admin(plain.port, trusting(self.folder))
        self.assertEqual(admin.info()["tables"][0]["name"], "t")
        events = Events(admin)
        self.addCleanup(events.close)
        self.assertEqual(len(events.next()["tables"]), 1)

        def serial() -> str:
            with admin.raw() as connection, admin.tls.wrap_socket(connection, server_hostname="127.0.0.1") as secure:
                return secure.getpeercert()["serialNumber"]

        first = serial()
        sign(self.folder, "server")
        wait_until("the new certificate", lambda: serial() != first)
        self.assertEqual(len(events.next()["tables"]), 1)
        # Plaintext on a TLS port ends at once.
        answer = plain.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertNotIn(b"200 OK", answer)
        out, _ = server.stop()
        self.assertIn(f"https://127.0.0.1:{plain.port}/", out)
        self.assertEqual(server.process.returncode, OK)

    def test_client_certificates(self):
        make_authority(self.folder)
        sign(self.folder, "server")
        sign(self.folder, "client", "DNS:client")
        _, plain = self.serve_admin("--table", "t", *self.tls_words(), "--tls-client-ca", str(self.folder / "ca.crt"))
        known = trusting(self.folder)
        known.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        self.assertEqual(Admin(plain.port, known).get("/healthz").status, 200)
        with self.assertRaises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            Admin(plain.port, trusting(self.folder)).get("/healthz")

    def test_half_open_handshakes_are_ended(self):
        make_authority(self.folder)
        sign(self.folder, "server")
        server, plain = self.serve_admin("--table", "t", *self.tls_words())
        admin = Admin(plain.port, trusting(self.folder))
        with contextlib.ExitStack() as stack:
            silent = stack.enter_context(plain.raw())
            partial = stack.enter_context(plain.raw())
            partial.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
            others = [stack.enter_context(plain.raw()) for _ in range(300)]
            self.assertEqual(len(others), 300)
            self.assertEqual(admin.get("/healthz").status, 200)
            # Ended for newer ones, or after ten seconds.
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for end in pool.map(read_all, (silent, partial)):
                    self.assertEqual(end, b"")
        server.stop()
        self.assertEqual(server.process.returncode, OK)
