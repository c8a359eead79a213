"""Tests what `reverb serve` tells a service manager, with a real datagram socket in its place."""

import json
import socket
import subprocess

import frame
from frame import FAILED, OK, PATIENCE, ProgramTest, environment, run


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(PATIENCE)

    def receive(self) -> dict[str, str]:
        lines = self.socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def await_state(self, name: str) -> list[dict[str, str]]:
        """Returns the messages up to the first one with NAME=1."""
        received = [self.receive()]
        while received[-1].get(name) != "1":
            received.append(self.receive())
        return received

    def is_silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(PATIENCE)
        return False


class Notify(ProgramTest):
    def start(self, address: str | None, *words: str) -> subprocess.Popen:
        """Starts a server; `address` is its NOTIFY_SOCKET."""
        more = {} if address is None else {"NOTIFY_SOCKET": address}
        words = (frame.program, "serve", "--port", "0", "--port-file", str(self.folder / "port"), *words)
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**more)
        )
        self.end_with_test(process)
        return process

    def manager(self, address: str | None = None) -> Manager:
        manager = Manager(address or str(self.folder / "notify"))
        self.addCleanup(manager.socket.close)
        return manager

    def stop(self, process: subprocess.Popen) -> tuple[str, str]:
        process.terminate()
        return process.communicate(timeout=PATIENCE)

    def port(self) -> int:
        return int((self.folder / "port").read_text())

    def test_is_ready_when_clients_can_connect(self):
        manager = self.manager()
        process = self.start(str(self.folder / "notify"), "--table", "a", "--table", "b")
        received = manager.await_state("READY")
        self.assertEqual(len(received), 1, received)
        # Without waiting: the message promises it.
        self.expect(("info", f"localhost:{self.port()}"), OK, "a", "b")
        self.assertEqual(received[0]["STATUS"], f"listens on 127.0.0.1:{self.port()} and serves 2 tables")
        _, err = self.stop(process)
        self.assertEqual(err, "")
        stopping = manager.receive()
        self.assertEqual((stopping["STOPPING"], stopping["STATUS"]), ("1", "stopping"))
        self.assertTrue(manager.is_silent())

    def test_an_abstract_socket(self):
        name = f"reverb-{self.folder.name}"
        manager = self.manager("\0" + name)
        process = self.start("@" + name, "--table", "t")
        self.assertIn("READY", manager.await_state("READY")[-1])
        self.assertEqual(self.stop(process)[1], "")

    def test_a_checkpoint_is_loaded_before_it_is_ready(self):
        words = (
            "--table",
            "t:fifo:fifo:1000",
            "--checkpoint",
            str(self.folder / "checkpoints"),
            "--checkpoint-on-stop",
        )
        server = self.serve(*words)
        self.insert(server, "t", 200)
        server.stop()
        manager = self.manager()
        process = self.start(str(self.folder / "notify"), *words)
        received = manager.await_state("READY")
        info = json.loads(self.expect(("info", f"localhost:{self.port()}", "--json"), OK))
        self.assertEqual([table["size"] for table in info["tables"]], [200])
        self.assertGreater(len(received), 1, "there was no message while the checkpoint was loaded")
        for message in received[:-1]:
            self.assertRegex(message["STATUS"], r"^loading a checkpoint: .* of .*B$")
            self.assertGreater(int(message["EXTEND_TIMEOUT_USEC"]), 1_000_000)
        self.stop(process)
        self.assertEqual(manager.receive()["STATUS"], "writing the last checkpoint")

    def test_a_server_that_cannot_start_is_never_ready(self):
        manager = self.manager()
        taken = self.serve("--table", "t")
        words = ("serve", "--table", "t", "--port", taken.port)
        ended = run(*words, env=environment(NOTIFY_SOCKET=str(self.folder / "notify")))
        self.assertEqual(ended.returncode, FAILED)
        self.assertTrue(manager.is_silent())

    def test_a_manager_that_cannot_be_reached_is_reported_once(self):
        for address, reason in (
            (str(self.folder / "nowhere"), "No such file or directory"),
            ("relative", "expected an absolute path"),
            ("/" + "x" * 200, "longer than the 107 bytes"),
        ):
            with self.subTest(address):
                process = self.start(address, "--table", "t")
                frame.wait_until("the port file", (self.folder / "port").exists)
                _, err = self.stop(process)
                self.assertEqual(process.returncode, OK)
                self.assertEqual(err.count("cannot notify the service manager"), 1, err)
                self.assertIn(f'NOTIFY_SOCKET "{address[:20]}', err)
                self.assertIn(reason, err)

    def test_the_environment_names_the_port_file(self):
        path = self.folder / "from_environment"
        words = [frame.program, "serve", "--table", "t", "--port", "0"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(REVERB_PORT_FILE=str(path)))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        frame.wait_until("the port file", path.exists)
        self.expect(("info", f"localhost:{int(path.read_text())}"), OK)
        # An empty value is none.
        ended = run("serve", "--table", "t", "--check", env=environment(REVERB_PORT_FILE=""))
        self.assertEqual(ended.returncode, OK, ended.stderr)
