"""Loops that take samples. Where the two packages have different calls for the same job, a class of each says which."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import timing

import reverb

BATCH = 256


class Sample:
    """One item after the other out of one iterator."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._samples = client.sample(options["table"], 10**8, emit_timesteps=False)
        first = next(self._samples)
        self._bytes = first.data[0].nbytes
        self._step = max(1, min(64, 1_000_000 // self._bytes))
        # What has been fetched ahead while another side was measured goes first.
        self._skip = options.get("skip", 0)

    def run(self, seconds: float) -> dict[str, float]:
        samples, step = self._samples, self._step
        skipped = self._skip
        for _ in range(self._skip):
            next(samples)
        warm = perf_counter() + seconds / 10
        while perf_counter() < warm:
            next(samples)
            skipped += 1
        count = 0
        began = perf_counter()
        end = began + seconds
        while (now := perf_counter()) < end:
            for _ in range(step):
                next(samples)
            count += step
        took = now - began
        return {
            "items_per_s": count / took,
            "bytes_per_s": count * self._bytes / took,
            "operations": skipped + count,
        }


class _OurBatches:
    def __init__(self, client: Any, table: str, exact: bool) -> None:
        if not hasattr(client, "sample_batches"):
            raise timing.NotAvailableError("client.sample_batches is not in this package")
        self._client = client
        self._table = table
        self._batches = client.sample_batches(table, BATCH, exact=exact)

    def take(self) -> Any:
        return next(self._batches)

    def update(self, batch: Any, priorities: np.ndarray) -> None:
        self._client.update_priorities(self._table, batch.info.key, priorities)


class _TheirBatches:
    """TrajectoryDataset.batch, with as many samples in flight as two batches."""

    def __init__(self, client: Any, table: str, exact: bool) -> None:
        if exact:
            raise timing.NotAvailableError("datasets of dm-reverb always fetch ahead")
        self._client = client
        self._table = table
        dataset = reverb.TrajectoryDataset.from_table_signature(
            client.server_address, table, max_in_flight_samples_per_worker=2 * BATCH
        )
        self._batches = iter(dataset.batch(BATCH, drop_remainder=True).prefetch(4))

    def take(self) -> Any:
        return next(self._batches)

    def update(self, batch: Any, priorities: np.ndarray) -> None:
        keys = batch.info.key.numpy().tolist()
        self._client.mutate_priorities(self._table, updates=dict(zip(keys, priorities.tolist(), strict=True)))


def is_ours() -> bool:
    return hasattr(reverb, "__version__")


class Batches:
    """Batches of 256 transitions, one after the other; with `update`, as many new priorities after each."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        kind = _OurBatches if is_ours() else _TheirBatches
        self._batches = kind(client, options["table"], options.get("exact", False))
        self._is_updating = options.get("update", False)
        first = self._batches.take()
        shapes = {name: tuple(leaf.shape) for name, leaf in first.data.items()}
        wanted = {"observation": (256, 100), "action": (256, 6), "reward": (256,), "next_observation": (256, 100)}
        if shapes != wanted:
            raise RuntimeError(f"a batch should have the shapes {wanted} and has {shapes}")

    def run(self, seconds: float) -> dict[str, float]:
        batches, is_updating = self._batches, self._is_updating
        priorities = np.random.default_rng(4).random((16, BATCH)) + 0.1
        warm = perf_counter() + seconds / 10
        skipped = 0
        while perf_counter() < warm:
            batches.take()
            skipped += 1
        count = 0
        began = perf_counter()
        end = began + seconds
        while (now := perf_counter()) < end:
            batch = batches.take()
            if is_updating:
                batches.update(batch, priorities[count % 16])
            count += 1
        return {"batches_per_s": count / (now - began), "operations": skipped + count}
