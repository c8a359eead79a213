"""The disk tier of a server."""

from __future__ import annotations

import dataclasses
import os

from reverb import _arguments

__all__ = ["Storage"]


@dataclasses.dataclass(frozen=True)
class Storage:
    """Keeps part of the data of a server on disk.

    The data that was used least recently moves to files, and is read back when it is sampled. Row tables stay in memory.
    The files are a cache, not a checkpoint: a server removes those of an earlier one.

    >>> import tempfile
    >>> import reverb
    >>> storage = reverb.Storage(tempfile.mkdtemp(), disk_limit=10 * 2**30)
    >>> server = reverb.Server([reverb.Table.queue("queue", 10)], storage=storage)
    >>> server.stop()
    """

    # A folder for the files, on a fast disk; created if it is missing. Each server needs its own.
    path: str | os.PathLike[str]
    # The bytes of data that are kept in memory: part of the server's `memory_limit`, which also covers everything else.
    # None: three quarters of what that leaves for data.
    memory_limit: int | None = None
    # The bytes that the files may take; about 70 % of them can be data. None: 80 % of the space that is free when the
    # server starts.
    disk_limit: int | None = None


def _storage(storage: Storage | None) -> tuple[str, int | None, int | None] | None:
    """Returns what the native code takes. TypeError unless it is a Storage, ValueError for invalid limits."""
    if storage is None:
        return None
    if not isinstance(storage, Storage):
        raise TypeError(
            f"storage must be a reverb.Storage(path), got {storage!r} of type {type(storage).__name__}"
        )
    return (
        os.path.abspath(storage.path),
        _arguments.as_bytes("memory_limit", storage.memory_limit),
        _arguments.as_bytes("disk_limit", storage.disk_limit),
    )
