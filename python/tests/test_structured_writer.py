"""Tests StructuredWriter: the native writer behind patterns and conditions."""

import threading
import time
from typing import NamedTuple

import numpy as np
import pytest

import reverb
from reverb import structured_writer as sw


def config(transform, table="queue", conditions=(), step=0, priority=None):
    return sw.create_config(sw.pattern_from_transform(step, transform), table, conditions, priority)


def items(client, count):
    return [[value.tolist() for value in sample.data] for sample in client.sample("queue", count, emit_timesteps=False)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([sw.Condition.step_index() <= 2], [0, 1, 2]),
        ([sw.Condition.step_index() % 3 != 0], [1, 2, 4, 5, 7, 8]),
        ([sw.Condition.steps_since_applied() >= 4], [3, 7]),
        ([sw.Condition.is_end_episode()], [9]),
        ([sw.Condition.step_index() >= 3, sw.Condition.step_index() < 5], [3, 4]),
        ([sw.Condition.data(0) == 6], [6]),
    ],
)
def test_conditions(client, conditions, expected):
    writer = client.structured_writer([config(lambda x: x[-1], conditions=conditions)])
    for i in range(10):
        writer.append(i)
    writer.end_episode()
    assert items(client, len(expected)) == [[i] for i in expected]
    assert client.server_info()["queue"].current_size == 0


def test_slices(client):
    step = {"a": 0, "b": 0}
    pattern = lambda ref: {"x": ref["a"][-5::2], "y": ref["b"][-2], "z": ref["a"][-3:-1]}  # noqa: E731
    with client.structured_writer([config(pattern, step=step)]) as writer:
        for i in range(30):
            writer.append({"a": i, "b": 10 * i})
    got = items(client, 26)
    assert got == [[[i - 4, i - 2, i], 10 * (i - 1), [i - 2, i - 1]] for i in range(4, 30)]


class Step(NamedTuple):
    observation: object
    reward: object


def test_partial_steps_of_namedtuples(client):
    pattern = config(lambda ref: {"o": ref.observation[-2:], "r": ref.reward[-1]}, step=Step(0, 0))
    writer = client.structured_writer([pattern])
    for i in range(4):
        writer.append(data=Step(np.float32(i), None), partial_step=True)
        assert writer.step_is_open
        writer.append(Step(None, i))
        assert not writer.step_is_open
    writer.flush()
    assert items(client, 3) == [[[i - 1, i], i] for i in range(1, 4)]


def test_errors_of_steps(client):
    writer = client.structured_writer([config(lambda ref: [ref["a"][-1], ref["b"][-1]], step={"a": 0, "b": 0})])
    writer.append({"a": 1, "b": 2.0})
    with pytest.raises(ValueError, match="Flattened data has an unexpected length, got 1 but wanted 2."):
        writer.append([1])
    with pytest.raises(ValueError) as caught:
        writer.append({"a": 1, "b": 2})
    assert "Tensor of wrong dtype provided for column 1 (path=('b',)). Got int64 but expected double." in str(
        caught.value
    )
    with pytest.raises(ValueError) as caught:
        writer.append({"a": np.zeros(2, np.int64), "b": 2.0})
    assert "Tensor of incompatible shape provided for column 0 (path=('a',)). Got [2] which" in str(caught.value)
    with pytest.raises(TypeError):
        writer.append({"a": 1, "b": np.datetime64("2020-01-01")})
    writer.append({"a": 3, "b": None}, partial_step=True)
    with pytest.raises(RuntimeError, match="present in previous"):
        writer.append({"a": 4, "b": 4.0})
    writer.append({"a": None, "b": 5.0})
    writer.end_episode()
    assert items(client, 2) == [[1, 2.0], [3, 5.0]]


def test_configs_that_cannot_be(client):
    with pytest.raises(ValueError, match="[Aa]t least one"):
        client.structured_writer([])
    good, bad = config(lambda x: x[-1]), config(lambda x: x[-1:])
    bad.flat[0].start = 5
    with pytest.raises(ValueError, match="^Invalid configuration at position 1: "):
        client.structured_writer([good, bad])
    with pytest.raises(ValueError, match="^Invalid configuration at position 0: "):
        client.structured_writer([config(lambda x: x[-1], table="")])


def test_a_table_that_does_not_exist_shows_later(client):
    writer = client.structured_writer([config(lambda x: x[-1], table="nowhere")])
    writer.append(1)
    with pytest.raises(RuntimeError, match="nowhere"):
        writer.flush()
    with pytest.raises(RuntimeError, match="nowhere"):
        writer.append(2)


def test_time_outs(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writer = client.structured_writer([config(lambda x: x[-1])])
    writer.flush()
    for i in range(3):
        writer.append(i)
    for call in (
        lambda: writer.flush(timeout_ms=0),
        lambda: writer.flush(0, 50),
        lambda: writer.end_episode(timeout_ms=50),
        lambda: writer.end_episode(True, -1),
    ):
        with pytest.raises(reverb.DeadlineExceededError):
            call()
    writer.flush(2)
    with pytest.raises(ValueError):
        writer.flush(-1)
    assert len(items(client, 3)) == 3
    writer.flush()


def test_close_and_drop(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    writer = client.structured_writer([config(lambda x: x[-1])])
    for i in range(3):
        writer.append(i)
    threading.Timer(0.2, writer.close).start()
    with pytest.raises(RuntimeError):
        writer.flush()
    with pytest.raises(RuntimeError):
        writer.append(4)
    unused = client.structured_writer([config(lambda x: x[-1])])
    unused.close()
    with pytest.raises(RuntimeError):
        unused.append(1)
    dropped = client.structured_writer([config(lambda x: x[-1])])
    for i in range(3):
        dropped.append(i)
    start = time.monotonic()
    del dropped
    assert time.monotonic() - start < 4


def test_td_errors_as_priorities(client):
    step = {"x": 0, "td": 0.0}
    priority = sw.td_error(0.5, step, lambda ref: ref["td"])
    made = config(lambda ref: [ref["x"][-2:], ref["td"][-2:]], table="table", step=step, priority=priority)
    with client.structured_writer([made]) as writer:
        writer.append({"x": 1, "td": -3.0})
        writer.append({"x": 2, "td": 1.0})
    sample = next(client.sample("table", emit_timesteps=False))
    assert sample.info.priority == 0.5 * 3.0 + 0.5 * 2.0
