"""Leases: samples that are consumed only when they are acknowledged."""

from __future__ import annotations

import gc
import os
import signal

from conditions import next_in_time, wait_that_names_its_reason
import numpy as np
from processes import pool
import pytest
import transports

import reverb
from reverb.leases import LeasedPaddedBatch, LeasedSample, LeasedTimesteps, LeaseOutcome


@pytest.fixture
def server():
    server = reverb.Server([reverb.Table.queue("queue", 100)])
    yield server
    server.stop()


@pytest.fixture(params=transports.ALL)
def client(server, request):
    return transports.connect(server, request.param)


def fill(client, count, start=0):
    for i in range(start, start + count):
        client.insert({"x": np.int64(i)}, {"queue": 1.0})


def info(client):
    return client.server_info()["queue"]


def values(client, count, **options):
    samples = client.sample("queue", count, emit_timesteps=False, timeout=30, **options)
    return [int(sample.data[0][0]) for sample in samples]


def test_the_next_iteration_acknowledges(client):
    fill(client, 3)
    seen = []
    for sample in client.sample("queue", 2, emit_timesteps=False, lease=60.0, timeout=30):
        assert isinstance(sample, LeasedSample)
        assert isinstance(sample, reverb.ReplaySample)
        assert sample.is_held
        seen.append(int(sample.data[0][0]))
        assert (info(client).leased_items, info(client).current_size) == (1, 4 - len(seen))
    assert seen == [0, 1]
    assert (info(client).leased_items, info(client).current_size, info(client).leases_acknowledged) == (0, 1, 2)
    assert info(client).rate_limiter_info.sample_stats.completed == 2


def test_dropping_or_closing_an_iterator_releases_the_last_sample(client):
    fill(client, 2)

    def fail():
        for _ in client.sample("queue", 2, lease=60.0, timeout=30):
            raise KeyError("learner")

    with pytest.raises(KeyError, match="learner"):
        fail()
    gc.collect()  # the frames of the exception
    assert info(client).leased_items == 0
    samples = client.sample("queue", 2, lease=60.0, timeout=30)
    next(samples)
    assert info(client).leased_items == 1
    samples.close()
    assert info(client).leased_items == 0
    assert values(client, 2) == [0, 1]
    assert info(client).leases_expired == 0


def test_samples_are_settled_one_by_one(client):
    fill(client, 2)
    samples = client.sample("queue", 2, emit_timesteps=False, lease=60.0, timeout=30)
    first = next(samples)
    assert first.extend(120) == LeaseOutcome(settled=1, gone=0, expired=0)
    assert first.release() == LeaseOutcome(1, 0, 0)
    assert not first.is_held
    assert first.ack() == LeaseOutcome(0, 0, 0)
    with pytest.raises(RuntimeError, match="acknowledged or released"):
        first.extend(1)
    again = next(samples)
    assert again.info.key == first.info.key
    assert again.ack() == LeaseOutcome(1, 0, 0)
    assert info(client).current_size == 1


def test_timesteps_have_one_lease(client):
    fill(client, 1)
    steps = next(client.sample("queue", lease=60.0, timeout=30))
    assert isinstance(steps, LeasedTimesteps)
    assert [step.data for step in steps] == [[0]]
    assert steps.ack().settled == 1
    assert info(client).current_size == 0


def test_batches_are_settled_together(client):
    fill(client, 6)
    batches = client.sample_batches("queue", 2, lease=60.0, timeout=30)
    first = next(batches)
    assert isinstance(first, LeasedSample)
    assert first.data["x"].tolist() == [[0], [1]]
    assert first.ack() == LeaseOutcome(2, 0, 0)
    second = next(batches)
    assert second.data["x"].tolist() == [[2], [3]]
    assert second.release() == LeaseOutcome(2, 0, 0)
    batches.close()
    (padded,) = client.sample_batches("queue", 2, num_batches=1, pad=True, lease=60.0, timeout=30)
    assert isinstance(padded, LeasedPaddedBatch)
    assert padded.data["x"].tolist() == [[2], [3]]
    assert padded.lengths["x"].tolist() == [1, 1]
    assert not padded.is_held, "the end of the iteration has acknowledged it"
    assert info(client).current_size == 2


def test_items_of_a_leased_batch_are_distinct():
    server = reverb.Server(
        [reverb.Table("t", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1))]
    )
    client = server.localhost_client()
    for i in range(10):
        client.insert({"x": i}, {"t": 1.0})
    for batch in client.sample_batches("t", 10, num_batches=3, lease=60.0, timeout=30):
        assert len(set(batch.info.key.tolist())) == 10
    assert client.server_info()["t"].num_unique_samples == 10
    assert next(client.sample("t", emit_timesteps=False)).info.times_sampled == 4
    server.stop()


def test_all_or_nothing_leases_a_whole_batch_or_none(client):
    fill(client, 3)
    batches = client.sample_batches("queue", 4, all_or_nothing=True, lease=60.0, timeout=0.1)
    with pytest.raises(reverb.DeadlineExceededError):
        next(batches)
    assert info(client).leased_items == 0
    fill(client, 1, start=3)
    assert next_in_time(batches).data["x"].tolist() == [[0], [1], [2], [3]]
    batches.close()


def test_an_expired_item_goes_to_another_consumer(client):
    fill(client, 1)
    slow = next(client.sample("queue", emit_timesteps=False, lease=0.3, timeout=30))
    sample = next(client.sample("queue", emit_timesteps=False, lease=60.0, timeout=30))  # once the first has expired
    assert sample.info.key == slow.info.key
    assert slow.ack() == LeaseOutcome(0, 0, 1)
    assert sample.ack() == LeaseOutcome(1, 0, 0)
    assert info(client).leases_expired >= 1  # more if the first sample arrived too late, and came again
    assert info(client).leases_late == 1


def test_items_that_left_the_table_are_reported(client):
    fill(client, 2)
    batch = next(client.sample_batches("queue", 2, lease=60.0, timeout=30))
    client.mutate_priorities("queue", deletes=batch.info.key.tolist()[:1])
    assert batch.ack() == LeaseOutcome(settled=1, gone=1, expired=0)
    fill(client, 1)
    batch = next(client.sample_batches("queue", 1, lease=60.0, timeout=30))
    client.reset("queue")
    assert batch.ack() == LeaseOutcome(settled=0, gone=0, expired=1)


def test_a_waiting_consumer_learns_that_items_are_leased(client):
    fill(client, 1)
    holder = client.sample("queue", lease=60.0, timeout=30)
    next(holder)
    waiting = client.sample("queue", 2, lease=60.0, timeout=0.1)
    assert "1 item is leased" in str(wait_that_names_its_reason(lambda: next(waiting)))
    holder.close()


@pytest.mark.parametrize("lease", [0, -1, 0.0, float("nan"), float("inf"), True, False, 1e10, "3", [1.0]])
def test_wrong_leases_are_refused(client, lease):
    with pytest.raises(ValueError, match=r"lease \(.*\) must be a positive finite number"):
        client.sample("queue", lease=lease)
    with pytest.raises(ValueError, match=r"lease \(.*\) must be a positive finite number"):
        client.sample_batches("queue", 2, lease=lease)


def test_wrong_extensions_are_refused(client):
    fill(client, 1)
    samples = client.sample("queue", lease=60.0, timeout=30)
    sample = next(samples)
    for seconds in (0, -1.0, float("nan"), True, None):
        with pytest.raises(ValueError, match=r"seconds \(.*\) must be a positive"):
            sample.extend(seconds)
    assert sample.extend(1).settled == 1
    samples.close()


def test_a_checkpoint_has_leased_items_as_not_consumed(tmp_path):
    def start():
        return reverb.Server(
            [reverb.Table.queue("queue", 100)], checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
        )

    server = start()
    client = server.localhost_client()
    fill(client, 4)
    batches = client.sample_batches("queue", 2, lease=600.0, timeout=30)
    next(batches)
    batch = next(batches)
    assert batch.data["x"].tolist() == [[2], [3]]
    client.checkpoint()
    server.stop()
    server = start()
    client = server.localhost_client()
    assert (info(client).current_size, info(client).leased_items) == (2, 0)
    assert info(client).rate_limiter_info.sample_stats.completed == 2
    assert values(client, 2, lease=60.0) == [2, 3]
    server.stop()


def _consume(results, stop, port, lease, name):
    """Reports (name, value) of each item before it acknowledges it."""
    client = reverb.Client(f"localhost:{port}", in_process=False)
    for sample in client.sample("queue", 2**40, emit_timesteps=False, lease=lease):
        results.put((name, int(sample.data[0][0])))
        if stop.is_set():
            return


def _hold(results, _stop, port):
    """Acknowledges one batch, then holds another forever."""
    client = reverb.Client(f"localhost:{port}", in_process=False)
    batches = client.sample_batches("queue", 5, lease=60.0)
    results.put(("consumed", next(batches).data["x"][:, 0].tolist()))
    held = next(batches)
    held.extend(1.0)
    results.put(("held", held.data["x"][:, 0].tolist()))
    signal.pause()


def test_a_killed_consumer_loses_nothing(server):
    client = server.localhost_client()
    fill(client, 20)
    with pool(grace=0) as processes:
        holder = processes.start(_hold, server.port)
        (_, consumed), (_, held) = processes.take(2)
        os.kill(holder.pid, signal.SIGKILL)
        holder.join(60)
    assert (consumed, held) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])
    # Two living consumers get the rest, each item once, among them those of the dead one.
    with pool() as processes:
        for name in ("a", "b"):
            processes.start(_consume, server.port, 60.0, name)
        seen = [value for _, value in processes.take(15)]
        assert sorted(seen) == list(range(5, 20))
    assert info(client).leases_expired == 5


def test_minus_one_gives_no_samples(client):
    assert list(client.sample("queue", -1, lease=60.0)) == []


def test_two_consumers_do_not_hold_parts_of_batches(client):
    fill(client, 10)
    first, second = (client.sample_batches("queue", 8, lease=60.0, timeout=timeout) for timeout in (30, 0.1))
    assert next(first).data["x"].tolist() == [[i] for i in range(8)]
    assert "8 items are leased" in str(wait_that_names_its_reason(lambda: next(second)))
    assert info(client).leased_items == 8
    first.close()
    second.close()
    assert (info(client).current_size, info(client).leases_expired) == (10, 0)


def test_a_batch_that_can_never_be_leased_is_refused(client):
    with pytest.raises(ValueError, match="101 samples can never be leased together"):
        next(client.sample_batches("queue", 101, lease=60.0, timeout=30))
