"""Compares tables with a simple model: order, eviction, sampling, priorities, limits, counters."""

import contextlib
import itertools

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
import numpy as np
from profiles import bounded
import pytest
import transports

import reverb
from reverb import rate_limiters, selectors

SELECTORS = {
    "fifo": selectors.Fifo,
    "lifo": selectors.Lifo,
    "min_heap": selectors.MinHeap,
    "max_heap": selectors.MaxHeap,
}


def chosen(kind, items):
    """Returns the item that a selector picks; each is (inserted, touched, priority) by key."""
    order = {
        "fifo": lambda item: item["inserted"],
        "lifo": lambda item: -item["inserted"],
        "min_heap": lambda item: (item["priority"], item["touched"]),
        "max_heap": lambda item: (-item["priority"], item["touched"]),
    }[kind]
    return min(items, key=lambda key: order(items[key]))


class _Machine(RuleBasedStateMachine):
    transport = "in_process"

    @initialize(
        sampler=st.sampled_from(sorted(SELECTORS)),
        remover=st.sampled_from(sorted(SELECTORS)),
        max_size=st.integers(1, 5),
        max_times_sampled=st.sampled_from([0, 0, 1, 2, 3]),
        min_size=st.integers(1, 3),
        ratio=st.sampled_from([None, 0.5, 1.0, 2.0]),
    )
    def start(self, sampler, remover, max_size, max_times_sampled, min_size, ratio):
        self.sampler, self.remover = sampler, remover
        self.max_size, self.max_times_sampled, self.min_size = max_size, max_times_sampled, min_size
        if ratio is None:
            limiter = rate_limiters.MinSize(min_size)
            self.spi, self.min_diff, self.max_diff = 1.0, -np.inf, np.inf
        else:
            limiter = rate_limiters.SampleToInsertRatio(ratio, min_size, 4.0)
            self.spi, self.min_diff, self.max_diff = ratio, ratio * min_size - 4.0, ratio * min_size + 4.0
        self.table = reverb.Table(
            "table", SELECTORS[sampler](), SELECTORS[remover](), max_size, limiter, max_times_sampled
        )
        self.stack = contextlib.ExitStack()
        server = self.stack.enter_context(reverb.Server([self.table]))
        self.client = transports.connect(server, self.transport)
        self.items, self.clock = {}, itertools.count()  # by inserted value, which is unique
        self.inserts = self.samples = self.deletes = self.unique = 0

    def teardown(self):
        if hasattr(self, "stack"):
            self.stack.close()

    # --- The limiter ---

    def can_insert(self, n=1):
        size = self.inserts - self.deletes
        return size + n <= self.min_size or (self.inserts + n) * self.spi - self.samples <= self.max_diff

    def can_sample(self, n=1):
        size = self.inserts - self.deletes
        return size >= self.min_size and self.inserts * self.spi - self.samples - n >= self.min_diff

    # --- Operations ---

    @rule(priority=st.integers(0, 3))
    @precondition(lambda self: self.can_insert())
    def insert(self, priority):
        number = next(self.clock)
        self.client.insert(number, {"table": float(priority)}, timeout=30)
        self.items[number] = {"inserted": number, "touched": number, "priority": priority, "times": 0}
        self.inserts += 1
        if len(self.items) > self.max_size:
            self.delete(chosen(self.remover, self.items))

    @rule()
    @precondition(lambda self: not self.can_sample())
    def sample_too_early(self):
        if self.transport == "in_process":  # over a socket, the server may learn late that the call no longer waits
            with pytest.raises(reverb.DeadlineExceededError):
                next(self.client.sample("table", timeout=0))

    @rule(count=st.integers(1, 3))
    def sample(self, count):
        expected = []
        while len(expected) < count and self.can_sample() and self.items:
            number = chosen(self.sampler, self.items)
            item = self.items[number]
            self.samples += 1
            self.unique += item["times"] == 0
            item["times"] += 1
            expected.append((item, number, (1.0, len(self.items), item["priority"], item["times"])))
            if item["times"] == self.max_times_sampled:
                self.delete(number)
        if not expected:
            return
        samples = self.client.sample("table", len(expected), timeout=30)
        for (step,), (item, number, info) in zip(samples, expected, strict=True):
            assert step.data == [number]
            assert step.info[1:] == info
            item["key"] = step.info.key

    @rule(data=st.data(), priority=st.integers(0, 3))
    def update(self, data, priority):
        known = sorted(number for number, item in self.items.items() if "key" in item)
        if not known:
            return
        number = data.draw(st.sampled_from(known))
        item = self.items[number]
        self.client.mutate_priorities("table", updates={np.uint64(item["key"]): np.float32(priority)})
        item["priority"], item["touched"] = priority, next(self.clock)

    @rule(data=st.data())
    def delete_by_key(self, data):
        known = sorted(number for number, item in self.items.items() if "key" in item)
        if not known:
            return
        number = data.draw(st.sampled_from(known))
        self.client.mutate_priorities("table", deletes=[self.items[number]["key"], 12345])
        self.delete(number)

    @rule()
    def reset(self):
        self.client.reset("table")
        self.items = {}
        self.inserts = self.samples = self.deletes = self.unique = 0

    def delete(self, number):
        del self.items[number]
        self.deletes += 1

    # --- Invariants ---

    @invariant()
    def the_table_tells_the_same(self):
        if not hasattr(self, "table"):
            return
        info = self.table.info
        assert info == self.same_but_for_time(self.client.server_info()["table"], info)
        assert info.current_size == len(self.items)
        assert info.num_unique_samples == self.unique
        counted = info.rate_limiter_info
        assert (counted.insert_stats.completed, counted.sample_stats.completed) == (self.inserts, self.samples)
        for n in (1, 2, 5, 1_000_000):
            assert self.table.can_sample(n) == self.can_sample(n)
            assert self.table.can_insert(n) == self.can_insert(n)
        stored = {int(s.data[0][0]): (s.info.priority, s.info.times_sampled) for s in self.client.peek("table", 10)}
        assert stored == {number: (item["priority"], item["times"]) for number, item in self.items.items()}

    @staticmethod
    def same_but_for_time(info, other):
        info.table_worker_time = other.table_worker_time
        return info


class _Local(_Machine):
    transport = "local"


class _Grpc(_Machine):
    transport = "grpc"


TestInProcess = _Machine.TestCase
TestInProcess.settings = bounded(80, stateful_step_count=30)
TestLocal = _Local.TestCase
TestLocal.settings = bounded(30, stateful_step_count=30)
TestOverGrpc = _Grpc.TestCase
TestOverGrpc.settings = bounded(30, stateful_step_count=30)


@bounded(40)
@given(
    exponent=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    priorities=st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=8),
)
def test_probabilities_are_those_of_the_priorities(exponent, priorities):
    table = reverb.Table(
        "table", selectors.Prioritized(exponent, seed=1), selectors.Fifo(), 100, rate_limiters.MinSize(1)
    )
    with reverb.Server([table]) as server:
        client = server.localhost_client()
        for i, priority in enumerate(priorities):
            client.insert(i, {"table": priority})
        weights = np.array([priority**exponent if priority else 0.0 for priority in priorities])
        expected = weights / weights.sum() if weights.sum() > 0 else np.full(len(weights), 1 / len(weights))
        for (step,) in client.sample("table", 20):
            assert step.info.probability == pytest.approx(expected[int(step.data[0])], rel=1e-9)
            assert step.info.probability > 0
            assert step.info.table_size == len(priorities)


def test_a_seed_repeats_a_run():
    def run(seed):
        table = reverb.Table(
            "table", selectors.Prioritized(0.7, seed=seed), selectors.Uniform(seed=seed), 10, rate_limiters.MinSize(1)
        )
        with reverb.Server([table]) as server:
            client = server.localhost_client()
            for i in range(25):
                client.insert(i, {"table": 1.0 + i % 3})
            return [int(step.data[0]) for (step,) in client.sample("table", 40)]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_every_insert_is_an_episode():
    with reverb.Server([reverb.Table.queue("queue", 10)]) as server:
        client = server.localhost_client()
        for i in range(3):
            client.insert(i, {"queue": 1.0})
        assert client.server_info()["queue"].num_episodes == 3
        next(client.sample("queue"))
        info = client.server_info()["queue"]
        assert (info.num_episodes, info.num_deleted_episodes) == (2, 1)
