"""Where a server keeps its checkpoints, as values that are handed to Server(checkpointer=...)."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import tempfile
import weakref


@dataclasses.dataclass(frozen=True)
class Restore:
    """What a load does where the checkpoint differs from the tables that the server is given.

    Every difference is logged, whatever is chosen. "saved" takes what is in the checkpoint, "given" what the table was
    made with.

    Attributes:
        rate_limiter: the limiter's numbers.
        sizes: max_size and max_times_sampled. Items that no longer fit are evicted.
        selectors: sampler and remover. Given ones take up the items in the order of their insertion.
        signature: the table's signature.
        counters: "keep" lets the limiter go on counting where it was, "reset" begins anew with the items as its only
            inserts.
        missing_tables: for tables of the server that the checkpoint does not have: "start_empty", or "fail".
        extra_tables: for tables of the checkpoint that the server is not given: "fail", which is a ValueError,
            "drop" leaves them out, "create" makes them as they were saved.
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
    """What a server needs to know about its checkpoints."""

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
        """What the server is given."""


class DefaultCheckpointer(CheckpointerBase):
    """Keeps checkpoints in directories below `path`, which is made when the first one is saved."""

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
        """Nothing is read or written yet.

        Args:
            path: the directory below which checkpoints are saved. A server loads the newest one there when it
                starts, those of dm-reverb included. It may also be one checkpoint itself.
            group: kept for programs that set it; only the empty one can be saved to.
            fallback_checkpoint_path: one checkpoint, loaded when there is none below `path`.
            interval: seconds after which the server writes a checkpoint by itself, again and again; None for none but
                those that clients ask for.
            on_stop: write one when the server stops in order.
            keep_latest: how many are kept; older ones go once a newer one is durable.
            load_latest: False starts with empty tables whatever there is.
            restore: what to do where a checkpoint and the server's tables differ; what was saved wins unless this says
                otherwise.
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
