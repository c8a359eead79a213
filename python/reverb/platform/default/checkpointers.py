"""The checkpointers of this platform; also reachable as reverb.checkpointers."""

from reverb.platform.checkpointers_lib import (
    CheckpointerBase,
    DefaultCheckpointer,
    TempDirCheckpointer,
    default_checkpointer,
)

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer"]
