"""Tests reverb.jax.prefetch_to_device() on one CPU device; test_jax_sharding.py has several."""

from __future__ import annotations

import collections
import gc
import threading

import conditions
from conftest import make_table
import interpreters
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import transports

import reverb
from reverb.jax import prefetch_to_device
from reverb.replay_sample import PaddedBatch

LARGE = 70_000  # float32 values of a row: a batch of one is beyond what is copied


@pytest.fixture
def filled(serve, connect):
    """A client of a queue and a table with five times the same 32 items."""
    client = connect(serve(make_table(), reverb.Table.queue("queue", 160)))
    for number in range(160):
        step = number % 32
        item = {"x": np.full(3, step, np.float32), "flag": step % 2 == 0, "nest": [np.int32(step)]}
        client.insert(item, {"table": 1.0, "queue": 1.0})
    return client


@pytest.mark.parametrize("size", [1, 3])
def test_batches_arrive_whole_and_in_order(filled, size):
    batches = list(prefetch_to_device(filled.sample_batches("queue", 32, num_batches=5), size))
    assert len(batches) == 5
    for batch in batches:
        assert type(batch) is reverb.ReplaySample
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch.data))
        assert [leaf.dtype for leaf in jax.tree.leaves(batch.data)] == [jnp.bool_, jnp.int32, jnp.float32]
        assert batch.data["x"].shape == (32, 1, 3)
        steps = batch.data["nest"][0].flatten()
        assert steps.tolist() == list(range(32))
        assert jnp.array_equal(batch.data["x"][:, 0, 2], steps)
        assert jnp.array_equal(batch.data["flag"].flatten(), steps % 2 == 0)


def test_the_info_stays_in_numpy_with_whole_keys(filled):
    batch = next(prefetch_to_device(filled.sample_batches("table", 32)))
    assert [type(field) for field in batch.info] == [np.ndarray] * 5
    assert batch.info.key.dtype == np.uint64
    filled.update_priorities("table", batch.info.key, jnp.full(32, 3.0))
    priorities = {item.info.key: item.info.priority for item in filled.peek("table", 160)}
    assert [priorities[key] for key in batch.info.key.tolist()] == [3.0] * 32
    assert reverb.importance_weights(batch, beta=0.5).shape == (32,)


@pytest.mark.parametrize(
    "value",
    [np.float16(1.5), np.uint8(255), np.bool_(True), np.complex64(1 + 2j), ml_dtypes.bfloat16(-2.5), np.uint32(2**32 - 1)],
    ids=lambda value: value.dtype.name,
)
def test_dtypes(server, value):
    client = server.localhost_client()
    client.insert({"x": np.asarray(value)}, {"table": 1.0})
    for batch in prefetch_to_device(client.sample_batches("table", 2, num_batches=3)):
        assert batch.data["x"].dtype == value.dtype
        assert batch.data["x"].tolist() == [[value.item()]] * 2


@pytest.mark.parametrize("x64", [False, True])
def test_64_bits_are_those_of_jax(server, x64):
    """The setting is that of the thread that creates the iterator."""
    client = server.localhost_client()
    client.insert({"i": np.int64(5), "f": np.float64(0.1)}, {"table": 1.0})
    with jax.enable_x64(x64):
        batches = list(prefetch_to_device(client.sample_batches("table", 2, num_batches=3)))
    for batch in batches:
        assert batch.data["i"].dtype == (np.int64 if x64 else np.int32)
        assert batch.data["f"].dtype == (np.float64 if x64 else np.float32)
        assert batch.info.key.dtype == np.uint64


def test_padded_and_mixed_batches_keep_their_attributes(filled):
    filled.reset("queue")
    writer = filled.trajectory_writer(3)
    for step in range(3):
        writer.append({"x": np.float32(step)})
        writer.create_item("queue", 1.0, {"x": writer.history["x"][:]})
    writer.flush()
    (batch,) = prefetch_to_device(filled.sample_batches("queue", 3, num_batches=1, pad=True))
    assert type(batch) is PaddedBatch
    assert batch.lengths["x"].tolist() == [1, 2, 3]
    assert isinstance(batch.lengths["x"], jax.Array)
    assert batch.data["x"].tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 2]]
    (batch,) = prefetch_to_device(reverb.mix([((filled, "table"), 1.0)], 4, num_batches=1))
    assert batch.source.tolist() == [0, 0, 0, 0]


def test_other_elements_than_batches():
    pair = collections.namedtuple("Pair", ["data", "info"])
    info = reverb.SampleInfo(np.array([2**63], np.uint64), 1.0, 1, 1.0, 1)
    elements = [
        (np.ones(3, np.float32), [np.float32(2), "text", None, 5]),
        {"names": np.array([b"a"], object), "there": jnp.ones(2)},
        pair({"x": np.zeros(2)}, info),
    ]
    for _ in range(2):
        numbers, names, with_info = prefetch_to_device(elements)
        assert isinstance(numbers[0], jax.Array)
        assert isinstance(numbers[1][0], jax.Array)
        assert numbers[1][1:] == ["text", None, 5]
        assert names["names"].dtype == object
        assert names["there"].tolist() == [1, 1]
        assert type(with_info) is pair
        assert with_info.info is info


def test_large_arrays_share_the_memory_of_the_batch(server):
    client = server.localhost_client()
    client.insert({"x": np.arange(LARGE, dtype=np.float32)}, {"table": 1.0})
    pointers = []

    def watch(batches):
        for batch in batches:
            pointers.append(batch.data["x"].ctypes.data)
            yield batch

    for batch in prefetch_to_device(watch(client.sample_batches("table", 1, num_batches=4))):
        assert batch.data["x"].unsafe_buffer_pointer() == pointers.pop(0)


@pytest.mark.parametrize("length", [10, LARGE], ids=["small", "large"])
def test_memory_of_batches_is_not_reused_under_arrays(serve, length):
    client = serve(make_table(sampler=reverb.selectors.Uniform(seed=1))).localhost_client()
    for step in range(20):
        client.insert({"x": np.full(length, step, np.float32), "step": np.int32(step)}, {"table": 1.0})
    kept = []
    for number, batch in enumerate(prefetch_to_device(client.sample_batches("table", 4, num_batches=60))):
        if number % 10 == 0:
            kept.append(batch.data)
    assert len(kept) == 6
    for data in kept:
        assert jnp.array_equal(data["x"].min(axis=2), data["step"])
        assert jnp.array_equal(data["x"].max(axis=2), data["step"])


@pytest.mark.parametrize("length", [16, 2 * LARGE], ids=["small", "large"])
def test_arrays_of_others_are_copied(length):
    """A generator that writes to the same array again and again."""
    array = np.zeros(length + 16, np.float32)
    start = (-array.ctypes.data % 64) // 4  # JAX shares only aligned memory
    array = array[start : start + length]

    def generate():
        for step in range(20):
            array[:] = step
            yield {"x": array, "view": array[:16]}

    elements = list(prefetch_to_device(generate(), 2))
    assert [element["x"].max().item() for element in elements] == list(range(20))
    assert [element["view"].max().item() for element in elements] == list(range(20))


def test_a_function_may_be_given_the_memory(server):
    """Donated buffers are not the memory of batches, which the pool may hand out again."""
    client = server.localhost_client()
    client.insert({"x": np.arange(LARGE, dtype=np.float32)}, {"table": 1.0})
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    for batch in prefetch_to_device(client.sample_batches("table", 1, num_batches=20)):
        assert add(batch.data["x"]).sum() == pytest.approx(LARGE * (LARGE + 1) / 2, rel=1e-5)


def test_small_and_large_arrays_in_one_batch():
    elements = [{"a": np.full(4, step, np.int8), "b": np.full(LARGE, step, np.float32), "c": [np.int32(step)]} for step in range(6)]
    elements += [{}, {}, {"a": np.full(4, 6, np.int8)}]
    moved = list(prefetch_to_device(elements))
    assert [each["a"].max().item() for each in (*moved[:6], moved[8])] == list(range(7))
    assert [each["b"].min().item() for each in moved[:6]] == list(range(6))
    assert [each["c"][0].item() for each in moved[:6]] == list(range(6))
    assert moved[6:8] == [{}, {}]


def test_batches_whose_shapes_change():
    elements = [{"x": np.ones((length, 2), np.float32)} for length in (1, 2, 2, 2, 3, 2, 1, 1)]
    shapes = [element["x"].shape for element in prefetch_to_device(elements)]
    assert shapes == [element["x"].shape for element in elements]


def test_arguments_and_errors(filled):
    with pytest.raises(ValueError, match=r"size \(0\) must be a positive integer"):
        prefetch_to_device([], 0)
    with pytest.raises(TypeError, match="sharding must be a device or a Sharding, or a tree of them, got 5"):
        prefetch_to_device([], sharding=5)
    with pytest.raises(ValueError, match="nonsense"):
        next(prefetch_to_device(filled.sample_batches("nonsense", 1, timeout=20)))


def test_dropping_it_ends_the_stream_and_the_thread(serve):
    client = serve(make_table()).localhost_client()
    batches = prefetch_to_device(client.sample_batches("table", 1))
    consumer = threading.Thread(target=list, args=(batches,), daemon=True)
    consumer.start()
    conditions.wait_for_waiters(client, 1)
    batches.close()
    consumer.join(60)
    assert not consumer.is_alive()
    del batches, consumer
    gc.collect()
    conditions.wait_for_waiters(client, 0)
    conditions.wait_until(lambda: all(thread.name != "rv-to-device" for thread in threading.enumerate()))


@pytest.mark.parametrize("transport", transports.ALL)
def test_a_program_may_end_in_the_middle(transport):
    out = interpreters.run(f"""
import reverb.jax
server = make_server()
client = connect(server, {transport!r})
client.insert({{"x": np.ones(1000, np.float32)}}, {{"table": 1.0}})
batches = reverb.jax.prefetch_to_device(client.sample_batches("table", 16), 4)
for _ in range(20): batch = next(batches)
print(batch.data["x"].sum())
""")
    assert out == "16000.0\n"
