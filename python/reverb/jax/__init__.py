"""Batches for JAX: transfers to devices, also over a mesh, and a dataset for Grain.

    import reverb.jax

    batches = client.sample_batches("replay", batch_size=256)
    for batch in reverb.jax.prefetch_to_device(batches):
        parameters, errors = update(parameters, batch.data)
        client.update_priorities("replay", batch.info.key, errors)

Needs JAX, which is imported with this module; see docs/jax.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    importlib.import_module("jax")
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError("reverb.jax needs JAX, which is not installed: pip install jax", name="jax") from None

from reverb.jax._device import prefetch_to_device

if TYPE_CHECKING:
    from reverb.jax._grain import BatchIterDataset

__all__ = ["BatchIterDataset", "prefetch_to_device"]


def __getattr__(name: str) -> Any:
    if name == "BatchIterDataset":  # needs grain
        return importlib.import_module("reverb.jax._grain").BatchIterDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
