"""Reads checkpoints without a server, item by item or in batches, as NumPy arrays.

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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import datetime
import os
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast, overload

import numpy as np

from reverb import _arguments, _core, _progress, _signatures, _table_info, _tree, reverb_types, rows
from reverb.replay_sample import PaddedBatch, ReplaySample, _Batch, _Data, _PaddedBatch

__all__ = ["CheckpointInfo", "Entry", "Item", "Reader", "convert", "copy", "find", "info", "read", "verify"]


class Item(NamedTuple):
    """An item as it was saved."""

    table: str
    key: int
    priority: float
    times_sampled: int
    # The time of insertion, by the server's clock.
    inserted_at: datetime.datetime
    # Arrays in the structure of the table's signature or, without one, in which the items were written; a flat list if
    # the writers sent none, or different ones (`layout="any"`).
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
    # Row tables by name, as saved; the values are those of `Rows.info`.
    row_tables: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)


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


# How many items a shuffled reader draws from, unless it is told.
DEFAULT_SHUFFLE_WINDOW = 16384

_T_co = TypeVar("_T_co", covariant=True)
# A column, or all columns below a place: "observation", "observation/pixels", ("observation", "pixels"), or 3.
Column: TypeAlias = str | int | tuple[Any, ...]


@overload
def read(
    path: str | os.PathLike[str],
    tables: str | Sequence[str] | None = None,
    *,
    flat: bool = False,
    batch_size: None = None,
    shuffle: bool | int = False,
    seed: int | None = None,
    select: Column | Sequence[Column] | None = None,
) -> Reader[Item]: ...
@overload
def read(
    path: str | os.PathLike[str],
    tables: str | Sequence[str] | None = None,
    *,
    flat: bool = False,
    batch_size: int,
    shuffle: bool | int = False,
    seed: int | None = None,
    select: Column | Sequence[Column] | None = None,
    pad: Literal[False] = False,
    drop_last: bool = False,
) -> Reader[_Batch[_Data]]: ...
@overload
def read(
    path: str | os.PathLike[str],
    tables: str | Sequence[str] | None = None,
    *,
    flat: bool = False,
    batch_size: int,
    shuffle: bool | int = False,
    seed: int | None = None,
    select: Column | Sequence[Column] | None = None,
    pad: Literal[True],
    drop_last: bool = False,
) -> Reader[_PaddedBatch[_Data]]: ...
@overload
def read(
    path: str | os.PathLike[str],
    tables: str | Sequence[str] | None = None,
    *,
    flat: bool = False,
    batch_size: int | None,
    shuffle: bool | int = False,
    seed: int | None = None,
    select: Column | Sequence[Column] | None = None,
    pad: bool = False,
    drop_last: bool = False,
) -> Reader[Any]: ...
def read(
    path: str | os.PathLike[str],
    tables: str | Sequence[str] | None = None,
    *,
    flat: bool = False,
    batch_size: int | None = None,
    shuffle: bool | int = False,
    seed: int | None = None,
    select: Column | Sequence[Column] | None = None,
    pad: bool = False,
    drop_last: bool = False,
) -> Reader[Any]:
    """Returns the items of a checkpoint, one by one or in batches, as a Reader: an iterable with a length.

    Needs memory for what it returns, not for the table: the data stays in the files until it is returned.

    Args:
        path: one checkpoint, or a directory of checkpoints: then the latest complete one.
        tables: the name of a table, or several; None means all. Batches are of one table.
        flat: return a flat list of columns instead of the structure of the table's signature or of its writers.
        batch_size: return batches of that many items, in the form of `Client.sample_batches`. None: returns Items.
        shuffle: return the items in random order, another one in each pass. Groups of 256 neighbours are taken in
            random order, and each item is drawn from a window of 16384 of them, or of as many as this number says:
            tables up to that size are shuffled perfectly. The window needs some hundred bytes for each item.
        seed: of the random order; readers with the same seed return the same items in the same order, pass by pass.
        select: read only these columns: a name or several, such as "observation" or "observation/pixels". Dicts and
            namedtuples keep what is selected of them. Numbers select columns by their position in flat order. The rest
            is not even read from the disk, if it is in chunks of its own.
        pad: as for `Client.sample_batches`: fill up shorter items of a batch with zeros.
        drop_last: leave out the last batch of a pass if it is smaller than the others.

    Raises:
        RuntimeError: if there is no checkpoint or no such table (`code` is "NOT_FOUND"), or if the part that was read
            is damaged ("DATA_LOSS").
        ValueError: if an item does not match its table's signature (`flat=True` reads it), if items of a batch differ
            in length (without `pad`) or dtype, or if there is no column that `select` names.
    """
    return Reader(
        path,
        tables,
        flat=flat,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        select=select,
        pad=pad,
        drop_last=drop_last,
    )


class _Packing:
    """Arranges columns of a table in their nest."""

    def __init__(self, table: str, info: dict[str, Any], *, flat: bool, select: list[Column] | None) -> None:
        self._table = table
        self._nest: Any = None  # none: a flat list
        self._from_signature = False
        # Items with another number of columns than the nest become flat lists.
        self._num_columns: int | None = None
        self.columns: list[int] = []  # empty: all
        if not flat:
            if info["signature"]:
                self._nest = _signatures.decode_signature(info["signature"])
                self._from_signature = True
            elif info["structure"]:
                self._nest = _core.decode_signature(info["structure"])
            if self._nest is not None:
                self._num_columns = len(_tree.flatten(self._nest))
        if select is not None:
            self._select(select)

    def _select(self, select: list[Column]) -> None:
        leaves = [] if self._nest is None else _tree.flatten_with_path(self._nest)
        chosen: set[int] = set()
        for column in select:
            if isinstance(column, (int, np.integer)) and not isinstance(column, bool):
                if column < 0 or (leaves and column >= len(leaves)):
                    raise ValueError(f"select: table {self._table!r} has no column {column}; {self._known(leaves)}")
                chosen.add(int(column))
                continue
            if not isinstance(column, (str, tuple)):
                raise TypeError(
                    f"select must be names, paths (tuples) or positions of columns, got {column!r} of type "
                    f"{type(column).__name__}"
                )
            found = [i for i, (path, _) in enumerate(leaves) if _is_below(path, column)]
            if not found:
                raise ValueError(f"select: table {self._table!r} has no column {column!r}; {self._known(leaves)}")
            chosen.update(found)
        if not chosen:
            raise ValueError("select names no column; None selects all")
        self.columns = sorted(chosen)
        if self._nest is not None:
            self._nest = _prune(self._nest, iter(range(len(leaves))), chosen)
            self._num_columns = len(self.columns)

    def _known(self, leaves: list[tuple[tuple[Any, ...], Any]]) -> str:
        if not leaves:
            return "its columns have no names (select them by position)"
        names = [path_text(path) for path, _ in leaves]
        return "it has " + ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")

    @property
    def nest(self) -> Any:
        """A nest with a leaf for each column; None if the columns are a flat list."""
        return self._nest

    def pack(self, columns: list[Any], key: int | None = None) -> Any:
        """Returns the columns in their nest."""
        if self._num_columns is None:
            return columns
        if len(columns) != self._num_columns:
            if not self._from_signature:
                return columns
            what = "an item" if key is None else f"item {key}"
            raise ValueError(
                f"{what} of table {self._table!r} has {len(columns)} columns but the table's signature has "
                f"{self._num_columns}; read it with flat=True"
            )
        # A single value is a flat list of one column for items, and itself for batches.
        if key is not None and not self._from_signature and not _tree.is_nested(self._nest):
            return columns
        return _tree.unflatten_as(self._nest, columns)


def path_text(path: tuple[Any, ...]) -> str:
    """Returns the name of a column: the parts of its path, joined by slashes."""
    return "/".join(str(part) for part in path)


def _is_below(path: tuple[Any, ...], column: str | tuple[Any, ...]) -> bool:
    if isinstance(column, tuple):
        return path[: len(column)] == column
    text = path_text(path)
    return text == column or text.startswith(column + "/")


def _prune(nest: Any, numbers: Iterator[int], chosen: set[int]) -> Any:
    """Returns the nest with the chosen leaves only; _GONE if no leaf is left."""
    if not _tree.is_nested(nest):
        return nest if next(numbers) in chosen else _GONE
    children = [(key, _prune(child, numbers, chosen)) for key, child in _tree.children(nest)]
    kept = [(key, child) for key, child in children if child is not _GONE]
    if not kept:
        return _GONE
    if isinstance(nest, Mapping):
        return dict(kept)
    if _tree.is_namedtuple(nest):  # of fewer fields
        fields = [key for key, _ in kept]
        return _signatures.namedtuple_class(type(nest).__name__, fields)(*(child for _, child in kept))
    return tuple(child for _, child in kept) if isinstance(nest, tuple) else [child for _, child in kept]


_GONE = object()


class Reader(Generic[_T_co]):
    """Items or batches of a checkpoint, from `read()`. Each `for` over it is a pass from the start.

    `next(reader)` returns the next element of a pass that only next() uses.

    Can be pickled, for the workers of a data loader: the copy opens the same checkpoint, counts on with the passes of
    a shuffled reader, and starts a pass of its own.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        tables: str | Sequence[str] | None,
        *,
        flat: bool,
        batch_size: int | None,
        shuffle: bool | int,
        seed: int | None,
        select: Column | Sequence[Column] | None,
        pad: bool,
        drop_last: bool,
    ) -> None:
        """See read()."""
        self._native = _core.CheckpointReader(os.fspath(path))
        native = self._native.info()
        self._path: str = native["path"]
        infos = {table["name"]: table for table in native["tables"]}
        names = list(infos) if tables is None else [tables] if isinstance(tables, str) else list(tables)
        for name in names:
            self._native.items(name, [], 0, None)  # this call reports a wrong name, not the first item
        self._sizes = {name: int(infos[name]["current_size"]) for name in names}
        self._names = names
        self._batch_size = None if batch_size is None else _arguments.as_positive("batch_size", batch_size)
        if self._batch_size is not None and len(names) != 1:
            known = ", ".join(repr(name) for name in names)
            raise ValueError(f"batches are of one table; name one of {known or 'none: the checkpoint has no tables'}")
        if self._batch_size is None and (pad or drop_last):
            raise ValueError("pad and drop_last are for batches; give batch_size too")
        if isinstance(shuffle, (bool, np.bool_)):
            self._window = DEFAULT_SHUFFLE_WINDOW if shuffle else 0
        else:
            self._window = _arguments.as_positive("shuffle", shuffle)
        if seed is not None:
            seed = _arguments.as_int("seed", seed)
            if not 0 <= seed < 2**64:
                raise ValueError(f"seed ({seed}) must be between 0 and 2**64 - 1")
        self._seed = seed
        if select is not None:
            is_one = isinstance(select, (str, tuple)) or not isinstance(select, Iterable)
            select = [cast("Column", select)] if is_one else list(cast("Sequence[Column]", select))
        self._packing = {name: _Packing(name, infos[name], flat=flat, select=select) for name in names}
        # Of a copy.
        self._options = {"flat": flat, "batch_size": batch_size, "shuffle": shuffle, "seed": seed, "select": select}
        self._options |= {"pad": pad, "drop_last": drop_last}
        self._pad = bool(pad)
        self._drop_last = drop_last
        self._passes = 0
        self._current: Iterator[_T_co] | None = None

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), os.path.abspath(self._path), self._names, self._options, self._passes)

    def __repr__(self) -> str:
        what = "items" if self._batch_size is None else f"batches of {self._batch_size}"
        return f"<Reader of {len(self)} {what} of {', '.join(self._names)} in {self._path}>"

    @property
    def path(self) -> str:
        """The checkpoint that is read."""
        return self._path

    @property
    def tables(self) -> list[str]:
        """The names of the tables that are read."""
        return list(self._names)

    @property
    def batch_size(self) -> int | None:
        """Items in a batch; None if the reader returns Items."""
        return self._batch_size

    @property
    def pad(self) -> bool:
        """Whether shorter items of a batch are padded."""
        return self._pad

    def __len__(self) -> int:
        """Items, or batches, in a pass."""
        items = sum(self._sizes[name] for name in self._names)
        if self._batch_size is None:
            return items
        return items // self._batch_size if self._drop_last else -(-items // self._batch_size)

    def __iter__(self) -> Iterator[_T_co]:
        number, self._passes = self._passes, self._passes + 1
        if self._batch_size is None:
            return cast("Iterator[_T_co]", self._items(number))
        return cast("Iterator[_T_co]", self._batches(number, self._batch_size))

    def __next__(self) -> _T_co:
        if self._current is None:
            self._current = iter(self)
        return next(self._current)

    def _open(self, table: str, pass_number: int) -> _core.CheckpointItems:
        seed = None
        if self._seed is not None:
            # A hash of both: sums would give a pass the order of another pass with another seed.
            seed = int(np.random.SeedSequence(self._seed, spawn_key=(pass_number,)).generate_state(1, np.uint64)[0])
        return self._native.items(table, self._packing[table].columns, self._window, seed)

    def _items(self, pass_number: int) -> Iterator[Item]:
        for table in self._names:
            pack = self._packing[table].pack
            for key, priority, times_sampled, inserted_at, columns, _ in self._open(table, pass_number):
                yield Item(table, key, priority, times_sampled, _time(inserted_at), pack(columns, key))

    def _batches(self, pass_number: int, batch_size: int) -> Iterator[ReplaySample]:
        take = self._take(pass_number, self._pad)
        while True:
            batch = take(batch_size)
            if batch is None or (self._drop_last and len(batch.info.key) < batch_size):
                return
            yield batch

    def _take(self, pass_number: int, pad: bool) -> Callable[[int], ReplaySample | None]:
        """Starts a pass; returns a function that returns the next n items, fewer at the end, then None."""
        (table,) = self._names
        items, pack = self._open(table, pass_number), self._packing[table].pack

        def take(n: int) -> ReplaySample | None:
            taken = items.next_batch(n, pad)
            if taken is None:
                return None
            info, columns, lengths = taken
            data = pack(columns)
            if lengths is None:
                return ReplaySample(info, data)
            padded = PaddedBatch(info, data)
            padded.lengths = pack(lengths)
            return padded

        return take


def _rebuild(
    kind: type[Reader[Any]], path: str, tables: list[str], options: dict[str, Any], passes: int
) -> Reader[Any]:
    reader = kind(path, tables, **options)
    reader._passes = passes
    return reader


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
        row_tables={table["name"]: rows.info_from_native(table) for table in native["row_tables"]},
    )


def verify(path: str | os.PathLike[str]) -> None:
    """Reads a whole checkpoint. RuntimeError, naming the file, if a checksum or a reference is wrong."""
    with _progress.Progress("verifying a checkpoint") as progress:
        _core.CheckpointReader(os.fspath(path)).verify(progress)


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
    with _progress.Progress("converting a checkpoint") as progress:
        return _core.import_checkpoint(os.fspath(source), os.fspath(target), progress)


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> str:
    """Copies a checkpoint, with everything that it needs, to a new folder. Checkpoints of one folder share files.

    The copy is read and verified before `target` appears. A server may write checkpoints meanwhile.

    Args:
        source: one checkpoint, or a directory of them: then the latest.
        target: the new directory, which must not exist; read() and servers find the checkpoint in it.

    Returns:
        The path of the new checkpoint, below `target`.

    Raises:
        RuntimeError: if there is no such checkpoint, it is damaged, or `target` exists.
        ValueError: for a checkpoint of dm-reverb, which convert() converts.
    """
    with _progress.Progress("copying a checkpoint") as progress:
        return _core.copy_checkpoint(os.fspath(source), os.fspath(target), progress)
