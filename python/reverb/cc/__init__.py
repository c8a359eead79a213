"""Protobuf messages of dm-reverb, for programs that import them. They need the protobuf package."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = ("checkpointing", "patterns_pb2", "schema_pb2")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
