"""Tests VectorWriter: steps of many environments in one call, and items of each."""

import collections
import random
import threading
from typing import NamedTuple

from conftest import join, make_table, run_in_threads
import interpreters
import numpy as np
import pytest
import transports

import reverb

N = 4


@pytest.fixture
def writer(client):
    return client.vector_writer(num_envs=N, num_keep_alive_refs=3)


def items(client, count, table="queue"):
    return [sample.data for sample in client.sample(table, count, emit_timesteps=False)]


def rows(step):
    """Returns a value that identifies environment and step."""
    return np.arange(N) * 100 + step


# --- Steps and items ---


def test_one_call_writes_a_step_of_each(client, writer):
    for step in range(3):
        writer.append({"obs": np.stack([rows(step), -rows(step)], axis=1).astype(np.float32), "reward": rows(step)})
        history = writer.history
        made = writer.create_items(
            "queue", 1.5, {"obs": history["obs"][-2:], "last": history["reward"][-1], "two": history["reward"][-2:-1]}
        )
        assert made.dtype == bool
        assert made.tolist() == [step >= 1] * N
    writer.flush()
    got = items(client, 2 * N)
    for i, (last, obs, two) in enumerate(got):
        step, env = 1 + i // N, i % N
        first = env * 100 + step - 1
        np.testing.assert_array_equal(obs, np.float32([[first, -first], [first + 1, -first - 1]]))
        assert (last.shape, last.dtype, int(last)) == ((), np.int64, first + 1)
        assert two.tolist() == [first]


def test_priorities_are_one_or_one_for_each(client, writer):
    writer.append(rows(0))
    x = writer.history
    each = [0.5, 1.0, 1.5, 2.0]
    for priorities in (2, np.float32(3), np.array(4.0), each, np.array(each), np.array(each, np.float32),
                       np.array([1, 2, 3, 4])):  # fmt: skip
        writer.create_items("queue", priorities, x[-1])
    writer.flush()
    got = [sample.info.priority for sample in client.sample("queue", 7 * N, emit_timesteps=False)]
    assert got == [2.0] * N + [3.0] * N + [4.0] * N + each * 3 + [1.0, 2.0, 3.0, 4.0]


def test_masks_and_a_reset_in_the_middle(client, writer):
    writer.append({"x": rows(0)})
    writer.append({"x": rows(1)}, mask=[True, False, True, True])
    assert writer.episode_steps.tolist() == [2, 1, 2, 2]
    x = writer.history["x"]
    assert writer.create_items("queue", 1.0, x[-2:], np.array([True, True, True, False])).tolist() == [1, 0, 1, 0]
    writer.end_episode(mask=np.array([True, False, False, False]))
    assert writer.episode_steps.tolist() == [0, 1, 2, 2]
    writer.append({"x": rows(2)})
    assert writer.create_items("queue", 1.0, x[-2:]).tolist() == [False, True, True, True]
    assert writer.create_items("queue", 1.0, x[:]).tolist() == [True] * N
    writer.end_episode()
    assert writer.episode_steps.tolist() == [0] * N
    assert writer.create_items("queue", 1.0, x[-1]).tolist() == [False] * N
    writer.flush()
    assert [data[0].tolist() for data in items(client, 9)] == [
        [0, 1], [200, 201], [100, 102], [201, 202], [301, 302], [2], [100, 102], [200, 201, 202], [300, 301, 302],
    ]  # fmt: skip


def test_all_ways_to_choose_steps(client, writer):
    for step in range(3):
        writer.append(rows(step))
    x = writer.history
    chosen = [x[:], x[0], x[-1], x[[0, -1]], x[-3:], x[:-1], x[0:3], x[1:3], x[::2], x[::-1], x[[1, 1]], x[np.int64(1)]]
    for trajectory in chosen:
        assert writer.create_items("queue", 1.0, trajectory, mask=np.arange(N) == 1).sum() == 1
    writer.flush()
    expected = [[0, 1, 2], 0, 2, [0, 2], [0, 1, 2], [0, 1], [0, 1, 2], [1, 2], [0, 2], [2, 1, 0], [1, 1], 1]
    got = items(client, len(expected))
    assert [(data[0] - 100).tolist() for data in got] == expected


class Pair(NamedTuple):
    a: object
    b: object


def test_nests_of_all_kinds(client, writer):
    nest = {"t": (rows(0), [rows(1)]), "p": Pair(rows(2), {"z": rows(3)}), "o": collections.OrderedDict(y=rows(4))}
    writer.append(nest)
    assert writer.history["p"].b["z"].path == ("p", "b", "z")
    assert writer.history["t"][1][0][-1].is_squeezed
    assert not writer.history["t"][1][0][-1:].is_squeezed
    history = writer.history
    writer.create_items(
        "queue", 1.0, Pair({"a": history["t"][0][-1]}, (history["p"].b["z"][-1], history["o"]["y"][-1]))
    )
    writer.flush()
    assert [[int(x) for x in data] for data in items(client, N)] == [[0, 3, 4], [100, 103, 104], [200, 203, 204],
                                                                    [300, 303, 304]]  # fmt: skip


def test_strings_and_arrays_of_any_layout(client, writer):
    obs = np.asfortranarray(np.arange(N * 6, dtype=">i4").reshape(N, 3, 2))
    writer.append({"obs": obs, "text": np.array(["a", "bc", "", "d"]), "number": np.arange(1.0, 9.0)[::2]})
    history = writer.history
    writer.create_items("queue", 1.0, [history["obs"][-1], history["text"][-1], history["number"][-1]])
    writer.flush()
    for env, (got, text, number) in enumerate(items(client, N)):
        np.testing.assert_array_equal(got, obs[env])
        assert text.item() == [b"a", b"bc", b"", b"d"][env]
        assert number == 2 * env + 1


def test_columns_come_and_go(client, writer):
    writer.append({"x": rows(0)})
    writer.append({"x": rows(1), "y": rows(2)})
    writer.append({"x": rows(3), "y": None})
    history = writer.history
    writer.create_items("queue", 1.0, [history["x"][-1], history["y"][-2]])
    with pytest.raises(ValueError, match=r"environment 0.*None"):
        writer.create_items("queue", 1.0, history["y"][-1])
    writer.flush()
    assert [[int(x) for x in data] for data in items(client, N)] == [[3, 2], [103, 102], [203, 202], [303, 302]]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_items_as_single_writers(serve, connect, seed):
    """Compares random steps, masks, ends and choices with a TrajectoryWriter for each environment."""
    chance = random.Random(seed)
    server = serve(reverb.Table.queue("vector", 10**5), reverb.Table.queue("single", 10**5))
    client = connect(server)
    envs, keep = 5, 4
    singles = [client.trajectory_writer(keep) for _ in range(envs)]
    with client.vector_writer(envs, keep) as vector:
        for step in range(60):
            taking = np.array([chance.random() < 0.8 for _ in range(envs)])
            x = np.array([[env, step] for env in range(envs)], np.float32)
            action = np.arange(envs, dtype=np.int32) * 1000 + step
            vector.append({"x": x, "action": action}, mask=taking)
            for env in np.flatnonzero(taking):
                singles[env].append({"x": x[env], "action": action[env]})
            back = chance.randint(1, keep)
            history = vector.history
            made = vector.create_items(
                "vector", np.arange(envs) + 1.0, {"x": history["x"][-back:], "action": history["action"][-1]}
            )
            for env, writer in enumerate(singles):
                steps = writer.episode_steps
                assert vector.episode_steps[env] == steps
                assert made[env] == (steps >= back)
                if made[env]:
                    writer.create_item(
                        "single", env + 1.0, {"x": writer.history["x"][-back:], "action": writer.history["action"][-1]}
                    )
            ending = np.array([chance.random() < 0.1 for _ in range(envs)])
            vector.end_episode(mask=ending)
            for env in np.flatnonzero(ending):
                singles[env].end_episode()
    for writer in singles:
        writer.flush()
        writer.close()

    def by_environment(table):
        found = collections.defaultdict(list)
        size = client.server_info()[table].current_size
        for sample in client.sample(table, size, emit_timesteps=False):
            action, x = sample.data
            found[int(x[0, 0])].append((sample.info.priority, x.tolist(), int(action)))
        return found

    got = by_environment("vector")
    assert sorted(got) == list(range(envs))
    assert len({str(each) for each in got[0]}) > 20
    assert got == by_environment("single")


# --- Errors ---


def test_a_wrong_first_dimension(writer):
    for wrong, shape in ((np.zeros(3), "[3]"), (np.zeros(()), "[]"), (1.5, "[]"), (np.zeros((5, 4)), "[5,4]")):
        with pytest.raises(ValueError) as error:
            writer.append({"good": rows(0), "obs": {"x": wrong}})
        assert "('obs', 'x')" in str(error.value)
        assert f"got shape {shape}" in str(error.value)
        assert f"first dimension of {N}" in str(error.value)
    with pytest.raises(RuntimeError, match="before `append` is called"):
        _ = writer.history
    assert writer.episode_steps.tolist() == [0] * N


def test_an_append_that_fails_changes_nothing(client, writer):
    writer.append({"x": rows(0)}, mask=[True, False, False, False])
    for bad in ({"x": rows(0).astype(np.float32)}, {"x": np.zeros((N, 2), np.int64)}, {"x": rows(0), "y": object()},
                {"x": rows(0), "y": np.zeros(N + 1)}, {"x": {"z": rows(0)}}):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            writer.append(bad, mask=[False, True, True, True])
    assert writer.episode_steps.tolist() == [1, 0, 0, 0]
    assert list(writer.history) == ["x"]
    writer.append({"x": rows(1), "y": np.ones((N, 2), bool)})
    assert writer.create_items("queue", 1.0, writer.history["y"][-1]).all()
    writer.flush()
    assert items(client, 1)[0][0].tolist() == [True, True]


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ([True], ValueError, r"shape \(4,\).*got \(1,\)"),
        (np.ones((N, 1), bool), ValueError, r"got \(4, 1\)"),
        (True, ValueError, r"got \(\)"),
        (np.ones(N), TypeError, "float64"),
        (np.ones(N, np.uint8), TypeError, r"uint8.*astype\(bool\)"),
        (["a", "b", "c", "d"], TypeError, "string"),
        (object(), TypeError, "objects can hold bytes and str only"),
    ],
)
def test_masks_that_are_none(writer, mask, error, text):
    writer.append(rows(0))
    for call in (
        lambda: writer.append(rows(1), mask),
        lambda: writer.create_items("queue", 1.0, writer.history[-1], mask),
        lambda: writer.end_episode(mask),
    ):
        with pytest.raises(error, match=text):
            call()
    assert writer.episode_steps.tolist() == [1] * N


@pytest.mark.parametrize(
    ("priorities", "error", "text"),
    [
        ([1.0], ValueError, r"shape \(4,\).*got \(1,\)"),
        (np.ones((N, N)), ValueError, r"got \(4, 4\)"),
        (float("nan"), ValueError, "nan"),
        ([1.0, float("nan"), 1.0, 1.0], ValueError, "environment 1.*nan"),
        ("1.0", TypeError, "number"),
        (None, TypeError, "None"),
        (["a"] * N, TypeError, "number"),
        (np.ones(N, complex), TypeError, "complex"),
    ],
)
def test_priorities_that_are_none(writer, priorities, error, text):
    writer.append(rows(0))
    with pytest.raises(error, match=text):
        writer.create_items("queue", priorities, writer.history[-1])
    writer.flush()


def test_items_that_cannot_be(client, writer):
    for step in range(5):
        writer.append({"x": rows(step)})
    x = writer.history["x"]
    for trajectory, error, text in (
        (None, TypeError, "VectorColumn"),
        ({"x": None}, TypeError, "VectorColumn"),
        ({}, ValueError, "must not be empty"),
        ({"x": rows(0)}, TypeError, "VectorColumn"),
        ({"x": x}, TypeError, "VectorColumn"),
        (x[[]], ValueError, "empty column"),
        (x[-4:], ValueError, "last 3 steps"),
        (x[-4], ValueError, "last 3 steps"),
        (x[:], ValueError, "environment 0.*expired"),
        (x[-1:-3], ValueError, "names no step"),
        (x[-3:0], ValueError, "names no step"),
    ):
        with pytest.raises(error, match=text):
            writer.create_items("queue", 1.0, trajectory)
    for key, error in (("a", TypeError), (1.5, TypeError), ([1.5], TypeError), (2**70, IndexError), ((0, 1), TypeError),
                       (None, TypeError)):  # fmt: skip
        with pytest.raises(error):
            x[key]
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        x[::0]
    assert not writer.create_items("queue", 1.0, x[2**62 :]).any()
    assert not writer.create_items("queue", 1.0, x[2**63 - 1]).any()
    with pytest.raises(ValueError, match=r"\"nowhere\"|nowhere"):
        writer.create_items("nowhere", 1.0, x[-1])
    other = client.vector_writer(N, 3)
    other.append({"x": rows(0)})
    with pytest.raises(ValueError, match="another writer"):
        writer.create_items("queue", 1.0, other.history["x"][-1])
    single = client.trajectory_writer(1)
    single.append(1)
    with pytest.raises(TypeError, match="VectorColumn"):
        writer.create_items("queue", 1.0, single.history[-1])
    with pytest.raises(TypeError, match="TrajectoryColumn"):
        single.create_item("queue", 1.0, x[-1])
    writer.flush()
    assert client.server_info()["queue"].current_size == 0


@pytest.mark.parametrize("arguments", [(0, 1), (-1, 1), (2**40, 1), (1, 0), (1, -1)])
def test_writers_that_cannot_be(client, arguments):
    with pytest.raises(ValueError, match="must be"):
        client.vector_writer(*arguments)


@pytest.mark.parametrize("arguments", [("4", 1), (1.5, 1), (None, 1), (2**70, 1)])
def test_arguments_of_the_wrong_type(client, arguments):
    with pytest.raises(TypeError):
        client.vector_writer(*arguments)


def test_signatures(serve, connect):
    spec = reverb.TensorSpec
    client = connect(serve(make_table("table", signature={"x": spec((2,), np.int64)})))
    writer = client.vector_writer(N, 2)
    writer.append({"x": rows(0)})
    with pytest.raises(ValueError, match="environment 0"):
        writer.create_items("table", 1.0, {"x": writer.history["x"][-1:]})
    writer.append({"x": rows(1)})
    writer.create_items("table", 1.0, {"x": writer.history["x"][-2:]})
    writer.flush()
    free = client.vector_writer(N, 2, validate_items=False)
    free.append({"x": rows(0)})
    free.create_items("table", 1.0, {"x": free.history["x"][-1:]})
    free.close()


# --- Ends ---


def test_flush_and_time_outs(serve, connect):
    client = connect(serve(reverb.Table.queue("small", 2)))
    writer = client.vector_writer(N, 1)
    writer.append(rows(0))
    writer.create_items("small", 1.0, writer.history[-1])
    writer.end_episode()
    writer.flush(2, timeout_ms=-1)
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(1, timeout_ms=10)
    with pytest.raises(ValueError, match="block_until_num_items"):
        writer.flush(-1)
    assert [int(data[0]) for data in items(client, 4, "small")] == [0, 100, 200, 300]
    writer.flush()


def test_the_end_of_a_block(client):
    with client.vector_writer(N, 1) as writer:
        writer.append(rows(0))
        writer.create_items("queue", 1.0, writer.history[-1])
    assert client.server_info()["queue"].current_size == N
    with client.vector_writer(N, 1) as writer:
        writer.append(rows(0))
        writer.close()
    for call in (lambda: writer.append(rows(0)), writer.end_episode, writer.flush,
                 lambda: writer.create_items("queue", 1.0, writer.history[-1])):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"close\(\) has been called"):
            call()
    writer.close()
    with pytest.raises(ZeroDivisionError), client.vector_writer(N, 1) as writer:
        writer.append(rows(0))
        writer.create_items("queue", 1.0, writer.history[-1])
        _ = 1 / 0
    assert client.server_info()["queue"].current_size == 2 * N


@pytest.mark.parametrize("transport", transports.ALL)
def test_dropped_without_close(transport):
    # In a separate process: failed flushes of other dropped writers would shorten the wait.
    out = interpreters.run(f"""
    import weakref
    server = make_server()
    client = connect(server, {transport!r})
    writer = client.vector_writer(4, 10)
    writer.append(np.arange(4))
    history = writer.history
    writer.create_items("table", 1.0, history[-1])
    dropped = weakref.ref(writer)
    del writer
    print(dropped(), client.server_info()["table"].current_size, history[-1].is_squeezed)
    """)
    assert out.split() == ["None", "4", "True"]


def test_close_from_another_thread_ends_a_flush(serve, connect):
    client = connect(serve(reverb.Table.queue("small", 1)))
    writer = client.vector_writer(N, 1)
    writer.append(rows(0))
    writer.create_items("small", 1.0, writer.history[-1])
    begun = threading.Event()

    def close():
        begun.wait(timeout=60)
        writer.close()

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    begun.set()
    with pytest.raises(RuntimeError):
        writer.flush(timeout_ms=60_000)
    join(closer)


def test_threads_take_turns(serve, connect):
    client = connect(serve(reverb.Table.queue("table", 10**5)))
    writer = client.vector_writer(N, 2)
    writer.append({"x": rows(0)})

    def work():
        for step in range(100):
            writer.append({"x": rows(step)})
            writer.create_items("table", 1.0, {"x": writer.history["x"][-2:]})
            writer.end_episode(mask=[step % 7 == 0, False, False, False])

    run_in_threads(4, work)
    writer.flush(timeout_ms=60_000)
    size = client.server_info()["table"].current_size
    assert 3 * 400 <= size <= 4 * 400
    for sample in client.sample("table", size, emit_timesteps=False):
        assert sample.data[0].shape == (2,)
        assert (sample.data[0] // 100 == sample.data[0][0] // 100).all()


def test_one_stream_for_all(serve):
    """The items of a step are sent together, in order: a queue returns them in the order of creation."""
    client = reverb.Client(f"localhost:{serve(reverb.Table.queue('queue', 10**4)).port}", in_process=False, local=False)
    envs = 64
    with client.vector_writer(envs, 1) as writer:
        for step in range(20):
            writer.append({"x": np.arange(envs) + step * envs})
            writer.create_items("queue", 1.0, writer.history["x"][-1])
    assert [int(data[0]) for data in items(client, 20 * envs)] == list(range(20 * envs))


def test_an_array_that_calls_back(writer):
    class Array:
        def __array__(self, dtype=None, copy=None):
            writer.append(rows(0))

    with pytest.raises(RuntimeError):
        writer.append(Array())
    writer.append(rows(0))


# --- Partial steps, stacks, configure ---


def test_a_step_in_two_parts(client, writer):
    writer.append({"obs": rows(0)}, partial_step=True)
    assert writer.episode_steps.tolist() == [0] * N
    with pytest.raises(ValueError, match="environment 0.*has already been set"):
        writer.append({"obs": rows(1)})
    mask = np.arange(N) % 2 == 0
    writer.append({"action": rows(5)}, mask)
    assert writer.episode_steps.tolist() == [1, 0, 1, 0]
    history = writer.history
    made = writer.create_items("queue", 1.0, {"obs": history["obs"][-1], "action": history["action"][-1]}, mask)
    assert made.tolist() == mask.tolist()
    with pytest.raises(ValueError, match="environment 1"):
        writer.create_items("queue", 1.0, {"action": history["action"][-1]})
    writer.append({"action": rows(6)}, ~mask)
    writer.create_items("queue", 1.0, {"obs": history["obs"][-1], "action": history["action"][-1]}, ~mask)
    writer.flush()
    got = items(client, N)
    assert [int(obs) for action, obs in got] == [0, 200, 100, 300]
    assert [int(action) for action, obs in got] == [5, 205, 106, 306]


def test_an_episode_ends_with_an_open_step(client, writer):
    writer.append({"obs": rows(0)}, partial_step=True)
    writer.create_items("queue", 1.0, writer.history["obs"][-1])
    writer.end_episode()
    writer.append({"obs": rows(1)})
    assert writer.episode_steps.tolist() == [1] * N
    writer.flush()
    assert sorted(int(data[0]) for data in items(client, N)) == [0, 100, 200, 300]


def test_stacks_repeat_the_first_step_of_each_episode(client, writer):
    writer.append({"deep": {"frame": rows(0)}})
    writer.end_episode(np.arange(N) == 1)
    writer.append({"deep": {"frame": rows(1)}})
    frame = writer.history["deep"]["frame"]
    assert writer.create_items("queue", 1.0, {"last": frame.stack(2), "now": frame.stack(3)}).all()
    made = writer.create_items("queue", 1.0, {"last": frame.stack(2, end=-1), "now": frame.stack(2)})
    assert made.tolist() == [True, False, True, True]
    assert frame.stack(2).path == ("deep", "frame")
    assert not frame.stack(1).is_squeezed
    writer.flush()
    got = items(client, 2 * N - 1)
    assert [data[1].tolist() for data in got[:N]] == [[0, 0, 1], [101, 101, 101], [200, 200, 201], [300, 300, 301]]
    assert [[column.tolist() for column in data] for data in got[N:]] == [
        [[first, first], [first, first + 1]] for first in (0, 200, 300)
    ]


def test_invalid_stacks(writer):
    writer.append({"x": rows(0)})
    x = writer.history["x"]
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"`n` must be at least 1, got {n}"):
            x.stack(n)
    for arguments, error in [
        ((4,), "a stack of 4 steps reaches back further than the last 3 steps"),
        ((3, -1), "a stack of 3 steps that ends at -1"),
        ((1, 0), "names no step"),
    ]:
        with pytest.raises(ValueError, match=error):
            writer.create_items("queue", 1.0, x.stack(*arguments))
    for wrong in (1.5, "2", None):
        with pytest.raises(TypeError):
            x.stack(wrong)


def test_stacks_are_bounded_by_what_their_column_keeps(client):
    configured = {"num_keep_alive_refs": 2, "max_chunk_length": 1}
    with client.vector_writer(2, num_keep_alive_refs=8) as many, client.trajectory_writer(8) as single:
        many.configure(("frame",), **configured)
        single.configure(("frame",), **configured)
        for step in range(3):
            many.append({"frame": np.full(2, step), "other": np.full(2, step)})
            single.append({"frame": step, "other": step})
            for arguments in ((3,), (2, -1)):
                with pytest.raises(ValueError, match="the last 2 steps"):
                    many.create_items("queue", 1.0, many.history["frame"].stack(*arguments))
            with pytest.raises(ValueError, match="keeps the newest 2 steps"):
                single.history["frame"].stack(2, -1)
            assert many.create_items("queue", 1.0, many.history["frame"].stack(2)).all()
            assert len(single.history["frame"].stack(2)) == 2


def test_configure(client, writer):
    writer.configure(("y",), num_keep_alive_refs=6, max_chunk_length=None)
    writer.configure(("y",), num_keep_alive_refs=6, max_chunk_length=2)
    for step in range(5):
        writer.append({"x": rows(step), "y": rows(step)})
    writer.create_items("queue", 1.0, writer.history["y"][-5:])
    with pytest.raises(RuntimeError, match="environment 0.*Flush must be called"):
        writer.configure(("y",), num_keep_alive_refs=6, max_chunk_length=1)
    writer.flush()
    writer.configure(("y",), num_keep_alive_refs=6, max_chunk_length=1)
    assert items(client, 1)[0][0].tolist() == list(range(5))
    with pytest.raises(ValueError, match="environment 0"):
        writer.create_items("queue", 1.0, writer.history["x"][-5:])
    for keep, chunk in ((0, None), (2, 3), (2, 0)):
        with pytest.raises(ValueError):
            writer.configure(("x",), num_keep_alive_refs=keep, max_chunk_length=chunk)
    with pytest.raises(TypeError):
        writer.configure(["x"], num_keep_alive_refs=2, max_chunk_length=None)


def test_a_step_that_fails_configures_nothing(writer):
    writer.configure(("b",), num_keep_alive_refs=1, max_chunk_length=1)
    writer.append({"a": rows(0)})
    with pytest.raises(ValueError, match="dtype"):
        writer.append({"a": np.zeros(N), "b": rows(0)})
    for _ in range(3):
        writer.append({"a": rows(1), "c": rows(2)})
    assert writer.create_items("queue", 1.0, writer.history["c"][-3:]).all()
