"""Tests ParallelRecorder: agents of PettingZoo's parallel environments."""

from __future__ import annotations

import numpy as np
import pytest

import reverb
from reverb.recorders import EpisodeRecorder, ParallelRecorder, TransitionRecorder


@pytest.fixture
def client(serve):
    return serve(reverb.Table.queue("queue", 1000), reverb.Table.queue("other", 1000)).localhost_client()


def stored(client, count):
    """Returns the items of the queue, which must be `count`, as a batch."""
    assert client.server_info()["queue"].current_size == count
    (batch,) = client.sample_batches("queue", count, num_batches=1)
    return batch.data


def agents_of_an_episode():
    """Yields the values of reset() and step() of a PettingZoo parallel environment in which agents come and go."""
    no = {"a": False, "b": False, "c": False}
    yield {"a": 0, "b": 10}, {}
    yield {"a": 1, "b": 1}, {"a": 1, "b": 11}, {"a": 1.0, "b": 2.0}, no, no, {}
    # b ends, c comes
    yield {"a": 2, "b": 2}, {"a": 2, "b": 12, "c": 20}, {"a": 1.0, "b": 2.0, "c": 0.0}, {**no, "b": True}, no, {}
    # b comes back, a is truncated
    yield {"a": 3, "c": 3}, {"a": 3, "b": 13, "c": 21}, {"a": 1.0, "c": 3.0}, no, {**no, "a": True}, {}
    # b disappears without a word
    yield {"b": 4, "c": 4}, {"c": 22}, {"c": 3.0}, {"c": False}, {"c": False}, {}
    yield {"c": 5}, {"c": 23}, {"c": 3.0}, {"c": True}, {"c": False}, {}


def test_agents_that_come_and_go(client):
    with ParallelRecorder(lambda agent: TransitionRecorder(client, "queue")) as recorder:
        values = agents_of_an_episode()
        recorder.reset(*next(values))
        for each in values:
            recorder.step(*each)
    assert set(recorder.recorders) == {"a", "b", "c"}
    data = stored(client, recorder.num_items)
    steps = sorted(zip(data["observation"].tolist(), data["next_observation"].tolist(), data["terminated"].tolist(),
                       data["truncated"].tolist(), strict=True))  # fmt: skip
    assert steps == [
        (0, 1, False, False), (1, 2, False, False), (2, 3, False, True),
        (10, 11, False, False), (11, 12, True, False),
        (20, 21, False, False), (21, 22, False, False), (22, 23, True, False),
    ]  # fmt: skip


def test_agents_with_recorders_of_any_kind_and_extras(client):
    tables = {"a": "queue", "b": "other"}
    with ParallelRecorder(lambda agent: EpisodeRecorder(client, tables[agent])) as recorder:
        for _ in range(2):
            recorder.reset({"a": 0, "b": np.zeros(3)})
            for t in range(3):
                recorder.step({"a": t, "b": t}, {"a": t, "b": np.ones(3)}, {"a": 1, "b": 2}, {"a": t == 2, "b": False},
                              {"a": False, "b": t == 2}, extras={"a": {"p": 0.5}, "b": {"q": t}})  # fmt: skip
    assert recorder.num_items == 4
    assert [client.server_info()[table].current_size for table in ("queue", "other")] == [2, 2]
    (batch,) = client.sample_batches("other", 2, num_batches=1)
    assert batch.data["extras"]["q"].tolist() == [[0, 1, 2]] * 2
    assert batch.data["truncated"].tolist() == [[False, False, True]] * 2


def test_a_failed_step_of_one_agent_requires_a_reset(client):
    recorder = ParallelRecorder(lambda agent: TransitionRecorder(client, "queue"))
    no = {"a": False, "b": False, "c": False}

    def step(t, reward_of_b=1.0):
        observations = {"a": t, "b": 10 + t, "c": 20 + t}
        recorder.step(dict.fromkeys(no, t), observations, {"a": 1.0, "b": reward_of_b, "c": 1.0}, no, no)

    recorder.reset({"a": 0, "b": 10, "c": 20})
    step(1)
    with pytest.raises(TypeError, match="reward must be numbers, got 'much'"):
        step(2, "much")
    with pytest.raises(RuntimeError, match=r"the last call of step\(\) or reset\(\) failed; call reset"):
        step(3)  # c did not record the step before
    recorder.reset({"a": 5, "b": 15, "c": 25})
    step(6)
    recorder.close()
    data = stored(client, recorder.num_items)
    steps = sorted(zip(data["observation"].tolist(), data["next_observation"].tolist(), strict=True))
    assert steps == [(0, 1), (1, 2), (5, 6), (10, 11), (15, 16), (20, 21), (25, 26)]


def test_incomplete_values_of_one_agent_change_nothing(client):
    recorder = ParallelRecorder(lambda agent: TransitionRecorder(client, "queue"))
    no = {"a": False, "b": False}
    recorder.reset({"a": 0, "b": 10})
    with pytest.raises(ValueError, match="agent 'b' acted, but there is nothing of it in rewards"):
        recorder.step({"a": 1, "b": 1}, {"a": 1, "b": 11}, {"a": 1.0}, no, no)
    recorder.step({"a": 1, "b": 1}, {"a": 1, "b": 11}, {"a": 1.0, "b": 1.0}, no, no)
    recorder.close()
    assert sorted(stored(client, 2)["next_observation"].tolist()) == [1, 11]


def test_errors_of_parallel_recorders(client):
    recorder = ParallelRecorder(lambda agent: TransitionRecorder(client, "queue"))
    with pytest.raises(RuntimeError, match=r"step\(\) was called before reset\(\)"):
        recorder.step({}, {}, {}, {}, {})
    recorder.reset({"a": 0})
    with pytest.raises(TypeError, match="rewards must be a dict with a value for each agent, got float"):
        recorder.step({"a": 0}, {"a": 0}, 1.0, {"a": False}, {"a": False})
    with pytest.raises(ValueError, match="agent 'a' acted, but there is nothing of it in truncations"):
        recorder.step({"a": 0}, {"a": 0}, {"a": 1.0}, {"a": False}, {})
    with pytest.raises(ValueError, match="agent 'a' is in an episode and has a reward, but actions has no action of it"):
        recorder.step({}, {"a": 0}, {"a": 1.0}, {"a": False}, {"a": False})
    recorder.close()
    with pytest.raises(RuntimeError, match=r"close\(\) has been called"):
        recorder.reset({"a": 0})
    with pytest.raises(TypeError, match="must be a function that returns the recorder of an agent"):
        ParallelRecorder(recorder)
    shared = TransitionRecorder(client, "queue")
    with pytest.raises(ValueError, match=r"make_recorder\('b'\) returned the recorder of another agent"):
        ParallelRecorder(lambda agent: shared).reset({"a": 0, "b": 0})
    with pytest.raises(TypeError, match=r"make_recorder\('a'\) must return a recorder for a single environment"):
        ParallelRecorder(lambda agent: None).reset({"a": 0})


def test_parallel_environments_of_pettingzoo(client):
    pettingzoo = pytest.importorskip("pettingzoo")
    spaces = pytest.importorskip("gymnasium").spaces

    class Countdown(pettingzoo.ParallelEnv):
        metadata = {"name": "countdown"}  # noqa: RUF012
        possible_agents = ["one", "two"]  # noqa: RUF012

        def observation_space(self, agent):
            return spaces.Discrete(10)

        def action_space(self, agent):
            return spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            self.agents = list(self.possible_agents)
            self._left = {"one": 2, "two": 4}
            return dict(self._left), {agent: {} for agent in self.agents}

        def step(self, actions):
            for agent in actions:
                self._left[agent] -= 1
            ended = {agent: self._left[agent] == 0 for agent in actions}
            values = {agent: self._left[agent] for agent in actions}
            self.agents = [agent for agent in self.agents if not ended[agent]]
            return values, dict.fromkeys(actions, 1.0), ended, dict.fromkeys(actions, False), {a: {} for a in actions}

    env = Countdown()
    with ParallelRecorder(lambda agent: TransitionRecorder(client, "queue")) as recorder:
        recorder.reset(*env.reset())
        while env.agents:
            actions = dict.fromkeys(env.agents, 1)
            recorder.step(actions, *env.step(actions))
    data = stored(client, recorder.num_items)
    assert sorted(data["observation"].tolist()) == [1, 1, 2, 2, 3, 4]
    assert data["terminated"].sum() == 2
