"""Tests Writer: complete steps, and items of the last n steps."""

import functools
import gc

from conditions import wait_until
from conftest import make_table
import numpy as np
import pytest
import transports

import reverb


def items(client, count, table="queue"):
    return [sample.data for sample in client.sample(table, count, emit_timesteps=False)]


def test_items_of_the_last_steps(client):
    with client.writer(max_sequence_length=3) as writer:
        for i in range(5):
            writer.append([i, {"x": np.full(2, i, np.float32)}])
            writer.create_item("queue", min(i + 1, 3), 1.0)
    got = items(client, 5)
    assert [data[0].tolist() for data in got] == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert got[-1][1].tolist() == [[2, 2], [3, 3], [4, 4]]


@pytest.mark.parametrize("chunk_length", [1, 2, 5])
def test_chunk_lengths(client, chunk_length):
    with client.writer(5, chunk_length=chunk_length, delta_encoded=True) as writer:
        for i in range(7):
            writer.append(i)
        writer.create_item(table="queue", num_timesteps=5, priority=1.0)
    assert items(client, 1)[0][0].tolist() == [2, 3, 4, 5, 6]


def test_sequences(client):
    with client.writer(4) as writer:
        writer.append_sequence({"a": np.arange(4), "b": np.arange(8.0).reshape(4, 2)})
        writer.append_sequence({"a": np.zeros(0, np.int64), "b": np.zeros((0, 2))})
        writer.create_item("queue", 4, 1.0)
        for bad in ([], {"a": 1, "b": np.zeros((4, 2))}, {"a": np.arange(3), "b": np.zeros((4, 2))}):
            with pytest.raises(ValueError):
                writer.append_sequence(bad)
    assert items(client, 1)[0][1].tolist() == np.arange(8.0).reshape(4, 2).tolist()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_sequence_length": 0}, "max_sequence_length"),
        ({"max_sequence_length": 2, "chunk_length": 0}, "chunk_length"),
        ({"max_sequence_length": 2, "chunk_length": 3}, "chunk_length"),
        ({"max_sequence_length": 2, "max_in_flight_items": 0}, "max_in_flight_items"),
    ],
)
def test_writers_that_cannot_be(client, arguments, text):
    with pytest.raises(ValueError, match=text):
        client.writer(**arguments)


def test_items_that_cannot_be(client):
    with client.writer(3) as writer:
        with pytest.raises(ValueError):
            writer.create_item("queue", 1, 1.0)
        for i in range(4):
            writer.append(i)
        for steps in (0, -1, 4, 5):
            with pytest.raises(ValueError, match="num_timesteps"):
                writer.create_item("queue", steps, 1.0)
        with pytest.raises(ValueError, match="nan"):
            writer.create_item("queue", 1, float("nan"))
        with pytest.raises(ValueError, match="nowhere"):
            writer.create_item("nowhere", 1, 1.0)
        with pytest.raises(TypeError):
            writer.create_item("queue", 1, "1.0")
        writer.create_item("queue", 3, 1.0)


def test_steps_are_alike(client):
    with client.writer(3, chunk_length=1) as writer:
        writer.append([1, np.zeros(2)])
        with pytest.raises(ValueError):
            writer.append([1])
        with pytest.raises(ValueError, match="Unable to concatenate tensors at index 1"):
            writer.append([1, np.zeros(3)])
        with pytest.raises(ValueError, match="Cannot concatenate tensors that have different data types"):
            writer.append([1, np.zeros(2, np.float32)])
        writer.append([2, np.ones(2)])
        writer.create_item("queue", 2, 1.0)
    assert items(client, 1)[0][0].tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(2,), (3, 2), (None, 2)])
def test_a_signature_of_a_step_or_of_the_item(serve, connect, shape):
    client = connect(serve(make_table(signature=[reverb.TensorSpec(shape, np.float32)])))
    with client.writer(3) as writer:
        for _ in range(3):
            writer.append([np.zeros(2, np.float32)])
        writer.create_item("table", 3, 1.0)
        writer.flush()
    assert client.server_info()["table"].current_size == 1
    with client.writer(3) as writer:
        writer.append([np.zeros(2)])
        with pytest.raises(ValueError):
            writer.create_item("table", 1, 1.0)


def test_flush_waits_for_confirmation(client, server):
    writer = client.writer(1)
    writer.append(0)
    writer.create_item("queue", 1, 1.0)
    writer.flush()
    assert server.tables[1].info.current_size == 1
    writer.close()


def test_close(client):
    writer = client.writer(1)
    writer.append(0)
    assert "closed=0), closed: False" in repr(writer)
    assert repr(writer).startswith("Writer(chunk_length=1, max_timesteps=1, delta_encoded=0, max_in_flight_items=25,")
    writer.close()
    assert "closed=1), closed: True" in repr(writer)
    with pytest.raises(ValueError):
        writer.close()
    with pytest.raises(ValueError):
        writer.__enter__()
    with pytest.raises(RuntimeError, match="Calling method Append after Close has been called"):
        writer.append(1)
    with pytest.raises(RuntimeError, match="after Close has been called"):
        writer.create_item("queue", 1, 1.0)
    with pytest.raises(RuntimeError, match="after Close has been called"):
        writer.append_sequence([np.zeros(1)])
    with pytest.raises(RuntimeError, match="after Close has been called"):
        writer.flush()


def wait_until_flush_leaves(count, flush):
    """Flushes until `count` items are left that the table has no room for."""

    def attempt():
        with pytest.raises(reverb.DeadlineExceededError) as error:
            flush()
        return f"{count} items" in str(error.value)

    wait_until(attempt, what=f"{count} unconfirmed items")


def test_close_with_a_timeout(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writer = client.writer(1, max_in_flight_items=None)
    for i in range(3):
        writer.append(i)
        writer.create_item("queue", 1, 1.0)
    wait_until_flush_leaves(2, lambda: writer.flush(timeout=0.05))
    with pytest.raises(reverb.DeadlineExceededError, match="2 items .* not confirmed"):
        writer.close(timeout=0.05)


def test_close_returns_the_number_of_items_that_are_not_confirmed(serve, connect, caplog):
    client = connect(serve(reverb.Table.queue("queue", 1)))

    def write(count):
        writer = client.writer(1, max_in_flight_items=None)
        for i in range(count):
            writer.append(i)
            writer.create_item("queue", 1, 1.0)
        return writer

    assert write(1).close(timeout=60) == 0
    assert write(3).close(retry_on_unavailable=False, timeout=0.05) == 3
    assert "a writer was closed with 3 items that are not confirmed" in caplog.text
    caplog.clear()
    writer = write(2)
    del writer
    gc.collect()
    assert "dropped without close()" in caplog.text
    assert "2 items are not confirmed and may be lost" in caplog.text


@pytest.mark.parametrize("kind", ["writer", "trajectory_writer"])
def test_leaving_a_block_raises_the_number_of_items_that_are_not_confirmed(kind):
    with reverb.Server([reverb.Table.queue("queue", 1)]) as server:
        client = transports.connect(server, "grpc", reconnect_timeout=0.0)
        unconfirmed = pytest.raises(RuntimeError, match="2 items of this writer are not confirmed")
        with unconfirmed, getattr(client, kind)(1) as writer:
            for i in range(3):
                writer.append(i)
                if kind == "writer":
                    writer.create_item("queue", 1, 1.0)
                else:
                    writer.create_item("queue", 1.0, writer.history[-1:])
            flush = functools.partial(writer.flush, **({"timeout": 0.1} if kind == "writer" else {"timeout_ms": 100}))
            wait_until_flush_leaves(2, flush)
            server.stop()


def test_leaving_a_block_closes_also_after_an_error(client):
    with pytest.raises(ZeroDivisionError), client.writer(1) as writer:
        writer.append(1)
        writer.create_item("queue", 1, 1.0)
        1 / 0
    assert "closed: True" in repr(writer)
    assert items(client, 1)[0][0].tolist() == [1]


def test_dropping_it_warns(client, caplog):
    writer = client.writer(1)
    writer.append(1)
    writer.create_item("queue", 1, 1.0)
    del writer
    gc.collect()
    assert "dropped without close()" in caplog.text
    assert items(client, 1)[0][0].tolist() == [1]
