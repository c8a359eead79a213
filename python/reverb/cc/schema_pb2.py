"""The messages of proto/dm_reverb/reverb/cc/schema.proto. Needs protobuf."""

from __future__ import annotations

from typing import Any

from reverb._compat import descriptors

descriptors.define("reverb/cc/schema.proto", globals())


def __getattr__(name: str) -> Any:
    # Lets type checkers accept any name; define() has added the names of the messages.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
