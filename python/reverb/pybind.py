"""The native classes under the names that programs know them by. New code uses the names of `reverb`."""

from __future__ import annotations

import dataclasses
from typing import Any

from reverb import _core, reverb_types
from reverb.platform import checkpointers_lib
from reverb.server import TableExtensionBase as TableExtension
from reverb.server import _selector_like

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

Checkpointer = checkpointers_lib.CheckpointerOptions
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
    """Chunks of a length that is found by trial."""

    num_keep_alive_refs: int
    throughput_weight: float = 1.0


def selector_from_proto(options: bytes) -> Any:
    """The selector that the bytes of a KeyDistributionOptions message describe. ValueError when they are none."""
    return _selector_like(reverb_types.KeyDistributionOptions.FromString(options))


def create_default_checkpointer(
    name: str, group: str = "", fallback_checkpoint_path: str | None = None
) -> checkpointers_lib.CheckpointerOptions:
    """What a checkpointer of one's own hands to a server: checkpoints below the directory `name`."""
    return checkpointers_lib.DefaultCheckpointer(name, group, fallback_checkpoint_path).internal_checkpointer()
