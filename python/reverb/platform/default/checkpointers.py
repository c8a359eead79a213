"""The checkpointers of this platform; also reachable as reverb.checkpointers."""

from reverb.platform.checkpointers_lib import (
    CheckpointerBase,
    DefaultCheckpointer,
    Restore,
    TempDirCheckpointer,
    default_checkpointer,
)

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "Restore", "TempDirCheckpointer", "default_checkpointer"]
