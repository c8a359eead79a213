"""Tests that the recipes of docs/ store every transition, including terminal ones, and none between episodes."""

import collections
from functools import partial
from pathlib import Path

from conftest import make_table
import numpy as np
import pytest
from test_docs import blocks_of

import reverb

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def names_of():
    """names_of(page, mark) runs the blocks of a page up to the one that contains `mark`, and returns their names."""
    servers = []

    def run(page, mark):
        names = {}
        for block in blocks_of(DOCS / page):
            exec(block, names)
            if mark in block:
                servers.append(names["server"])
                return names
        raise AssertionError(f"{page} has no block with {mark!r}")

    yield run
    for server in servers:
        server.stop()


class Recorder:
    """A vector environment with next-step autoreset that records its transitions."""

    def __init__(self, envs):
        self._envs = envs
        self.num_envs = envs.num_envs
        self.action_space = envs.action_space
        self.transitions = collections.Counter()
        self.resets = []  # observations before and after
        self.terminated = self.truncated = 0

    def reset(self, **arguments):
        self._observations, info = self._envs.reset(**arguments)
        self._ended = np.zeros(self.num_envs, bool)
        return self._observations, info

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        for i in range(self.num_envs):
            pair = self._observations[i].tobytes(), observations[i].tobytes()
            if self._ended[i]:
                self.resets.append(pair)
            else:
                self.transitions[pair, int(actions[i]), float(rewards[i]), bool(terminated[i])] += 1
        self.terminated += int(terminated.sum())
        self.truncated += int((truncated & ~terminated).sum())
        self._observations, self._ended = observations.copy(), terminated | truncated
        return observations, rewards, terminated, truncated, info


def short_cartpoles(gymnasium, num_envs):
    wrappers = [partial(gymnasium.wrappers.TimeLimit, max_episode_steps=15)]
    return gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="sync", wrappers=wrappers)


@pytest.mark.parametrize("page", ["how_to.md"])
@pytest.mark.parametrize("is_short", [False, True], ids=["terminated", "truncated"])
def test_vector_environments(names_of, serve, page, is_short):
    gymnasium = pytest.importorskip("gymnasium")
    client = serve(make_table("transitions", max_size=100_000)).localhost_client()
    envs = Recorder(short_cartpoles(gymnasium, 6) if is_short else gymnasium.make_vec("CartPole-v1", num_envs=6))
    envs.action_space.seed(0)
    steps = 300
    names_of(page, "vector_writer")["write_transitions"](client, "transitions", envs, steps)
    assert envs.terminated > 20
    assert (envs.truncated > 20) == is_short

    stored = collections.Counter()
    for item in client.peek("transitions", 100_000):
        action, after, before, reward, terminated = item.data.values()  # by sorted name
        stored[(before.tobytes(), after.tobytes()), int(action), float(reward), bool(terminated)] += 1
    assert stored.total() == 6 * steps - len(envs.resets)
    assert sum(count for (*_, terminated), count in stored.items() if terminated) == envs.terminated
    assert not {pair for pair, *_ in stored} & set(envs.resets), "from a dead state into a fresh one"
    assert stored == envs.transitions


def test_n_step(names_of):
    names = names_of("how_to.md", "nothing_more")
    n, gamma = names["n"], names["gamma"]
    steps = list(names["episode"]())
    items = names["client"].peek("n_step", 100)
    assert len(items) == len(steps), "each step of the episode starts an item"
    by_start = {int(item.data[3][0]): item.data for item in items}
    assert sorted(by_start) == list(range(len(steps)))
    for start, (action, discounts, next_observation, _, rewards) in by_start.items():
        seen = steps[start : start + n]
        assert action == steps[start]["action"]
        assert next_observation[0] == min(start + n, len(steps))
        assert rewards.tolist() == [step["reward"] for step in seen] + [0.0] * (n - len(seen))
        reaches_the_end = start + n >= len(steps)
        assert np.prod(discounts) == pytest.approx(0.0 if reaches_the_end else gamma**n)
        assert discounts[: len(seen)].tolist() == [0.0 if step["terminated"] else gamma for step in seen]
    assert by_start[len(steps) - 1][4][0] == steps[-1]["reward"] != 0, "the last reward is in"
    # The targets that the page computes: nothing is added for rewards after the end.
    discounted = {
        start: sum(gamma**k * step["reward"] for k, step in enumerate(steps[start : start + n]))
        for start in range(len(steps))
    }
    assert names["targets"] == pytest.approx(
        [discounted[int(observation[0])] for observation in names["batch"]["observation"]]
    )


def test_structured_transitions(names_of):
    names = names_of("how_to.md", "step_structure")
    items = names["client"].peek("transitions", 100)
    steps = list(names["episode"]())
    found = sorted((int(before[0]), int(after[0]), float(reward), bool(terminated))
                   for _, after, before, reward, terminated in (item.data for item in items))  # fmt: skip
    assert found == [(i, i + 1, step["reward"], step["terminated"]) for i, step in enumerate(steps)]
    assert sum(terminated for *_, terminated in found) == 1


def test_every_step_is_in_a_sequence_of_r2d2(names_of):
    names = names_of("how_to.md", "length, period")
    sequences = [item.data[1] for item in names["client"].peek("sequences", 100)]  # by sorted name
    seen = {int(observation[0]) for sequence in sequences for observation in sequence}
    assert seen == set(range(42))
    assert all(len(sequence) == names["length"] for sequence in sequences)


def test_d4pg_begins_an_item_at_every_step(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS.parent / "examples" / "python"))
    import d4pg

    class Stop:
        """Ends the actor after one episode."""

        is_over = False

        def is_set(self):
            return self.is_over

        def wait(self, seconds):
            self.is_over = True

    with reverb.Server([make_table(d4pg.TABLE_NAME)]) as server:
        client = server.localhost_client()
        d4pg.act(client, np.array([0.0, 0.1]), Stop())
        items = [[*item.data.values()] for item in client.peek(d4pg.TABLE_NAME, 100)]  # action, discount, next_position, ...
    assert len(items) == d4pg.EPISODE
    lengths = sorted(round(float(np.log(discount) / np.log(d4pg.GAMMA))) for _, discount, *_ in items)
    assert lengths == [1, 2] + [d4pg.N_STEP] * (d4pg.EPISODE - 2)
    assert len({float(position) for _, _, _, position, _ in items}) == d4pg.EPISODE
