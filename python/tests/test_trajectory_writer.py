"""Tests TrajectoryWriter: steps, history, columns and items."""

import collections
from typing import NamedTuple

import numpy as np
import pytest
from trajectories import items, values

import reverb

# --- Items ---


def test_plain_history(client, writer):
    for i in (1, 2, 3):
        writer.append({"x": i})
    x = writer.history["x"]
    chosen = [x[:], x[0], x[-1], x[[0, -1]], x[-3:], x[:-1], x[0:3], x[1:3], x[::2], x[::-1], x[[1, 1]], x[[2, 0]]]
    for trajectory in chosen:
        writer.create_item("queue", 1.0, trajectory)
    writer.flush()
    expected = [[1, 2, 3], 1, 3, [1, 3], [1, 2, 3], [1, 2], [1, 2, 3], [2, 3], [1, 3], [3, 2, 1], [2, 2], [3, 1]]
    got = items(client, len(expected))
    assert [data[0].tolist() for data in got] == expected
    assert all(len(data) == 1 for data in got)


def test_rows_that_are_not_neighbours_in_long_chunks(client, writer):
    writer.configure(("x",), num_keep_alive_refs=10, max_chunk_length=10)
    for i in range(10):
        writer.append({"x": i})
    x = writer.history["x"]
    for trajectory in (x[-5::2], x[[0, 2]], x[[1, 1]], x[::-1]):
        writer.create_item("queue", 1.0, [trajectory])
    writer.flush()
    assert [data[0].tolist() for data in items(client, 4)] == [[5, 7, 9], [0, 2], [1, 1], list(range(9, -1, -1))]


def test_a_growing_structure(writer):
    for step in ({"x": 1, "z": 2}, {"z": 3, "y": 4}, {"w": 5}, {"x": 6, "w": 7}):
        writer.append(step)
    assert {name: [ref and int(ref.numpy()) for ref in column] for name, column in writer.history.items()} == {
        "x": [1, None, None, 6],
        "z": [2, 3, None, None],
        "y": [None, 4, None, None],
        "w": [None, None, 5, 7],
    }
    assert all(len(column) == 4 for column in writer.history.values())
    with pytest.raises(ValueError, match="cannot contain any None"):
        writer.history["x"][:]
    assert values(writer.history["x"][[0, 3]]) == [1, 6]


class Point(NamedTuple):
    y: object
    x: object


def test_history_has_the_containers_of_the_steps(client):
    step = {"b": [1, (2, 3)], "a": Point(4, {"deep": 5}), "c": collections.OrderedDict(z=6)}
    writer = client.trajectory_writer(2)
    writer.append(step)
    history = writer.history
    assert sorted(history) == ["a", "b", "c"]
    assert type(history["a"]) is Point
    assert type(history["b"]) is list
    assert type(history["b"][1]) is tuple
    assert type(history["c"]) is collections.OrderedDict
    assert values(history["a"].x["deep"][:]) == [5]
    assert history["b"][1][0].path == ("b", 1, 0)
    trajectory = {"b": [history["b"][0][:], (history["b"][1][0][-1], history["b"][1][1][:])]}
    writer.create_item("queue", 1.0, trajectory)
    writer.flush()
    assert [value.tolist() for value in items(client, 1)[0]] == [[1], 2, [3]]


@pytest.mark.parametrize("bare", [3, np.arange(3), "text", np.float32(2)])
def test_bare_values(client, bare):
    writer = client.trajectory_writer(3)
    writer.append(bare)
    writer.append(bare)
    assert len(writer.history) == 2
    writer.create_item("queue", 1.0, writer.history[-2:])
    writer.flush()
    (data,) = items(client, 1)
    assert data[0].shape == (2, *np.shape(bare))


def test_tuples_and_lists(client):
    writer = client.trajectory_writer(3)
    writer.append((1, 2))
    writer.append((3, 4))
    assert type(writer.history) is tuple
    writer.create_item("queue", 1.0, [column[:] for column in writer.history])
    writer.flush()
    assert [value.tolist() for value in items(client, 1)[0]] == [[1, 3], [2, 4]]


def test_changing_the_history_changes_nothing(writer):
    writer.append({"x": 1, "y": {"z": 2}})
    writer.history.pop("x")
    writer.history["y"].clear()
    assert sorted(writer.history) == ["x", "y"]
    assert list(writer.history["y"]) == ["z"]


def test_namedtuples_may_grow(client):
    Small = collections.namedtuple("Step", "a")
    Large = collections.namedtuple("Step", "b a")
    writer = client.trajectory_writer(5)
    writer.append(Small(1))
    writer.append(Large(2, 3))
    writer.append(Small(4))
    assert type(writer.history) is Large
    assert values(writer.history.a[:]) == [1, 3, 4]
    assert values(writer.history.b[1]) == 2


def test_classes_of_attrs(client):
    attr = pytest.importorskip("attr")

    @attr.s(auto_attribs=True)
    class Step:
        x: object
        _y: object

    writer = client.trajectory_writer(2)
    writer.append(Step(1, {"z": 2}))
    writer.append(Step(3, {"z": 4}))
    history = writer.history
    assert type(history) is Step
    assert values(history.x[:]) == [1, 3]
    assert values(history._y["z"][:]) == [2, 4]


def test_many_items_share_their_steps(client, server):
    with client.trajectory_writer(3) as writer:
        for i in range(50):
            writer.append({"obs": np.full((4,), i, np.float32), "act": i})
            if writer.episode_steps >= 3:
                writer.create_item(
                    "queue", 1.0, {"obs": writer.history["obs"][-3:], "act": writer.history["act"][-3:-1]}
                )
    got = items(client, 48)
    assert [data[0].tolist() for data in got] == [[i - 2, i - 1] for i in range(2, 50)]
    assert [data[1][:, 0].tolist() for data in got] == [[i - 2, i - 1, i] for i in range(2, 50)]


def test_one_step_in_two_tables(client, server):
    with client.trajectory_writer(1) as writer:
        writer.append(7)
        for table in ("table", "queue"):
            writer.create_item(table=table, priority=np.float32(2), trajectory=writer.history[-1])
    assert [items(client, 1, table)[0][0].tolist() for table in ("table", "queue")] == [7, 7]


def test_different_structures_of_items_in_turn(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 100, layout="any")))
    writer = client.trajectory_writer(num_keep_alive_refs=10)
    for i in range(4):
        writer.append({"a": i, "b": 10 * i})
        a, b = writer.history["a"], writer.history["b"]
        for trajectory in ({"b": b[-1], "a": a[-1]}, [b[-1], a[-1]], {"only": b[-1]}, a[-1], ({"z": b[-1:]}, a[-1])):
            writer.create_item("queue", 1.0, trajectory)
    writer.flush()
    expected = [[[i, 10 * i], [10 * i, i], [10 * i], [i], [[10 * i], i]] for i in range(4)]
    got = [[value.tolist() for value in data] for data in items(client, 20)]
    assert got == [each for step in expected for each in step]


# --- Steps ---


def test_partial_steps(client, writer):
    writer.append({"a": 1}, partial_step=True)
    assert writer.step_is_open
    assert writer.episode_steps == 0
    with pytest.raises(ValueError, match=r"Field \('a',\) has already been set in the active step"):
        writer.append({"a": 2, "b": 3})
    writer.append({"b": 3, "a": None})
    assert writer.episode_steps == 1
    writer.append({"a": 4, "b": 5})
    assert values(writer.history["a"][:]) == [1, 4]
    assert values(writer.history["b"][:]) == [3, 5]
    writer.create_item("queue", 1.0, writer.history["a"][:])
    writer.flush()


def test_flags_may_be_numpys(writer):
    writer.append({"a": 1}, partial_step=np.bool_(True))
    assert writer.step_is_open
    writer.append({"b": 1}, partial_step=np.bool_(False))
    assert writer.episode_steps == 1
    writer.end_episode(clear_buffers=np.bool_(False), timeout_ms=np.int64(1000))
    assert len(writer.history["a"]) == 1


def test_an_open_step_ends_with_the_episode(writer):
    writer.append({"a": 1}, partial_step=True)
    writer.end_episode()
    writer.append({"a": 2})
    assert values(writer.history["a"][:]) == [2]


@pytest.mark.parametrize("nothing", [{}, [], ()])
def test_an_empty_step_counts(writer, nothing):
    writer.append(nothing)
    assert writer.episode_steps == 1


def test_none_is_no_value(writer):
    writer.append(None)
    writer.append(None)
    assert writer.episode_steps == 2
    assert len(writer.history) == 2
    with pytest.raises(ValueError, match="None"):
        writer.history[-1]


def test_none_for_a_part(writer):
    writer.append({"a": {"b": 1, "c": 2}, "d": 3})
    writer.append({"a": None, "d": 4})
    assert [ref is None for ref in writer.history["a"]["b"]] == [False, True]


def test_another_dtype(writer):
    writer.append({"a": [np.float32(1), 2]})
    with pytest.raises(ValueError) as caught:
        writer.append({"a": [1.0, 2]})
    text = "Tensor of wrong dtype provided for column ('a', 0). Got double but expected float."
    assert text in str(caught.value)
    with pytest.raises(ValueError) as caught:
        writer.append({"a": [np.float32(1), np.array([1, 2])]})
    text = "Tensor of incompatible shape provided for column ('a', 1). Got [2] which is incompatible with []."
    assert text in str(caught.value)
    assert writer.episode_steps == 1
    writer.append({"a": [np.float32(3), 4]})
    assert values(writer.history["a"][0][:]) == [1, 3]


def test_a_step_that_fails_changes_nothing(writer):
    writer.append({"a": 1})
    for bad in ({"a": 2, "new": np.datetime64("2020-01-01")}, {"a": 2.0, "new": 3}, {"a": 2, "new": {1, 2}}):
        with pytest.raises((TypeError, ValueError)):
            writer.append(bad)
    assert list(writer.history) == ["a"]
    assert writer.episode_steps == 1
    writer.append({"a": 2, "new": 3.0})
    assert values(writer.history["new"][-1]) == 3.0


def test_a_leaf_that_becomes_a_container(writer):
    writer.append({"a": 1})
    for bad in ({"a": {"b": 1}}, {"a": [1]}, [1], 3):
        with pytest.raises((KeyError, AttributeError, ValueError), match="structure changed"):
            writer.append(bad)
    writer.append({"a": 2})


def test_history_before_the_first_step(writer):
    with pytest.raises(RuntimeError, match="append"):
        writer.history


def test_strings_and_frames(client):
    with client.trajectory_writer(4) as writer:
        for i in range(4):
            writer.append({"s": f"step {i}", "f": np.full((84, 84, 3), i, np.uint8)})
        writer.create_item("queue", 1.0, {"s": writer.history["s"][:], "f": writer.history["f"][-2:]})
    frames, texts = items(client, 1)[0]
    assert frames.shape == (2, 84, 84, 3)
    assert frames[:, 0, 0, 0].tolist() == [2, 3]
    assert texts.tolist() == [b"step 0", b"step 1", b"step 2", b"step 3"]


def test_the_caller_may_reuse_its_arrays(client):
    buffer = np.zeros(5, np.float32)
    with client.trajectory_writer(3) as writer:
        for i in range(3):
            buffer[:] = i
            writer.append(buffer)
        writer.create_item("queue", 1.0, writer.history[:])
    assert items(client, 1)[0][0][:, 0].tolist() == [0, 1, 2]


# --- History and columns ---


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (0, 0), (2, 2), (-3, 0), (True, 1),
        (slice(None), [0, 1, 2]), (slice(0, 3), [0, 1, 2]), (slice(None, 3), [0, 1, 2]), (slice(1, 3), [1, 2]),
        (slice(-2, 3), [1, 2]), (slice(None, 10), [0, 1, 2]), (slice(-1, None), [2]),
        (slice(None, None, -1), [2, 1, 0]), ([0, -1], [0, 2]), ([2, 2], [2, 2]),
    ],
)  # fmt: skip
def test_indexing_by_the_rules_of_python(writer, key, expected):
    for i in range(3):
        writer.append(i)
    assert values(writer.history[key]) == expected


def test_indices_that_do_not_exist(writer):
    for i in range(3):
        writer.append(i)
    history = writer.history
    for key in (3, 4, 100):
        with pytest.raises(IndexError):
            history[key]
    for key in (-4, slice(-5, None), [0, 5], [-4]):
        with pytest.raises(ValueError, match="cannot contain any None"):
            history[key]
    for key in (slice(3, None), slice(4, None), slice(2, 1)):
        assert len(history[key]) == 0
    for key in ("a", 1.0, None, (0, 1), np.int64(1), np.array([0]), [1.5], ["a"]):
        with pytest.raises(TypeError):
            history[key]


def test_old_steps_are_forgotten(client):
    writer = client.trajectory_writer(num_keep_alive_refs=3)
    for i in range(5):
        writer.append(i)
    history = writer.history
    assert len(history) == 5
    assert [None if ref is None else int(ref.numpy()) for ref in history] == [None, None, 2, 3, 4]
    assert values(history[2:5]) == [2, 3, 4]
    assert values(history[-3:]) == [2, 3, 4]
    for key in (0, slice(None), slice(None, 3), slice(1, 4), slice(None, -1)):
        with pytest.raises(ValueError, match="cannot contain any None"):
            history[key]


def test_columns_are_snapshots_and_histories_grow(writer):
    writer.append(1)
    history = writer.history
    column = history[:]
    writer.append(2)
    assert len(history) == 2
    assert len(column) == 1
    writer.end_episode()
    assert len(history) == 0
    with pytest.raises(RuntimeError, match="expired"):
        column.numpy()
    with pytest.raises(RuntimeError):
        column.dtype
    with pytest.raises(ValueError, match=r"Error in column 0: .*expired"):
        writer.create_item("queue", 1.0, column)


def test_attributes_of_columns(writer):
    writer.append({"x": np.zeros((2, 3), np.float32)})
    writer.append({"x": np.ones((2, 3), np.float32)})
    many, one = writer.history["x"][:], writer.history["x"][-1]
    assert (many.shape, one.shape) == ((2, 2, 3), (2, 3))
    assert many.dtype == one.dtype == np.float32
    assert (many.is_squeezed, one.is_squeezed) == (False, True)
    assert (len(many), len(one)) == (2, 1)
    assert many.path == ("x",)
    assert many.numpy().shape == (2, 2, 3)
    np.testing.assert_array_equal(one.numpy(), np.ones((2, 3), np.float32))


def test_parts_of_columns(writer):
    for i in range(5):
        writer.append(i)
    column = writer.history[1:]
    assert values(column[0]) == 1
    assert column[0].is_squeezed
    assert values(column[-2:]) == [3, 4]
    assert values(column[:100]) == [1, 2, 3, 4]
    assert values(column[[3, 0]]) == [4, 1]
    assert values(column[::-2]) == [4, 2]
    with pytest.raises(IndexError):
        column[4]
    for key in ("a", 1.0, (0,), None):
        with pytest.raises(TypeError):
            column[key]


def test_columns_of_references(client, writer):
    for i in range(4):
        writer.append({"a": i, "b": 10 * i})
    refs = [*writer.history["a"], *writer.history["b"]]
    column = reverb.TrajectoryColumn([refs[0], refs[7], refs[1]], path=("mixed",))
    assert values(column) == [0, 30, 1]
    assert [int(ref.numpy()) for ref in column] == [0, 30, 1]
    assert refs[0].shape == ()
    assert refs[0].dtype == np.int64
    assert not refs[0].expired
    single = reverb.TrajectoryColumn(refs[:1], squeeze=True)
    assert single.is_squeezed
    writer.create_item("queue", 1.0, [column, single])
    writer.flush()
    assert [value.tolist() for value in items(client, 1)[0]] == [[0, 30, 1], 0]
    with pytest.raises(ValueError):
        reverb.TrajectoryColumn(refs[:2], squeeze=True)
    with pytest.raises(ValueError, match="None"):
        reverb.TrajectoryColumn([refs[0], None])
    with pytest.raises(TypeError):
        reverb.TrajectoryColumn([1])


def test_an_empty_column(writer):
    empty = reverb.TrajectoryColumn([])
    assert len(empty) == 0
    with pytest.raises(IndexError):
        empty.dtype
    with pytest.raises(IndexError):
        empty.shape
    with pytest.raises(ValueError):
        empty.numpy()
    writer.append(1)
    with pytest.raises(ValueError, match="trajectory must not be empty."):
        writer.create_item("queue", 1.0, [empty])
    with pytest.raises(ValueError, match="Error in column 1: "):
        writer.create_item("queue", 1.0, [writer.history[:], empty])
