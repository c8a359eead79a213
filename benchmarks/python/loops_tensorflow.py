"""Loops over datasets, which need TensorFlow on both sides; use the same version of it for both."""

from __future__ import annotations

import importlib.util
from time import perf_counter
from typing import Any

import timing

import reverb

BATCH = 256
# Elements that tf.data drops for each one that it returns: what is measured is the dataset, not Python.
STRIDE = 1024


def is_ours() -> bool:
    return hasattr(reverb, "__version__")


def _dataset(client: Any, options: dict[str, Any], **more: Any) -> Any:
    if importlib.util.find_spec("tensorflow") is None:
        raise timing.NotAvailableError("TensorFlow is not installed in this environment")
    return reverb.TrajectoryDataset.from_table_signature(
        client.server_address, options["table"], max_in_flight_samples_per_worker=2 * BATCH, **more
    )


class _Loop:
    """Takes elements of an iterator, each of which stands for `weight` items or batches."""

    def __init__(self, iterator: Any, weight: int, figure: str) -> None:
        self._iterator = iterator
        self._weight = weight
        self._figure = figure
        next(iterator)

    def run(self, seconds: float) -> dict[str, float]:
        iterator = self._iterator
        warm = perf_counter() + seconds / 10
        skipped = 0
        while perf_counter() < warm:
            next(iterator)
            skipped += 1
        count = 0
        began = perf_counter()
        end = began + seconds
        while (now := perf_counter()) < end:
            next(iterator)
            count += 1
        return {
            self._figure: count * self._weight / (now - began),
            "operations": (skipped + count) * self._weight,
        }


class Elements(_Loop):
    """Single items as elements."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        super().__init__(iter(_dataset(client, options).shard(STRIDE, 0)), STRIDE, "items_per_s")


class DatasetBatches(_Loop):
    """Batches: ready ones, or with dm-reverb those of `batch()`."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        if is_ours():
            dataset = _dataset(client, options, batch_size=BATCH)
        else:
            dataset = _dataset(client, options).batch(BATCH, drop_remainder=True)
        iterator = iter(dataset.prefetch(4))
        super().__init__(iterator, 1, "batches_per_s")
        shape = tuple(next(iterator).data["observation"].shape)
        if shape != (BATCH, 100):
            raise RuntimeError(f"a batch of observations should have the shape {(BATCH, 100)} and has {shape}")
