"""Mixes batches of several sources: reverb.mix()."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import math
import operator
from typing import Any, TypeAlias

import numpy as np

from reverb import _core, _tree, checkpoints
from reverb.replay_sample import PaddedBatch, ReplaySample, SampleInfo

# A share of each batch: a number, a function from the number of the batch (0, 1, ...) to one, or None: the rest.
Share: TypeAlias = "float | Callable[[int], float] | None"


class MixedBatch(ReplaySample):
    """A batch with items of several sources.

    `source` has shape [B]: the position, among the sources given to mix(), of the source of each item.
    """

    source: Any


def mix(
    sources: Mapping[Any, Share] | Sequence[tuple[Any, Share]],
    batch_size: int,
    *,
    table: str | None = None,
    num_batches: int | None = None,
    repeat: bool = True,
    shuffle: bool = False,
    seed: int | None = None,
    timeout: float | None = None,
    exact: bool = False,
) -> Iterator[MixedBatch]:
    """Returns an iterator over batches whose items come from several sources, such as a server and a checkpoint.

    >>> import tempfile, reverb
    >>> def table():
    ...     return reverb.Table.queue("queue", 100)
    >>> checkpointer = reverb.checkpointers.DefaultCheckpointer(tempfile.mkdtemp())
    >>> with reverb.Server([table()], checkpointer=checkpointer) as server:
    ...     for step in range(4):
    ...         server.localhost_client().insert({"x": -step}, priorities={"queue": 1.0})
    ...     path = server.localhost_client().checkpoint()
    >>> offline = reverb.checkpoints.read(path, "queue")
    >>> with reverb.Server([table()]) as server:
    ...     online = server.localhost_client()
    ...     for step in range(6):
    ...         online.insert({"x": step}, priorities={"queue": 1.0})
    ...     for batch in reverb.mix({online: 0.75, offline: 0.25}, batch_size=4, table="queue", num_batches=2):
    ...         print(batch.data["x"][:, 0].tolist(), batch.source.tolist())
    [0, 1, 2, 0] [0, 0, 0, 1]
    [3, 4, 5, -1] [0, 0, 0, 1]

    A batch has the form of `Client.sample_batches`, and `source`, which says where each item comes from: update the
    priorities of those of a server only. All sources must have the same structure, dtypes and shapes. Of each batch a
    source gives its share of `batch_size`, rounded such that its total is never off by one item or more.

    Args:
        sources: each source with its share, as a dict or as pairs. A source is a Client (then `table` is the table), a
            pair (client, table), a reader from `reverb.checkpoints.read` of one table, or any iterable of batches
            (ReplaySamples with arrays, as `sample_batches` returns them). A share is a number, or a function from the
            number of the batch, from 0 on, to a number, for shares that change; None is what the others leave. Shares
            must add up to 1.
        batch_size: items in a batch.
        table: of the clients that are given without one.
        num_batches: the number of batches; None: until a source ends, or without end.
        repeat: start again with a source that ends, if it can be iterated over again, such as a reader. Otherwise the
            first source that ends ends the iterator; an incomplete batch is dropped.
        shuffle: put the items of each batch in random order; otherwise those of the first source are first.
        seed: of that order. Readers have a seed of their own.
        timeout: seconds that each next() may wait for a client; DeadlineExceededError afterwards. The following next()
            continues with the items that were there already.
        exact: as for `Client.sample_batches`.

    Raises:
        ValueError: for shares that do not add up to 1, and, from next(), if sources differ in structure, dtype or
            shape, or a source to be repeated is empty.
        TypeError: for anything else as a source.
    """
    return _Mix(sources, batch_size, table, num_batches, repeat, shuffle, seed, timeout, exact)


class _Mix(Iterator[MixedBatch]):
    def __init__(
        self,
        sources: Mapping[Any, Share] | Sequence[tuple[Any, Share]],
        batch_size: int,
        table: str | None,
        num_batches: int | None,
        repeat: bool,
        shuffle: bool,
        seed: int | None,
        timeout: float | None,
        exact: bool,
    ) -> None:
        pairs = list(sources.items()) if isinstance(sources, Mapping) else [tuple(pair) for pair in sources]
        if not pairs:
            raise ValueError("mix() needs at least one source")
        self._batch_size = _positive("batch_size", batch_size)
        self._num_batches = None if num_batches is None else _positive("num_batches", num_batches)
        self._shares: list[Share] = []
        for _, share in pairs:
            if isinstance(share, (str, bytes)) or (
                share is not None and not callable(share) and not hasattr(share, "__float__")
            ):
                raise TypeError(f"a share must be a number, a function or None, got {share!r}")
            self._shares.append(share if share is None or callable(share) else float(share))
        if sum(share is None for share in self._shares) > 1:
            raise ValueError("only one share may be None, which is what the others leave")
        self._sources = [
            _make_source(i, source, table, self._batch_size, repeat, timeout, exact)
            for i, (source, _) in enumerate(pairs)
        ]
        self._random = np.random.default_rng(seed) if shuffle else None
        self._owed = [0.0] * len(pairs)  # items that a source is behind its share
        self._step = 0
        self._counts: list[int] | None = None  # of the batch that is being made
        self._ended = False
        if not any(callable(share) for share in self._shares):
            self._shares_at(0)  # reports wrong shares now

    def _shares_at(self, step: int) -> list[float]:
        values = [share(step) if callable(share) else share for share in self._shares]
        numbers = [None if value is None else float(value) for value in values]
        given = [number for number in numbers if number is not None]
        total = math.fsum(given)
        if any(not 0 <= number <= 1 for number in given):
            raise ValueError(f"shares must be between 0 and 1; those of batch {step} are {numbers}")
        if len(given) < len(numbers):
            if total > 1 + 1e-6:
                raise ValueError(f"the shares of batch {step} leave nothing: {numbers} add up to {total}")
            return [max(0.0, 1 - total) if number is None else number for number in numbers]
        if abs(total - 1) > 1e-6:
            raise ValueError(
                f"the shares of batch {step}, {numbers}, add up to {total} instead of 1; None as a share is what the "
                "others leave"
            )
        return given

    def _next_counts(self) -> list[int]:
        shares = self._shares_at(self._step)
        owed = [before + share * self._batch_size for before, share in zip(self._owed, shares, strict=True)]
        counts = [max(0, math.floor(number + 1e-9)) for number in owed]
        # Those furthest behind get the rest, and those furthest ahead give what is too much; ties in order.
        missing = self._batch_size - sum(counts)
        while missing != 0:
            behind = [number - count for number, count in zip(owed, counts, strict=True)]
            if missing > 0:
                counts[behind.index(max(behind))] += 1
                missing -= 1
            else:
                candidates = [i for i, count in enumerate(counts) if count > 0]
                counts[min(candidates, key=behind.__getitem__)] -= 1
                missing += 1
        self._owed = [number - count for number, count in zip(owed, counts, strict=True)]
        return counts

    def __next__(self) -> MixedBatch:
        if self._ended or (self._num_batches is not None and self._step >= self._num_batches):
            raise StopIteration
        if self._counts is None:
            self._counts = self._next_counts()
        # First everything is fetched, so that an error takes nothing: what is there stays for the next call.
        for source, count in zip(self._sources, self._counts, strict=True):
            if not source.fetch(count):
                self._ended = True
                self.close()
                raise StopIteration
        parts = [
            (number, source.held(count))
            for number, (source, count) in enumerate(zip(self._sources, self._counts, strict=True))
            if count > 0
        ]
        batch = self._combine(parts)
        for source, count in zip(self._sources, self._counts, strict=True):
            source.drop(count)
        self._counts = None
        self._step += 1
        return batch

    def close(self) -> None:
        """Closes the streams of samples."""
        self._ended = True
        for source in self._sources:
            source.close()

    def _combine(self, parts: list[tuple[int, list[_Part]]]) -> MixedBatch:
        pieces = [(number, piece) for number, held in parts for piece in held]
        first_number, first = pieces[0]
        for number, piece in pieces[1:]:
            if piece.layout is not first.layout and piece.layout != first.layout:
                raise ValueError(self._explain(first_number, first, number, piece))
        order = None if self._random is None else self._random.permutation(self._batch_size)

        def join(arrays: list[Any]) -> Any:
            joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            return joined if order is None else joined[order]

        infos = [piece.info for _, piece in pieces]
        info = SampleInfo(*(join([np.asarray(getattr(each, name)) for each in infos]) for name in SampleInfo._fields))
        columns = [join([piece.columns[i] for _, piece in pieces]) for i in range(len(first.columns))]
        batch = MixedBatch(info, _tree.unflatten_as(first.nest, columns))
        batch.source = join([np.full(piece.size, number, np.int64) for number, piece in pieces])
        return batch

    def _explain(self, first_number: int, first: _Part, number: int, other: _Part) -> str:
        names = f"{self._sources[first_number]} and {self._sources[number]}"
        ours, theirs = dict(first.layout), dict(other.layout)
        for path in [*ours, *theirs]:
            if path not in ours or path not in theirs:
                have, lack = (first_number, number) if path in ours else (number, first_number)
                return (
                    f"the sources {names} differ in structure: {self._sources[have]} has the column "
                    f"{checkpoints.path_text(path)!r}, {self._sources[lack]} has only "
                    f"{[checkpoints.path_text(each) for each in (ours if lack == first_number else theirs)]}"
                )
            if ours[path] != theirs[path]:
                return (
                    f"the sources {names} differ in column {checkpoints.path_text(path)!r}: "
                    f"{_describe(ours[path])} and {_describe(theirs[path])}; items of one batch must have the same "
                    "dtype and shape"
                )
        return f"the sources {names} have their columns in a different order"


def _describe(layout: tuple[Any, tuple[int, ...]]) -> str:
    return f"{layout[0]}{list(layout[1])}"


class _Part:
    """Some items, as arrays."""

    def __init__(self, batch: Any, source: Any) -> None:
        if isinstance(batch, PaddedBatch):
            raise ValueError(f"{source} has padded batches, which cannot be mixed; their lengths differ")
        try:
            info, data = batch
            self.size = len(info.key)
        except (TypeError, ValueError, AttributeError):
            raise TypeError(
                f"{source} must give batches, ReplaySamples with arrays, as Client.sample_batches() does; got an "
                f"element of type {type(batch).__name__}"
            ) from None
        self.info = info
        self.nest = data
        leaves = _tree.flatten_with_path(data)
        self.columns = [np.asarray(leaf) for _, leaf in leaves]
        for (path, _), column in zip(leaves, self.columns, strict=True):
            if column.ndim == 0 or len(column) != self.size:
                raise ValueError(
                    f"{source}: column {checkpoints.path_text(path)!r} has shape {column.shape}, but its batch has "
                    f"{self.size} items"
                )
        self.layout = [
            (path, (column.dtype, column.shape[1:])) for (path, _), column in zip(leaves, self.columns, strict=True)
        ]

    def split(self, n: int) -> tuple[_Part, _Part]:
        """Returns the first n items, and the others."""
        return self._slice(slice(None, n)), self._slice(slice(n, None))

    def _slice(self, rows: slice) -> _Part:
        part = object.__new__(_Part)
        part.info = SampleInfo(*(np.asarray(getattr(self.info, name))[rows] for name in SampleInfo._fields))
        part.nest = self.nest
        part.columns = [column[rows] for column in self.columns]
        part.layout = self.layout
        part.size = len(part.info.key)
        return part


class _Source:
    """Keeps items that were fetched and not used yet."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: list[_Part] = []

    def __str__(self) -> str:
        return self._name

    def _more(self, n: int) -> Any:
        """Returns a batch of up to n items, or more; None at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the source."""

    def fetch(self, n: int) -> bool:
        """Makes sure that n items are held. Returns whether there are so many."""
        have = sum(part.size for part in self._held)
        while have < n:
            batch = self._more(n - have)
            if batch is None:
                return False
            part = _Part(batch, self)
            self._held.append(part)
            have += part.size
        return True

    def held(self, n: int) -> list[_Part]:
        """Returns the first n held items. REQUIRES: they are held."""
        taken: list[_Part] = []
        for i, part in enumerate(self._held):
            if n == 0:
                break
            if part.size > n:
                self._held[i : i + 1] = part.split(n)
                part = self._held[i]
            taken.append(part)
            n -= part.size
        return taken

    def drop(self, n: int) -> None:
        """Forgets the first n held items, as held() returned them."""
        while n > 0:
            n -= self._held.pop(0).size


class _ClientSource(_Source):
    def __init__(self, name: str, client: Any, table: str, most: int, timeout: float | None, exact: bool) -> None:
        super().__init__(name)
        self._batches = client.sample_batches(table, most, timeout=timeout, exact=exact)

    def _more(self, n: int) -> Any:
        try:
            return self._batches.take(n)
        except StopIteration:
            return None

    def close(self) -> None:
        self._batches.close()


class _ReaderSource(_Source):
    def __init__(self, name: str, reader: checkpoints.Reader[Any], repeat: bool) -> None:
        super().__init__(name)
        if len(reader.tables) != 1:
            known = ", ".join(repr(table) for table in reader.tables)
            raise ValueError(f"{name} reads the tables {known or '(none)'}; a source of mix() reads one")
        self._reader = reader
        self._repeat = repeat
        self._pass = 0
        self._take = reader._take(0)

    def _more(self, n: int) -> Any:
        batch = self._take(n)
        if batch is None and self._repeat:
            self._pass += 1
            self._take = self._reader._take(self._pass)
            batch = self._take(n)
            if batch is None:
                raise ValueError(f"{self} is empty; there is nothing to repeat")
        return batch


class _IterableSource(_Source):
    def __init__(self, name: str, iterable: Iterable[Any], repeat: bool) -> None:
        super().__init__(name)
        self._iterable = iterable
        self._iterator = iter(iterable)
        self._repeats = repeat and self._iterator is not iterable

    def _more(self, n: int) -> Any:
        del n
        try:
            return next(self._iterator)
        except StopIteration:
            if not self._repeats:
                return None
        self._iterator = iter(self._iterable)
        try:
            return next(self._iterator)
        except StopIteration:
            raise ValueError(f"{self} is empty; there is nothing to repeat") from None


def _make_source(
    number: int, source: Any, table: str | None, most: int, repeat: bool, timeout: float | None, exact: bool
) -> _Source:
    own_table = table
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], _core.Client):
        source, own_table = source
    if isinstance(source, _core.Client):
        if not isinstance(own_table, str):
            raise ValueError(
                f"source {number}, {source!r}, needs a table: give table=, or (client, table) as the source"
            )
        name = f"source {number} (table {own_table!r} of {source.server_address})"
        return _ClientSource(name, source, own_table, most, timeout, exact)
    if isinstance(source, checkpoints.Reader):
        return _ReaderSource(f"source {number} ({', '.join(source.tables)} of {source.path})", source, repeat)
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, Mapping)):
        return _IterableSource(f"source {number} (a {type(source).__name__})", source, repeat)
    raise TypeError(
        f"source {number} is a {type(source).__name__}; it must be a Client, a reader from reverb.checkpoints.read(), "
        "or an iterable of batches"
    )


def _positive(name: str, value: int) -> int:
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{name} ({number}) must be a positive integer")
    return number
