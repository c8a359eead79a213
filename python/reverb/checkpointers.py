"""Checkpointers: they tell a server where to keep its checkpoints, see Server(checkpointer=...)."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import tempfile
import weakref


@dataclasses.dataclass(frozen=True)
class Restore:
    """Defines what happens if a checkpoint differs from the tables that the server is given.

    Every difference is logged. "saved" uses the checkpoint's value, "given" the table's.

    Attributes:
        rate_limiter: the limiter's numbers.
        sizes: max_size, max_times_sampled and max_age. Items that no longer fit are removed.
        selectors: sampler and remover. Given ones get the items in the order of their insertion.
        signature: the table's signature and layout.
        counters: "keep" continues the limiter's counters, "reset" starts with the items as its only inserts.
        missing_tables: for tables of the server that the checkpoint does not have: "start_empty", or "fail".
        extra_tables: for tables of the checkpoint that the server is not given: "fail" raises ValueError, "drop"
            omits them, "create" creates them as saved. "fail" creates those that a client had created.
    """

    rate_limiter: str = "saved"
    sizes: str = "saved"
    selectors: str = "saved"
    signature: str = "saved"
    counters: str = "keep"
    missing_tables: str = "start_empty"
    extra_tables: str = "fail"


@dataclasses.dataclass(frozen=True)
class CheckpointerOptions:
    """The options of a server about its checkpoints."""

    path: str
    group: str = ""
    fallback_checkpoint_path: str | None = None
    interval: float | None = None
    on_stop: bool = False
    keep_latest: int = 1
    load_latest: bool = True
    restore: Restore = dataclasses.field(default_factory=Restore)


class CheckpointerBase(metaclass=abc.ABCMeta):
    """Base of all checkpointers."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> CheckpointerOptions:
        """Returns the options for the server."""


class DefaultCheckpointer(CheckpointerBase):
    """Keeps checkpoints in directories below `path`, which is created with the first one."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str = "",
        fallback_checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        interval: float | None = None,
        on_stop: bool = False,
        keep_latest: int = 1,
        load_latest: bool = True,
        restore: Restore | None = None,
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            path: the directory for checkpoints. A server loads the newest one there when it starts, including those of
                dm-reverb. It may also be one checkpoint itself.
            group: exists for programs that set it; only the empty group is supported.
            fallback_checkpoint_path: a checkpoint that is loaded if there is none below `path`.
            interval: seconds between periodic checkpoints; None: only those that clients request.
            on_stop: write a checkpoint when the server stops normally.
            keep_latest: how many checkpoints to keep; older ones are removed once a newer one is durable.
            load_latest: False starts with empty tables.
            restore: what to do if a checkpoint and the server's tables differ; by default saved values are used.
        """
        self.path = os.fspath(path)
        self.group = "" if group is None else group
        self.fallback_checkpoint_path = (
            None if fallback_checkpoint_path is None else os.fspath(fallback_checkpoint_path)
        )
        self.interval = interval
        self.on_stop = on_stop
        self.keep_latest = keep_latest
        self.load_latest = load_latest
        self.restore = Restore() if restore is None else restore

    def internal_checkpointer(self) -> CheckpointerOptions:  # noqa: D102
        return CheckpointerOptions(
            path=self.path,
            group=self.group,
            fallback_checkpoint_path=self.fallback_checkpoint_path,
            interval=self.interval,
            on_stop=self.on_stop,
            keep_latest=self.keep_latest,
            load_latest=self.load_latest,
            restore=self.restore,
        )


class TempDirCheckpointer(DefaultCheckpointer):
    """Keeps checkpoints in a new temporary directory.

    The directory is removed with the checkpointer if it is empty.
    """

    def __init__(self) -> None:
        path = tempfile.mkdtemp(prefix="reverb-")
        super().__init__(path)
        weakref.finalize(self, _remove_if_empty, path)


def _remove_if_empty(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """Returns the default checkpointer of servers, which uses a temporary directory. `group` is ignored."""
    del group
    return TempDirCheckpointer()
