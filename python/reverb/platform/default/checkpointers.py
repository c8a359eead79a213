"""dm-reverb's place for `reverb.checkpointers`."""

from reverb.checkpointers import (
    CheckpointerBase,
    DefaultCheckpointer,
    Restore,
    TempDirCheckpointer,
    default_checkpointer,
)

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "Restore", "TempDirCheckpointer", "default_checkpointer"]
