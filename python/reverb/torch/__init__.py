"""Batches for PyTorch: datasets of tensors, transfers to a device, a replay buffer for TorchRL.

    import reverb.torch

    dataset = reverb.torch.BatchDataset("localhost:8000", "replay", batch_size=256)
    for batch in reverb.torch.prefetch_to_device(dataset, "cuda"):
        loss = update(batch.data)
        client.update_priorities("replay", batch.info.key, errors.cpu())

Needs PyTorch, which is imported with this module; see docs/torch.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    importlib.import_module("torch")
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError("reverb.torch needs PyTorch, which is not installed: pip install torch", name="torch") from None

from reverb.torch._dataset import BatchDataset, PaddedBatch
from reverb.torch._device import prefetch_to_device

if TYPE_CHECKING:
    from reverb.torch._replay_buffer import ReplayBuffer

__all__ = ["BatchDataset", "PaddedBatch", "ReplayBuffer", "prefetch_to_device"]


def __getattr__(name: str) -> Any:
    if name == "ReplayBuffer":  # needs tensordict
        return importlib.import_module("reverb.torch._replay_buffer").ReplayBuffer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
