"""Clients that insert and sample in the background."""

from __future__ import annotations

import contextlib
import threading

import reverb


@contextlib.contextmanager
def running(*works):
    """Runs each work(stop) in a thread; `stop` is an event. Ends them on exit, and raises what one of them raised."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run(work) -> None:
        try:
            work(stop)
        except BaseException as error:
            if not stop.is_set():
                errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a client did not stop"
        if errors:
            raise errors[0]


def inserting(client, table: str, make=lambda i: [float(i)], *, pause: float = 0.005, priority=lambda i: 1.0):
    """Returns a work that inserts items, one after the other."""

    def work(stop) -> None:
        i = 0
        while not stop.wait(pause):  # sets the rate
            with contextlib.suppress(reverb.DeadlineExceededError):
                client.insert(make(i), {table: priority(i)}, timeout=1)
            i += 1

    return work


def sampling(client, table: str, *, pause: float = 0.005):
    """Returns a work that samples, one item after the other."""

    def work(stop) -> None:
        while not stop.wait(pause):  # sets the rate
            with contextlib.suppress(reverb.DeadlineExceededError):
                next(client.sample(table, timeout=1))

    return work
