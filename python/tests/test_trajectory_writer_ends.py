"""Tests TrajectoryWriter: rejected items, flush, close, and dropped writers."""

import gc
import threading
import time
import weakref

from conditions import wait_for_waiters
from conftest import join, make_table
import numpy as np
import pytest
from trajectories import items, values

import reverb

# --- Rejected items ---


def test_items_that_cannot_be(writer):
    writer.append({"a": 1, "b": 2.0})
    history = writer.history
    for bad in ({"a": 1}, {"a": None}, [history["a"]], "a"):
        with pytest.raises(TypeError, match="TrajectoryColumn"):
            writer.create_item("queue", 1.0, bad)
    for empty in ({}, [], ()):
        with pytest.raises(ValueError, match="trajectory must not be empty."):
            writer.create_item("queue", 1.0, empty)
    with pytest.raises(ValueError, match="`priority` must not be nan."):
        writer.create_item("queue", float("nan"), history["a"][:])
    for bad in ("1", None):
        with pytest.raises(TypeError, match="priority"):
            writer.create_item("queue", bad, history["a"][:])
    with pytest.raises(ValueError, match="since the table could not be found"):
        writer.create_item("nowhere", 1.0, history["a"][:])
    mixed = reverb.TrajectoryColumn([*history["a"], *history["b"]])
    with pytest.raises(ValueError, match="Error in column 0: .*dtype"):
        writer.create_item("queue", 1.0, mixed)
    writer.create_item("queue", 1.0, history["a"][:])
    writer.flush()


def test_columns_of_another_writer(client, writer):
    other = client.trajectory_writer(1)
    other.append(1)
    writer.append(1)
    with pytest.raises(ValueError, match="another writer"):
        writer.create_item("queue", 1.0, other.history[:])


def test_items_are_checked_against_the_signature(serve, connect):
    spec = {"obs": reverb.TensorSpec((None, 2), np.float32), "act": reverb.TensorSpec((), np.int64)}
    client = connect(serve(make_table(signature=spec)))
    writer = client.trajectory_writer(3)
    for i in range(3):
        writer.append({"obs": np.zeros(2, np.float32), "act": i, "other": 1.0})
    history = writer.history
    writer.create_item("table", 1.0, {"obs": history["obs"][:], "act": history["act"][-1]})
    for bad in (
        {"obs": history["obs"][:], "act": history["act"][-1:]},
        {"obs": history["obs"][-1], "act": history["act"][-1]},
        {"obs": history["obs"][:], "act": history["other"][-1]},
        {"obs": history["obs"][:]},
    ):
        with pytest.raises(ValueError, match="(?s)'table'.*signature"):
            writer.create_item("table", 1.0, bad)
    writer.flush()
    assert client.server_info()["table"].current_size == 1


def test_items_that_are_not_checked(serve, connect):
    client = connect(serve(make_table(signature=[reverb.TensorSpec((3,), np.float32)])))
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[:])
    assert client.server_info()["table"].current_size == 1


def test_a_table_that_turns_out_not_to_exist(client):
    writer = client.trajectory_writer(1, validate_items=False)
    writer.append(1)
    writer.create_item("nowhere", 1.0, writer.history[:])
    with pytest.raises(RuntimeError, match="nowhere"):
        writer.flush(timeout_ms=60_000)
    with pytest.raises(RuntimeError, match="nowhere"):
        writer.append(2)
    with pytest.raises(RuntimeError, match="nowhere"):
        writer.end_episode(timeout_ms=60_000)


def test_a_rejected_item_ends_its_writer_with_an_error(serve, connect):
    client = connect(serve(make_table(sampler=reverb.selectors.Prioritized(1.0))))
    writer = client.trajectory_writer(1)
    with pytest.raises(ValueError, match="-5") as error:
        for priority in (1.0, 2.0, -5.0):
            writer.append(0)
            writer.create_item("table", priority, writer.history[-1:])
        writer.flush(timeout_ms=60_000)
    assert (error.value.code, error.value.detail) == ("INVALID_ARGUMENT", "INVALID_PRIORITY")
    text = str(error.value)
    assert 'for table "table" was rejected' in text
    assert "it was item 3 of this writer, which takes no more: make a new one" in text
    with pytest.raises(ValueError, match="make a new one"):
        writer.append(0)
    assert client.server_info()["table"].current_size == 2
    with client.trajectory_writer(1) as another:
        another.append(0)
        another.create_item("table", 5.0, another.history[:])
    assert client.server_info()["table"].current_size == 3


def test_the_error_of_a_rejected_insert_mentions_no_writer(serve, connect):
    client = connect(serve(make_table(sampler=reverb.selectors.Prioritized(1.0))))
    with pytest.raises(ValueError, match="was rejected") as error:
        client.insert(0, {"table": -5.0}, timeout=60)
    assert "writer" not in str(error.value)
    client.insert(0, {"table": 5.0}, timeout=60)


# --- Flush and close ---


def test_flush_waits_for_all_but_some(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 3)))
    writer = client.trajectory_writer(1)
    for i in range(5):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1])
    writer.flush(2)
    writer.flush(block_until_num_items=2, timeout_ms=1000)
    for timeout_ms in (0, 100):
        start = time.monotonic()
        with pytest.raises(reverb.DeadlineExceededError, match="Timeout exceeded"):
            writer.flush(0, timeout_ms=timeout_ms)
        assert time.monotonic() - start < 3
    with pytest.raises(ValueError):
        writer.flush(-1)
    with pytest.raises(TypeError):
        writer.flush(timeout_ms=0.5)
    assert [data[0].tolist() for data in items(client, 5)] == list(range(5))
    writer.flush()


def test_end_episode(client, writer, server):
    for _ in range(2):
        for i in range(3):
            writer.append(i)
        assert writer.episode_steps == 3
        writer.create_item("table", 1.0, writer.history[:])
        writer.end_episode()
        assert writer.episode_steps == 0
        assert len(writer.history) == 0
    assert client.server_info()["table"].num_episodes == 2
    writer.append(7)
    writer.end_episode(clear_buffers=False, timeout_ms=None)
    assert writer.episode_steps == 0
    writer.append(8)
    assert values(writer.history[-2:]) == [7, 8]


def test_an_episode_ends_also_when_the_wait_does_not(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writer = client.trajectory_writer(1)
    for i in range(3):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1])
    with pytest.raises(reverb.DeadlineExceededError):
        writer.end_episode(timeout_ms=50)
    assert writer.episode_steps == 0
    assert len(writer.history) == 0
    assert len(items(client, 3)) == 3
    writer.end_episode(timeout_ms=5000)


def test_close(writer):
    writer.append(1)
    column = writer.history[:]
    writer.close()
    writer.close()
    for call in (
        lambda: writer.append(2),
        lambda: writer.create_item("queue", 1.0, column),
        writer.flush,
        writer.end_episode,
    ):
        with pytest.raises(RuntimeError, match=r"TrajectoryWriter::Close has been called\."):
            call()
    assert values(writer.history[-1]) == 1
    assert values(column) == [1]
    assert writer.episode_steps == 1


def test_close_ends_the_wait_of_another_thread(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writer = client.trajectory_writer(1)
    for i in range(3):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1])
    threading.Timer(0.2, writer.close).start()
    start = time.monotonic()
    with pytest.raises(RuntimeError):
        writer.flush()
    assert time.monotonic() - start < 3


def test_leaving_a_block_flushes_unless_the_error_is_ours(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1), make_table()))
    client.insert(0, {"queue": 1.0})
    with pytest.raises(reverb.DeadlineExceededError), client.trajectory_writer(1) as writer:
        writer.append(1)
        writer.create_item("queue", 1.0, writer.history[-1])
        writer.flush(timeout_ms=50)
    writer.close()
    with pytest.raises(ZeroDivisionError), client.trajectory_writer(1) as writer:
        writer.append(2)
        writer.create_item("table", 1.0, writer.history[-1])
        1 / 0
    assert client.server_info()["table"].current_size == 1


def test_threads_take_turns(serve):
    # One thread waits in flush(), another appends: the second continues when the first is done.
    server = serve(reverb.Table.queue("queue", 1))
    client = server.localhost_client()
    writer = client.trajectory_writer(1)
    for i in range(2):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1])
    flusher = threading.Thread(target=writer.flush)
    flusher.start()
    wait_for_waiters(client, 1)
    appender = threading.Thread(target=lambda: writer.append(2))
    appender.start()
    next(client.sample("queue", emit_timesteps=False))
    flusher.join(10)
    appender.join(10)
    assert not flusher.is_alive()
    assert not appender.is_alive()
    assert writer.episode_steps == 3


def test_configure(client):
    writer = client.trajectory_writer(2)
    writer.configure(("a",), num_keep_alive_refs=5, max_chunk_length=2)
    for i in range(6):
        writer.append({"a": i, "b": i})
    assert values(writer.history["a"][-5:]) == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError):
        writer.history["b"][-3:]
    writer.append({"a": 6, "b": 6})
    with pytest.raises(RuntimeError, match=r"Flush must be called before ApplyConfig\."):
        writer.configure(("a",), num_keep_alive_refs=3, max_chunk_length=3)
    for bad in ({"num_keep_alive_refs": 0, "max_chunk_length": None}, {"num_keep_alive_refs": 2, "max_chunk_length": 3},
                {"num_keep_alive_refs": 2, "max_chunk_length": 0}):  # fmt: skip
        with pytest.raises(ValueError):
            writer.configure(("a",), **bad)
    with pytest.raises(TypeError):
        writer.configure(["a"], num_keep_alive_refs=1, max_chunk_length=None)
    writer.configure("never", num_keep_alive_refs=1, max_chunk_length=None)


@pytest.mark.parametrize("refs", [0, -1])
def test_writers_that_cannot_be(client, refs):
    with pytest.raises(ValueError, match="num_keep_alive_refs"):
        client.trajectory_writer(refs)


# --- Writers that are dropped ---


def test_a_writer_that_is_dropped_delivers_what_it_can(client):
    writer = client.trajectory_writer(1)
    writer.append(3)
    writer.create_item("queue", 1.0, writer.history[-1])
    column = writer.history[-1]
    alive = weakref.ref(writer)
    del writer
    gc.collect()
    assert alive() is None
    assert items(client, 1)[0][0] == 3
    assert values(column) == 3


def test_a_writer_that_is_dropped_does_not_hang(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writer = client.trajectory_writer(1)
    for i in range(5):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1])
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    start = time.monotonic()
    del writer
    took = time.monotonic() - start
    stop.set()
    join(thread)
    assert took < 4
    # Does not wait if a flush of another dropped writer failed a moment before.
    assert took < 0.5 or len(ticks) > 10, "other threads ran meanwhile"


def test_many_writers_that_are_dropped_take_a_second_together(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writers = [client.trajectory_writer(1) for _ in range(8)]
    for writer in writers:
        for i in range(2):
            writer.append(i)
            writer.create_item("queue", 1.0, writer.history[-1])
    start = time.monotonic()
    del writer
    writers.clear()
    assert time.monotonic() - start < 4, "not a second each"


def test_a_writer_may_outlive_its_server(serve):
    server = serve(make_table())
    writer = server.localhost_client().trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1])
    writer.flush()
    server.stop()
    start = time.monotonic()
    with pytest.raises((RuntimeError, reverb.DeadlineExceededError)):
        writer.append(2)
        writer.create_item("table", 1.0, writer.history[-1])
        writer.flush(timeout_ms=500)
    writer.close()
    assert time.monotonic() - start < 5
