"""What recorders should store, computed slowly from a list of all that happened, and checks against it."""

from __future__ import annotations

import dataclasses

import numpy as np

from reverb import _tree


@dataclasses.dataclass
class Happened:
    """One step, with the observation before it. `id` is unique and positive; it is recorded as extras."""

    id: int
    observation: object
    action: object
    reward: float
    discount: float  # of the environment
    next_observation: object
    terminated: bool
    truncated: bool


@dataclasses.dataclass
class Episode:
    """All steps of an episode; is_complete: the environment has ended it."""

    steps: list[Happened] = dataclasses.field(default_factory=list)
    is_complete: bool = False

    @property
    def observations(self):
        return [self.steps[0].observation, *(step.next_observation for step in self.steps)]


class Log:
    """Collects episodes of one environment."""

    def __init__(self):
        self.episodes = []
        self._observation = None

    def reset(self, observation):
        self.episodes.append(Episode())
        self._observation = copied(observation)

    def step(self, id, action, observation, reward, terminated, truncated, discount=None):
        if discount is None:
            discount = 0.0 if terminated else 1.0
        after = copied(observation)
        self.episodes[-1].steps.append(
            Happened(id, self._observation, copied(action), reward, discount, after, bool(terminated), bool(truncated))
        )
        self.episodes[-1].is_complete = bool(terminated or truncated)
        self._observation = after


def copied(nest):
    return _tree.map_structure(np.array, nest)


def stack(nests):
    return _tree.map_structure(lambda *leaves: np.stack(leaves), *nests)


def transitions(episodes, n_step, gamma, frames):
    """Returns the expected items by the id of their step."""
    items = {}
    for episode in episodes:
        for k, first in enumerate(episode.steps):
            window = episode.steps[k : k + n_step]
            value, product = 0.0, 1.0
            for step in window:
                value += product * step.reward
                product *= gamma * step.discount
            last = k + len(window)

            def frame(t, episode=episode):
                if frames is None:
                    return episode.observations[t]
                return stack([episode.observations[max(t - i, 0)] for i in range(frames - 1, -1, -1)])

            items[first.id] = {
                "observation": frame(k),
                "action": first.action,
                "reward": np.float32(value),
                "discount": np.float32(product),
                "next_observation": frame(last),
                "terminated": np.bool_(window[-1].terminated),
                "truncated": np.bool_(window[-1].truncated),
                "extras": {"id": np.int64(first.id)},
            }
    return items


def _rows(episode, begin, end, gamma):
    """Returns the steps from begin up to end of an episode, which may be outside of it: padding."""
    count = len(episode.steps)
    zero = _tree.map_structure(np.zeros_like, episode.steps[0].action)
    rows = []
    for t in range(begin, end):
        inside = 0 <= t < count
        step = episode.steps[t] if inside else None
        rows.append(
            {
                "action": step.action if inside else zero,
                "reward": np.float32(step.reward if inside else 0),
                "discount": np.float32(gamma * step.discount if inside else 0),
                "terminated": np.bool_(inside and step.terminated),
                "truncated": np.bool_(inside and step.truncated),
                "is_first": np.bool_(t == 0),
                "mask": np.bool_(inside),
                "extras": {"id": np.int64(step.id if inside else 0)},
            }
        )
    item = stack(rows)
    item["observation"] = stack([episode.observations[min(max(t, 0), count)] for t in range(begin, end + 1)])
    return item


def sequences(episodes, length, period, burn_in, pad_end, gamma):
    """Returns the expected items by the ids of their steps."""
    items = {}
    for episode in episodes:
        count = len(episode.steps)
        covered = 0  # steps that were stored, in the part without burn-in
        for start in range(0, count, period):
            if start + length <= count:
                item = _rows(episode, start - burn_in, start + length, gamma)
                covered = start + length
            elif covered < count and pad_end != "drop":
                end = start + length if pad_end else count
                item = _rows(episode, start - burn_in, end, gamma)
                covered = count
            else:
                continue
            items[tuple(item["extras"]["id"].tolist())] = item
    return items


def whole_episodes(episodes, gamma):
    """Returns the expected items by the ids of their steps."""
    items = {}
    for episode in episodes:
        if episode.is_complete:
            item = _rows(episode, 0, len(episode.steps), gamma)
            items[tuple(item["extras"]["id"].tolist())] = item
    return items


def take(client, table, count):
    """Returns the data of all items of a queue, which must be `count`: flat lists of columns."""
    assert client.server_info()[table].current_size == count
    if count == 0:
        return []
    return [_tree.flatten(sample.data) for sample in client.sample(table, count, emit_timesteps=False)]


def check(flat_items, expected):
    """Asserts that the items are the expected ones, each exactly once."""
    assert len(flat_items) == len(expected)
    if not expected:
        return
    like = next(iter(expected.values()))
    seen = set()
    for flat in flat_items:
        item = _tree.unflatten_as(like, flat)
        key = item["extras"]["id"]
        key = tuple(key.tolist()) if key.ndim else int(key)
        assert key not in seen, f"{key} is stored twice"
        seen.add(key)
        assert key in expected, f"{key} did not happen"
        for (path, want), got in zip(_tree.flatten_with_path(expected[key]), flat, strict=True):
            want = np.asarray(want)
            assert got.dtype == want.dtype, (path, got.dtype, want.dtype)
            if path[0] in ("reward", "discount"):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"{path} of {key}")
            else:
                np.testing.assert_array_equal(got, want, err_msg=f"{path} of {key}")
