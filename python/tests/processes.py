"""Runs parts of a scenario in separate processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import socket
import time

_SPAWN = multiprocessing.get_context("spawn")


# Below the range from which the system chooses, so that no other process gets a port before it is used; each process
# of the tests begins elsewhere.
_FIRST_PORT = 20_000 + os.getpid() % 60 * 200
_ports = itertools.cycle(range(_FIRST_PORT, _FIRST_PORT + 200))


def free_port() -> int:
    """Returns a port that nothing listens on."""
    for port in _ports:
        with contextlib.closing(socket.socket(socket.AF_INET6)) as listener, contextlib.suppress(OSError):
            listener.bind(("::", port))
            return port
    raise AssertionError("unreachable: the ports never end")


class Pool:
    """The processes of one test. Functions return results through their first argument, the queue `self.results`."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self.results = _SPAWN.Queue()
        self.stop = _SPAWN.Event()
        self._processes: list = []

    def start(self, function, *arguments):
        process = _SPAWN.Process(target=function, args=(self.results, self.stop, *arguments), daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def take(self, count: int, *, timeout: float = 60) -> list:
        deadline = time.monotonic() + timeout
        return [self.results.get(timeout=max(0.1, deadline - time.monotonic())) for _ in range(count)]

    def join(self, *, timeout: float = 30) -> list[int | None]:
        """Returns the exit codes; None for a process that has not ended."""
        self.stop.set()
        deadline = time.monotonic() + timeout
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return [process.exitcode for process in self._processes]

    def close(self) -> None:
        if self._grace > 0:
            self.stop.set()
        for process in self._processes:
            process.join(self._grace)
            if process.is_alive():
                process.kill()
                process.join(timeout=60)
        self.results.close()
        self.results.join_thread()


@contextlib.contextmanager
def pool(grace: float = 2.0):
    """Yields a Pool that gives its processes `grace` seconds to end before it kills them.

    Without grace, `stop` is never set: setting it would block forever if a process was killed while waiting for it.
    """
    made = Pool(grace)
    try:
        yield made
    finally:
        made.close()
