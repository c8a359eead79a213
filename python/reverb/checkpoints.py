"""Reads checkpoints without a server: item by item, as NumPy arrays.

Reads checkpoints of this package and of dm-reverb.

>>> import tempfile, reverb
>>> root = tempfile.mkdtemp()
>>> table = reverb.Table.queue("queue", 10)
>>> with reverb.Server([table], checkpointer=reverb.checkpointers.DefaultCheckpointer(root)) as server:
...     client = server.localhost_client()
...     client.insert([1.0, 2.0], priorities={"queue": 1.0})
...     path = client.checkpoint()
>>> [(item.table, item.priority, item.data) for item in reverb.checkpoints.read(path)]
[('queue', 1.0, [array([1.]), array([2.])])]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import datetime
import os
from typing import Any, NamedTuple

from reverb import _core, _signatures, _table_info, _tree, reverb_types

__all__ = ["CheckpointInfo", "Entry", "Item", "convert", "find", "info", "read", "verify"]


class Item(NamedTuple):
    """An item as it was saved."""

    table: str
    key: int
    priority: float
    times_sampled: int
    # The time of insertion, by the server's clock.
    inserted_at: datetime.datetime
    # Arrays in the structure of the table's signature, or a flat list if it has none.
    data: Any


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """Describes a checkpoint."""

    path: str
    # "reverb 3", or "dm-reverb".
    format: str
    created: datetime.datetime
    # By name, as saved.
    tables: dict[str, reverb_types.TableInfo]
    num_chunks: int
    # The size of the chunks, as stored.
    payload_bytes: int
    # The size of all files that it needs, including those shared with other checkpoints.
    file_bytes: int


@dataclasses.dataclass(frozen=True)
class Entry:
    """A checkpoint of a directory."""

    path: str
    created: datetime.datetime
    # False for an unfinished checkpoint, which cannot be read.
    is_complete: bool
    # Whether dm-reverb wrote it.
    is_dm_reverb: bool


def _time(nanos: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return epoch + datetime.timedelta(microseconds=nanos // 1000)


def read(
    path: str | os.PathLike[str], tables: str | Sequence[str] | None = None, *, flat: bool = False
) -> Iterator[Item]:
    """Returns the items of a checkpoint, table by table. Needs memory for one item at a time.

    Args:
        path: one checkpoint, or a directory of checkpoints: then the latest complete one.
        tables: the name of a table, or several; None means all.
        flat: return a flat list of columns instead of the structure of the table's signature.

    Raises:
        RuntimeError: if there is no checkpoint or no such table (`code` is "NOT_FOUND"), or if the part that was read
            is damaged ("DATA_LOSS").
        ValueError: if an item does not match its table's signature; `flat=True` reads it.
    """
    reader = _core.CheckpointReader(os.fspath(path))
    infos = {table["name"]: table for table in reader.info()["tables"]}
    names = list(infos) if tables is None else [tables] if isinstance(tables, str) else list(tables)
    # Opened now, so that this call reports a wrong name, not the first item.
    items = [(name, reader.items(name)) for name in names]
    signatures = {name: None if flat else _signatures.decode_signature(infos[name]["signature"]) for name in names}
    return _read(items, signatures)


def _read(items: list[tuple[str, _core.CheckpointItems]], signatures: dict[str, Any]) -> Iterator[Item]:
    for table, rows in items:
        signature = signatures[table]
        num_leaves = None if signature is None else len(_tree.flatten(signature))
        for key, priority, times_sampled, inserted_at, columns in rows:
            data: Any = columns
            if num_leaves is not None:
                if len(columns) != num_leaves:
                    raise ValueError(
                        f"item {key} of table {table!r} has {len(columns)} columns but the table's signature has "
                        f"{num_leaves}; read it with flat=True"
                    )
                data = _tree.unflatten_as(signature, columns)
            yield Item(table, key, priority, times_sampled, _time(inserted_at), data)


def info(path: str | os.PathLike[str]) -> CheckpointInfo:
    """Describes a checkpoint, or the latest one of a directory. RuntimeError as for read()."""
    native = _core.CheckpointReader(os.fspath(path)).info()
    return CheckpointInfo(
        path=native["path"],
        format=native["format"],
        created=_time(native["created_ns"]),
        tables={table["name"]: _table_info.from_native(table) for table in native["tables"]},
        num_chunks=native["num_chunks"],
        payload_bytes=native["payload_bytes"],
        file_bytes=native["file_bytes"],
    )


def verify(path: str | os.PathLike[str]) -> None:
    """Reads a whole checkpoint. RuntimeError, naming the file, if a checksum or a reference is wrong."""
    _core.CheckpointReader(os.fspath(path)).verify()


def find(root: str | os.PathLike[str]) -> list[Entry]:
    """Returns the checkpoints in a directory, oldest first. RuntimeError if there is no such directory."""
    return [
        Entry(path, _time(created), is_complete, is_dm_reverb)
        for path, created, is_complete, is_dm_reverb in _core.list_checkpoints(os.fspath(root))
    ]


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> str:
    """Converts a checkpoint, such as one of dm-reverb, to the format of this package.

    Args:
        source: one checkpoint, or a directory of them: then the latest. It is not changed.
        target: the directory for the new checkpoint; created if necessary.

    Returns:
        The path of the new checkpoint.
    """
    return _core.import_checkpoint(os.fspath(source), os.fspath(target))
