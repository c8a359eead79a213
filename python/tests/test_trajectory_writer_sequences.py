"""Tests TrajectoryWriter.append_sequence, ColumnHistory.stack and the chunks of the default settings."""

import numpy as np
import pytest
from trajectories import items, values


def stored_bytes(client):
    return client.server_info().stored_bytes


# --- append_sequence ---


def test_a_sequence_equals_as_many_appends(client):
    data = {
        "tokens": np.arange(300, dtype=np.int32),
        "nested": {"logprobs": np.linspace(0, 1, 300, dtype=np.float32), "pair": np.arange(600.0).reshape(300, 2)},
        "words": np.array([f"word {i}" for i in range(300)], object),
    }
    with client.trajectory_writer(1000) as one, client.trajectory_writer(1000) as other:
        one.append_sequence(data)
        for i in range(300):
            nested = {name: column[i] for name, column in data["nested"].items()}
            other.append({"tokens": data["tokens"][i], "nested": nested, "words": data["words"][i]})
        for writer in (one, other):
            assert writer.episode_steps == 300
            history = writer.history
            assert values(history["nested"]["pair"][10:12]) == [[20, 21], [22, 23]]
            assert values(history["words"][-1]) == b"word 299"
            trajectory = [history["tokens"][:], history["nested"]["pair"][5:], history["words"][::100]]
            writer.create_item("queue", 1.0, trajectory)
            writer.end_episode()
    first, second = items(client, 2)
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        assert a.tolist() == b.tolist()
    assert first[0].tolist() == list(range(300))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16, np.complex128, ">i4", "S3", "U2"])
def test_any_dtype_and_layout(client, dtype):
    array = np.arange(24).reshape(4, 2, 3).astype(dtype)
    with client.trajectory_writer(10) as writer:
        for each in (array, np.asfortranarray(array), array[::-1]):
            writer.append_sequence([each])
            writer.create_item("queue", 1.0, writer.history[0][-4:])
    got = [data[0] for data in items(client, 3)]
    expected = np.char.encode(array, "ascii") if np.dtype(dtype).kind == "U" else array
    for each, wanted in zip(got, (expected, expected, expected[::-1]), strict=True):
        assert each.tolist() == wanted.tolist()


def test_a_list_is_a_nest_of_columns(writer):
    with pytest.raises(ValueError, match=r"column \('x', 0\): .* without dimensions"):
        writer.append_sequence({"x": [1, 2, 3]})
    writer.append_sequence({"x": [np.arange(3), np.zeros((3, 2))]})
    assert values(writer.history["x"][0][:]) == [0, 1, 2]


def test_only_the_newest_steps_of_a_long_sequence_are_kept(client):
    with client.trajectory_writer(10) as writer:
        writer.append_sequence({"x": np.arange(1000)})
        x = writer.history["x"]
        assert len(x) == 1000
        assert values(x[-10:]) == list(range(990, 1000))
        with pytest.raises(ValueError, match="num_keep_alive_refs = 10"):
            x[-11:]


def test_invalid_sequences_change_nothing(writer):
    writer.append({"a": 1, "b": 2.0})
    for data, error in [
        ({"a": np.arange(3), "b": np.zeros(4)}, r"\('b',\) has 4 steps but column \('a',\) has 3"),
        ({"a": 3, "b": np.zeros(4)}, r"column \('a',\).* without dimensions"),
        ({"a": np.zeros(0, np.int64)}, r"column \('a',\).* at least one step, got shape \[0\]"),
        ({"a": np.zeros((2, 2), np.int64)}, "incompatible shape"),
        ({"a": np.zeros(2)}, "wrong dtype"),
        ({}, "at least one column"),
        ({"a": None}, "at least one column"),
    ]:
        with pytest.raises(ValueError, match=error):
            writer.append_sequence(data)
    assert (writer.episode_steps, writer.step_is_open) == (1, False)
    assert len(writer.history["a"]) == 1
    writer.close()
    with pytest.raises(RuntimeError):
        writer.append_sequence({"a": np.arange(3)})


def test_a_sequence_closes_an_open_step(client):
    with client.trajectory_writer(10) as writer:
        writer.append({"prompt": 7}, partial_step=True)
        writer.append_sequence({"token": np.arange(3)})
        assert (writer.episode_steps, writer.step_is_open) == (3, False)
        assert values(writer.history["prompt"][0]) == 7
        assert values(writer.history["token"][:]) == [0, 1, 2]


# --- stack ---


def test_a_stack_repeats_the_first_step(client):
    with client.trajectory_writer(5) as writer:
        for step in range(6):
            writer.append({"deep": {"frame": np.full((2, 2), step, np.uint8)}})
            frame = writer.history["deep"]["frame"]
            now = frame.stack(4)
            assert now.shape == (4, 2, 2)
            assert now.path == ("deep", "frame")
            assert now.numpy()[:, 0, 0].tolist() == [max(0, step - back) for back in (3, 2, 1, 0)]
            if step == 0:
                with pytest.raises(ValueError, match="step -1 of the episode does not exist"):
                    frame.stack(4, end=-1)
                continue
            before = frame.stack(4, end=-1)
            assert before.numpy()[:, 0, 0].tolist() == [max(0, step - back) for back in (4, 3, 2, 1)]
            writer.create_item("queue", 1.0, {"observation": before, "next_observation": now})
    for step, (after, before) in enumerate(items(client, 5), start=1):
        assert before[:, 0, 0].tolist() == [max(0, step - back) for back in (4, 3, 2, 1)]
        assert after[:, 0, 0].tolist() == [max(0, step - back) for back in (3, 2, 1, 0)]


def test_a_stack_does_not_span_episodes(client):
    with client.trajectory_writer(5) as writer:
        for step in range(3):
            writer.append(step)
        writer.end_episode(clear_buffers=False)
        with pytest.raises(ValueError, match="it has 0 steps"):
            writer.history.stack(2)
        writer.append(3)
        assert values(writer.history.stack(3)) == [3, 3, 3]
        assert values(writer.history[-3:]) == [1, 2, 3]


def test_positions_of_the_end(client):
    with client.trajectory_writer(100) as writer:
        for step in range(10):
            writer.append(step)
        for end in range(1, 11):
            assert values(writer.history.stack(3, end=end)) == [max(0, end - back) for back in (3, 2, 1)]
        for end in range(-9, 0):
            assert values(writer.history.stack(3, end)) == [max(0, 10 + end - back) for back in (3, 2, 1)]


def test_stacks_store_frames_once(client):
    random = np.random.default_rng(1)
    with client.trajectory_writer(5) as writer:
        for step in range(101):
            writer.append(random.integers(0, 256, (84, 84), np.uint8))
            if step:
                writer.create_item("queue", 1.0, [writer.history.stack(4, end=-1), writer.history.stack(4)])
        writer.flush()
        assert stored_bytes(client) < 1.05 * 101 * 84 * 84


def test_invalid_stacks(writer, client):
    short = client.trajectory_writer(3)
    for step in range(2):
        short.append({"x": step})
    x = short.history["x"]
    for arguments, error in [
        ((0,), "must be > 0 but got 0"),
        ((-2,), "must be > 0 but got -2"),
        ((4,), "cannot stack 4 steps, the newest 3 are kept"),
        ((3, -1), "needs num_keep_alive_refs >= 4"),
        ((2, 0), "step -1 of the episode does not exist"),
        ((2, 3), "out of range"),
        ((2, -3), "out of range"),
    ]:
        with pytest.raises(ValueError, match=error):
            x.stack(*arguments)
    for wrong in (1.5, "2", None):
        with pytest.raises(TypeError):
            x.stack(wrong)
    for step in range(2, 6):
        short.append({"x": step})
    assert values(x.stack(3)) == [3, 4, 5]
    with pytest.raises(ValueError, match="step 2 of the episode has no value, or it is older than the newest 3"):
        x.stack(3, end=5)
    short.append({"y": 1})
    with pytest.raises(ValueError, match="step 6 of the episode has no value"):
        x.stack(2)
    short.close()


# --- Chunks of the default settings ---


def test_tokens_take_little_more_than_their_size_from_the_first_item_on(client):
    random = np.random.default_rng(1)
    with client.trajectory_writer(1000) as writer:
        for responses in range(1, 6):
            for token in random.integers(0, 50_000, 1000, dtype=np.int32):
                writer.append({"token": token})
            writer.create_item("queue", 1.0, {"tokens": writer.history["token"][:]})
            writer.end_episode()
            assert stored_bytes(client) < 1.1 * responses * 4000


def test_an_item_is_sent_when_it_is_created(client):
    with client.trajectory_writer(100) as writer:
        for step in range(50):
            writer.append(np.full(64, step, np.float32))
        writer.create_item("queue", 1.0, writer.history[-3:])
        # Neither flush() nor another step is needed.
        assert next(iter(client.sample("queue", 1, timeout=30, emit_timesteps=False))).data[0].shape == (3, 64)


def test_configure_after_steps_of_a_default_column(client):
    with client.trajectory_writer(100) as writer:
        for step in range(10):
            writer.append({"x": step})
        writer.configure(("x",), num_keep_alive_refs=5, max_chunk_length=5)
        writer.append({"x": 10})
        assert values(writer.history["x"][-5:]) == [6, 7, 8, 9, 10]
        with pytest.raises(RuntimeError, match="Flush must be called"):
            writer.configure(("x",), num_keep_alive_refs=5, max_chunk_length=5)
