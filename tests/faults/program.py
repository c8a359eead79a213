"""`reverb serve` as a process that tests kill, stop and start again."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time


# Below the range from which the system chooses, so that no other process gets a port before it is used.
_FIRST_PORT = 20_000 + os.getpid() % 60 * 200
_ports = itertools.cycle(range(_FIRST_PORT, _FIRST_PORT + 200))


def free_port() -> int:
    """Returns a port that nothing listens on."""
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: the ports never end")


def usage(pid: int) -> dict[str, float]:
    """Returns memory (MB), threads and descriptors of a process."""
    folder = pathlib.Path("/proc") / str(pid)
    fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "memory": int(fields["VmRSS"].split()[0]) / 1024,
        "threads": int(fields["Threads"]),
        "descriptors": len(os.listdir(folder / "fd")),
    }


def _thread_states(pid: int) -> list[str]:
    states = []
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            states.append(file.read_text().rpartition(")")[2].split()[0])
    return states


class ServerProgram:
    """A server with a port and a folder of checkpoints that stay the same in all of its lives."""

    def __init__(
        self,
        program: str | os.PathLike[str],
        tables: tuple[str, ...],
        folder: pathlib.Path,
        *,
        port: int | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        """Starts the server. `folder` receives its log, checkpoints and the file that says that it is ready."""
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port() if port is None else port
        self.address = f"127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self._port_file = folder / "port"
        # The server ends with the thread that started it, also when the tests crash.
        setpriv = shutil.which("setpriv")
        self._command = [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
        self._command += [os.fspath(program), "serve", "--port", str(self.port), "--port-file", str(self._port_file)]
        self._command += ["--checkpoint", str(folder / "checkpoints"), *arguments]
        for table in tables:
            self._command += ["--table", table]
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Starts the server in the background; it loads its last checkpoint."""
        self._port_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def await_ready(self, timeout: float = 60.0) -> None:
        """Waits until clients can connect."""
        deadline = time.monotonic() + timeout
        while not self._port_file.exists():
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"the server was not ready within {timeout} s:\n{self.tail()}"
            time.sleep(0.005)  # polls the condition

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stops the process with SIGSTOP: its connections stay open, and nothing answers."""
        self.process.send_signal(signal.SIGSTOP)
        while not all(state == "T" for state in _thread_states(self.process.pid)):
            time.sleep(0.001)  # polls the condition

    def resume(self) -> None:
        """Continues a paused process."""
        self.process.send_signal(signal.SIGCONT)

    def usage(self) -> dict[str, float]:
        """Returns memory (MB), threads and descriptors of the process."""
        return usage(self.process.pid)

    def tail(self) -> str:
        """Returns the end of the log."""
        return self.log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(ProcessLookupError):
            self.kill()
