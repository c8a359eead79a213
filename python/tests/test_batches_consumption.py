"""Tests that a batch which cannot be returned takes nothing from a queue, and batches that are drawn as a whole."""

from __future__ import annotations

import sys
import threading

from conditions import next_in_time, wait_for_waiters, wait_until
from conftest import join, make_table
import numpy as np
import pytest

import reverb

PATIENCE = 60


@pytest.fixture
def queues(serve, connect):
    """A client of queues: "queue", "any" with layout="any", "small" with room for 3 items, and "stack"."""
    server = serve(
        reverb.Table.queue("queue", 100), reverb.Table.queue("any", 100, layout="any"), reverb.Table.queue("small", 3),
        reverb.Table.stack("stack", 100), make_table("table"),
    )  # fmt: skip
    return connect(server)


def write_lengths(client, table, lengths):
    with client.trajectory_writer(10) as writer:
        for length in lengths:
            for i in range(length):
                writer.append({"x": i})
            writer.create_item(table, 1.0, {"x": writer.history["x"][-length:]})
            writer.end_episode()


def sizes(client, *tables):
    info = client.server_info()
    return [info[table].current_size for table in tables]


def fill(client, table, count):
    for i in range(count):
        client.insert({"x": i}, {table: 1.0})


def drain(client, table):
    count = client.server_info()[table].current_size
    return [step.data[0].tolist() for (step,) in client.sample(table, count)] if count else []


# --- Batches that cannot be built ---


def test_unequal_lengths_take_nothing(queues):
    write_lengths(queues, "queue", [2, 2, 3, 3])
    with pytest.raises(ValueError, match=r"sample 2 .*column 'x': it is int64\[3\] while .* int64\[2\]; set `pad`.*no item"):
        next(queues.sample_batches("queue", 3, timeout=PATIENCE))
    info = queues.server_info()["queue"]
    assert (info.current_size, info.rate_limiter_info.sample_stats.completed, info.num_unique_samples) == (4, 0, 0)
    # In the order of the queue, and with padding.
    batch = next(queues.sample_batches("queue", 2, timeout=PATIENCE))
    assert batch.data["x"].tolist() == [[0, 1], [0, 1]]
    batch = next(queues.sample_batches("queue", 2, timeout=PATIENCE, pad=True))
    assert batch.data["x"].tolist() == [[0, 1, 2], [0, 1, 2]]


def test_mixed_layouts_take_nothing_and_show_both(queues):
    queues.insert({"x": 1}, {"any": 1.0})
    queues.insert({"x": 1, "y": 2.0}, {"any": 1.0})
    for pad in (False, True):
        with pytest.raises(ValueError, match=r"2 columns while .* 1; .*: \[int64\[1\], float64\[1\]\] and \[int64\[1\]\]"):
            next(queues.sample_batches("any", 2, timeout=PATIENCE, pad=pad))
    assert sizes(queues, "any") == [2]
    assert next(queues.sample_batches("any", 1, timeout=PATIENCE)).data[0].tolist() == [[1]]


@pytest.mark.parametrize("num_samples", [1, 2])
@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_items_without_steps_stay_in_the_queue(queues, num_samples, all_or_nothing):
    with queues.trajectory_writer(3) as writer:
        for i in range(3):
            writer.append({"x": i, "y": -i})
        for _ in range(2):
            writer.create_item("queue", 1.0, {"x": writer.history["x"][:], "y": writer.history["y"][-2:]})
    with pytest.raises(ValueError, match=r"column 'y': it is int64\[2\] while .*int64\[3\].*Can't split non timestep .*no item"):
        next(queues.sample("queue", num_samples, all_or_nothing=all_or_nothing, timeout=PATIENCE))
    assert sizes(queues, "queue") == [2]
    samples = list(queues.sample("queue", 2, emit_timesteps=False, names=True, timeout=PATIENCE))
    assert [sample.data["y"].tolist() for sample in samples] == [[-1, -2]] * 2


@pytest.mark.parametrize("table", ["queue", "stack"])
def test_the_order_stays_after_a_refused_batch(queues, table):
    fill(queues, table, 3)
    write_lengths(queues, table, [2])
    if table == "queue":
        expected = [[0], [1], [2]]
    else:
        expected = [[2], [1], [0]]
        fill(queues, table, 1)  # [0] is the newest, then [0, 1]
    with pytest.raises(ValueError, match="while the batch has"):
        next(queues.sample_batches(table, 4, timeout=PATIENCE))
    if table == "stack":
        assert next(queues.sample_batches(table, 1, timeout=PATIENCE)).data["x"].tolist() == [[0]]
        assert next(queues.sample_batches(table, 1, timeout=PATIENCE)).data["x"].tolist() == [[0, 1]]
    assert next(queues.sample_batches(table, 3, timeout=PATIENCE)).data["x"].tolist() == expected


def test_items_that_may_be_sampled_twice(serve, connect):
    client = connect(serve(make_table(max_times_sampled=2, sampler=reverb.selectors.Fifo())))
    write_lengths(client, "table", [1, 2])
    with pytest.raises(ValueError, match="sample 2 "):
        next(client.sample_batches("table", 3, timeout=PATIENCE))
    assert sizes(client, "table") == [2]
    batch = next(client.sample_batches("table", 2, timeout=PATIENCE))
    assert batch.data["x"].tolist() == [[0], [0]]
    assert batch.info.times_sampled.tolist() == [1, 2]
    assert sizes(client, "table") == [1]


def test_an_unknown_dtype_takes_nothing(queues, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    queues.insert({"x": np.array(1, ml_dtypes.bfloat16)}, {"queue": 1.0})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    plain = reverb.Client(queues.server_address, in_process=True)
    other = reverb.Client(queues.server_address, in_process=False, local=False)
    for client in (plain, other):
        for call in (
            lambda client=client: next(client.sample("queue", timeout=PATIENCE)),
            lambda client=client: next(client.sample("queue", 2, timeout=PATIENCE)),
            lambda client=client: next(client.sample_batches("queue", 1, timeout=PATIENCE)),
        ):
            with pytest.raises(ValueError, match="column 'x': this client cannot represent bfloat16; .*install ml_dtypes"):
                call()
    assert sizes(queues, "queue") == [1]
    monkeypatch.undo()
    assert next(queues.sample("queue", timeout=PATIENCE))[0].data[0] == 1


def test_a_batch_larger_than_the_queue_is_taken_in_parts(queues):
    def write():
        fill(queues, "small", 8)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    batch = next(queues.sample_batches("small", 8, timeout=PATIENCE))
    assert batch.data["x"].ravel().tolist() == list(range(8))
    join(writer)


# --- all_or_nothing ---


def test_a_remainder_stays(queues):
    fill(queues, "queue", 5)
    with pytest.raises(reverb.DeadlineExceededError):
        next(queues.sample_batches("queue", 8, timeout=0.1, all_or_nothing=True))
    with pytest.raises(reverb.DeadlineExceededError):
        next(queues.sample("queue", 8, timeout=0.1, all_or_nothing=True))
    # The server cancels the draws when the iterators are gone.
    wait_until(lambda: queues.server_info()["queue"].waiting_samples == 0, what="no draw waits")
    assert sizes(queues, "queue") == [5]
    assert next(queues.sample_batches("queue", 5, timeout=PATIENCE, all_or_nothing=True)).data["x"].shape == (5, 1)
    assert sizes(queues, "queue") == [0]


def test_a_batch_waits_until_it_is_complete(queues):
    batches = queues.sample_batches("queue", 4, timeout=PATIENCE, all_or_nothing=True)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(next(batches)), daemon=True)
    thread.start()
    wait_for_waiters(queues, 1)
    fill(queues, "queue", 3)
    assert (taken, sizes(queues, "queue")) == ([], [3])
    fill(queues, "queue", 1)
    join(thread)
    assert taken[0].data["x"].ravel().tolist() == [0, 1, 2, 0]


def test_two_ranks_share_a_queue(queues):
    fill(queues, "queue", 10)
    ranks = [reverb.Client(queues.server_address, in_process=False, local=False) for _ in range(2)]
    iterators = [rank.sample_batches("queue", 4, timeout=0.2, all_or_nothing=True) for rank in ranks]
    taken = [next_in_time(iterator).data["x"].ravel().tolist() for iterator in iterators]
    assert taken == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for iterator in iterators:
        with pytest.raises(reverb.DeadlineExceededError):
            next(iterator)
        iterator.close()
    wait_until(lambda: queues.server_info()["queue"].waiting_samples == 0, what="no draw waits")
    assert drain(queues, "queue") == [8, 9]


def test_samples_one_by_one(queues):
    fill(queues, "queue", 6)
    assert [step.data[0] for (step,) in queues.sample("queue", 6, timeout=PATIENCE, all_or_nothing=True)] == [*range(6)]
    fill(queues, "queue", 1)
    assert next(queues.sample("queue", 1, timeout=PATIENCE, all_or_nothing=True))[0].data == [0]


def test_replay_tables_with_prefetching(queues):
    fill(queues, "table", 3)
    batches = queues.sample_batches("table", 7, num_batches=5, timeout=PATIENCE, all_or_nothing=True, prefetch=3)
    assert [batch.data["x"].shape for batch in batches] == [(7, 1)] * 5
    assert queues.server_info()["table"].rate_limiter_info.sample_stats.completed == 35


def test_a_limiter_admits_a_whole_batch(serve, connect):
    limiter = reverb.rate_limiters.SampleToInsertRatio(samples_per_insert=2.0, min_size_to_sample=1, error_buffer=10)
    client = connect(serve(make_table(limiter=limiter)))
    fill(client, "table", 2)
    before = client.server_info()["table"].rate_limiter_info.sample_stats.completed
    with pytest.raises(reverb.DeadlineExceededError):
        next(client.sample_batches("table", 15, timeout=0.1, all_or_nothing=True))
    assert client.server_info()["table"].rate_limiter_info.sample_stats.completed == before == 0
    assert next(client.sample_batches("table", 10, timeout=PATIENCE, all_or_nothing=True)).data["x"].shape == (10, 1)


def test_impossible_batches(queues):
    with pytest.raises(ValueError, match=r"4 samples can never be drawn together \(all_or_nothing\): max_size is 3"):
        next(queues.sample_batches("small", 4, timeout=PATIENCE, all_or_nothing=True))
    with pytest.raises(ValueError, match="can never be drawn together"):
        next(queues.sample("small", 4, timeout=PATIENCE, all_or_nothing=True))


def test_several_servers(serve):
    servers = [serve(reverb.Table.queue("queue", 10)) for _ in range(2)]
    both = reverb.Client([f"localhost:{server.port}" for server in servers], in_process=False, local=False)
    for server, count in zip(servers, (3, 4), strict=True):
        fill(server.localhost_client(), "queue", count)
    batches = both.sample_batches("queue", 3, timeout=PATIENCE, all_or_nothing=True)
    # A batch has its share of each server, whose items are all there or none.
    taken = [next(batches).data["x"].ravel().tolist() for _ in range(2)]
    assert [len(batch) for batch in taken] == [3, 3]
    left = [server.localhost_client().server_info()["queue"].current_size for server in servers]
    assert sum(left) == 1
    assert sorted(sum(taken, [])) == sorted([*range(3 - left[0]), *range(4 - left[1])])
