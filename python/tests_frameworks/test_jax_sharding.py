"""Tests reverb.jax.prefetch_to_device() with several devices: four of the host, each test in a process of its own."""

from __future__ import annotations

import json
import socket

import interpreters
import numpy as np

import reverb

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
PRELUDE = """
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import reverb.jax
server = make_server()
client = connect(server, "in_process")
for step in range(8):
    client.insert({"x": np.full((4, 3), step, np.float32), "step": np.int32(step)}, {"table": 1.0})
def batches(sharding, count=3, size=8):
    return list(reverb.jax.prefetch_to_device(client.sample_batches("table", size, num_batches=count), sharding=sharding))
assert len(jax.devices()) == 4
"""


def run(code):
    return interpreters.run(code, prelude=interpreters.PRELUDE + PRELUDE, **FOUR)


def test_one_of_several_devices():
    assert run("""
device = jax.devices()[2]
for sharding in (device, jax.sharding.SingleDeviceSharding(device)):
    for batch in batches(sharding):
        assert batch.data["x"].devices() == batch.data["step"].devices() == {device}
        assert batch.data["x"].shape == (8, 1, 4, 3)
with jax.default_device(device):
    iterator = reverb.jax.prefetch_to_device(client.sample_batches("table", 8, num_batches=3))
assert all(batch.data["x"].devices() == {device} for batch in iterator)
print("ok")
""") == "ok\n"


def test_a_batch_is_divided_over_a_mesh():
    assert run("""
mesh = Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, P("data"))
@jax.jit
def mean(data): return data["x"].mean() + data["step"].mean()
for batch in batches(sharding):
    for array in jax.tree.leaves(batch.data):
        assert array.sharding == sharding
        assert [shard.data.shape[0] for shard in array.addressable_shards] == [2] * 4
    assert type(batch.info.key) is np.ndarray
    assert float(mean(batch.data)) == 0
print("ok")
""") == "ok\n"


def test_two_axes_replication_and_a_tree_of_shardings():
    assert run("""
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
both = NamedSharding(mesh, P("data", None, "model"))
replicated = NamedSharding(mesh, P())
for batch in batches({"x": both, "step": replicated}):
    assert batch.data["x"].sharding == both
    assert {shard.data.shape for shard in batch.data["x"].addressable_shards} == {(4, 1, 2, 3)}
    assert batch.data["step"].is_fully_replicated
for batch in batches(replicated):
    assert len(batch.data["x"].addressable_shards) == 4
    assert {shard.data.shape for shard in batch.data["x"].addressable_shards} == {(8, 1, 4, 3)}
print("ok")
""") == "ok\n"


def test_values_reach_the_right_device():
    assert run("""
table = reverb.Table("uniform", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1))
client.create_table(table)
for step in range(8): client.insert({"x": np.full((4, 3), step, np.float32), "step": np.int32(step)}, {"uniform": 1.0})
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
kept = []
for batch in reverb.jax.prefetch_to_device(client.sample_batches("uniform", 8, num_batches=40), 3, sharding):
    kept.append(batch.data)
for data in kept:
    for x, step in zip(data["x"].addressable_shards, data["step"].addressable_shards):
        assert x.device == step.device
        assert (np.asarray(x.data)[:, 0, 0, 0] == np.asarray(step.data)[:, 0]).all()
    assert (np.asarray(data["x"])[:, 0, 3, 2] == np.asarray(data["step"])[:, 0]).all()
print("ok")
""") == "ok\n"


def test_elements_without_arrays():
    assert run("""
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
elements = [{}, {"name": "a"}, {}, {"x": np.zeros(4)}]
moved = list(reverb.jax.prefetch_to_device(elements, sharding=sharding))
assert moved[:3] == elements[:3]
assert moved[3]["x"].sharding == sharding
print("ok")
""") == "ok\n"


def test_a_batch_that_cannot_be_divided():
    out = run("""
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
try:
    batches(sharding, size=6)
except ValueError as error:
    print(error)
""")
    assert "6" in out
    assert "4" in out


PROCESS = """
import jax
rank = int(os.environ["RANK"])
jax.distributed.initialize(f"localhost:{os.environ['PORT']}", num_processes=2, process_id=rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import reverb.jax
client = reverb.Client(os.environ["SERVER"])
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
batches = client.sample_batches("queue", 4, num_batches=2)
seen = []
for batch in reverb.jax.prefetch_to_device(batches, sharding=sharding):
    array = batch.data["x"]
    assert array.shape == (8, 1), array.shape
    seen += [int(value) for shard in array.addressable_shards for value in np.asarray(shard.data).flatten()]
print(seen)
"""


def test_processes_contribute_their_part():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    with reverb.Server([reverb.Table.queue("queue", 16)]) as server:
        client = server.localhost_client()
        for step in range(16):
            client.insert({"x": np.int32(step)}, {"queue": 1.0})
        two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
        processes = [
            interpreters.start(PROCESS, RANK=str(rank), PORT=str(port), SERVER=f"localhost:{server.port}", **two)
            for rank in range(2)
        ]
        seen = [json.loads(interpreters.finish(process, seconds=120, quiet=False)) for process in processes]
    assert [len(part) for part in seen] == [8, 8]
    assert sorted(seen[0] + seen[1]) == list(range(16))
