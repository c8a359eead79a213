"""Compares the structured writer with a simple model over lists."""

import operator

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("reverb._core", reason="needs the extension")

import reverb
from reverb import structured_writer as sw

STEP = {"count": 0, "flag": 0}
COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt}
COMPARISONS[">="] = operator.ge


@pytest.fixture(scope="module")
def client():
    server = reverb.Server([reverb.Table.queue("t", 100_000)])
    yield server.localhost_client()
    server.stop()


@st.composite
def indices(draw):
    """Draws an index of a reference: an int or a slice."""
    start = draw(st.integers(-6, -1))
    if draw(st.booleans()):
        return start
    stop = draw(st.none() | st.integers(start + 1, 0))
    return slice(start, stop, draw(st.none() | st.integers(1, 3)))


conditions = st.one_of(
    st.tuples(
        st.sampled_from(["step_index", "steps_since_applied", "flag"]),
        st.sampled_from(sorted(COMPARISONS)),
        st.integers(-1, 6),
        st.none(),
    ),
    st.tuples(
        st.sampled_from(["step_index", "steps_since_applied", "flag"]),
        st.sampled_from(["==", "!="]),
        st.integers(0, 3),
        st.integers(1, 4),
    ),
    st.just(("is_end_episode", None, None, None)),
)
configs = st.tuples(st.tuples(indices(), indices()), st.lists(conditions, max_size=2))
# The flags of an episode's steps.
episodes = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def build(config):
    (count, flag), wanted = config
    ref = sw.create_reference_step(STEP)
    built = []
    for left, compare, value, mod in wanted:
        if left == "is_end_episode":
            built.append(sw.Condition.is_end_episode())
            continue
        side = sw.Condition.data(STEP)["flag"] if left == "flag" else getattr(sw.Condition, left)()
        built.append(COMPARISONS[compare](side if mod is None else side % mod, value))
    return sw.create_config({"count": ref["count"][count], "flag": ref["flag"][flag]}, "t", built)


def rows(history, index):
    if isinstance(index, int):
        return history[index]
    return history[slice(index.start, index.stop or None, index.step)]


class Model:
    def __init__(self, configs):
        self.configs = configs
        self.since = [0] * len(configs)
        self.items = []
        self.counts, self.flags = [], []

    def append(self, count, flag):
        self.counts.append(count)
        self.flags.append(flag)
        self.since = [since + 1 for since in self.since]
        self.applied = [False] * len(self.configs)
        self.apply(at_end=False)

    def apply(self, *, at_end):
        for i, ((count, flag), wanted) in enumerate(self.configs):
            ages = [-(index if isinstance(index, int) else index.start) for index in (count, flag)]
            if self.applied[i] or max(ages) > len(self.counts):
                continue
            values = {
                "step_index": len(self.counts) - 1,
                "steps_since_applied": self.since[i],
                "flag": self.flags[-1],
            }
            if all(
                at_end
                if left == "is_end_episode"
                else COMPARISONS[compare](values[left] if mod is None else values[left] % mod, value)
                for left, compare, value, mod in wanted
            ):
                self.items.append((rows(self.counts, count), rows(self.flags, flag)))
                self.applied[i] = True
                self.since[i] = 0

    def end_episode(self):
        self.apply(at_end=True)
        self.counts, self.flags = [], []


@settings(max_examples=60, deadline=None)
@given(st.lists(configs, min_size=1, max_size=3), st.lists(episodes, max_size=3))
def test_items_are_those_of_the_model(client, wanted, flags_by_episode):
    client.reset("t")
    model = Model(wanted)
    writer = client.structured_writer([build(config) for config in wanted])
    count = 0
    for flags in flags_by_episode:
        for flag in flags:
            writer.append({"count": count, "flag": np.int32(flag)})
            model.append(count, flag)
            count += 1
        writer.end_episode()
        model.end_episode()
    writer.flush()
    assert client.server_info()["t"].current_size == len(model.items)
    if not model.items:
        return
    samples = client.sample("t", len(model.items), emit_timesteps=False)
    assert [tuple(column.tolist() for column in sample.data) for sample in samples] == model.items
