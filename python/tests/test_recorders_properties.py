"""Compares recorders with the reference, on random episodes of all autoreset modes, with steps that fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import profiles
import pytest
import recorders_reference as reference

import reverb

SIZE = 100_000


@pytest.fixture
def client():
    with reverb.Server([reverb.Table.queue("queue", SIZE)]) as server:
        yield server.localhost_client()


class Single:
    """An environment whose episodes have random lengths and ends. Observations are unique numbers."""

    def __init__(self, random, env=0):
        self._random = random
        self._next = 1000 * env
        self.log = reference.Log()

    def _observe(self):
        self._next += 1
        return {"x": np.array([self._next, -self._next], np.float32), "n": np.int64(self._next)}

    def reset(self):
        observation = self._observe()
        self.log.reset(observation)
        return observation

    def step(self, id, action):
        observation = self._observe()
        reward = float(self._random.integers(-3, 4)) / 2
        end = self._random.random()
        terminated, truncated = end < 0.15, 0.1 < end < 0.25
        self.log.step(id, action, observation, reward, terminated, truncated)
        return observation, reward, terminated, truncated


class Vector:
    """A vector environment of these, with the semantics of Gymnasium."""

    def __init__(self, random, num_envs, mode):
        self.envs = [Single(random, i) for i in range(num_envs)]
        self.mode = mode
        self._ended = np.zeros(num_envs, bool)
        self._clock = 0

    @property
    def episodes(self):
        return [episode for env in self.envs for episode in env.log.episodes if episode.steps]

    def reset(self, mask=None):
        rows = []
        for i, env in enumerate(self.envs):
            if mask is None or mask[i]:
                rows.append(env.reset())
                self._ended[i] = False
            else:
                rows.append({"x": np.full(2, np.nan, np.float32), "n": np.int64(-1)})  # must not be used
        return reference.stack(rows), {}

    def ids(self):
        self._clock += 1
        return np.array([self._clock * len(self.envs) + i for i in range(len(self.envs))])

    def step(self, actions, ids):
        rows, rewards, terminations, truncations, info = [], [], [], [], {}
        for i, env in enumerate(self.envs):
            if self.mode == "next_step" and self._ended[i]:
                values = env.reset(), 0.0, False, False
            else:
                values = env.step(int(ids[i]), actions[i])
            observation, reward, terminated, truncated = values
            if self.mode == "same_step" and (terminated or truncated):
                final = info.setdefault("final_obs", np.full(len(self.envs), None, object))
                final[i] = observation
                observation = env.reset()
            rows.append(observation)
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
        self._ended = np.array(terminations) | np.array(truncations)
        return reference.stack(rows), np.array(rewards), np.array(terminations), np.array(truncations), info


def fail(recorder, num_envs, has_wrong_shape):
    """Makes a call of step() fail: while the values are read, or later, when they are written."""
    shape = (num_envs,) if num_envs else ()
    observation = {"x": np.zeros((*shape, 3 if has_wrong_shape else 2), np.float32), "n": np.zeros(shape, np.int64)}
    no = np.zeros(shape, bool)
    reward = np.full(shape, 1e6) if has_wrong_shape else "much"
    with pytest.raises((TypeError, ValueError), match="observation" if has_wrong_shape else "reward"):
        recorder.step(np.zeros(shape, np.int64), observation, reward, no, no, extras={"id": np.full(shape, -1)})


def run_vector(make_recorder, random, num_envs, mode, steps, reset_at, fail_at):
    """Records random actions, with resets of all environments in the middle; returns the episodes."""
    env = Vector(random, num_envs, mode)
    with make_recorder(num_envs, mode) as recorder:
        recorder.reset(*env.reset())
        for t in range(steps):
            if t in fail_at:
                fail(recorder, num_envs, fail_at[t])
            if t == reset_at or t in fail_at:
                recorder.reset(*env.reset())
            ids = env.ids()
            actions = random.integers(0, 5, num_envs)
            observation, reward, terminated, truncated, info = env.step(actions, ids)
            recorder.step(actions, observation, reward, terminated, truncated, info, extras={"id": ids})
            ended = terminated | truncated
            if mode == "disabled" and ended.any():
                recorder.reset(*env.reset(ended), mask=ended)
    return env.episodes, recorder.num_items


def run_single(make_recorder, random, steps, reset_at, fail_at):
    env = Single(random)
    with make_recorder() as recorder:
        recorder.reset(env.reset())
        for t in range(steps):
            if t in fail_at:
                fail(recorder, 0, fail_at[t])
            if t == reset_at or t in fail_at:
                recorder.reset(env.reset())
            action = random.integers(0, 5)
            observation, reward, terminated, truncated = env.step(t + 1, action)
            recorder.step(action, observation, reward, terminated, truncated, {}, extras={"id": t + 1})
            if terminated or truncated:
                recorder.reset(env.reset())
    return [episode for episode in env.log.episodes if episode.steps], recorder.num_items


COMMON = {
    "seed": st.integers(0, 2**32 - 1),
    "num_envs": st.sampled_from([0, 1, 2, 4]),  # 0: a recorder for a single environment
    "mode": st.sampled_from(["next_step", "same_step", "disabled"]),
    "steps": st.integers(1, 40),
    "reset_at": st.integers(0, 60),
    "fail_at": st.dictionaries(st.integers(0, 40), st.booleans(), max_size=3),
    "in_flight": st.sampled_from([None, 1, 3]),
}
LIMITS = profiles.bounded(60)


def record(client, classes, options, seed, num_envs, mode, steps, reset_at, fail_at, in_flight):
    """Runs a recorder and returns the episodes and the stored items."""
    options = {**options, "max_in_flight_items": in_flight}
    single, vector = classes
    random = np.random.default_rng(seed)
    if num_envs == 0:
        episodes, count = run_single(lambda: single(client, "queue", **options), random, steps, reset_at, fail_at)
    else:
        episodes, count = run_vector(
            lambda n, mode: vector(client, "queue", num_envs=n, autoreset=mode, **options),
            random, num_envs, mode, steps, reset_at, fail_at,
        )  # fmt: skip
    return episodes, reference.take(client, "queue", count)


@LIMITS
@given(**COMMON, n_step=st.integers(1, 5), frames=st.integers(1, 4), discount=st.sampled_from([1.0, 0.9, 0.0]))
def test_transitions(client, n_step, frames, discount, **common):
    classes = reverb.recorders.TransitionRecorder, reverb.recorders.VectorTransitionRecorder
    options = {"n_step": n_step, "discount": discount, "frame_stack": frames}
    episodes, items = record(client, classes, options, **common)
    assert sum(len(episode.steps) for episode in episodes) == len(items)
    reference.check(items, reference.transitions(episodes, n_step, discount, frames if frames > 1 else None))


@LIMITS
@given(**COMMON, length=st.integers(1, 6), period=st.integers(1, 8), burn_in=st.integers(0, 5),
       pad_end=st.sampled_from([True, False, "drop"]))  # fmt: skip
def test_sequences(client, length, period, burn_in, pad_end, **common):
    classes = reverb.recorders.SequenceRecorder, reverb.recorders.VectorSequenceRecorder
    options = {"length": length, "period": period, "burn_in": burn_in, "pad_end": pad_end}
    episodes, items = record(client, classes, options, **common)
    reference.check(items, reference.sequences(episodes, length, period, burn_in, pad_end, 1.0))


@LIMITS
@given(**COMMON)
def test_episodes(client, **common):
    classes = reverb.recorders.EpisodeRecorder, reverb.recorders.VectorEpisodeRecorder
    episodes, items = record(client, classes, {"discount": 0.5}, **common)
    reference.check(items, reference.whole_episodes(episodes, 0.5))


@LIMITS
@given(**COMMON, n_step=st.integers(1, 4), frames=st.integers(1, 3))
def test_priority_functions_see_the_item_as_it_is_stored(client, n_step, frames, **common):
    seen = []

    def priority(item):
        seen.append(item)
        return float(abs(item["reward"]))

    classes = reverb.recorders.TransitionRecorder, reverb.recorders.VectorTransitionRecorder
    options = {"n_step": n_step, "discount": 0.9, "frame_stack": frames, "priority": priority}
    episodes, items = record(client, classes, options, **common)
    flat = [reverb._tree.flatten(item) for item in seen]
    reference.check(flat, reference.transitions(episodes, n_step, 0.9, frames if frames > 1 else None))
    assert len(items) == len(seen)


@LIMITS
@given(**COMMON, length=st.integers(1, 5), burn_in=st.integers(0, 3))
def test_priority_functions_of_sequences(client, length, burn_in, **common):
    seen = []
    classes = reverb.recorders.SequenceRecorder, reverb.recorders.VectorSequenceRecorder
    options = {"length": length, "burn_in": burn_in, "priority": lambda item: seen.append(item) or 1.0}
    episodes, items = record(client, classes, options, **common)
    expected = reference.sequences(episodes, length, length, burn_in, True, 1.0)
    reference.check([reverb._tree.flatten(item) for item in seen], expected)
    reference.check(items, expected)
