"""Tests peers that vanish without closing their connections, and peers that are stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import signal
import threading

from conditions import next_in_time, wait_until
from conftest import join, make_table
import numpy as np
from processes import pool
from proxies import Proxy
import pytest

import reverb

KEEPALIVE = 1.0


@pytest.fixture
def make_proxied():
    """Returns a function that starts a server with tables "table" and "queue" behind a proxy."""
    with contextlib.ExitStack() as stack:

        def make(keepalive_timeout):
            server = stack.enter_context(
                reverb.Server([make_table(), reverb.Table.queue("queue", 2)], keepalive_timeout=keepalive_timeout)
            )
            proxy = Proxy(server.port)
            stack.callback(proxy.close)
            return server, proxy

        yield make


def connect(address, keepalive_timeout):
    return reverb.Client(address, in_process=False, local=False, keepalive_timeout=keepalive_timeout)


# --- The server vanishes ---


def test_a_call_to_a_vanished_server_is_repeated(make_proxied, caplog):
    _, proxy = make_proxied(None)
    client = connect(proxy.address, KEEPALIVE)
    client.server_info(timeout=60)
    proxy.black_hole()
    with caplog.at_level(logging.WARNING, logger="reverb"):
        assert client.server_info(timeout=60)
    assert proxy.num_connections >= 2
    assert f"the server at {proxy.address} has not answered for 1.0 s (keepalive_timeout)" in caplog.text


def test_samples_and_writers_reconnect_when_the_server_vanishes(make_proxied, caplog):
    server, proxy = make_proxied(None)
    client = connect(proxy.address, KEEPALIVE)
    direct = connect(f"localhost:{server.port}", None)
    writer = client.trajectory_writer(1)
    for value in range(3):  # the third waits
        writer.append(np.int64(value))
        writer.create_item("queue", 1.0, writer.history[-1:])
    errors = []

    def flush():
        try:
            writer.flush(timeout_ms=60_000)
        except Exception as error:  # noqa: BLE001  # for the assertion below
            errors.append(error)

    samples = client.sample("table", 2, timeout=60)
    received = []
    threads = [
        threading.Thread(target=flush, daemon=True),
        threading.Thread(target=lambda: received.extend(samples), daemon=True),
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(direct.server_info(60).waiters) == 2, what="both wait")
    with caplog.at_level(logging.WARNING, logger="reverb"):
        proxy.black_hole()
        wait_until(lambda: proxy.num_connections >= 2, what="a new connection")
        for value in range(2):
            direct.insert(np.int64(value), {"table": 1.0}, timeout=60)
        values = [int(next(direct.sample("queue", timeout=60))[0].data[0]) for _ in range(3)]
        join(*threads)
    assert not errors
    assert len(received) == 2
    assert values == [0, 1, 2], "each item once, in order"
    assert direct.server_info(60)["queue"].current_size == 0
    assert "has not answered for 1.0 s (keepalive_timeout)" in caplog.text


def test_idle_clients_are_not_disconnected(make_proxied):
    # Long enough for an answer on a busy machine, short enough for several pings.
    server, proxy = make_proxied(2.0)
    client = connect(proxy.address, 2.0)
    samples = client.sample("queue", 1, timeout=60)
    received = []
    thread = threading.Thread(target=lambda: received.extend(samples), daemon=True)
    thread.start()
    with pytest.raises(reverb.DeadlineExceededError):  # waits for several pings
        next(client.sample("queue", timeout=3.5))
    assert proxy.num_connections == 1
    client.insert(np.int64(1), {"queue": 1.0}, timeout=60)
    join(thread)
    assert len(received) == 1
    del server


# --- The client vanishes ---


def test_a_vanished_client_is_noticed_by_the_server(make_proxied):
    server, proxy = make_proxied(2.0)
    client = connect(proxy.address, None)
    direct = connect(f"localhost:{server.port}", None)
    samples = client.sample("queue", 1, exact=True)
    thread = threading.Thread(target=lambda: list(samples), daemon=True)
    thread.start()
    wait_until(lambda: direct.server_info(60)["queue"].waiting_samples == 1, what="the sample waits")
    proxy.black_hole()
    wait_until(lambda: direct.server_info(60)["queue"].waiting_samples == 0, what="the wait was cancelled")
    assert proxy.num_connections == 1, "the client has not noticed it"
    proxy.break_all()  # now it does
    direct.insert(np.int64(1), {"queue": 1.0}, timeout=60)
    join(thread)


# --- A stopped server ---


def is_stopped(pid):
    """Returns whether all threads of the process are stopped, some time after SIGSTOP."""
    states = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def run_server(results, stop):
    with reverb.Server([make_table(), reverb.Table.queue("queue", 1)], keepalive_timeout=None) as server:
        results.put(server.port)
        stop.wait()


@pytest.mark.parametrize("local", [True, False], ids=["local", "grpc"])
def test_calls_to_a_stopped_server_end_in_time(local):
    with pool() as processes:
        process = processes.start(run_server)
        (port,) = processes.take(1)
        client = reverb.Client(f"localhost:{port}", local=local, keepalive_timeout=None)
        client.insert(np.int64(0), {"table": 1.0}, timeout=60)
        assert client.transports() == ["local" if local else "gRPC"]
        writer = client.trajectory_writer(1)
        writer.append(np.int64(1))
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush(timeout_ms=60_000)
        batches = client.sample_batches("table", 2, timeout=0.3)
        assert next_in_time(batches)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(process.pid), what="the server is stopped")
            writer.append(np.int64(2))
            writer.create_item("table", 1.0, writer.history[-1:])
            with pytest.raises(reverb.DeadlineExceededError, match="the server has not answered for"):
                writer.flush(timeout_ms=3000)
            calls = {
                "server_info": lambda: client.server_info(timeout=0.3),
                "insert": lambda: client.insert(np.int64(3), {"table": 1.0}, timeout=0.3),
                "sample": lambda: next(client.sample("table", timeout=0.3)),
                "batches": lambda: list(batches),
                "update": lambda: client.update_priorities("table", [1], [1.0], timeout=0.3),
            }
            for name, call in calls.items():
                with pytest.raises((reverb.DeadlineExceededError, RuntimeError)) as error:
                    call()
                assert error.value.code == "DEADLINE_EXCEEDED", name
                if name in ("sample", "batches"):
                    assert "the server has not answered" in str(error.value)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        writer.flush(timeout_ms=60_000)
        writer.close()


# --- Options ---


@pytest.mark.parametrize("value", [0, 0.5])
def test_a_keepalive_timeout_is_at_least_a_second(value):
    with pytest.raises(ValueError, match=r"keepalive_timeout \(.*\) must be at least 1 s"):
        reverb.Client("localhost:1", keepalive_timeout=value)
    with pytest.raises(ValueError, match=r"keepalive_timeout \(.*\) must be at least 1 s"):
        reverb.Server([make_table()], keepalive_timeout=value)
