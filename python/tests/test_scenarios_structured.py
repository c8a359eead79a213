"""Scenarios: items created by patterns: recurrent replay, n-step returns, steps of recorded episodes."""

from typing import Any, NamedTuple

from conftest import make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors
from reverb import structured_writer as sw

TABLE = "replay"


class Moment(NamedTuple):
    """A step of an environment, with None for values that are not known yet."""

    observation: Any
    action: Any = None
    reward: Any = None
    state: Any = None


REFERENCE = sw.create_reference_step(Moment(0, 0, 0, {"hidden": 0, "cell": 0}))


def play(writer, length, *, offset=0, state=False):
    """Writes an episode of `length` steps, each in two halves, as a program gets them."""
    nothing = {"hidden": None, "cell": None}
    for i in range(length):
        number = offset + i
        writer.append(Moment(np.float32([number, -number]), state=nothing), partial_step=True)
        assert writer.step_is_open
        memory = {"hidden": np.full(4, number, np.float32), "cell": np.full(4, -number, np.float32)}
        writer.append(Moment(None, np.int32(number), np.float32(number), memory if state else nothing))
        writer.flush(5)
    writer.end_episode()


def all_items(client, table=TABLE):
    count = client.server_info()[table].current_size
    return [sample.data for sample in client.sample(table, count, emit_timesteps=False, timeout=20)]


# --- Recurrent replay ---


def recurrent_configs(length, period):
    """Returns configs for sequences of `length` every `period` steps, with shorter ones at the ends of episodes."""

    def config(rows, conditions):
        pattern = {
            "observation": REFERENCE.observation[-rows:],
            "action": REFERENCE.action[-rows:],
            "reward": REFERENCE.reward[-rows:],
            "state": {name: node[-rows] for name, node in REFERENCE.state.items()},  # only the first state
        }
        return sw.create_config(pattern, TABLE, conditions)

    index, end = sw.Condition.step_index, sw.Condition.is_end_episode
    first = length - 1
    configs = [config(length, [index() >= first, index() % period == first % period])]
    for extra in range(1, period):
        configs.append(
            config(length - period + extra, [end(), index() > first, index() % period == (first + extra) % period])
        )
    for rows in range(1, length):
        configs.append(config(rows, [end(), index() == rows - 1]))
    return configs


def recurrent_model(length, period, steps):
    """Returns the first and last index of each item, over an episode of `steps` steps."""
    spans = [(end - length + 1, end) for end in range(length - 1, steps, period)]
    if steps < length:
        return [(0, steps - 1)]
    if spans[-1][1] != steps - 1:
        spans.append((spans[-1][0] + period, steps - 1))
    return spans


def test_recurrent_replay_with_one_hundred_and_sixty_configs(serve, connect):
    length, period = 121, 40
    configs = recurrent_configs(length, period)
    assert len(configs) == 160
    assert {config.table for config in configs} == {TABLE}
    step = Moment(
        np.zeros(2, np.float32), np.int32(0), np.float32(0), {k: np.zeros(4, np.float32) for k in ("cell", "hidden")}
    )
    signature = sw.infer_signature(configs, step)
    assert signature["observation"].shape == (None, 2)
    assert signature["state"]["cell"].shape == (4,)
    server = serve(
        reverb.Table(
            TABLE, selectors.Fifo(), selectors.Fifo(), 100_000, rate_limiters.MinSize(1), 1, signature=signature
        )
    )
    client = connect(server)
    writer = client.structured_writer(configs)
    expected = []
    for episode, steps in enumerate([1, 7, 120, 121, 122, 160, 161, 201, 330]):
        offset = 1000 * episode
        play(writer, steps, offset=offset, state=True)
        expected += [(offset + a, offset + b) for a, b in recurrent_model(length, period, steps)]
    samples = list(
        client.sample(TABLE, len(expected), emit_timesteps=False, unpack_as_table_signature=True, timeout=20)
    )
    assert client.server_info()[TABLE].current_size == 0
    for sample, (first, last) in zip(samples, expected, strict=True):
        assert sample.data["action"].tolist() == list(range(first, last + 1))
        assert sample.data["observation"][:, 1].tolist() == list(range(-first, -last - 1, -1))
        assert sample.data["reward"].dtype == np.float32
        assert sample.data["state"]["hidden"].tolist() == [first] * 4
        assert sample.data["state"]["cell"].tolist() == [-first] * 4


def test_sequences_of_several_lengths_are_padded_and_their_priorities_come_back_by_key(serve, connect):
    length, period = 9, 4
    server = serve(
        reverb.Table(
            TABLE,
            selectors.Prioritized(0.9, seed=2),
            selectors.Fifo(),
            100_000,
            rate_limiters.SampleToInsertRatio(4.0, 20, 100.0),
        )
    )
    client = connect(server)
    writer = client.structured_writer(recurrent_configs(length, period))
    for episode in range(10):
        play(writer, 5 + 3 * episode, offset=1000 * episode, state=True)
    count = client.server_info()[TABLE].current_size
    assert count == sum(len(recurrent_model(length, period, 5 + 3 * episode)) for episode in range(10))
    batch = list(client.sample(TABLE, 64, emit_timesteps=False, timeout=20))
    rewards = [sample.data[2] for sample in batch]
    assert len({len(reward) for reward in rewards}) > 1
    padded = np.stack([np.pad(reward, (0, length - len(reward))) for reward in rewards])
    assert padded.shape == (64, length)
    priorities = 0.9 * padded.max(axis=1) + 0.1 * padded.mean(axis=1)
    client.update_priorities(TABLE, [sample.info.key for sample in batch], priorities)
    stored = {sample.info.key: sample.info.priority for sample in client.peek(TABLE, count)}
    assert len(stored) == count
    assert {s.info.key: stored[s.info.key] for s in batch} == {
        s.info.key: pytest.approx(float(p)) for s, p in zip(batch, priorities, strict=True)
    }


# --- Returns over n steps ---


def n_step_configs(n):
    """Returns configs for transitions over n steps; over fewer at the beginning and at the end of an episode."""

    def config(k, conditions):
        # Two observations, k steps apart; the action of the first; all rewards between them.
        pattern = Moment(
            observation=REFERENCE.observation[-(k + 1) :: k],
            action=REFERENCE.action[-(k + 1) : -k],
            reward=REFERENCE.reward[-(k + 1) : -1],
            state=(),
        )
        return sw.create_config(pattern, TABLE, conditions)

    index, end = sw.Condition.step_index, sw.Condition.is_end_episode
    configs = [config(k, [index() == k]) for k in range(1, n)]
    configs.append(config(n, [index() >= n]))
    # At the end, transitions that began within the last n steps. An episode of k + 1 steps already had that one.
    configs += [config(k, [end(), index() != k]) for k in range(n - 1, 0, -1)]
    return configs


def n_step_model(n, steps):
    spans = [(max(0, end - n), end) for end in range(1, steps)]
    spans += [(steps - 1 - k, steps - 1) for k in range(n - 1, 0, -1) if steps - 1 > k]
    return spans


@pytest.mark.parametrize("n", [1, 2, 5])
def test_n_step_transitions_by_patterns(serve, connect, n):
    configs = n_step_configs(n)
    assert len(configs) == 2 * n - 1
    signature = sw.infer_signature(configs, Moment(np.zeros(2, np.float32), np.int32(0), np.float32(0), {}))
    assert signature.observation.shape == (2, 2)
    assert signature.action.shape == (1,)
    assert signature.reward.shape == ((None,) if n > 1 else (1,))
    client = connect(serve(make_table(TABLE, signature=signature, max_times_sampled=1)))
    writer = client.structured_writer(configs)
    expected = []
    for episode, steps in enumerate([1, 2, 3, 6, 13]):
        offset = 100 * episode
        play(writer, steps, offset=offset)
        expected += [(offset + first, offset + last) for first, last in n_step_model(n, steps)]
    for (first, last), (observation, action, reward) in zip(expected, all_items(client), strict=True):
        assert observation[:, 0].tolist() == [first, last]
        assert action.tolist() == [first]
        assert reward.tolist() == list(range(first, last))


# --- Recorded episodes, cut into patterns ---


RECORDED = {"image": 0, "instruction": 0, "reward": 0, "is_last": 0}


def recorded_step(episode, i, last):
    return {
        "image": np.full((4, 4, 3), 10 * episode + i, np.uint8),
        "instruction": f"épisode {episode}",
        "reward": np.float32(i),
        "is_last": last,
    }


@pytest.mark.parametrize("respect_boundaries", [True, False])
def test_recorded_steps_with_images_and_strings_in_windows(serve, connect, respect_boundaries):
    ref = sw.create_reference_step(RECORDED)
    pattern = {"images": ref["image"][-3:], "instruction": ref["instruction"][-1], "is_last": ref["is_last"][-3:]}
    config = sw.create_config(pattern, TABLE, conditions=[])
    client = connect(serve(make_table(TABLE, max_times_sampled=1)))
    writer = client.structured_writer([config])
    lengths = [5, 2, 3]
    rows = [(episode, i, i == length - 1) for episode, length in enumerate(lengths) for i in range(length)]
    for episode, i, last in rows:
        writer.append(recorded_step(episode, i, last))
        if last:
            writer.end_episode(clear_buffers=respect_boundaries)
    windows = [rows[i - 2 : i + 1] for i in range(2, len(rows))]
    if respect_boundaries:  # a window then belongs to one episode, and short prefixes form none
        windows = [window for window in windows if window[0][0] == window[-1][0]]
    items = all_items(client)
    assert len(items) == len(windows)
    for (images, instruction, is_last), window in zip(items, windows, strict=True):
        assert images.dtype == np.uint8
        assert images.shape == (3, 4, 4, 3)
        assert images[:, 0, 0, 0].tolist() == [10 * episode + i for episode, i, _ in window]
        assert instruction.item() == f"épisode {window[-1][0]}".encode()
        assert is_last.tolist() == [last for _, _, last in window]


def test_inferred_signatures_equal_what_a_user_writes_down():
    ref = sw.create_reference_step(RECORDED)
    config = sw.create_config(
        {"images": ref["image"][-3:], "deep": {"last": (ref["reward"][-1], ref["is_last"][-2:])}}, TABLE
    )
    spec = reverb.TensorSpec
    step = {
        "image": np.zeros((4, 4, 3), np.uint8),
        "instruction": spec((), np.dtype(object)),
        "reward": spec((), np.float32),
        "is_last": np.zeros((), np.bool_),
    }
    signature = sw.infer_signature([config], step)
    plain = reverb.TensorSpec.from_spec  # TensorFlow's classes if an earlier test has imported it
    assert plain(signature["images"]) == spec((3, 4, 4, 3), np.uint8, "images")
    first, second = signature["deep"]["last"]
    assert plain(first) == spec((), np.float32, "deep/last/0")
    assert plain(second) == spec((2,), np.bool_, "deep/last/1")


def test_two_patterns_for_two_tables_from_the_same_steps(serve, connect):
    client = connect(serve(make_table("pairs", max_times_sampled=1), make_table("every_third", max_times_sampled=1)))
    ref = sw.create_reference_step({"x": 0, "y": 0})
    writer = client.structured_writer(
        [
            sw.create_config({"x": ref["x"][-2:], "y": ref["y"][-1]}, "pairs"),
            sw.create_config([ref["y"][-1]], "every_third", [sw.Condition.steps_since_applied() >= 3]),
        ]
    )
    for i in range(10):
        writer.append({"x": i, "y": -i})
    writer.end_episode()
    assert [(x.tolist(), y.item()) for x, y in all_items(client, "pairs")] == [([i - 1, i], -i) for i in range(1, 10)]
    assert [y.item() for (y,) in all_items(client, "every_third")] == [-2, -5, -8]
