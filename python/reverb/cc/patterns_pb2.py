"""The messages of proto/dm_reverb/reverb/cc/patterns.proto. Needs protobuf."""

from __future__ import annotations

from typing import Any

from reverb.cc import _descriptors

_descriptors.define("reverb/cc/patterns.proto", globals())


def __getattr__(name: str) -> Any:
    # So that type checkers take any name: those of the messages are defined above.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
