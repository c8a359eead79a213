"""Tokens and TLS of `reverb serve`, `reverb token`, and the commands of docs/operations.md."""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import time

import frame
from frame import BAD_USAGE, FAILED, NOT_FOUND, OK, PATIENCE, ProgramTest, environment, run, wait_until


def openssl(folder: pathlib.Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=PATIENCE)


def make_authority(folder: pathlib.Path) -> None:
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
            "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip


def sign(folder: pathlib.Path, name: str, names: str = "DNS:localhost,IP:127.0.0.1") -> None:
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={names}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-copy_extensions", "copy", "-days", "30", "-out", f"{name}.crt")  # fmt: skip


class Access(ProgramTest):
    def new_token(self, name: str, *words: str) -> pathlib.Path:
        """Returns the file of a new token."""
        text = self.expect(("token", "new", name, "--file", self.folder / "tokens", *words), OK)
        path = self.folder / f"{name}.token"
        path.write_text(text)
        return path

    # --- reverb token ---

    def test_tokens_are_printed_once_and_stored_as_hashes(self):
        token = self.new_token("actors", "--rights", "write,read", "--tables", "replay*,a b").read_text().strip()
        self.assertRegex(token, r"^rvb_[A-Za-z0-9_-]{43}$")
        tokens = self.folder / "tokens"
        self.assertEqual(stat.S_IMODE(tokens.stat().st_mode), 0o600)
        self.assertNotIn(token, tokens.read_text())
        self.new_token("brief", "--rights", "read", "--expires-in", "0.1 s", "--max-streams", "3",
                       "--max-bytes-per-second", "1MB", "--max-waiting-bytes", "4 MiB")  # fmt: skip
        wait_until(
            "the token to expire",
            lambda: "(expired)" in self.expect(("token", "list", "--file", tokens), OK, "actors", "read,write", "a b"),
        )
        self.expect(("token", "list", "--file", tokens), OK, "brief", "3 streams", "/s", "4 MiB waiting")
        self.expect(("token", "remove", "brief", "--file", tokens), OK, '"brief"')
        self.expect(("token", "remove", "brief", "--file", tokens), NOT_FOUND, '"brief"')

    def test_mistakes(self):
        tokens = self.folder / "tokens"
        for words, code, *parts in (
            (("new", "a", "--rights", "reed"), BAD_USAGE, '"reed"', "read, write, admin"),
            (("new", "a b", "--rights", "read"), BAD_USAGE, "name of a token"),
            (("new", "a", "--rights", "read", "--expires-in", "soon"), BAD_USAGE, "--expires-in"),
            (("list",), NOT_FOUND, "does not exist", "reverb token new"),
        ):
            with self.subTest(words):
                self.expect(("token", *words, "--file", tokens), code, *parts)
        self.new_token("a", "--rights", "read")
        self.expect(("token", "new", "a", "--rights", "read", "--file", tokens), FAILED, "already")
        tokens.write_text("what is this\n")
        self.expect(("token", "list", "--file", tokens), BAD_USAGE, "line 1")
        self.expect(("serve", "--table", "t", "--port", "0", "--tokens-file", tokens), BAD_USAGE, "line 1")

    # --- Servers that need tokens ---

    def test_rights_of_a_running_server(self):
        reader = self.new_token("reader", "--rights", "read")
        writer = self.new_token("writer", "--rights", "write", "--tables", "other")
        server = self.serve("--table", "t", "--tokens-file", str(self.folder / "tokens"))
        for address in (server.address, f"127.0.0.1:{server.port}"):
            self.expect(("info", address), FAILED, "needs a token", "REVERB_TOKEN")
            self.expect(("info", address, "--token-file", reader), OK, "t")
            said = self.expect(("reset", address, "t", "--yes", "--token-file", reader), FAILED, 'token "reader"', '"admin"')
            self.assertNotIn(reader.read_text().strip(), said)
            self.expect(("peek", address, "t", "--token-file", writer), NOT_FOUND, '"t"')
        # Over gRPC as well.
        ended = run("info", server.address, env=environment(REVERB_LOCAL="0"))
        self.assertEqual((ended.returncode, "needs a token" in ended.stderr), (FAILED, True), ended.stderr)
        ended = run("info", server.address, env=environment(REVERB_LOCAL="0", REVERB_TOKEN=reader.read_text().strip()))
        self.assertEqual(ended.returncode, OK, ended.stderr)
        _, err = server.stop()
        self.assertIn('audit: Reset table="t" token="reader"', err)
        self.assertIn("result=PERMISSION_DENIED", err)
        self.assertNotIn(reader.read_text().strip(), err)

    def test_sighup_reads_tokens_again_and_reports_damage(self):
        first = self.new_token("first", "--rights", "read")
        server = self.serve("--table", "t", "--tokens-file", str(self.folder / "tokens"))
        second = self.new_token("second", "--rights", "read")
        server.process.send_signal(signal.SIGHUP)
        wait_until("the second token", lambda: run("info", server.address, "--token-file", second).returncode == OK)
        (self.folder / "tokens").write_text("damaged\n")
        server.process.send_signal(signal.SIGHUP)
        self.expect(("info", server.address, "--token-file", first), OK)
        _, err = server.stop()
        self.assertIn("reloaded certificates and tokens", err)
        self.assertIn("certificates and tokens: not reloaded, what was read before stays in use", err)
        self.assertIn("line 1", err)
        self.assertEqual(server.process.returncode, OK)

    def test_waits_end_when_the_token_is_removed(self):
        token = self.new_token("sampler", "--rights", "read")
        server = self.serve("--table", "t", "--tokens-file", str(self.folder / "tokens"))
        for local in ("0", "1"):
            with self.subTest(local=local):
                known = ("info", server.address, "--token-file", token)
                wait_until("the server to know the token", lambda known=known: run(*known).returncode == OK)
                words = [frame.program, "sample", server.address, "t", "--timeout", "1000", "--token-file", str(token)]
                sampler = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment(REVERB_LOCAL=local))
                self.end_with_test(sampler)
                admin = self.new_token(f"admin-{local}", "--rights", "read")

                def waits(admin=admin):
                    ended = run("info", server.address, "--json", "--token-file", admin)
                    return ended.returncode == OK and '"waiting_samples":1' in ended.stdout.replace(" ", "")

                wait_until("a waiting sampler", waits)
                self.expect(("token", "remove", "sampler", "--file", self.folder / "tokens"), OK)
                _, err = sampler.communicate(timeout=PATIENCE)
                self.assertEqual(sampler.returncode, FAILED, err)
                self.assertIn('token "sampler" was removed', err)
                token = self.new_token("sampler", "--rights", "read")

    # --- TLS ---

    def test_tls_and_its_errors(self):
        make_authority(self.folder)
        sign(self.folder, "server")
        sign(self.folder, "client", "DNS:client")
        here = self.folder
        server = self.serve("--table", "t", "--tls-certificate", str(here / "server.crt"), "--tls-key",
                            str(here / "server.key"), "--tls-client-ca", str(here / "ca.crt"))  # fmt: skip

        def info(*words: object, **more: str) -> subprocess.CompletedProcess:
            start = time.monotonic()
            ended = run("info", server.address, "--timeout", "20", *words, env=environment(REVERB_LOCAL="0", **more))
            self.assertLess(time.monotonic() - start, 15, "an error, not a timeout")
            return ended

        with_certificate = ("--tls-certificate", here / "client.crt", "--tls-key", here / "client.key")
        ended = info("--tls-ca", here / "ca.crt", *with_certificate)
        self.assertEqual(ended.returncode, OK, ended.stderr)
        ended = info(REVERB_TLS_CA=str(here / "ca.crt"), REVERB_TLS_CERTIFICATE=str(here / "client.crt"),
                     REVERB_TLS_KEY=str(here / "client.key"))  # fmt: skip
        self.assertEqual(ended.returncode, OK, ended.stderr)
        for words, part in (
            ((), "speaks TLS, and this client plaintext"),
            (("--tls-ca", here / "ca.crt"), "requires a client certificate"),
            (("--tls-ca", here / "client.crt", *with_certificate), "not signed by an authority"),
            (("--tls-ca", here / "ca.crt", *with_certificate, "--tls-server-name", "x.example"), 'not for "x.example"'),
        ):
            with self.subTest(part):
                ended = info(*words)
                self.assertEqual(ended.returncode, FAILED, ended.stderr)
                self.assertIn(part, ended.stderr)

    def test_bad_tls_files(self):
        make_authority(self.folder)
        sign(self.folder, "server")
        serve = ("serve", "--table", "t", "--port", "0", "--tls-certificate", self.folder / "server.crt")
        self.expect(serve, BAD_USAGE, "no key")
        self.expect((*serve, "--tls-key", self.folder / "ca.key"), BAD_USAGE, "is not that of the certificate")
        self.expect((*serve, "--tls-key", self.folder / "none"), BAD_USAGE, "cannot be read")
        path = self.folder / "server.toml"
        path.write_text('[tls]\ncertificate = "a"\n[[table]]\nname = "t"\n')
        self.expect(("serve", "--check", "--config", path), BAD_USAGE, '"tls.key" is missing')
        path.write_text('[auth]\ntrust_same_user = true\n[[table]]\nname = "t"\n')
        self.expect(("serve", "--check", "--config", path), BAD_USAGE, '"auth.tokens_file" is missing')

    def test_exposed_servers_warn_or_do_not_start(self):
        words = ("--table", "t", "--host", "0.0.0.0")
        server = self.serve(*words)
        _, err = server.stop()
        self.assertIn("everybody who reaches 0.0.0.0 can read, change and delete", err)
        self.assertIn("can be read by others", err)
        self.expect(("serve", "--port", "0", *words, "--strict"), FAILED, "0.0.0.0", "tokens")
        self.new_token("a", "--rights", "read")
        with_tokens = ("--tokens-file", str(self.folder / "tokens"))
        self.expect(("serve", "--port", "0", *words, *with_tokens, "--strict"), FAILED, "certificate")
        server = self.serve(*words, *with_tokens)
        _, err = server.stop()
        self.assertNotIn("everybody", err)
        self.assertIn("data and tokens", err)
        self.serve("--table", "t", "--strict").stop()

    # --- Limits of clients ---

    def test_clients_of_one_name_share_their_limits(self):
        path = self.folder / "server.toml"
        path.write_text('[limits.client]\nmax_streams = 1\n[[table]]\nname = "t"\n')
        server = self.serve("--config", str(path))
        self.start_client("sample", server.address, "t", 1, "learner")

        def waiting() -> int:
            return len(json.loads(self.expect(("info", server.address, "--json"), OK))["waiters"])

        wait_until("the sampler", lambda: waiting() == 1)
        words = [frame.client, "sample", server.address, "t", "1"]
        refused = subprocess.run([*words, "learner"], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('client "learner"', refused.stdout)
        self.assertIn("max_streams", refused.stdout)
        self.start_client("sample", server.address, "t", 1, "other")
        wait_until("the sampler of another name", lambda: waiting() == 2)

    # --- The page ---

    def test_commands_of_the_page(self):
        page = (frame.source / "docs" / "operations.md").read_text()
        section = page[page.index("### A server with TLS and tokens") :]
        commands = "".join(re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "reverb").symlink_to(os.path.abspath(frame.program))
        script = "set -e\ntrap 'kill %1; wait' EXIT\n" + commands
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}"),
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * PATIENCE,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        for part in ("actors", "replay*", "read,write,admin", "speaks TLS", "Removed the token"):
            self.assertIn(part, ended.stdout)
        self.assertIn('audit: Reset table="replay" token="operators"', ended.stderr)
