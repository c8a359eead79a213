"""The processes of a measurement, seen from the program that starts them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

import peers

HERE = pathlib.Path(__file__).resolve().parent


class ChildError(Exception):
    """A process ended, or could not do what it was told."""


class Child:
    """One process of one side, which answers commands line by line; see child.py."""

    def __init__(self, peer: peers.Peer) -> None:
        self._peer = peer
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # lives as long as the process
        self._process = subprocess.Popen(
            [peer.python, str(HERE / "child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=peer.environment,
            text=True,
            bufsize=1,
        )

    def send(self, **command: Any) -> None:
        """Gives a command; receive() has the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
        except OSError as error:
            raise ChildError(self._describe_end()) from error

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest command that has none yet."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChildError(self._describe_end())
        answer = json.loads(line)
        if "error" in answer:
            raise ChildError(f"{self._peer.name}: {answer['error']}")
        return answer

    def ask(self, **command: Any) -> dict[str, Any]:
        """send() and receive()."""
        self.send(**command)
        return self.receive()

    def cpu_seconds(self) -> float:
        """Of all threads of the process, so far."""
        fields = pathlib.Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _describe_end(self) -> str:
        code = self._process.wait(30)
        self._log.seek(0)
        return f"a process of {self._peer.name} ended with {code}: {self._log.read()[-2000:]}"


def start_up(peer: peers.Peer) -> dict[str, float]:
    """The figures of a fresh process; see start_up.py."""
    done = subprocess.run(
        [peer.python, str(HERE / "start_up.py")], env=peer.environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ChildError(f"start_up.py of {peer.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@dataclasses.dataclass(frozen=True)
class MachineTime:
    """Of all cores together, in seconds since the machine started."""

    passed: float
    idle: float

    @classmethod
    def now(cls) -> MachineTime:
        fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        ticks = os.sysconf("SC_CLK_TCK")
        return cls(sum(fields[:8]) / ticks, (fields[3] + fields[4]) / ticks)

    def share_of_others(self, own: float) -> float:
        """Of the time since then: what was neither idle nor `own`, in seconds; the hypervisor's part is in it."""
        now = MachineTime.now()
        passed = max(now.passed - self.passed, 1e-9)
        return max(0.0, (passed - (now.idle - self.idle) - own) / passed)
