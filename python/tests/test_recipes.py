"""Tests what the recipes of docs/ store: every step, also terminal ones and the last ones, and none between episodes."""

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


TRANSITION = ["observation", "action", "reward", "discount", "next_observation", "terminated", "truncated"]
STEPS = ["observation", "action", "reward", "discount", "terminated", "truncated", "is_first", "mask"]


def items_of(client, table, names):
    """Returns the data of all items of a table, by name."""
    found = []
    for item in client.peek(table, 100_000):
        data = item.data if isinstance(item.data, dict) else dict(zip(sorted(names), item.data, strict=True))
        found.append({name: data[name] for name in names})
    return found


def expected_transitions(steps, last_observation, *, n_step, discount):
    """Computes the transitions of an episode of docs/how_to.md in the obvious way, by first observation."""
    observations = [int(step["observation"][0]) for step in steps] + [int(last_observation)]
    found = {}
    for start in range(len(steps)):
        window = steps[start : start + n_step]
        total = sum(discount**k * step["reward"] for k, step in enumerate(window))
        factor = 0.0 if window[-1]["terminated"] else discount ** len(window)
        found[observations[start]] = (
            steps[start]["action"], pytest.approx(total), pytest.approx(factor), observations[start + len(window)],
            window[-1]["terminated"],
        )  # fmt: skip
    return found


class Recorder:
    """A vector environment with next-step autoreset that records its transitions."""

    def __init__(self, envs):
        self._envs = envs
        self.metadata = envs.metadata
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


@pytest.mark.parametrize("is_short", [False, True], ids=["terminated", "truncated"])
def test_vector_environments(names_of, serve, is_short):
    gymnasium = pytest.importorskip("gymnasium")
    client = serve(make_table("transitions", max_size=100_000)).localhost_client()
    envs = Recorder(short_cartpoles(gymnasium, 6) if is_short else gymnasium.make_vec("CartPole-v1", num_envs=6))
    envs.action_space.seed(0)
    steps = 300
    names_of("how_to.md", "VectorTransitionRecorder")["write_transitions"](client, "transitions", envs, steps)
    assert envs.terminated > 20
    assert (envs.truncated > 20) == is_short

    stored = collections.Counter()
    for item in items_of(client, "transitions", TRANSITION):
        pair = item["observation"].tobytes(), item["next_observation"].tobytes()
        stored[pair, int(item["action"]), float(item["reward"]), bool(item["terminated"])] += 1
        assert item["discount"] == (0 if item["terminated"] else np.float32(0.99))
    assert stored.total() == 6 * steps - len(envs.resets)
    assert sum(count for (*_, terminated), count in stored.items() if terminated) == envs.terminated
    assert not {pair for pair, *_ in stored} & set(envs.resets), "from a dead state into a fresh one"
    assert stored == envs.transitions


def test_n_step(names_of):
    names = names_of("how_to.md", "n_step=n")
    n, gamma, steps = names["n"], names["gamma"], list(names["episode"]())
    expected = expected_transitions(steps, 20, n_step=n, discount=gamma)
    items = items_of(names["client"], "n_step", TRANSITION)
    assert len(items) == len(steps), "each step of the episode starts an item"
    found = {
        int(item["observation"][0]): (
            item["action"], item["reward"], item["discount"], item["next_observation"][0], item["terminated"]
        )
        for item in items
    }  # fmt: skip
    assert found == expected
    assert found[19][1] == steps[-1]["reward"] != 0, "the last reward is in"
    # The targets that the page computes, with values of 0.
    assert names["targets"].tolist() == [
        expected[int(observation[0])][1] for observation in names["batch"]["observation"]
    ]


def test_n_step_returns_of_a_truncated_episode_keep_their_discounts(names_of):
    names = names_of("how_to.md", "n_step=n")
    with reverb.Server([make_table("cut")]) as server:
        client = server.localhost_client()
        with reverb.recorders.TransitionRecorder(client, "cut", n_step=3, discount=0.9) as recorder:
            recorder.reset(np.zeros(4, np.float32))
            for step in list(names["episode"](5)):
                recorder.step(step["action"], step["observation"] + 1, step["reward"], False, step["terminated"])
        items = items_of(client, "cut", TRANSITION)
    assert [item["discount"] for item in items] == pytest.approx([0.9**3] * 3 + [0.9**2, 0.9])
    assert [bool(item["truncated"]) for item in items] == [False, False, True, True, True]


def test_readme():
    pytest.importorskip("gymnasium")
    (block,) = blocks_of(DOCS.parent / "README.md")
    names = {}
    exec(block, names)
    try:
        items = items_of(names["client"], "replay", TRANSITION)
    finally:
        names["server"].stop()
    # The environments that ended take one step each to reset.
    ends = sum(bool(item["terminated"]) and item["reward"] == 1 for item in items)
    assert ends > 50
    assert 8 * 500 - ends - 8 <= len(items) <= 8 * 500 - ends + 8
    returns = {k: sum(0.99**i for i in range(k)) for k in (1, 2, 3)}
    for item in items:
        (k,) = (k for k, total in returns.items() if item["reward"] == pytest.approx(total))
        assert item["discount"] == pytest.approx(0 if item["terminated"] else 0.99**k)
        assert abs(item["observation"][2]) < 0.2096, "no transition begins after a fall"


def test_frame_stacks(names_of):
    names = names_of("how_to.md", "frame_stack=4")
    items = items_of(names["client"], "frames", TRANSITION)
    frames = {tuple(item["observation"][:, 0, 0]): tuple(item["next_observation"][:, 0, 0]) for item in items}

    def stack(last):
        return tuple(max(0, last - back) for back in (3, 2, 1, 0))

    assert frames == {stack(step): stack(step + 1) for step in range(10)}
    assert sum(bool(item["terminated"]) for item in items) == 1


def test_overlapping_trajectories(names_of):
    names = names_of("how_to.md", '"overlapping", 1.0')
    items = items_of(names["client"], "overlapping", ["observation", "action", "reward", "terminated"])
    starts = [int(item["observation"][0, 0]) for item in items]
    assert sorted(starts) == list(range(18))
    for start, item in zip(starts, items, strict=True):
        assert item["observation"][:, 0].tolist() == [start, start + 1, start + 2]
        assert item["reward"].tolist() == [0.5 * step for step in range(start, start + 3)]
        assert item["terminated"].tolist() == [False, False, start == 17]


def test_several_tables(names_of):
    names = names_of("how_to.md", '"newest", 1.0')
    newest, best = (items_of(names["client"], table, ["observation"]) for table in ("newest", "best"))
    assert sorted(int(item["observation"].ravel()[0]) for item in newest) == list(range(20))
    assert sorted(int(item["observation"].ravel()[0]) for item in best) == list(range(10, 20)), "the highest rewards"


def test_whole_episodes(names_of):
    names = names_of("how_to.md", "EpisodeRecorder(client")
    items = items_of(names["client"], "episodes", STEPS)
    assert sorted(len(item["action"]) for item in items) == [12, 20]
    for item in items:
        length = len(item["action"])
        assert item["observation"][:, 0].tolist() == list(range(length + 1))
        assert item["reward"].tolist() == [0.5 * step for step in range(length)]
        assert item["terminated"].tolist() == [False] * (length - 1) + [True]
        assert item["discount"].tolist() == [1.0] * (length - 1) + [0.0]
    assert set(names["returns"]) <= {0.5 * sum(range(20)), 0.5 * sum(range(12))}


def test_prioritized_replay(names_of):
    names = names_of("how_to.md", "first_priority")
    items = items_of(names["client"], "per", TRANSITION)
    assert sorted(float(item["reward"]) for item in items) == [0.5 * step for step in range(20)]
    seen = {int(key) for key in names["batch"].info.key}
    priorities = {item.info.key: item.info.priority for item in names["client"].peek("per", 100)}
    # No item of the last batch keeps its first priority: it has the magnitude of its error, without importance weights.
    assert names["weights"].min() < 0.9, "weights that are all 1 would prove nothing"
    rewards = dict(zip(map(int, names["batch"].info.key), names["batch"].data["reward"], strict=True))
    expected = {key: abs(float(reward) - 3.0) + 0.01 for key, reward in rewards.items()}
    assert {key: priorities[key] for key in seen} == pytest.approx(expected)


def test_structured_transitions(names_of):
    names = names_of("how_to.md", "step_structure")
    fields = ["observation", "action", "reward", "terminated", "next_observation"]
    steps = list(names["episode"]())
    found = sorted(
        (int(item["observation"][0]), int(item["next_observation"][0]), float(item["reward"]), bool(item["terminated"]))
        for item in items_of(names["client"], "transitions", fields)
    )
    assert found == [(i, i + 1, step["reward"], step["terminated"]) for i, step in enumerate(steps)]
    assert sum(terminated for *_, terminated in found) == 1


def check_fragments(items, steps, *, length, period, burn_in=0, discount):
    """Compares sequences of an episode of docs/how_to.md with what happened."""
    starts = []
    for item in items:
        mask = item["mask"].tolist()
        first = int(item["observation"][burn_in][0])
        starts.append(first)
        times = range(first - burn_in, first + length)
        assert mask == [0 <= time < steps for time in times]
        assert item["observation"][:, 0].tolist() == [min(max(time, 0), steps) for time in (*times, first + length)]
        assert item["action"].tolist() == [time % 2 if real else 0 for time, real in zip(times, mask, strict=True)]
        assert item["reward"].tolist() == [0.5 * time if real else 0 for time, real in zip(times, mask, strict=True)]
        assert item["terminated"].tolist() == [time == steps - 1 for time in times]
        assert item["discount"].tolist() == [
            np.float32(discount) if real and time < steps - 1 else 0 for time, real in zip(times, mask, strict=True)
        ]
    covered = next(start for start in range(0, steps, period) if start + length >= steps)
    assert sorted(starts) == list(range(0, covered + 1, period)), "every step is trained on"


def test_r2d2(names_of):
    names = names_of("how_to.md", '"burn_in": 2')
    items = items_of(names["client"], "sequences", [*STEPS, "extras"])
    check_fragments(items, 42, **names["settings"], discount=1.0)


def test_ppo(names_of):
    fragments = names_of("how_to.md", '"queue", length=5')["fragments"]
    items = [{name: fragments[name][i] for name in STEPS} for i in range(4)]
    check_fragments(items, 18, length=5, period=5, discount=0.99)
    assert (fragments["extras"]["log_prob"][fragments["mask"]] == np.float32(-0.7)).all()


def test_impala(names_of):
    unrolls = names_of("how_to.md", '"unrolls", length=10')["unrolls"]
    items = [{name: unrolls[name][i] for name in STEPS} for i in range(2)]
    check_fragments(items, 20, length=10, period=10, discount=1.0)


def test_behaviour_cloning(names_of):
    names = names_of("how_to.md", '"demonstrations"')
    assert names["observations"][:, 0].tolist() == list(range(20))
    assert names["actions"].tolist() == [step % 2 for step in range(20)]


def test_mixing_demonstrations(names_of):
    names = names_of("how_to.md", "reverb.mix(")
    mixed, steps = names["mixed"], names["steps"]
    assert set(steps[mixed.source == 0]) <= {12, 20}
    assert set(steps[mixed.source == 1]) == {20}
    assert {int(key) for key in names["keys"]} <= {item.info.key for item in names["client"].peek("episodes", 10)}


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
        items = items_of(client, d4pg.TABLE_NAME, TRANSITION)
    assert len(items) == d4pg.EPISODE
    lengths = sorted(round(float(np.log(item["discount"]) / np.log(d4pg.GAMMA))) for item in items)
    assert lengths == [1, 2] + [d4pg.N_STEP] * (d4pg.EPISODE - 2)
    assert len({float(item["observation"]) for item in items}) == d4pg.EPISODE
    last = [item for item in items if item["truncated"]]
    assert len(last) == d4pg.N_STEP
    assert len({float(item["next_observation"]) for item in last}) == 1
