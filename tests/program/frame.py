"""Runs the program, with and without a terminal; the base class of its tests."""

from collections.abc import Callable
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PATIENCE = 30.0  # seconds; a test that waits this long has failed

# Programs inherit it: if the tests run under nohup, servers would ignore it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Exit codes, as in docs/program.md.
OK, FAILED, BAD_USAGE, UNREACHABLE, NOT_FOUND, TIMED_OUT, NOT_CONFIRMED = range(7)

program = ""
client = ""
is_static = False
source = pathlib.Path()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    return kept | {"TERM": "xterm"} | more


def run(*words: object, **options) -> subprocess.CompletedProcess:
    """Runs the program with these arguments, without a terminal."""
    options = {"stdin": subprocess.DEVNULL, "timeout": PATIENCE, "env": environment()} | options
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, **options)


def wait_until(what: str, happens) -> None:
    """Calls happens() until its value is true, and returns the value."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if found := happens():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}")
        time.sleep(0.02)  # polls the condition


def lasting_port() -> int:
    """Returns a free port for a server that stops and comes back: below those that the system assigns to others."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(min(20_000, first // 2), first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Server:
    """Runs `reverb serve` as a process."""

    def __init__(
        self,
        folder: pathlib.Path,
        *words: str,
        prepare: Callable[[], object] | None = None,
        log: pathlib.Path | None = None,
        port: int = 0,
    ):
        """`prepare` is called in the new process before the program starts; `log` receives standard error."""
        self.port_file = folder / "port"
        with contextlib.ExitStack() as stack:
            self.process = subprocess.Popen(
                [program, "serve", "--port", str(port), "--port-file", self.port_file, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if log is None else stack.enter_context(log.open("wb")),
                text=True,
                env=environment(),
                preexec_fn=prepare,
            )
        wait_until("the port file", lambda: self.port_file.exists() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.process.communicate()}")
        self.port = int(self.port_file.read_text())
        self.address = f"localhost:{self.port}"

    def stop(self, number: int = signal.SIGTERM) -> tuple[str, str]:
        self.process.send_signal(number)
        return self.process.communicate(timeout=PATIENCE)


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    if sys.version_info < (3, 11):

        def enterContext(self, context):  # noqa: N802: the name that unittest gives it from 3.11 on
            value = context.__enter__()
            self.addCleanup(context.__exit__, None, None, None)
            return value

    def end_with_test(self, process: subprocess.Popen) -> None:
        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()

        self.addCleanup(end)

    def serve(
        self, *words: str, prepare: Callable[[], object] | None = None, log: pathlib.Path | None = None, port: int = 0
    ) -> Server:
        server = Server(self.folder, *words, prepare=prepare, log=log, port=port)
        self.end_with_test(server.process)
        return server

    def start_client(self, *words: object) -> subprocess.Popen:
        process = subprocess.Popen([client, *map(str, words)], stdout=subprocess.PIPE, text=True)
        self.end_with_test(process)
        return process

    def insert(self, server: Server, table: str, count: int, *, verb: str = "insert") -> None:
        process = self.start_client(verb, server.address, table, count)
        self.assertEqual(process.communicate(timeout=PATIENCE)[0], "done\n")

    def expect(self, words: tuple, code: int, *parts: str) -> str:
        """Checks that the program exits with `code` and prints all `parts`, on stdout if `code` is OK, else stderr."""
        ended = run(*words)
        said = ended.stdout if code == OK else ended.stderr
        self.assertEqual(ended.returncode, code, f"{words}: {ended.stdout}{ended.stderr}")
        for part in parts:
            self.assertIn(part, said, f"{words}")
        if code != OK:
            self.assertNotIn("terminate called", ended.stderr)
        self.assertNotIn("\x1b", ended.stdout + ended.stderr, "no colours without a terminal")
        return said

    def info(self, server: Server) -> dict:
        return json.loads(self.expect(("info", server.address, "--json"), OK))

    def table(self, server: Server, name: str) -> dict:
        return next(table for table in self.info(server)["tables"] if table["name"] == name)


class Terminal:
    """Runs the program in a terminal of its own."""

    def __init__(self, *words: object, rows: int = 30, columns: int = 100, command: str = "", **more: str):
        """Runs the program, or another `command`."""
        self.text = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            name = command or program
            os.execvpe(name, [name, *map(str, words)], environment(**more))
        self.resize(rows, columns)
        self.status = None

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> bool:
        """Reads more output; returns False when the program has ended."""
        if not select.select([self.descriptor], [], [], 0.05)[0]:
            return True
        with contextlib.suppress(OSError):
            if more := os.read(self.descriptor, 1 << 16):
                self.text += more.decode(errors="replace")
                return True
        return False

    def wait_for(self, part: str, start: int = 0) -> None:
        def is_there():
            self.read()
            return part in self.text[start:]

        try:
            wait_until(repr(part), is_there)
        except AssertionError as error:
            raise AssertionError(f"{error}; there is only {self.text!r}") from None

    def page(self, home: str = "\x1b[H") -> list[str]:
        """Returns the lines of the last complete page, without escape sequences."""
        pages = self.text.split(home)
        page = pages[-2] if len(pages) > 2 else pages[-1]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", page).split("\r\n")

    def wait_for_page(self, what: str, is_right: Callable[[list[str]], object]) -> list[str]:
        """Reads until a page satisfies the condition, and returns it."""

        def check():
            self.read()
            page = self.page()
            return page if is_right(page) else None

        try:
            return wait_until(what, check)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last page is {self.page()}") from None

    def type(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def hang_up(self) -> int:
        """Closes the terminal, waits for the end of the program, and returns its exit code."""
        os.close(self.descriptor)
        status: list[int] = []

        def has_ended() -> bool:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                status.append(code)
            return bool(pid)

        wait_until("the end of the program", has_ended)
        return os.waitstatus_to_exitcode(status[0])

    def end(self) -> int:
        """Waits for the end and returns the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.read() and time.monotonic() < deadline:
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)
