"""Tests Client.sample_batches: shapes, structure, memory, padding, order, ends, errors."""

from __future__ import annotations

import gc
import os
import threading

from conditions import next_in_time, wait_for_waiters, wait_until
import numpy as np
import pytest
import transports

import reverb
from reverb import errors
from reverb.replay_sample import PaddedBatch, ReplaySample


def make_table(name="replay", *, signature=None, size=1000, sampler=None, **kwargs):
    return reverb.Table(
        name=name,
        sampler=sampler or reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=size,
        rate_limiter=kwargs.pop("rate_limiter", reverb.rate_limiters.MinSize(1)),
        signature=signature,
        **kwargs,
    )


def write_transitions(client, count, table="replay"):
    """Writes items; item i has the observations i and i + 1, and the reward -i."""
    with client.trajectory_writer(2) as writer:
        for i in range(count + 1):
            writer.append({"obs": np.full(3, i, np.float32), "reward": np.float64(-i)})
            if i > 0:
                writer.create_item(
                    table,
                    priority=float(i),
                    trajectory={
                        "next_obs": writer.history["obs"][-1],
                        "obs": writer.history["obs"][-2],
                        "reward": writer.history["reward"][-2:-1],
                    },
                )


SIGNATURE = {
    "next_obs": reverb.TensorSpec((3,), np.float32),
    "obs": reverb.TensorSpec((3,), np.float32),
    "reward": reverb.TensorSpec((None,), np.float64),
}


@pytest.fixture(params=transports.ALL)
def transport(request):
    return request.param


def write_lengths(client, lengths, table="replay"):
    """Writes an item of each length, with the values 1, 2, 3…"""
    with client.trajectory_writer(max(lengths)) as writer:
        for length in lengths:
            for i in range(length):
                writer.append({"x": np.array([i + 1, -i - 1], np.int32), "word": f"w{i}"})
            writer.create_item(
                table, 1.0, {"word": writer.history["word"][-length:], "x": writer.history["x"][-length:]}
            )
            writer.end_episode()


def test_a_batch_has_the_structure_of_the_signature(serve, transport):
    client = transports.connect(serve(make_table(signature=SIGNATURE, sampler=reverb.selectors.MaxHeap())), transport)
    write_transitions(client, 5)
    (batch,) = client.sample_batches("replay", 4, num_batches=1)
    assert isinstance(batch, ReplaySample)
    assert set(batch.data) == {"obs", "next_obs", "reward"}
    # Item 5 has the highest priority, and sampling does not change that.
    np.testing.assert_array_equal(batch.data["obs"], np.full((4, 3), 4, np.float32))
    np.testing.assert_array_equal(batch.data["next_obs"], np.full((4, 3), 5, np.float32))
    np.testing.assert_array_equal(batch.data["reward"], np.full((4, 1), -4.0))
    assert batch.data["obs"].dtype == np.float32
    assert batch.data["reward"].dtype == np.float64


def test_without_a_signature_it_has_the_structure_that_the_writer_used(serve, transport):
    client = transports.connect(serve(make_table()), transport)
    write_transitions(client, 2)
    batch = next(client.sample_batches("replay", 3))
    assert {name: column.shape for name, column in batch.data.items()} == {
        "next_obs": (3, 3),
        "obs": (3, 3),
        "reward": (3, 1),
    }


def test_info_has_arrays(serve, transport):
    client = transports.connect(serve(make_table(max_times_sampled=2)), transport)
    write_transitions(client, 2)
    batch = next(client.sample_batches("replay", 4, num_batches=1))
    assert [field.dtype for field in batch.info] == [np.uint64, np.float64, np.int64, np.float64, np.int32]
    assert all(field.shape == (4,) for field in batch.info)
    assert batch.info.priority.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert batch.info.times_sampled.tolist() == [1, 2, 1, 2]
    assert batch.info.table_size.tolist() == [2, 2, 1, 1]
    assert batch.info.probability.tolist() == [1.0] * 4
    assert batch.info.key[0] == batch.info.key[1] != batch.info.key[2]


def test_batches_follow_the_order_of_the_table(serve, transport):
    server = serve(reverb.Table.queue("replay", 1000))
    client = transports.connect(server, transport)
    for i in range(60):
        client.insert([np.int64(i)], {"replay": 1.0})
    batches = list(client.sample_batches("replay", 20, num_batches=3))
    assert np.concatenate([b.data[0].ravel() for b in batches]).tolist() == list(range(60))
    assert client.server_info()["replay"].current_size == 0


def test_a_queue_is_not_read_ahead(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 1000)), transport)
    for i in range(50):
        client.insert([np.int64(i)], {"replay": 1.0})
    batches = client.sample_batches("replay", 10)
    next(batches)
    batches.close()
    assert client.server_info()["replay"].current_size == 40
    with pytest.raises(StopIteration):
        next(batches)


def test_num_batches_takes_no_more(serve, transport):
    client = transports.connect(serve(make_table()), transport)
    write_transitions(client, 5)
    assert len(list(client.sample_batches("replay", 7, num_batches=11, prefetch=5))) == 11
    info = client.server_info()["replay"].rate_limiter_info
    assert info.sample_stats.completed == 77


def test_arrays_are_the_callers(serve, transport):
    client = transports.connect(serve(make_table(signature=SIGNATURE)), transport)
    write_transitions(client, 8)
    batches = client.sample_batches("replay", 16)
    kept = [next(batches) for _ in range(6)]
    before = [batch.data["obs"].copy() for batch in kept]
    for batch in kept:
        leaves = [*batch.data.values(), *batch.info]
        for leaf in leaves:
            assert leaf.flags.c_contiguous
            assert leaf.flags.writeable
            assert leaf.ctypes.data % 64 == 0
            np.testing.assert_array_equal(np.from_dlpack(leaf), leaf)
    assert len({batch.data["obs"].ctypes.data for batch in kept}) == 6
    for _ in range(20):
        next(batches).data["obs"][:] = -1  # the array is the caller's: later batches must not show this
    for batch, values in zip(kept, before, strict=True):
        np.testing.assert_array_equal(batch.data["obs"], values)
    view = kept[0].data["obs"][3:5]
    expected = view.copy()
    batches.close()
    del kept, batches, client, batch, leaves, leaf
    gc.collect()
    np.testing.assert_array_equal(view, expected)


def test_memory_is_used_again(serve, transport):
    client = transports.connect(serve(make_table()), transport)
    write_transitions(client, 8)
    addresses = set()
    for batch in client.sample_batches("replay", 64, num_batches=50):
        addresses.add(batch.data["next_obs"].ctypes.data)
    assert len(addresses) <= 4  # two batches at a time, each with two columns of this size


def test_items_of_different_lengths_are_refused(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 10)), transport)
    write_lengths(client, [2, 3])
    with pytest.raises(ValueError, match=r"column 'word': it is string\[3\] while the batch has string\[2\]; set `pad`"):
        next(client.sample_batches("replay", 2))


def test_padding(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 10)), transport)
    write_lengths(client, [2, 4, 1])
    (batch,) = client.sample_batches("replay", 3, num_batches=1, pad=True)
    assert isinstance(batch, PaddedBatch)
    word, x = batch.data["word"], batch.data["x"]
    np.testing.assert_array_equal(x[:, :, 0], [[1, 2, 0, 0], [1, 2, 3, 4], [1, 0, 0, 0]])
    np.testing.assert_array_equal(x[:, :, 1], [[-1, -2, 0, 0], [-1, -2, -3, -4], [-1, 0, 0, 0]])
    assert word.tolist() == [
        [b"w0", b"w1", b"", b""],
        [b"w0", b"w1", b"w2", b"w3"],
        [b"w0", b"", b"", b""],
    ]
    assert {name: lengths.tolist() for name, lengths in batch.lengths.items()} == {"word": [2, 4, 1], "x": [2, 4, 1]}
    info, data = batch  # unpacks like any ReplaySample
    assert data is batch.data
    assert info is batch.info


def test_padding_fills_memory_that_was_used_before(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 1000)), transport)
    rng = np.random.default_rng(1)
    lengths = [int(n) for n in rng.integers(1, 9, 200)]
    write_lengths(client, lengths)
    for i, batch in enumerate(client.sample_batches("replay", 4, num_batches=50, pad=True)):
        expected = lengths[4 * i : 4 * i + 4]
        assert batch.lengths["x"].tolist() == expected
        steps = np.arange(1, max(expected) + 1)
        np.testing.assert_array_equal(
            batch.data["x"][:, :, 0], [[step if step <= length else 0 for step in steps] for length in expected]
        )
        batch.data["x"][:] = 77  # part of the memory of a later batch


def test_other_dtypes_cannot_be_padded(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 10, layout="any")), transport)
    client.insert([np.int32(1)], {"replay": 1.0})
    client.insert([np.int64(1)], {"replay": 1.0})
    with pytest.raises(
        ValueError, match=r"sample 1 \(key \d+\), column '0': it is int64\[1\] while the batch has int32\[1\]"
    ):
        next(client.sample_batches("replay", 2, pad=True))


def test_exact_batches_see_every_update(serve, transport):
    client = transports.connect(serve(make_table(sampler=reverb.selectors.MaxHeap())), transport)
    for _ in range(5):
        client.insert([np.int64(0)], {"replay": 1.0})
    seen = []
    for batch in client.sample_batches("replay", 4, num_batches=5, exact=True):
        assert len(set(batch.info.key.tolist())) == 1
        seen.append(batch.info.key[0])
        client.update_priorities("replay", [seen[-1]], [0.0])
    assert len(set(seen)) == 5


@pytest.mark.parametrize("num_streams", [2, 5])
def test_several_streams(serve, num_streams):
    client = transports.connect(serve(reverb.Table.queue("replay", 1000)), "grpc")
    for i in range(200):
        client.insert([np.int64(i)], {"replay": 1.0})
    batches = list(client.sample_batches("replay", 20, num_batches=10, num_streams=num_streams, prefetch=1))
    assert sorted(np.concatenate([b.data[0].ravel() for b in batches]).tolist()) == list(range(200))


def test_a_time_out_keeps_what_came(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 10)), transport)
    client.insert([np.int64(1)], {"replay": 1.0})
    batches = client.sample_batches("replay", 2, timeout=0.2)
    with pytest.raises(errors.DeadlineExceededError):
        next(batches)
    client.insert([np.int64(2)], {"replay": 1.0})
    assert next_in_time(batches).data[0].ravel().tolist() == [1, 2]


def test_close_ends_the_wait_of_another_thread(serve, transport):
    client = transports.connect(serve(reverb.Table.queue("replay", 10)), transport)
    batches = client.sample_batches("replay", 2)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(list(batches)))
    thread.start()
    wait_for_waiters(client, 1)
    batches.close()
    thread.join(10)
    assert outcome == [[]]


def test_dropping_in_the_middle(serve, transport):
    client = transports.connect(serve(make_table()), transport)
    write_transitions(client, 50)
    next(client.sample_batches("replay", 32, num_streams=2))  # creates what is created once
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        next(client.sample_batches("replay", 32, num_streams=2))
    gc.collect()
    # Connections close in the background. Each iterator that is not closed would keep two.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 8, timeout=30, what="closed connections")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -3}, "batch_size"),
        ({"batch_size": 2, "num_batches": 0}, "num_batches"),
        ({"batch_size": 2, "num_batches": 2**63 - 1}, "num_batches"),
        ({"batch_size": 2, "num_streams": 0}, "num_streams"),
        ({"batch_size": 2, "prefetch": -1}, "prefetch"),
        ({"batch_size": 1024, "prefetch": 2**40}, "prefetch"),
    ],
)
def test_arguments_out_of_range(serve, connect, arguments, name):
    client = connect(serve(make_table()))
    with pytest.raises(ValueError, match=rf"{name} \(-?\d+\) must be between"):
        client.sample_batches("replay", **arguments)


def test_unknown_table(serve, transport):
    client = transports.connect(serve(make_table()), transport)
    with pytest.raises(ValueError, match=r'Could not find table "replai"'):
        next(client.sample_batches("replai", 2))
