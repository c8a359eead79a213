"""Tests examples/python/recipes: what they store, step by step, and that their learners learn from it.

REVERB_RECIPES="torch jax" chooses other frameworks than NumPy; `make test-recipes` creates environments with them.
"""

import collections
import importlib
import os
from pathlib import Path

import numpy as np
import pytest

import reverb

RECIPES = Path(__file__).parents[2] / "examples" / "python" / "recipes"
FRAMEWORKS = os.environ.get("REVERB_RECIPES", "numpy").split()


@pytest.fixture
def recipe(monkeypatch):
    """recipe(name) imports a file of the recipes; others of the same name elsewhere stay importable."""
    monkeypatch.syspath_prepend(str(RECIPES))
    names = {path.stem for path in RECIPES.glob("*.py")}
    others = {name: importlib.sys.modules.pop(name) for name in names & importlib.sys.modules.keys()}
    yield importlib.import_module
    for name in names & importlib.sys.modules.keys():
        del importlib.sys.modules[name]
    importlib.sys.modules.update(others)


class Log:
    """An environment that keeps what happens in it, a list of steps for each episode."""

    def __init__(self, env):
        self._env = env
        self.episodes = []

    def __getattr__(self, name):
        return getattr(self._env, name)

    def reset(self):
        observation, info = self._env.reset()
        self.episodes.append({"observation": [observation], "action": [], "reward": [], "ended": []})
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self._env.step(action)
        episode = self.episodes[-1]
        for name, value in (("observation", observation), ("action", action), ("reward", reward)):
            episode[name].append(value)
        episode["ended"].append((terminated, truncated))
        return observation, reward, terminated, truncated, info


@pytest.fixture
def stored():
    """stored(table, play) lets play(client) fill a queue, and returns its items as one batch, in order."""

    def fill(table, play):
        with reverb.Server([reverb.Table.queue(table, 10_000)]) as server:
            client = server.localhost_client()
            play(client)
            count = client.server_info()[table].current_size
            return next(client.sample_batches(table, batch_size=count, exact=True)).data

    return fill


def stack(frames, last, size):
    return np.stack([frames[max(0, i)] for i in range(last - size + 1, last + 1)])


def check_transitions(batch, episodes, *, n_step, discount, frame_stack=0):
    """Compares transitions with what happened."""
    row = 0
    for episode in episodes:
        frames, length = episode["observation"], len(episode["action"])
        for t in range(length):
            k = min(n_step, length - t)
            seen = [stack(frames, i, frame_stack) if frame_stack else frames[i] for i in (t, t + k)]
            np.testing.assert_array_equal(batch["observation"][row], seen[0])
            np.testing.assert_array_equal(batch["next_observation"][row], seen[1])
            np.testing.assert_array_equal(batch["action"][row], episode["action"][t])
            total = sum(discount**i * reward for i, reward in enumerate(episode["reward"][t : t + k]))
            assert batch["reward"][row] == pytest.approx(total, rel=1e-6)
            terminated, truncated = episode["ended"][t + k - 1]
            assert (batch["terminated"][row], batch["truncated"][row]) == (terminated, truncated)
            assert batch["discount"][row] == pytest.approx(0.0 if terminated else discount**k)
            row += 1
    assert row == len(batch["reward"])


def check_sequences(batch, episodes, *, length, period, discount, burn_in=0):
    """Compares sequences, in any order, with what happened."""

    def key(observation, action, reward, discounts, terminated, is_first, mask):
        return (
            np.asarray(observation).tobytes(),
            tuple(np.asarray(action).tolist()),
            tuple(np.asarray(reward, np.float32).tolist()),
            tuple(np.asarray(discounts, np.float32).tolist()),
            *(tuple(map(bool, flags)) for flags in (terminated, is_first, mask)),
        )

    expected = collections.Counter()
    for episode in episodes:
        count = len(episode["action"])
        for start in range(0, count, period):
            steps = range(start - burn_in, start + length)
            mask = [0 <= i < count for i in steps]
            ended = [is_real and episode["ended"][i][0] for i, is_real in zip(steps, mask, strict=True)]
            observation = [episode["observation"][min(max(i, 0), count)] for i in (*steps, start + length)]
            expected[
                key(
                    np.stack(observation),
                    [episode["action"][i] if is_real else 0 for i, is_real in zip(steps, mask, strict=True)],
                    [episode["reward"][i] if is_real else 0 for i, is_real in zip(steps, mask, strict=True)],
                    [discount if is_real and not end else 0 for is_real, end in zip(mask, ended, strict=True)],
                    ended,
                    [i == 0 for i in steps],
                    mask,
                )
            ] += 1
            if start + length >= count:  # it has the last step
                break
    names = ("observation", "action", "reward", "discount", "terminated", "is_first", "mask")
    found = collections.Counter(key(*values) for values in zip(*(batch[name] for name in names), strict=True))
    assert found == expected


def test_dqn_stores_stacks_and_returns_with_their_tails(recipe, stored):
    dqn = recipe("dqn")
    env, rng = Log(recipe("environments").Catch(seed=3)), np.random.default_rng(0)

    def play(client):
        with dqn.make_recorder(client) as recorder:
            for _ in range(5):
                dqn.play(env, recorder, None, rng, epsilon=1.0)

    batch = stored("replay", play)
    assert batch["observation"].shape == (5 * 6, dqn.STACK, 7, 5)
    check_transitions(batch, env.episodes, n_step=dqn.N_STEP, discount=dqn.DISCOUNT, frame_stack=dqn.STACK)
    assert batch["terminated"].sum() == 5 * dqn.N_STEP, "the last three steps of each episode see its end"
    assert (batch["discount"] == 0).sum() == 5 * dqn.N_STEP


def test_sac_bootstraps_at_a_time_limit(recipe, stored):
    sac = recipe("sac")
    env = Log(recipe("environments").Reach(seed=3))
    learner = recipe("with_numpy").SAC()

    def play(client):
        with sac.make_recorder(client) as recorder:
            for _ in range(3):
                sac.play(env, recorder, learner)

    batch = stored("replay", play)
    check_transitions(batch, env.episodes, n_step=1, discount=sac.DISCOUNT)
    assert batch["truncated"].sum() == 3
    assert (batch["discount"] == np.float32(sac.DISCOUNT)).all()


def test_r2d2_stores_overlapping_sequences_with_states(recipe, stored):
    r2d2 = recipe("r2d2")
    env, rng = Log(recipe("environments").Recall(seed=3)), np.random.default_rng(0)
    learner = recipe("with_numpy").R2D2()

    def play(client):
        with r2d2.make_recorder(client) as recorder:
            for _ in range(4):
                r2d2.play(env, recorder, learner, rng, epsilon=1.0)

    batch = stored("sequences", play)
    settings = {"length": r2d2.LENGTH, "period": r2d2.PERIOD, "burn_in": r2d2.BURN_IN, "discount": r2d2.DISCOUNT}
    check_sequences(batch, env.episodes, **settings)
    # A state is what the network made of the observations before: replaying a sequence reproduces its states.
    states, mask = batch["extras"]["state"], batch["mask"]
    for row in range(len(mask)):
        for t in range(1, mask.shape[1]):
            if mask[row, t - 1] and mask[row, t]:
                _, state = learner.act(batch["observation"][row, t - 1], states[row, t - 1])
                np.testing.assert_allclose(states[row, t], state, rtol=1e-5)
    assert (states[batch["is_first"]] == 0).all()


def test_ppo_stores_no_step_that_only_resets(recipe, stored):
    ppo, environments = recipe("ppo"), recipe("environments")
    logs = [Log(environments.Catch(seed)) for seed in range(4)]
    envs = environments.Vector(logs)
    learner = recipe("with_numpy").PPO()

    def play(client):
        with ppo.make_recorder(client, envs) as recorder:
            observations, info = envs.reset()
            recorder.reset(observations, info)
            ppo.play(envs, recorder, learner, observations, steps=4 * 7 - 1)  # four episodes of 6 steps, three resets

    batch = stored("fragments", play)
    episodes = [episode for log in logs for episode in log.episodes]
    assert [len(episode["action"]) for episode in episodes] == [6] * 16
    check_sequences(batch, episodes, length=ppo.LENGTH, period=ppo.LENGTH, discount=ppo.DISCOUNT)
    assert batch["terminated"].sum() == 16
    assert batch["mask"].sum() == 16 * 6
    log_probs = batch["extras"]["log_prob"]
    np.testing.assert_allclose(log_probs[batch["mask"]], np.log(1 / 3), rtol=1e-6)
    # Without a value function, advantages are the discounted sums of what follows.
    advantages = ppo.advantages_of(batch, np.zeros((16, ppo.LENGTH + 1), np.float32))
    weights = (ppo.DISCOUNT * ppo.LAMBDA) ** np.arange(6)
    np.testing.assert_allclose(advantages[:, 0], (batch["reward"][:, :6] * weights).sum(axis=1), rtol=1e-5)
    assert (advantages[~batch["mask"]] == 0).all()


def test_impala_stores_every_episode_as_unrolls(recipe, stored):
    impala = recipe("impala")
    env = Log(recipe("environments").Catch(seed=3))
    actor = recipe("with_numpy").IMPALA()

    def play(client):
        with impala.make_recorder(client) as recorder:
            for _ in range(3):
                impala.play(env, recorder, actor)

    batch = stored("unrolls", play)
    check_sequences(batch, env.episodes, length=impala.LENGTH, period=impala.LENGTH, discount=impala.DISCOUNT)
    # With the actor's own policy, V-trace's targets are the returns.
    values, log_probs = np.zeros((3, impala.LENGTH + 1), np.float32), batch["extras"]["log_prob"]
    targets, advantages = impala.v_trace(batch, values, log_probs)
    weights = impala.DISCOUNT ** np.arange(impala.LENGTH)
    np.testing.assert_allclose(targets[:, 0], (batch["reward"] * weights).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(advantages[:, -1], batch["reward"][:, -1], rtol=1e-5)


def test_dreamer_stores_sequences_that_overlap(recipe, stored):
    dreamer, environments = recipe("dreamer"), recipe("environments")
    logs = [Log(environments.Catch(seed)) for seed in range(3)]
    envs = environments.Vector(logs)

    def play(client):
        with dreamer.make_recorder(client, envs) as recorder:
            dreamer.play(envs, recorder, steps=3 * 7 - 1)

    batch = stored("sequences", play)
    episodes = [episode for log in logs for episode in log.episodes]
    check_sequences(batch, episodes, length=dreamer.LENGTH, period=dreamer.PERIOD, discount=1.0)


def test_behaviour_cloning_reads_what_the_expert_did(recipe, tmp_path, monkeypatch):
    cloning, environments = recipe("behaviour_cloning"), recipe("environments")
    log = Log(environments.Catch(seed=1))
    monkeypatch.setattr(cloning, "Catch", lambda seed: log)
    path = cloning.demonstrate(str(tmp_path), episodes=5)
    items = [item.data for item in reverb.checkpoints.read(path, "demonstrations")]
    assert len(items) == len(log.episodes) == 5
    for item, episode in zip(items, log.episodes, strict=True):
        for name in ("observation", "action", "reward"):
            np.testing.assert_array_equal(item[name], np.stack(episode[name]))
        assert item["terminated"].tolist() == [False] * 5 + [True]
        assert item["discount"].tolist() == [1.0] * 5 + [0.0]
    done = {
        (observation.tobytes(), action)
        for episode in log.episodes
        for observation, action in zip(episode["observation"], episode["action"], strict=False)
    }
    # Few episodes are read at a time, in random order: the demonstrations need not fit into memory.
    monkeypatch.setattr(cloning, "EPISODES", 2)
    readers = []
    monkeypatch.setattr(
        reverb.checkpoints,
        "read",
        lambda *args, read=reverb.checkpoints.read, **more: readers.append(read(*args, **more)) or readers[-1],
    )
    batches = list(cloning.batches(path, num_batches=12))
    assert [(len(reader), reader.batch_size) for reader in readers] == [(3, 2)]
    assert {len(batch["action"]) for batch in batches} == {cloning.BATCH}
    seen = {(o.tobytes(), a) for batch in batches for o, a in zip(batch["observation"], batch["action"], strict=True)}
    assert seen == done
    passes = [tuple(batch["action"].tobytes() for batch in batches[i : i + 3]) for i in range(0, 12, 3)]
    assert len(set(passes)) == 4


def improvement(first, last):
    return np.mean(first), np.mean(last)


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestLearning:
    @pytest.mark.parametrize(("name", "learner"), [("dqn", "DQN"), ("r2d2", "R2D2"), ("sac", "SAC"), ("ppo", "PPO")])
    def test_returns_grow(self, recipe, framework, name, learner):
        returns, losses = recipe(name).run(recipe("frameworks").make_learner(learner, framework))
        tenth = len(returns) // 10
        first, last = improvement(returns[:tenth], returns[-2 * tenth :])
        assert last > first
        assert np.isfinite(losses).all()

    def test_impala(self, recipe, framework):
        returns, losses = recipe("impala").main(framework)
        first, last = improvement(returns[:20], returns[-20:])
        assert last > first
        assert np.isfinite(losses).all()

    def test_dreamer(self, recipe, framework):
        losses = recipe("dreamer").run(recipe("frameworks").make_learner("Dreamer", framework))
        first, last = improvement(losses[:10], losses[-10:])
        assert last < first / 4

    def test_behaviour_cloning(self, recipe, framework):
        caught, losses = recipe("behaviour_cloning").run(recipe("frameworks").make_learner("Cloning", framework))
        assert caught > 0.6
        assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 2
