"""Samples and batches: the types of items, of their info, and of data that the program declares."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import reverb


class Transition(TypedDict):
    observation: npt.NDArray[np.float32]
    reward: npt.NDArray[np.float32]


def single_items(client: reverb.Client) -> float:
    for sample in client.sample("replay", num_samples=2, emit_timesteps=False):
        assert_type(sample.info.key, int)
        assert_type(sample.info.probability, float)
        sample.dat  # error
        sample.info.prioirty  # error
    for steps in client.sample("replay"):
        assert_type(len(steps), int)
        assert_type(steps[0].info.times_sampled, int)
        steps.data  # error
    info, data = next(client.sample("replay", emit_timesteps=False, timeout=1.0))
    print(data["observation"].shape)
    return info.priority + client.peek("replay", 3)[0].info.priority


def either_kind(client: reverb.Client, emit_timesteps: bool) -> None:
    for sample in client.sample("replay", emit_timesteps=emit_timesteps):
        print(sample[0])


def batches(client: reverb.Client) -> None:
    for info, data in client.sample_batches("replay", batch_size=32, num_batches=3):
        client.update_priorities("replay", info.key, np.abs(data["error"]) + 1e-3)
        weights = reverb.importance_weights(info, beta=0.4)
        assert_type(weights, npt.NDArray[np.float64])
        print(info.table_size[0], info.probability.mean())
        info.key.appendd  # error
    for batch in client.sample_batches("replay", 32):
        batch.lengths  # error
    for padded in client.sample_batches("replay", 32, pad=True):
        print(padded.lengths["observation"])


def leased(client: reverb.Client, lease: float) -> None:
    for sample in client.sample("replay", emit_timesteps=False, lease=lease):
        assert_type(sample.ack().settled, int)
        sample.acknowledge()  # error
    for steps in client.sample("replay", lease=30):
        assert_type(len(steps), int)
        print(steps[0].info.key, steps.is_held)
        steps.release(timeout=1.0)
    for batch in client.sample_batches("replay", 32, lease=lease):
        assert_type(batch.extend(60.0), reverb.leases.LeaseOutcome)
        print(batch.data["observation"].shape, batch.info.key)
        batch.lengths  # error
    for padded in client.sample_batches("replay", 32, pad=True, lease=lease):
        print(padded.lengths["observation"], padded.ack().expired)
    for unleased in client.sample_batches("replay", 32):
        unleased.ack()  # error
    client.sample("replay", lease="30")  # error


def declared_structure(client: reverb.Client) -> None:
    transitions: Iterator[reverb.ReplaySample[Transition]] = client.sample_batches("replay", 32)
    for batch in transitions:
        assert_type(batch.data["reward"], npt.NDArray[np.float32])
        batch.data["rewards"]  # error


def closing(client: reverb.Client) -> None:
    batches = client.sample_batches("replay", 32)
    print(next(batches).info.table_size[0] > 0)
    batches.close()
    batches.closed()  # error
    with contextlib.closing(client.sample_batches("replay", 32, pad=True)) as padded:
        print(next(padded).lengths)
    client.sample("replay").close()


def checkpoints(path: str) -> None:
    for item in reverb.checkpoints.read(path):
        assert_type(item.priority, float)
        item.lengths  # error
    for batch in reverb.checkpoints.read(path, "replay", batch_size=3):
        print(batch.info.probability.mean())
        batch.lengths  # error
    reader = reverb.checkpoints.read(path, "replay", batch_size=3, pad=True)
    print(next(reader).lengths, len(reader))
    transitions: reverb.checkpoints.Reader[reverb.ReplaySample[Transition]] = reverb.checkpoints.read(
        path, "replay", batch_size=3
    )
    for declared in transitions:
        declared.data["rewards"]  # error


def mixed(client: reverb.Client, path: str) -> None:
    reader = reverb.checkpoints.read(path, "replay")
    batches = reverb.mix({client: 0.5, reader: lambda step: 1 / (step + 2)}, 32, table="replay", pad=True)
    for batch in batches:
        assert_type(batch.source, npt.NDArray[np.int64])
        print(batch.info.probability.mean(), batch.lengths)
        batch.sources  # error
        batches.close()
    transitions: Iterator[reverb.MixedBatch[Transition]] = reverb.mix([(reader, 1)], 4)
    for declared in transitions:
        assert_type(declared.data["reward"], npt.NDArray[np.float32])
        declared.data["rewards"]  # error
    reverb.mix({reader: "half"}, 4)  # error
    reverb.mix({reader: 1})  # error


def loss(batch: reverb.ReplaySample[Transition]) -> float:
    return float(batch.data["reward"].mean())


def wrong_arguments(client: reverb.Client) -> None:
    client.sample("replay", "3")  # error
    client.sample(table=3)  # error
    client.sample_batches("replay")  # error
    client.sample_batches("replay", 32, timeout="1 s")  # error
    client.insert([1.0], {"replay": "high"})  # error
    client.update_priorities("replay", [1, 2])  # error


def server_information(client: reverb.Client, table: reverb.Table) -> None:
    info = client.server_info(timeout=3)
    assert_type(info["replay"].current_size, int)
    assert_type(info.stored_bytes, int)
    assert_type(table.info.max_size, int)
    for waiter in info.waiters:
        assert_type(waiter.seconds, float)
    info["replay"].size  # error
