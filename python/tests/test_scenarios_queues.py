"""Scenarios: on-policy programs: every item is delivered exactly once, in order; readers restart; tables are reset."""

import itertools
import threading

from adders import EpisodeAdder, SequenceAdder, expected_sequences, make_episode
from conditions import next_in_time, wait_for_waiters
from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors


def batches(samples, size):
    """Yields full batches only, as with drop_remainder=True."""
    while True:
        batch = list(itertools.islice(samples, size))
        if len(batch) < size:
            return
        yield batch


def test_a_queue_loses_nothing_between_batches(serve, connect):
    batch_size, length, period = 16, 9, 8
    client = connect(serve(reverb.Table.queue("queue", max_size=batch_size)))
    episodes = [
        make_episode(count, seed=seed, extras=lambda i: {"log_prob": np.float32(-i), "updates": np.float32(3)})
        for seed, count in enumerate([40, 3, 200, 77, 160, 96])
    ]
    expected = [item for episode in episodes for item in expected_sequences(episode, length, period)]

    def act():
        adder = SequenceAdder(client, "queue", length, period, max_in_flight=2)
        for episode in episodes:
            adder.add_episode(episode)

    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    samples = client.sample("queue", len(expected), emit_timesteps=False, timeout=20)
    seen = [sample for batch in batches(samples, batch_size) for sample in batch]
    join(actor)
    assert len(seen) == len(expected) // batch_size * batch_size
    assert [sample.info.times_sampled for sample in seen] == [1] * len(seen)
    for sample, (action, _, observation, _, _) in zip(seen, expected, strict=False):
        assert sample.data[0].tolist() == action.tolist()
        assert sample.data[4].tolist() == observation.tolist()
        assert sample.data[2].dtype == np.float32


def test_items_sampled_once_each_with_a_ratio_of_one(serve, connect):
    batch = 8
    server = serve(
        reverb.Table(
            name="once",
            sampler=selectors.Uniform(seed=4),
            remover=selectors.Fifo(),
            max_size=10 * batch,
            rate_limiter=rate_limiters.SampleToInsertRatio(1.0, 1, error_buffer=batch),
            max_times_sampled=1,
            extensions=[],
        )
    )
    client = connect(server)
    extras = {"core_state": (np.zeros(6, np.float32), np.zeros((2, 3), np.float32))}
    adder_done = threading.Event()

    def act():
        adder = SequenceAdder(client, "once", 20, 19, truncate=False, max_in_flight=0)
        for seed in range(20):
            adder.add_episode(make_episode(58, seed=seed, extras=lambda i: extras))  # 3 sequences
        adder_done.set()

    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    keys = []
    for sample in client.sample("once", 60, emit_timesteps=False, timeout=20):
        assert [column.shape for column in sample.data] == [
            (20,), (20,), (20, 6), (20, 2, 3), (20, 3), (20,), (20,),
        ]  # fmt: skip
        keys.append(sample.info.key)
    join(actor)
    assert adder_done.is_set()
    assert len(set(keys)) == 60
    info = client.server_info()["once"]
    assert (info.current_size, info.num_unique_samples) == (0, 60)


def test_whole_episodes_of_up_to_two_thousand_steps(serve, connect):
    spec = reverb.TensorSpec
    signature = {
        "action": spec((None,), np.int32),
        "discount": spec((None,), np.float32),
        "extras": (spec((None,), np.int32), spec((None,), np.bool_)),
        "observation": spec((None, 3), np.float32),
        "reward": spec((None,), np.float32),
        "start_of_episode": spec((None,), np.bool_),
    }
    client = connect(serve(reverb.Table.queue("episodes", 10, signature=signature)))
    adder = EpisodeAdder(client, "episodes", 2001)
    for count in (2000, 1, 700):
        adder.add_episode(make_episode(count, extras=lambda i: (np.int32(i), i > 5)))
    samples = client.sample("episodes", 3, emit_timesteps=False, unpack_as_table_signature=True, timeout=20)
    for sample, count in zip(samples, (2000, 1, 700), strict=True):
        assert sample.data["extras"][0].tolist() == [*range(count), 0]
        assert sample.data["observation"].shape == (count + 1, 3)


# --- Two tables that are emptied after every iteration ---


def test_readers_that_are_made_anew_for_every_iteration(serve, connect):
    server = serve(
        *(
            make_table(name, max_times_sampled=1, limiter=rate_limiters.MinSize(1))
            for name in ("training", "normalization")
        )
    )
    client = connect(server)
    length, episodes = 256, 4
    for iteration in range(10):
        writer = client.trajectory_writer(length, validate_items=False)
        for episode in range(episodes):
            for i in range(length):
                writer.append({"reward": np.float32(i), "tag": iteration * 100 + episode})
            for table in ("training", "normalization"):
                writer.create_item(table, 1, {name: column[-length:] for name, column in writer.history.items()})
            writer.end_episode()
        writer.close()
        for table in ("training", "normalization"):
            tags = []
            with pytest.raises(reverb.DeadlineExceededError):  # requests more than there is, and times out
                samples = client.sample(table, 100, emit_timesteps=False, timeout=0.05)
                while True:
                    sample = next_in_time(samples) if len(tags) < episodes else next(samples)
                    assert len(sample.data[0]) == length
                    tags.append(int(sample.data[1][0]))
            assert tags == [iteration * 100 + episode for episode in range(episodes)]
            del samples
        wait_for_waiters(client, 0)  # the server has noticed that the readers ended
        for table in ("training", "normalization"):
            client.reset(table)
    info = client.server_info()["training"]
    assert (info.current_size, info.num_episodes, info.rate_limiter_info.insert_stats.completed) == (0, 0, 0)


def test_an_abandoned_reader_ends_at_once(serve, connect):
    client = connect(serve(make_table("empty")))
    for _ in range(20):
        samples = client.sample("empty", 10, timeout=0.01)
        with pytest.raises(reverb.DeadlineExceededError):
            next(samples)
        del samples
    client.insert(1, {"empty": 1.0})
    assert next(client.sample("empty", timeout=20))[0].data == [1]


# --- Replay of fixed windows, as an observer writes them ---


def test_an_observer_writes_the_last_two_steps_after_every_step(serve, connect):
    table = reverb.Table("uniform_table", max_size=int(1e3), sampler=selectors.Uniform(seed=6),
                         remover=selectors.Fifo(), rate_limiter=rate_limiters.MinSize(1))  # fmt: skip
    client = connect(serve(table))
    length = 2
    writer = client.trajectory_writer(num_keep_alive_refs=length + 1, validate_items=False)
    written = []
    for episode, count in enumerate([5, 1, 30]):
        for i in range(count):
            writer.append((np.float32([episode, i]), {"action": i}))
            if writer.episode_steps >= length:
                trajectory = (writer.history[0][-length:], {"action": writer.history[1]["action"][-length:]})
                writer.create_item(table="uniform_table", trajectory=trajectory, priority=1)
                written.append((episode, i))
        writer.end_episode(clear_buffers=True)
    info = client.server_info()["uniform_table"]
    assert info.current_size == len(written) == 33
    assert not info.sampler_options.is_deterministic
    assert info.remover_options.is_deterministic

    # 32 streams at a time, each only partly consumed.
    streams = [client.sample("uniform_table", 6, emit_timesteps=False, timeout=20) for _ in range(32)]
    batch = [next(stream) for stream in streams for _ in range(2)]
    seen = {(int(s.data[0][1, 0]), int(s.data[0][1, 1])) for s in batch}
    assert seen <= set(written)
    assert len(seen) > 10
    for sample in batch:
        state, action = sample.data
        assert action[1] == action[0] + 1
        assert state[0, 0] == state[1, 0]
        # A typical use of the info: once for each step.
        assert np.full(length, sample.info.key, np.uint64).tolist() == [sample.info.key] * length
        assert sample.info.probability == pytest.approx(1 / 33)


def test_zero_padding_at_the_boundary_keeps_the_shape(serve, connect):
    client = connect(serve(make_table("table", max_times_sampled=1)))
    writer = client.trajectory_writer(3, validate_items=False)
    writer.append({"x": np.float32([1, 2])})
    for _ in range(2):
        writer.append({"x": np.zeros_like(writer.history["x"][-1].numpy())})
    writer.create_item("table", 1.0, {"x": writer.history["x"][:]})
    writer.flush()
    sample = next(client.sample("table", emit_timesteps=False))
    assert sample.data[0].tolist() == [[1, 2], [0, 0], [0, 0]]


# --- Newest model first ---


def test_the_newest_models_episodes_are_sampled_first_and_the_oldest_evicted_first(serve, connect):
    server = serve(
        reverb.Table("training_table_0", selectors.MaxHeap(), selectors.MinHeap(), 4, rate_limiters.MinSize(1), 2)
    )
    client = connect(server)
    writer = client.trajectory_writer(20)

    class Version:
        """A number that lives elsewhere, and is read when it is needed."""

        def __init__(self, value):
            self._value = value

        def __float__(self):
            return float(self._value)

    for version, length in [(1, 5), (3, 2), (2, 9), (3, 4), (1, 1), (2, 7)]:
        for i in range(length):
            writer.append({"graph": {"nodes": np.full(3, version, np.int32)}, "step": i})
        nodes, steps = writer.history["graph"]["nodes"][:], writer.history["step"][:]
        writer.create_item("training_table_0", Version(version), {"nodes": nodes, "steps": steps})
        writer.end_episode()
    # Both items of version 1 were evicted. Each item is sampled twice; among equals, the oldest comes first.
    samples = list(client.sample("training_table_0", 8, emit_timesteps=False, timeout=20))
    assert [(s.info.priority, len(s.data[1])) for s in samples] == [
        (3, 2), (3, 2), (3, 4), (3, 4), (2, 9), (2, 9), (2, 7), (2, 7),
    ]  # fmt: skip
    assert client.server_info()["training_table_0"].current_size == 0
