"""Mixes batches of several sources: reverb.mix()."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from reverb import _arguments, _tree, checkpoints
from reverb._mix._parts import Part, explain, join_padded
from reverb._mix._shares import Share, Shares
from reverb._mix._sources import make_source
from reverb.replay_sample import MixedBatch, SampleInfo, _Data, _MixedBatch

_T = TypeVar("_T")

__all__ = ["MixedBatch", "MixedBatches", "Share", "mix"]


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
    pad: bool = False,
) -> MixedBatches[_MixedBatch[_Data]]:
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
    source gives its share of `batch_size`, rounded to items; a share of 0 gives none. As long as shares do not change,
    the total of a source is never off by one item or more; that of one of two sources is never off by more than half an
    item, even if they change.

    Items are taken from clients only when all other sources have theirs, and from iterators when readers and lists have
    theirs, so that the end of a source takes nothing from a queue. What an iterator has returned beyond the last batch
    is dropped.

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
        pad: fill up items that are shorter than the longest of their batch with zeros at the end; batches then have
            `lengths`, as those of `Client.sample_batches`. Also done if a reader or an iterable has padded batches.

    Raises:
        ValueError: for shares that do not add up to 1, and, from next(), if sources differ in structure, dtype or
            shape, or a source to be repeated is empty.
        TypeError: for anything else as a source.
    """
    return MixedBatches(sources, batch_size, table, num_batches, repeat, shuffle, seed, timeout, exact, pad)


class MixedBatches(Iterator[_T]):
    """The batches of mix(). close() ends the streams of samples of its clients."""

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
        pad: bool,
    ) -> None:
        """See mix()."""
        pairs = _pairs(sources)
        self._batch_size = _arguments.as_positive("batch_size", batch_size)
        self._num_batches = None if num_batches is None else _arguments.as_positive("num_batches", num_batches)
        self._shares = Shares([share for _, share in pairs], self._batch_size)
        self._pad = bool(pad) or any(isinstance(source, checkpoints.Reader) and source.pad for source, _ in pairs)
        self._sources = [
            make_source(i, source, table, self._batch_size, repeat, timeout, exact, self._pad)
            for i, (source, _) in enumerate(pairs)
        ]
        self._fetch_order = sorted(range(len(pairs)), key=lambda i: self._sources[i].fetch_rank)
        self._random = np.random.default_rng(seed) if shuffle else None
        self._step = 0
        self._counts: list[int] | None = None  # of the batch that is being made
        self._ended = False

    def __next__(self) -> _T:
        if self._ended or (self._num_batches is not None and self._step >= self._num_batches):
            raise StopIteration
        if self._counts is None:
            self._counts = self._shares.counts(self._step)
        # First everything is fetched, so that an error takes nothing: what is there stays for the next call.
        for i in self._fetch_order:
            if not self._sources[i].fetch(self._counts[i]):
                self.close()
                raise StopIteration
        parts = [
            (number, part)
            for number, (source, count) in enumerate(zip(self._sources, self._counts, strict=True))
            for part in source.held(count)
        ]
        batch = self._combine(parts)
        for source, count in zip(self._sources, self._counts, strict=True):
            source.drop(count)
        self._counts = None
        self._step += 1
        return batch

    def close(self) -> None:
        """Ends the iterator and the streams of samples. Items that were fetched for an incomplete batch are dropped."""
        self._ended = True
        for source in self._sources:
            source.close()

    def _combine(self, parts: list[tuple[int, Part]]) -> _T:
        first_number, first = parts[0]
        self._pad = self._pad or any(part.lengths is not None for _, part in parts)
        for number, part in parts[1:]:
            if not first.fits(part, pad=self._pad):
                ours, theirs = self._sources[first_number], self._sources[number]
                raise ValueError(explain(first, ours, part, theirs, pad=self._pad))
        order = None if self._random is None else self._random.permutation(self._batch_size)

        def join(arrays: list[Any]) -> Any:
            joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            if order is not None:
                return joined[order]
            is_shared = len(arrays) == 1 and not self._sources[first_number].owns_arrays
            return joined.copy() if is_shared else np.ascontiguousarray(joined)

        infos = [part.info for _, part in parts]
        info = SampleInfo(*(join([np.asarray(getattr(each, name)) for each in infos]) for name in SampleInfo._fields))
        columns, lengths = [], []
        for i in range(len(first.columns)):
            if self._pad:
                column, length = join_padded([part for _, part in parts], i, join)
                lengths.append(length)
            else:
                column = join([part.columns[i] for _, part in parts])
            columns.append(column)
        batch = MixedBatch(info, _tree.unflatten_as(first.nest, columns))
        batch.source = join([np.full(part.size, number, np.int64) for number, part in parts])
        batch.lengths = _tree.unflatten_as(first.nest, lengths) if self._pad else None
        return cast("_T", batch)


def _pairs(sources: Any) -> list[tuple[Any, Any]]:
    """Returns the sources with their shares. Iterates over no source."""
    pairs = list(sources.items()) if isinstance(sources, Mapping) else sources
    if not isinstance(pairs, Collection) or isinstance(pairs, (str, bytes)):
        raise TypeError(
            f"sources must be a dict from sources to shares, or a list of pairs (source, share), got a "
            f"{type(sources).__name__}"
        )
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"source {number} must be a pair (source, share), got a {type(pair).__name__}")
    if not pairs:
        raise ValueError("mix() needs at least one source")
    return [(source, share) for source, share in pairs]
