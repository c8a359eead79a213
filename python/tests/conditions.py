"""Waits for conditions. Tests, and programs that tests start, use these functions instead of sleeping."""

from __future__ import annotations

import os
import time


def wait_until(condition, *, timeout=60.0, what="the condition"):
    """Calls condition() until its value is true, and returns the value. Fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout} s"
        time.sleep(0.005)  # polls the condition
    return value


def stays_true_for(seconds, condition):
    """Returns whether condition() stays true for `seconds`: for events that must not happen."""
    deadline = time.monotonic() + seconds
    while condition():
        if time.monotonic() >= deadline:
            return True
        time.sleep(0.005)  # polls the condition
    return False


def next_in_time(iterator):
    """Returns next(iterator), which may time out on a busy machine: its timeout is short because it must expire elsewhere."""
    import reverb  # here, because programs without the package import this module too

    def attempt():
        try:
            return [next(iterator)]
        except reverb.DeadlineExceededError:
            return None

    return wait_until(attempt, what="a sample")[0]


def wait_that_names_its_reason(call):
    """Returns the error of a call that times out once the server has responded, which it may not have at first."""
    import reverb

    def attempt():
        try:
            raise AssertionError(f"the call returned {call()!r}")
        except reverb.DeadlineExceededError as error:
            return error if error.detail is not None else None

    return wait_until(attempt, what="a timeout with its reason")


def wait_for_waiters(client, count):
    """Waits until exactly `count` calls wait at the server, and returns the server's information."""

    def find():
        info = client.server_info(timeout=60)
        return info if len(info.waiters) == count else None

    return wait_until(find, what=f"{count} waiters")


def wait_until_blocked(pid=None):
    """Waits until the main thread of a process (default: this one) has been blocked for 20 ms."""

    def blocks():
        with open(f"/proc/{pid or os.getpid()}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"

    wait_until(lambda: stays_true_for(0.02, blocks), what="a main thread that blocks")
