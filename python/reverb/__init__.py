"""Reverb: a data store and transport for reinforcement-learning experience.

    import reverb

    server = reverb.Server(
        tables=[
            reverb.Table(
                name="replay",
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=100_000,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            )
        ]
    )

    client = reverb.Client(f"localhost:{server.port}")
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(10):
            writer.append({"observation": ..., "action": ...})
            if step >= 2:
                history = writer.history
                writer.create_item("replay", priority=1.0, trajectory={
                    "observations": history["observation"][-3:],
                    "actions": history["action"][-3:],
                })

    for sample in client.sample("replay", num_samples=2, emit_timesteps=False):
        print(sample.info.key, sample.data)

It needs only NumPy. It logs to logging.getLogger("reverb").
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    importlib.import_module("reverb._core")
except ModuleNotFoundError as error:
    if error.name != "reverb._core":
        raise
    from pathlib import Path

    from reverb import _not_built

    raise ImportError(_not_built.explain(Path(__file__).parent), name="reverb._core", path=__file__) from None

from reverb import (
    _core,
    checkpointers,
    errors,
    item_selectors,
    leases,
    platform,
    pybind,
    rate_limiters,
    replay_sample,
    reverb_types,
    security,
)
from reverb import client as client
from reverb import rows as rows
from reverb import server as server
from reverb import structured_writer as structured
from reverb import structured_writer as structured_writer
from reverb import trajectory_writer as trajectory_writer
from reverb import vector_writer as vector_writer
from reverb._core import set_wait_log_after
from reverb._priorities import importance_weights
from reverb._specs import BoundedTensorSpec, TensorSpec
from reverb.client import Client, Writer
from reverb.errors import DeadlineExceededError, ReverbError
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.rows import Jagged, Reservation, RowBatch, Rows, RowTable, Staleness
from reverb.security import ClientTls, ServerTls
from reverb.server import Server, Table
from reverb.storage import Storage
from reverb.trajectory_writer import TrajectoryColumn, TrajectoryWriter
from reverb.vector_writer import VectorWriter

if TYPE_CHECKING:
    from reverb import checkpoints as checkpoints
    from reverb import formats as formats
    from reverb import integrations as integrations
    from reverb import jax as jax
    from reverb import ray as ray
    from reverb import recorders as recorders
    from reverb import torch as torch
    from reverb._mix import MixedBatch, mix
    from reverb.pattern_dataset import PatternDataset
    from reverb.tf_client import TFClient
    from reverb.timestep_dataset import TimestepDataset
    from reverb.trajectory_dataset import TrajectoryDataset

selectors = item_selectors
__version__: str = _core.__version__

__all__ = [
    "BoundedTensorSpec",
    "Client",
    "ClientTls",
    "DeadlineExceededError",
    "Jagged",
    "MixedBatch",
    "PatternDataset",
    "ReplaySample",
    "Reservation",
    "ReverbError",
    "RowBatch",
    "RowTable",
    "Rows",
    "SampleInfo",
    "Server",
    "ServerTls",
    "Storage",
    "Staleness",
    "TFClient",
    "Table",
    "TensorSpec",
    "TimestepDataset",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "VectorWriter",
    "Writer",
    "checkpointers",
    "checkpoints",
    "errors",
    "formats",
    "importance_weights",
    "item_selectors",
    "leases",
    "mix",
    "platform",
    "pybind",
    "rate_limiters",
    "recorders",
    "replay_sample",
    "reverb_types",
    "security",
    "selectors",
    "set_wait_log_after",
    "structured",
]

# Imported at the first access: modules that few programs use, or that need more than NumPy.
_LAZY_CLASSES = {
    "MixedBatch": "_mix",
    "PatternDataset": "pattern_dataset",
    "TFClient": "tf_client",
    "TimestepDataset": "timestep_dataset",
    "TrajectoryDataset": "trajectory_dataset",
    "mix": "_mix",
}
_LAZY_MODULES = frozenset(
    (*_LAZY_CLASSES.values(), "aio", "cc", "checkpoints", "formats", "integrations", "recorders", "server_executable")
)
# Not in dir(): they need a framework, and ImportError says which.
_FRAMEWORK_MODULES = frozenset(("jax", "ray", "torch"))


def __getattr__(name: str) -> Any:
    if name in _LAZY_CLASSES:
        return getattr(importlib.import_module(f"reverb.{_LAZY_CLASSES[name]}"), name)
    if name in _LAZY_MODULES or name in _FRAMEWORK_MODULES:
        return importlib.import_module(f"reverb.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LAZY_MODULES})
