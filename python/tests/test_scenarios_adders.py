"""Scenarios: programs that write with adders: n-step transitions, sequences and episodes, into one table or several."""

import sys
import threading
import time

from adders import (
    EpisodeAdder,
    NStepAdder,
    SequenceAdder,
    Step,
    Transition,
    assert_same,
    expected_sequences,
    expected_transitions,
    make_episode,
)
from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors

TABLE = "priority_table"


def all_items(client, table, count):
    return [sample.data for sample in client.sample(table, count, emit_timesteps=False, timeout=20)]


# --- Adders on a queue ---


@pytest.mark.parametrize(("n_step", "lengths"), [(1, [1, 4]), (2, [1, 2, 5]), (3, [2, 3, 9]), (5, [4, 5, 12])])
def test_n_step_transitions_come_out_in_order(serve, connect, n_step, lengths):
    client = connect(serve(reverb.Table.queue(TABLE, 1000)))
    adder = NStepAdder(client, TABLE, n_step, additional_discount=0.99)
    episodes = [make_episode(length, seed=seed) for seed, length in enumerate(lengths)]
    expected = []
    for episode in episodes:
        adder.add_episode(episode)
        expected += expected_transitions(episode, n_step, 0.99)
    info = client.server_info(1)[TABLE]
    assert (info.current_size, info.num_episodes) == (len(expected), len(lengths))
    for data, transition in zip(all_items(client, TABLE, len(expected)), expected, strict=True):
        assert_same(data, transition[:5])
    client.reset(TABLE)
    assert client.server_info(1)[TABLE].num_episodes == 0


def test_python_numbers_become_64_bit_columns_without_a_time_axis(serve, connect):
    client = connect(serve(reverb.Table.queue(TABLE, 1000)))
    adder = NStepAdder(client, TABLE, 1, additional_discount=1.0)
    adder.add_episode((0, [Step(action=7, reward=0.5, discount=1.0, next_observation=1)]))
    (data,) = all_items(client, TABLE, 1)
    assert [value.dtype.name for value in data] == ["int64", "int64", "float32", "float32", "int64"]
    assert [value.shape for value in data] == [()] * 5
    assert [value.item() for value in data] == [0, 7, 0.5, 1.0, 1]


def test_transitions_with_extras_of_their_own_structure(serve, connect):
    client = connect(serve(reverb.Table.queue(TABLE, 1000)))
    adder = NStepAdder(client, TABLE, 2, additional_discount=1.0)
    episode = make_episode(4, extras=lambda i: {"log_prob": np.float32(-i), "state": np.full((2, 2), i, np.int8)})
    adder.add_episode(episode)
    expected = list(expected_transitions(episode, 2, 1.0))
    for data, transition in zip(all_items(client, TABLE, len(expected)), expected, strict=True):
        assert_same(data, [*transition[:5], transition.extras["log_prob"], transition.extras["state"]])


@pytest.mark.parametrize(("length", "period"), [(3, 1), (3, 2), (4, 4), (9, 8)])
@pytest.mark.parametrize("truncate", [True, False])
def test_sequences_overlap_by_their_period(serve, connect, length, period, truncate):
    client = connect(serve(reverb.Table.queue(TABLE, 1000)))
    adder = SequenceAdder(client, TABLE, length, period, truncate=truncate)
    expected, episodes_with_items = [], 0
    for seed, count in enumerate([1, 3, 8, 17]):
        episode = make_episode(count, seed=seed)
        adder.add_episode(episode)
        items = list(expected_sequences(episode, length, period, truncate))
        expected += items
        episodes_with_items += bool(items)
    info = client.server_info(1)[TABLE]
    assert (info.current_size, info.num_episodes) == (len(expected), episodes_with_items)
    for data, columns in zip(all_items(client, TABLE, len(expected)), expected, strict=True):
        assert_same(data, columns)


def test_an_item_for_each_episode(serve, connect):
    client = connect(serve(reverb.Table.queue(TABLE, 1000)))
    adder = EpisodeAdder(client, TABLE, 2001)
    lengths = [1, 30, 2000]
    for seed, count in enumerate(lengths):
        adder.add_episode(make_episode(count, seed=seed, extras=lambda i: (np.int32(i), np.int32(-i), i % 2 == 0)))
    items = all_items(client, TABLE, 3)
    for seed, (count, data) in enumerate(zip(lengths, items, strict=True)):
        action, discount, first, second, third, observation, reward, start = data
        assert {len(column) for column in data} == {count + 1}
        assert action.tolist() == [*range(count), 0]
        assert observation[:, 0].tolist() == [100 * seed + i for i in range(count + 1)]
        assert (first.dtype, second.dtype, third.dtype) == (np.int32, np.int32, np.bool_)
        assert third.tolist() == [i % 2 == 0 for i in range(count)] + [False]
        assert (discount[-1], reward[-1], start[0]) == (0, 0, True)


def test_history_behaves_like_a_dict(serve):
    client = serve(reverb.Table.queue(TABLE, 10)).localhost_client()
    writer = client.trajectory_writer(3)
    writer.append({"observation": 1.0, "extras": {"a": 1}}, partial_step=True)
    assert "extras" in writer.history
    assert writer.history.get("nothing", ()) == ()
    assert sorted(writer.history) == ["extras", "observation"]
    assert sorted(type(value).__name__ for value in writer.history.values()) == ["ColumnHistory", "dict"]
    assert dict(writer.history.items())["extras"]["a"][-1].numpy() == 1


# --- Prioritized transitions, with a signature and several readers ---


def transition_signature():
    spec = reverb.TensorSpec
    return Transition(
        observation=spec((3,), np.float32),
        action=spec((), np.int32),
        reward=spec((), np.float32),
        discount=spec((), np.float32),
        next_observation=spec((3,), np.float32),
    )


def test_prioritized_replay_with_twelve_readers_and_priorities_from_another_thread(serve, connect):
    items, batch_size, updates = 400, 64, 12
    server = serve(
        reverb.Table(
            name=TABLE,
            sampler=selectors.Prioritized(0.6, seed=1),
            remover=selectors.Fifo(),
            max_size=1_000_000,
            rate_limiter=rate_limiters.SampleToInsertRatio(
                samples_per_insert=2.0, min_size_to_sample=100, error_buffer=1500.0
            ),
            signature=transition_signature(),
        )
    )
    client = connect(server)
    adder = NStepAdder(client, TABLE, 5, additional_discount=0.99)
    for seed in range(items // 25):
        adder.add_episode(make_episode(21, seed=seed))  # 21 transitions and 4 shorter ones at the end
    assert client.server_info()[TABLE].current_size == items

    fetched, lock, done = [], threading.Condition(), threading.Event()

    def read():
        while not done.is_set():
            try:
                for sample in client.sample(
                    TABLE, 50, emit_timesteps=False, unpack_as_table_signature=True, timeout=0.2
                ):
                    with lock:
                        fetched.append(sample)
                        lock.notify()
                    if done.is_set():
                        return
            except reverb.DeadlineExceededError:  # as many samples as the inserts allow
                continue

    readers = [threading.Thread(target=read, daemon=True) for _ in range(12)]
    priorities = {}
    for reader in readers:
        reader.start()
    try:
        for update in range(updates):
            with lock:
                assert lock.wait_for(lambda: len(fetched) >= batch_size, timeout=30)
                batch, fetched[:batch_size] = fetched[:batch_size], []
            assert type(batch[0].data).__name__ == "Transition"
            observations = np.stack([sample.data.observation for sample in batch])
            assert observations.shape == (batch_size, 3)
            weights = reverb.importance_weights(batch, beta=0.6)
            assert weights.shape == (batch_size,)
            assert weights.max() == 1.0
            assert weights.min() > 0
            keys = np.array([sample.info.key for sample in batch], np.uint64)
            errors = np.linspace(0.5, 2.0, batch_size).astype(np.float32) + np.float32(update)
            new = dict(zip(keys, errors, strict=True))  # keys are np.uint64, values np.float32
            sender = threading.Thread(target=client.mutate_priorities, kwargs={"table": TABLE, "updates": new}, daemon=True)
            sender.start()
            join(sender)
            priorities.update({int(key): float(priority) for key, priority in new.items()})
    finally:
        done.set()
        join(*readers)
    stored = {sample.info.key: sample.info.priority for sample in client.peek(TABLE, items)}
    assert stored == {**dict.fromkeys(stored, 1.0), **priorities}
    counted = client.server_info()[TABLE].rate_limiter_info
    assert counted.sample_stats.completed <= 2.0 * items + 1500
    # Probabilities are those of the priorities.
    total = sum(priority**0.6 for priority in stored.values())
    client.insert(Transition(np.zeros(3, np.float32), np.int32(0), np.float32(0), np.float32(0),
                             np.zeros(3, np.float32)), {TABLE: 0.0})  # fmt: skip
    sample = next(client.sample(TABLE, emit_timesteps=False, exact=True, timeout=20))
    assert sample.info.probability == pytest.approx(stored[sample.info.key] ** 0.6 / total, rel=1e-6)
    assert sample.info.table_size == items + 1


def test_an_item_that_does_not_fit_the_signature_is_refused_where_it_is_made(serve, connect):
    client = connect(serve(make_table(TABLE, signature=transition_signature())))
    adder = NStepAdder(client, TABLE, 1, additional_discount=1.0)
    adder.add_first(np.zeros(3, np.float64))
    with pytest.raises(ValueError, match="float64"):
        adder.add(Step(np.int32(0), np.float32(0), np.float32(1), np.zeros(3, np.float64)))
    loose = NStepAdder(client, TABLE, 1, additional_discount=1.0, validate_items=False)
    loose.add_episode((np.zeros(3), [Step(np.int32(0), np.float32(0), np.float32(0), np.zeros(3))]))
    assert client.server_info()[TABLE].current_size == 1


# --- One thread that acts and learns ---


def test_one_thread_inserts_and_learns_while_can_sample_is_polled(serve):
    configured = reverb.Table(
        name=TABLE,
        sampler=selectors.Uniform(seed=3),
        remover=selectors.Fifo(),
        max_size=10_000,
        rate_limiter=rate_limiters.SampleToInsertRatio(8.0, 50, 400.0),
        signature=transition_signature(),
        extensions=[],
    )
    limits = configured.info.rate_limiter_info
    window = int(max(1, (limits.max_diff - limits.min_diff) / 2))
    # Inserts must never wait for samples that the same thread would take.
    table = configured.replace(
        rate_limiter=rate_limiters.RateLimiter(
            samples_per_insert=limits.samples_per_insert,
            min_size_to_sample=limits.min_size_to_sample,
            min_diff=limits.min_diff,
            max_diff=sys.float_info.max,
        )
    )
    assert configured.info.rate_limiter_info.max_diff == limits.max_diff
    assert table.info.signature == configured.info.signature
    client = serve(table).localhost_client()
    adder = NStepAdder(client, TABLE, 1, additional_discount=0.99, max_in_flight=0)

    learned, seed, batch = 0, 0, 32
    samples = None
    deadline = time.monotonic() + 60
    while learned < 100:
        assert time.monotonic() < deadline
        adder.add_episode(make_episode(10, seed=seed))
        seed += 1
        assert not table.can_sample(1_000_000_000)
        while learned < 100 and table.can_sample(window):
            if samples is None:
                samples = client.sample(TABLE, 100 * batch, emit_timesteps=False, timeout=20)
            for _ in range(batch):
                next(samples)
            learned += 1
    info = table.info
    assert info.rate_limiter_info.insert_stats.completed == 10 * seed
    assert info.rate_limiter_info.sample_stats.completed == 100 * batch
    assert not table.can_sample(256_000)


def test_a_reader_that_does_not_drain_its_samples_blocks_no_other(serve):
    table = make_table(TABLE, limiter=rate_limiters.RateLimiter(1.0, 1, -1e9, sys.float_info.max))
    client = serve(table).localhost_client()
    client.insert(0, {TABLE: 1.0})
    abandoned = client.sample(TABLE, 1000)
    next(abandoned)
    for i in range(500):
        client.insert(i, {TABLE: 1.0}, timeout=20)
        assert table.can_sample(1)
    assert table.info.current_size == 501
    del abandoned


# --- Several tables from one writer ---


def test_one_writer_feeds_a_replay_and_a_queue_that_a_learner_mixes(serve, connect):
    signature = transition_signature()
    server = serve(
        reverb.Table("replay", selectors.Uniform(seed=5), selectors.Fifo(), 1000, rate_limiters.MinSize(1),
                     signature=signature),
        reverb.Table.queue("queue", 1000, signature=signature),
    )  # fmt: skip
    client = connect(server)
    seen = []

    def priority(trajectory):
        copies = Transition(*(column.numpy() if column != () else () for column in trajectory))
        seen.append(float(copies.reward))
        return abs(float(copies.reward)) + 1.0

    adder = NStepAdder(client, ["replay", "queue"], 3, additional_discount=1.0, priority=priority)
    expected = []
    for seed in range(4):
        episode = make_episode(16, seed=seed)
        adder.add_episode(episode)
        expected += expected_transitions(episode, 3, 1.0)
    assert len(seen) == 2 * len(expected)
    sizes = {name: info.current_size for name, info in client.server_info().items()}
    assert sizes == {"replay": len(expected), "queue": len(expected)}

    # Three of four samples from the replay, as in a mix of two streams.
    rng = np.random.default_rng(0)
    streams = {
        "replay": client.sample("replay", 10_000, emit_timesteps=False, unpack_as_table_signature=True, timeout=20),
        "queue": client.sample("queue", 10_000, emit_timesteps=False, unpack_as_table_signature=True, timeout=20),
    }
    batches, from_queue = [], []
    for _ in range(8):
        batch = []
        for _ in range(8):
            name = "replay" if rng.random() < 0.75 else "queue"
            sample = next(streams[name])
            assert sample.info.priority == pytest.approx(abs(float(sample.data.reward)) + 1.0)
            if name == "queue":
                from_queue.append(sample)
            batch.append(sample.data)
        batches.append(Transition(*(np.stack(column) for column in list(zip(*batch, strict=True))[:5])))
    stacked = Transition(*(np.concatenate(column) for column in list(zip(*batches, strict=True))[:5]))
    assert stacked.observation.shape == (64, 3)
    # Items from the queue were sampled once, in order.
    for sample, transition in zip(from_queue, expected, strict=False):
        assert_same([sample.data.observation, sample.data.action], [transition.observation, transition.action])
    assert 5 < len(from_queue) < 30


def test_one_step_in_two_tables_is_two_items_to_wait_for(serve, connect):
    client = connect(serve(make_table("free"), reverb.Table.queue("full", 1)))
    client.insert(0.0, {"full": 1.0})
    writer = client.trajectory_writer(1)
    writer.append(np.zeros(10_000))
    for table in ("free", "full"):
        writer.create_item(table, 1.0, writer.history[-1])
    writer.flush(1, timeout_ms=20_000)  # the item in `free`
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(0, timeout_ms=50)
    next(client.sample("full", timeout=20))
    writer.flush(0, timeout_ms=20_000)
