"""The native classes under dm-reverb's names. New code uses the names of `reverb`."""

from __future__ import annotations

import dataclasses
from typing import Any

from reverb import _core, checkpointers, item_selectors, reverb_types
from reverb.server import TableExtensionBase as TableExtension

__all__ = [
    "AutoTunedChunkerOptions",
    "Checkpointer",
    "Client",
    "ConstantChunkerOptions",
    "FifoSelector",
    "HeapSelector",
    "ItemSelector",
    "LifoSelector",
    "PrioritizedSelector",
    "RateLimiter",
    "Sampler",
    "Server",
    "StructuredWriter",
    "Table",
    "TableExtension",
    "TrajectoryWriter",
    "UniformSelector",
    "WeakCellRef",
    "Writer",
    "create_default_checkpointer",
    "selector_from_proto",
]

Checkpointer = checkpointers.CheckpointerOptions
Client = _core.Client
FifoSelector = _core.FifoSelector
HeapSelector = _core.HeapSelector
ItemSelector = _core.ItemSelector
LifoSelector = _core.LifoSelector
PrioritizedSelector = _core.PrioritizedSelector
RateLimiter = _core.RateLimiter
Server = _core.Server
StructuredWriter = _core.StructuredWriter
Table = _core.Table
TrajectoryWriter = _core.TrajectoryWriter
UniformSelector = _core.UniformSelector
WeakCellRef = _core.WeakCellRef
Writer = _core.Writer


class Sampler(_core.SampleIterator):
    """The iterator behind Client.sample()."""

    # The fields of SampleInfo.
    NUM_INFO_TENSORS = 5


@dataclasses.dataclass(frozen=True)
class ConstantChunkerOptions:
    """Chunks of one length."""

    max_chunk_length: int
    num_keep_alive_refs: int


@dataclasses.dataclass(frozen=True)
class AutoTunedChunkerOptions:
    """Chunks of a length that is tuned automatically."""

    num_keep_alive_refs: int
    throughput_weight: float = 1.0


def selector_from_proto(options: bytes) -> Any:
    """Returns the selector that a serialized KeyDistributionOptions describes. ValueError when it describes none."""
    message = reverb_types.KeyDistributionOptions.FromString(options)
    kind = message.WhichOneof("distribution")
    if kind == "fifo":
        return item_selectors.Fifo()
    if kind == "lifo":
        return item_selectors.Lifo()
    if kind == "uniform":
        return item_selectors.Uniform()
    if kind == "prioritized":
        return item_selectors.Prioritized(message.prioritized.priority_exponent)
    if kind == "heap":
        return item_selectors.MinHeap() if message.heap.min_heap else item_selectors.MaxHeap()
    raise ValueError(
        "the options of a selector name no distribution; set one of fifo, lifo, uniform, prioritized, heap"
    )


def create_default_checkpointer(
    name: str, group: str = "", fallback_checkpoint_path: str | None = None
) -> checkpointers.CheckpointerOptions:
    """Returns the options of a checkpointer that keeps checkpoints below the directory `name`."""
    return checkpointers.DefaultCheckpointer(name, group, fallback_checkpoint_path).internal_checkpointer()
