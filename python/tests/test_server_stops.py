"""Tests servers that stop or die: waits end, clients reconnect, and dropping objects does not hang."""

from __future__ import annotations

import gc
import itertools
import threading
import time

from conditions import stays_true_for, wait_for_waiters
from conftest import join, make_table
import interpreters
import pytest
import transports

import reverb

SECONDS = 20  # limit for calls that must not hang


class Waiter:
    """Runs call() in a thread and keeps the exception that it raised."""

    def __init__(self, call):
        self.error = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
            self.error = error

    def is_running(self):
        return self._thread.is_alive()

    def join(self):
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "still waiting"
        return self.error


def full_table(name="table"):
    """Returns a table that accepts one item and then blocks inserts."""
    return make_table(name, max_size=10, limiter=reverb.rate_limiters.Queue(1), layout="any")


# --- The server stops while calls wait ---


def waiting_sample(client):
    next(client.sample("empty"))


def waiting_samples(client):
    next(client.sample("empty", 5))


def waiting_insert(client):
    client.insert(1, {"table": 1.0})


def waiting_flush(client):
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
    writer.flush()


def waiting_end_episode(client):
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
    writer.end_episode()


def waiting_close(client):
    writer = client.writer(1)
    writer.append([1])
    writer.create_item("table", 1, 1.0)
    writer.close()


def waiting_structured_flush(client):
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    writer = client.structured_writer([reverb.structured.create_config(pattern, "table", [])])
    writer.append({"x": 1})
    writer.flush()


WAITING = [
    waiting_sample,
    waiting_samples,
    waiting_insert,
    waiting_flush,
    waiting_end_episode,
    waiting_close,
    waiting_structured_flush,
]


@pytest.mark.parametrize("call", WAITING)
def test_a_stop_ends_what_waits_in_its_process(call):
    with reverb.Server([full_table(), make_table("empty")]) as server:
        client = server.localhost_client()
        client.insert(0, {"table": 1.0})
        waiter = Waiter(lambda: call(client))
        wait_for_waiters(client, 1)
        assert waiter.is_running(), waiter.error
        server.stop()
        error = waiter.join()
    assert isinstance(error, RuntimeError), repr(error)
    assert str(error)


def test_waits_over_a_socket_continue_with_the_next_server():
    """Clients reconnect when a connection breaks. Waiting calls fail only after their timeout."""
    first = reverb.Server([full_table(), make_table("empty")])
    clients = [reverb.Client(f"localhost:{first.port}", in_process=False, local=False) for _ in WAITING]
    clients[0].insert(0, {"table": 1.0})
    waiters = [
        Waiter(lambda call=call, client=client: call(client)) for call, client in zip(WAITING, clients, strict=True)
    ]
    wait_for_waiters(clients[0], len(WAITING))
    impatient = Waiter(lambda: clients[0].insert(1, {"table": 1.0}, timeout=3))
    wait_for_waiters(clients[0], len(WAITING) + 1)
    assert all(waiter.is_running() for waiter in waiters)
    first.stop()
    assert isinstance(impatient.join(), reverb.DeadlineExceededError)
    with reverb.Server([make_table(layout="any"), make_table("empty")], port=first.port) as second:
        second.localhost_client().insert(0, {"empty": 1.0})
        errors = {call.__name__: waiter.join() for call, waiter in zip(WAITING, waiters, strict=True)}
    assert errors == dict.fromkeys(errors)


def test_a_stop_ends_wait():
    server = reverb.Server([make_table()])
    waiter = Waiter(server.wait)
    assert stays_true_for(0.1, waiter.is_running)
    server.stop()
    assert waiter.join() is None


def test_a_dropped_server_stops():
    server = reverb.Server([make_table("empty")])
    client = server.localhost_client()
    waiter = Waiter(lambda: waiting_sample(client))
    wait_for_waiters(client, 1)
    del server
    gc.collect()
    assert isinstance(waiter.join(), RuntimeError)


def test_closing_an_iterator_ends_the_wait_of_another_thread():
    with reverb.Server([make_table("empty")]) as server:
        for transport, num in itertools.product(transports.ALL, [1, 5]):
            client = transports.connect(server, transport)
            wait_for_waiters(client, 0)
            iterator = client.sample("empty", num)
            waiter = Waiter(lambda iterator=iterator: next(iterator))
            wait_for_waiters(client, 1)
            iterator.close()
            assert isinstance(waiter.join(), StopIteration)


def test_closing_a_writer_ends_the_wait_of_another_thread():
    with reverb.Server([full_table()]) as server:
        for transport in transports.ALL:
            client = transports.connect(server, transport)
            if transport == "in_process":
                client.insert(0, {"table": 1.0})
            writer = client.trajectory_writer(1)
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            waiter = Waiter(writer.flush)
            assert stays_true_for(0.1, waiter.is_running)
            writer.close()
            waiter.join()


# --- A dead server ---


@pytest.mark.parametrize("transport", transports.ALL)
def test_dropping_a_writer_of_a_dead_server_does_not_freeze_others(transport):
    server = reverb.Server([full_table()])
    client = transports.connect(server, transport)
    client.insert(0, {"table": 1.0})
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
    server.stop()
    beats, stop = [], threading.Event()

    def beat():
        while not stop.wait(0.01):
            beats.append(None)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    start = time.monotonic()
    del writer  # waits for a second, over a socket
    took, during = time.monotonic() - start, len(beats)
    stop.set()
    join(thread)
    assert during >= 5 or took < 0.5, f"another thread ran {during} times in {took:.1f} s while a writer was dropped"


def test_objects_of_a_killed_server_can_be_dropped():
    server = interpreters.start("""
        server = make_server()
        print(server.port, flush=True)
        server.wait()
        """)
    try:
        port = int(interpreters.line(server))
        client = reverb.Client(f"localhost:{port}")
        client.insert(0, {"table": 1.0})
        writer = client.trajectory_writer(1)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        iterator = client.sample("table", 10)
        next(iterator)
    finally:
        server.kill()
        server.communicate()
    writer.append(2)
    writer.create_item("table", 1.0, writer.history[-1:])
    with pytest.raises((reverb.DeadlineExceededError, RuntimeError)):
        writer.flush(timeout_ms=200)
    with pytest.raises(reverb.DeadlineExceededError):
        client.server_info(timeout=0.2)
    start = time.monotonic()
    del writer, iterator, client
    gc.collect()
    assert time.monotonic() - start < 30
