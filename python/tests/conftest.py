"""Shared fixtures and helpers: servers on free ports, and clients of each transport."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import threading

import pytest
import transports

import reverb


def make_table(name="table", *, sampler=None, remover=None, max_size=1000, limiter=None, **arguments):
    return reverb.Table(
        name=name,
        sampler=sampler or reverb.selectors.Fifo(),
        remover=remover or reverb.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=limiter or reverb.rate_limiters.MinSize(1),
        **arguments,
    )


def join(*threads, timeout=60):
    """Waits for daemon threads to end. A thread that hangs fails the test, but does not block the exit."""
    for thread in threads:
        assert thread.daemon, "a thread that hangs would hang the whole run; make it with daemon=True"
        thread.join(timeout)
        assert not thread.is_alive(), f"{thread.name} has not ended after {timeout} s"


def run_in_threads(count, work):
    """Runs work() in `count` threads concurrently and waits for them."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    join(*threads)


@pytest.fixture
def serve():
    """serve(*tables) starts a server that is stopped after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *tables: stack.enter_context(reverb.Server(list(tables)))


@pytest.fixture
def server(serve):
    return serve(make_table(), reverb.Table.queue("queue", 100))


@pytest.fixture(params=transports.ALL)
def connect(request):
    """connect(server) makes a client; each test runs over each transport."""
    return lambda server: transports.connect(server, request.param)


@pytest.fixture
def client(server, connect):
    return connect(server)


@pytest.fixture
def writer(client):
    return client.trajectory_writer(num_keep_alive_refs=10)


@pytest.fixture(params=["asyncio", "uvloop"] if importlib.util.find_spec("uvloop") else ["asyncio"])
def event_loops(request):
    """The event loops that asyncio.run() creates: those of the standard library, and of uvloop where it is installed."""
    if request.param == "uvloop":
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    yield request.param
    asyncio.set_event_loop_policy(None)
