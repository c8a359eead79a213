"""Where a server keeps its checkpoints, as values that are handed to Server(checkpointer=...)."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import tempfile
import weakref


@dataclasses.dataclass(frozen=True)
class CheckpointerOptions:
    """What a server needs to know about its checkpoints."""

    path: str
    group: str = ""
    fallback_checkpoint_path: str | None = None


class CheckpointerBase(metaclass=abc.ABCMeta):
    """Base of all checkpointers."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> CheckpointerOptions:
        """What the server is given."""


class DefaultCheckpointer(CheckpointerBase):
    """Keeps checkpoints in directories below `path`, which is made when the first one is saved."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str = "",
        fallback_checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            path: the directory below which checkpoints are saved. A server loads the newest one there when it
                starts.
            group: kept for programs that set it; only the empty one can be saved to.
            fallback_checkpoint_path: one checkpoint, loaded when there is none below `path`.
        """
        self.path = os.fspath(path)
        self.group = "" if group is None else group
        self.fallback_checkpoint_path = (
            None if fallback_checkpoint_path is None else os.fspath(fallback_checkpoint_path)
        )

    def internal_checkpointer(self) -> CheckpointerOptions:  # noqa: D102
        return CheckpointerOptions(self.path, self.group, self.fallback_checkpoint_path)


class TempDirCheckpointer(DefaultCheckpointer):
    """Keeps checkpoints in a new temporary directory.

    The directory stays when something was saved to it. An empty one goes with the checkpointer.
    """

    def __init__(self) -> None:
        path = tempfile.mkdtemp(prefix="reverb-")
        super().__init__(path)
        weakref.finalize(self, _remove_if_empty, path)


def _remove_if_empty(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """The checkpointer of servers that are given none: a temporary directory. `group` means nothing here."""
    del group
    return TempDirCheckpointer()
