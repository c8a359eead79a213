"""Tests objects that are dropped in any order, in cycles, after errors: no thread, file or memory leaks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import os
import sys
import time
import weakref

from conditions import wait_until
from conftest import make_table
import numpy as np
import pytest
import transports

import reverb


def num_threads():
    return len(os.listdir("/proc/self/task"))


def num_files():
    return len(os.listdir("/proc/self/fd"))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- Order ---

PARTS = ["writer", "legacy", "structured", "iterator", "column", "client", "server", "table"]


def make_parts(transport):
    table = make_table(layout="any")
    server = reverb.Server([table])
    client = transports.connect(server, transport)
    writer = client.trajectory_writer(2)
    writer.append({"x": np.arange(3)})
    writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
    writer.append({"x": np.arange(3)})
    legacy = client.writer(2)
    legacy.append([1])
    legacy.create_item("table", 1, 1.0)
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    structured = client.structured_writer([reverb.structured.create_config(pattern, "table", [])])
    structured.append({"x": np.int64(1)})
    client.insert({"x": np.arange(3)}, {"table": 1.0})
    iterator = client.sample("table", 3, emit_timesteps=False)
    next(iterator)
    return {
        "writer": writer,
        "legacy": legacy,
        "structured": structured,
        "iterator": iterator,
        "column": writer.history["x"],
        "client": client,
        "server": server,
        "table": table,
    }


def some_orders():
    """Returns orders with each part first and each part last, the rest in both directions."""
    orders = []
    for part in PARTS:
        rest = [other for other in PARTS if other != part]
        orders += [(part, *rest), (*rest, part), (part, *reversed(rest)), (*reversed(rest), part)]
    return list(dict.fromkeys(orders))


@pytest.mark.parametrize("transport", transports.ALL)
def test_any_order(transport):
    def drop(order):
        parts = make_parts(transport)
        for name in order:
            del parts[name]
        assert not parts

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # mostly, writers wait for their server
        list(pool.map(drop, some_orders()[:: 1 if transport == "in_process" else 3]))
    assert time.monotonic() - start < 90


@pytest.mark.parametrize("transport", transports.ALL)
def test_cycles_are_collected(transport):
    class Holder:
        pass

    before = [num_threads(), num_files()]
    for _ in range(3):
        holder = Holder()
        holder.parts = make_parts(transport)
        holder.me = holder
        del holder
        gc.collect()
    gc.collect()
    # Some resources are created once per process and stay.
    wait_until(lambda: num_threads() <= before[0] + 20)
    wait_until(lambda: num_files() <= before[1] + 20)


def own_structured_writer(client):
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    return client.structured_writer([reverb.structured.create_config(pattern, "table", [])])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda client: client.sample("table", 3), id="samples"),
        pytest.param(lambda client: client.sample("table", 3, unpack_as_table_signature=True), id="unpacked samples"),
        pytest.param(lambda client: client.trajectory_writer(1), id="trajectory writer"),
        pytest.param(lambda client: client.writer(1), id="legacy writer"),
        pytest.param(own_structured_writer, id="structured writer"),
        pytest.param(lambda client: client.server_info, id="method"),
    ],
)
def test_what_a_client_keeps_of_its_own_is_collected(make):
    """Tests reference cycles through native objects."""
    with reverb.Server([make_table()]) as server:
        client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)
        client.insert({"x": 1}, {"table": 1.0})
        client.own = make(client)
        if hasattr(client.own, "append"):
            client.own.append({"x": 1})
        elif hasattr(client.own, "__next__"):
            next(client.own)
        there = weakref.ref(client)
        del client
        gc.collect()
        assert there() is None


def test_values_are_not_kept():
    with reverb.Server([make_table()]) as server:
        writer = server.localhost_client().trajectory_writer(2)
        for make in (lambda: np.zeros(10), lambda: np.zeros((5, 2)).T, lambda: np.array(["a", b"b"], object)):
            value = make()
            there = weakref.ref(value)
            writer.append({"x": value})
            del value
            assert there() is None
            writer = server.localhost_client().trajectory_writer(2)
        text, none = f"a text of our own: {os.getpid()}", sys.getrefcount(None)
        before = sys.getrefcount(text)
        for _ in range(1000):
            writer.append({text: text, "array": np.zeros(2), "number": 1})
            writer.create_item("table", 1.0, {text: writer.history[text][-1:]})
        writer.flush()
        writer.close()
        del writer
        gc.collect()
        assert sys.getrefcount(text) == before
        assert sys.getrefcount(None) < none + 500


def test_a_sample_outlives_everything():
    with reverb.Server([make_table()]) as server:
        client = server.localhost_client()
        client.insert(np.arange(100_000), {"table": 1.0})
        (step,) = next(client.sample("table"))
        trajectory = next(client.sample("table", emit_timesteps=False))
    del client, server
    gc.collect()
    np.testing.assert_array_equal(step.data[0], np.arange(100_000))
    trajectory.data[0][0, 0] = 7  # the array is writable and not shared
    assert step.data[0][0] == 0


def test_a_column_outlives_its_writer():
    with reverb.Server([make_table()]) as server:
        writer = server.localhost_client().trajectory_writer(2)
        writer.append({"x": np.arange(3)})
        column, reference = writer.history["x"], writer.history["x"][-1]
        writer.close()
        del writer
    gc.collect()
    with contextlib.suppress(RuntimeError, ValueError):  # the data may be gone, but reading it must not crash
        np.testing.assert_array_equal(reference.numpy(), np.arange(3))
    len(column)
    repr(column)


def test_a_table_outlives_its_server():
    table = make_table()
    server = reverb.Server([table])
    server.localhost_client().insert(1, {"table": 1.0})
    server.stop()
    del server
    gc.collect()
    assert table.info.current_size in (0, 1)
    assert "Table(" in repr(table)
    table.can_insert(1)


def test_a_client_finds_the_next_server_on_the_port():
    first = reverb.Server([make_table()])
    client, port = first.localhost_client(), first.port
    client.insert(1, {"table": 1.0})
    first.stop()
    del first
    with reverb.Server([make_table()], port=port):
        deadline = time.monotonic() + 20
        while True:
            try:
                client.insert(2, {"table": 1.0}, timeout=5)
                break
            except (RuntimeError, reverb.DeadlineExceededError):
                assert time.monotonic() < deadline
        assert next(client.sample("table"))[0].data[0] == 2


# --- Nothing is left behind ---


@pytest.mark.parametrize("transport", transports.ALL)
def test_no_thread_file_or_memory_is_left(transport):
    def once():
        with reverb.Server([make_table(), make_table("other")]) as server:
            client = transports.connect(server, transport)
            with client.trajectory_writer(2) as writer:
                writer.append({"x": np.zeros(1000)})
                writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
            next(client.sample("table"))
            iterator = client.sample("table", 10)
            next(iterator)
            with pytest.raises(reverb.DeadlineExceededError):
                next(client.sample("other", timeout=0.01))

    def counts():
        gc.collect()
        return num_threads(), num_files()

    for _ in range(5):
        once()
    time.sleep(0.2)  # lets background threads end, so that the limits below are tight
    threads, files = counts()
    memory = resident()
    for _ in range(25):
        once()
    wait_until(lambda: num_threads() <= threads + 2)
    wait_until(lambda: num_files() <= files + 2)
    assert resident() - memory < 64 * 2**20


def test_clients_and_writers_come_and_go_at_one_server():
    with reverb.Server([make_table()]) as server:

        def once():
            client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)
            writer = client.trajectory_writer(1)
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            writer.flush()
            next(client.sample("table"))

        for _ in range(5):
            once()
        time.sleep(0.2)  # lets background threads end, so that the limits below are tight
        gc.collect()
        threads, files = num_threads(), num_files()
        for _ in range(50):
            once()
        gc.collect()
        wait_until(lambda: num_threads() <= threads + 2)
        wait_until(lambda: num_files() <= files + 2)


def test_samples_that_are_dropped_give_their_memory_back():
    with reverb.Server([make_table(max_size=4)]) as server:
        client = server.localhost_client()
        for _ in range(4):
            client.insert(np.random.default_rng(0).random(2**17), {"table": 1.0})  # 1 MiB
        for _ in client.sample("table", 50, emit_timesteps=False):
            pass
        before = resident()
        for _ in client.sample("table", 500, emit_timesteps=False):
            pass
        assert resident() - before < 100 * 2**20


# --- Errors in the middle ---


@pytest.mark.parametrize("transport", transports.ALL)
def test_an_exception_inside_with(transport):
    def with_trajectory_writer(kind):
        with client.trajectory_writer(1) as writer:
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            raise kind

    def with_writer(kind):
        with client.writer(1) as writer:
            writer.append([1])
            writer.create_item("table", 1, 1.0)
            raise kind

    with reverb.Server([make_table()]) as server:
        client = transports.connect(server, transport)
        for kind in (ValueError, KeyError, GeneratorExit, SystemExit, KeyboardInterrupt):
            with pytest.raises(kind):
                with_trajectory_writer(kind)
            with pytest.raises(kind):
                with_writer(kind)
        client.insert(1, {"table": 1.0})  # the client still works
        assert next(client.sample("table"))


def test_an_exception_inside_the_server_block_stops_it():
    with contextlib.suppress(ZeroDivisionError), reverb.Server([make_table()]) as server:
        client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)
        client.insert(1, {"table": 1.0})
        raise ZeroDivisionError
    with pytest.raises((RuntimeError, reverb.DeadlineExceededError)):
        client.insert(1, {"table": 1.0}, timeout=0.5)


def test_a_traceback_does_not_block():
    """A traceback refers to the frame, and the frame to the writer: both may be dropped in either order."""
    caught = None
    with reverb.Server([make_table()]) as server:
        try:
            writer = server.localhost_client().trajectory_writer(1)
            writer.append(1)
            writer.create_item("nowhere", 1.0, writer.history[-1:])
        except ValueError as error:
            caught = error
    del writer, server
    assert caught is not None
    del caught
    gc.collect()
