"""Compares recorders with the reference on environments of Gymnasium: single ones, and vectors in all autoreset modes."""

from __future__ import annotations

import collections
from pathlib import Path

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
import numpy as np
import pytest
import recorders_reference as reference
from test_docs import blocks_of

import reverb


class Camera(gymnasium.Env):
    """Dicts as observations and tuples as actions; terminates after 4 to 7 steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (36, 36), np.uint8),  # large enough for chunks of its own
            "body": gymnasium.spaces.Tuple(
                (gymnasium.spaces.Discrete(100), gymnasium.spaces.Box(-10, 10, (2,), np.float32))
            ),
        }
    )
    action_space = gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1, 1, (2,), np.float32)))

    def _observe(self):
        return {
            "image": self.np_random.integers(0, 255, (36, 36), np.uint8),
            "body": (np.int64(self._t), self.np_random.normal(size=2).astype(np.float32)),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t, self._end = 0, int(self.np_random.integers(4, 8))
        return self._observe(), {}

    def step(self, action):
        self._t += 1
        return self._observe(), float(self._t), self._t >= self._end, False, {}


# Names, arguments and time limits. Blackjack and Camera also end by themselves in the step of the time limit.
ENVIRONMENTS = {
    "CartPole-v1": ({}, 12),
    "MountainCar-v0": ({}, 5),
    "Acrobot-v1": ({}, 6),
    "Pendulum-v1": ({}, 4),
    "FrozenLake-v1": ({}, 9),
    "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3": ({}, 3),
    "Blackjack-v1": ({}, 2),
    "Camera": ({}, 6),
}


def make(name):
    arguments, limit = ENVIRONMENTS[name]
    if name == "Camera":
        return gymnasium.wrappers.TimeLimit(Camera(), limit)
    return gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True, **arguments)


class Clock:
    """The number of the present step, which ids are made of."""

    def __init__(self, num_envs):
        self._num_envs = num_envs
        self._step = 0

    def advance(self):
        self._step += 1
        return np.arange(self._num_envs) + self._step * self._num_envs

    def id(self, env):
        return self._step * self._num_envs + env


class Logged(gymnasium.Wrapper):
    """Logs all steps and resets of one environment, including those of autoreset."""

    def __init__(self, env, clock, index=0):
        super().__init__(env)
        self.log = reference.Log()
        self._clock = clock
        self._index = index

    def reset(self, **arguments):
        observation, info = self.env.reset(**arguments)
        self.log.reset(observation)
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.log.step(self._clock.id(self._index), action, observation, float(reward), terminated, truncated)
        return observation, reward, terminated, truncated, info

    @property
    def episodes(self):
        return [episode for episode in self.log.episodes if episode.steps]


RECORDERS = {
    "transitions": (
        reverb.recorders.TransitionRecorder,
        reverb.recorders.VectorTransitionRecorder,
        {"n_step": 3, "discount": 0.9, "frame_stack": 2},
        lambda episodes: reference.transitions(episodes, 3, 0.9, 2),
    ),
    "one step": (
        reverb.recorders.TransitionRecorder,
        reverb.recorders.VectorTransitionRecorder,
        {},
        lambda episodes: reference.transitions(episodes, 1, 0.99, None),
    ),
    "sequences": (
        reverb.recorders.SequenceRecorder,
        reverb.recorders.VectorSequenceRecorder,
        {"length": 4, "period": 2, "burn_in": 3},
        lambda episodes: reference.sequences(episodes, 4, 2, 3, True, 1.0),
    ),
    "episodes": (
        reverb.recorders.EpisodeRecorder,
        reverb.recorders.VectorEpisodeRecorder,
        {},
        lambda episodes: reference.whole_episodes(episodes, 1.0),
    ),
}


@pytest.fixture
def client():
    with reverb.Server([reverb.Table.queue(name, 100_000) for name in RECORDERS]) as server:
        yield server.localhost_client()


def check_all(client, recorders, episodes):
    for (name, (_, _, _, expect)), recorder in zip(RECORDERS.items(), recorders, strict=True):
        reference.check(reference.take(client, name, recorder.num_items), expect(episodes))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_single_environments(client, name):
    clock = Clock(1)
    env = Logged(make(name), clock)
    env.action_space.seed(1)
    recorders = [single(client, table, **options) for table, (single, _, options, _) in RECORDERS.items()]
    first = env.reset(seed=1)
    for recorder in recorders:
        recorder.reset(*first)
    for _ in range(50):
        (id,) = clock.advance()
        action = env.action_space.sample()
        values = env.step(action)
        for recorder in recorders:
            recorder.step(action, *values, extras={"id": id})
        if values[2] or values[3]:
            first = env.reset()
            for recorder in recorders:
                recorder.reset(*first)
    for recorder in recorders:
        recorder.close()
    steps = [step for episode in env.episodes for step in episode.steps]
    assert len(steps) == 50
    if name in ("Blackjack-v1", "Camera"):
        assert any(step.terminated and step.truncated for step in steps)
    check_all(client, recorders, env.episodes)


def run_vector(client, envs, clock, steps, seed=3, **arguments):
    """Records random actions with all recorders; returns the recorders."""
    envs.action_space.seed(seed)
    recorders = [vector(client, table, **arguments, **options) for table, (_, vector, options, _) in RECORDERS.items()]
    first = envs.reset(seed=seed)
    for recorder in recorders:
        recorder.reset(*first)
    for _ in range(steps):
        ids = clock.advance()
        actions = envs.action_space.sample()
        values = envs.step(actions)
        for recorder in recorders:
            recorder.step(actions, *values, extras={"id": ids})
        ended = values[2] | values[3]
        if envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            first = envs.reset(options={"reset_mask": ended})
            for recorder in recorders:
                recorder.reset(*first, mask=ended)
    for recorder in recorders:
        recorder.close()
    return recorders


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_sync_vector_environments(client, name, mode):
    num_envs = 3
    clock = Clock(num_envs)
    logged = [Logged(make(name), clock, i) for i in range(num_envs)]
    envs = SyncVectorEnv([lambda env=env: env for env in logged], autoreset_mode=mode)
    recorders = run_vector(client, envs, clock, 30, env=envs)
    episodes = [episode for env in logged for episode in env.episodes]
    assert any(episode.is_complete for episode in episodes)
    check_all(client, recorders, episodes)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_async_vector_environments(client, mode):
    # The same actions in a twin that is in this process give the same episodes, which it can log.
    name, num_envs = "CartPole-v1", 2
    limit = ENVIRONMENTS[name][1]
    envs = AsyncVectorEnv(
        [lambda: gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True)] * num_envs,
        autoreset_mode=mode,
        context="spawn",  # forked children of a process with a server are best avoided
        shared_memory=mode == AutoresetMode.NEXT_STEP,
    )
    recorders = run_vector(client, envs, Clock(num_envs), 40, env=envs)
    envs.close()
    stored = {table: reference.take(client, table, each.num_items) for table, each in zip(RECORDERS, recorders, strict=True)}
    clock = Clock(num_envs)
    logged = [Logged(make(name), clock, i) for i in range(num_envs)]
    twin = SyncVectorEnv([lambda env=env: env for env in logged], autoreset_mode=mode)
    run_vector(client, twin, clock, 40, env=twin)
    episodes = [episode for env in logged for episode in env.episodes]
    for table, (_, _, _, expect) in RECORDERS.items():
        reference.check(stored[table], expect(episodes))
        client.reset(table)


def test_own_vector_environments_of_gymnasium(client):
    envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="vector_entry_point")
    with reverb.recorders.VectorTransitionRecorder(client, "one step", env=envs) as recorder:
        assert recorder.autoreset == "next_step"
        assert recorder.num_envs == 8
        recorder.reset(*envs.reset(seed=0))
        envs.action_space.seed(0)
        ends = starts = 0
        for _ in range(200):
            actions = envs.action_space.sample()
            observation, reward, terminated, truncated, info = envs.step(actions)
            recorder.step(actions, observation, reward, terminated, truncated, info)
            starts = ends
            ends += int((terminated | truncated).sum())
    assert ends > 20
    items = reference.take(client, "one step", recorder.num_items)
    assert len(items) == 200 * 8 - starts  # the steps that only reset are not stored
    # Sorted names: action, discount, next_observation, observation, reward, terminated, truncated.
    assert sum(bool(item[5]) for item in items) == ends
    assert all((item[1] == 0) == item[5] for item in items)
    assert all(np.abs(item[2] - item[3]).max() < 3.5 for item in items)
    limits = np.array([2.4, 12 * 2 * np.pi / 360], np.float32)
    for item in items:
        assert not (np.abs(item[3][[0, 2]]) > limits).any()  # nothing starts in a terminal state
        assert (np.abs(item[2][[0, 2]]) > limits).any() == item[5]


def test_the_vector_environment_of_the_python_page(client):
    names = {}
    for block in blocks_of(Path(__file__).parents[2] / "docs" / "python.md"):
        exec(block, names)
        if "VectorTransitionRecorder" in block:
            break
    clock = Clock(3)
    logged = [Logged(make("CartPole-v1"), clock, i) for i in range(3)]
    envs = SyncVectorEnv([lambda env=env: env for env in logged])
    envs.action_space.seed(0)
    count = names["write_transitions"](client, "one step", envs, 100)
    stored = collections.Counter()
    # Sorted names: action, discount, next_observation, observation, reward, terminated, truncated.
    for action, discount, after, before, reward, terminated, truncated in reference.take(client, "one step", count):
        stored[before.tobytes(), int(action), float(reward), after.tobytes(), bool(terminated), bool(truncated)] += 1
        assert discount == np.float32(0 if terminated else 0.99)
    happened = collections.Counter(
        (step.observation.tobytes(), int(step.action), step.reward, step.next_observation.tobytes(), step.terminated,
         step.truncated)
        for env in logged for episode in env.episodes for step in episode.steps
    )  # fmt: skip
    assert stored == happened
    assert sum(episode.is_complete for env in logged for episode in env.episodes) > 10
    names["recorded"].stop()
    names["server"].stop()
