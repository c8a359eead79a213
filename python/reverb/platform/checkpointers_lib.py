"""dm-reverb's place for `reverb.checkpointers`."""

from reverb.checkpointers import (
    CheckpointerBase,
    CheckpointerOptions,
    DefaultCheckpointer,
    Restore,
    TempDirCheckpointer,
    default_checkpointer,
)

__all__ = [
    "CheckpointerBase",
    "CheckpointerOptions",
    "DefaultCheckpointer",
    "Restore",
    "TempDirCheckpointer",
    "default_checkpointer",
]
