"""Parts of batches, and how they become one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from reverb import _tree, checkpoints
from reverb.replay_sample import PaddedBatch, SampleInfo


class ColumnLayout(NamedTuple):
    """What the items of a column have in common."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of an item
    # Whether the first dimension of `shape` is time; None if that is not known.
    has_time: bool | None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def fits(self, other: ColumnLayout, *, pad: bool) -> bool:
        """Returns whether items of both can be in one batch."""
        if self.dtype != other.dtype:
            return False
        return self.shape == other.shape or (pad and self.differs_in_length(other))

    def differs_in_length(self, other: ColumnLayout) -> bool:
        """Returns whether the items differ only in their number of rows, as far as that is known."""
        return (
            self.dtype == other.dtype
            and len(self.shape) == len(other.shape) > 0
            and self.shape[1:] == other.shape[1:]
            and self.has_time is not False
            and other.has_time is not False
        )


class Part:
    """Some items of a source, as arrays. `lengths` has an array for each column of padded items; otherwise None."""

    info: SampleInfo
    nest: Any
    columns: list[Any]
    lengths: list[Any] | None
    layout: list[tuple[_tree.Path, ColumnLayout]]
    size: int

    def __init__(self, batch: Any, source: Any) -> None:
        """TypeError or ValueError, naming the source, for something else than a batch."""
        try:
            self.info, self.nest = batch
            self.size = len(self.info.key)
        except (TypeError, ValueError, AttributeError):
            raise TypeError(
                f"{source} must give batches, ReplaySamples with arrays, as Client.sample_batches() does; got an "
                f"element of type {type(batch).__name__}"
            ) from None
        leaves = _tree.flatten_with_path(self.nest)
        self.columns = [np.asarray(leaf) for _, leaf in leaves]
        self.lengths = None
        if isinstance(batch, PaddedBatch) or getattr(batch, "lengths", None) is not None:
            self.lengths = [np.asarray(leaf) for leaf in _tree.flatten(batch.lengths)]
            if [each.shape for each in self.lengths] != [(self.size,)] * len(self.columns):
                raise ValueError(
                    f"{source}: the lengths of a padded batch must have the structure of its data, with an array "
                    f"[{self.size}] for each column"
                )
        for (path, _), column in zip(leaves, self.columns, strict=True):
            if column.ndim == 0 or len(column) != self.size:
                raise ValueError(
                    f"{source}: column {checkpoints.path_text(path)!r} has shape {column.shape}, but its batch has "
                    f"{self.size} items"
                )
        self.layout = [
            (path, ColumnLayout(column.dtype, column.shape[1:], self._has_time(i)))
            for i, ((path, _), column) in enumerate(zip(leaves, self.columns, strict=True))
        ]

    def _has_time(self, i: int) -> bool | None:
        column = self.columns[i]
        if column.ndim == 1:
            return False
        if self.lengths is None or self.size == 0:
            return None
        # Padding ends with the longest item, and a column without time has lengths of 1.
        return column.shape[1] == 1 or int(self.lengths[i].max()) > 1

    def split(self, n: int) -> tuple[Part, Part]:
        """Returns the first n items, and the others."""
        return self._slice(slice(None, n)), self._slice(slice(n, None))

    def _slice(self, rows: slice) -> Part:
        part = object.__new__(Part)
        part.info = SampleInfo(*(np.asarray(getattr(self.info, name))[rows] for name in SampleInfo._fields))
        part.nest = self.nest
        part.columns = [column[rows] for column in self.columns]
        part.lengths = None if self.lengths is None else [each[rows] for each in self.lengths]
        part.layout = self.layout
        part.size = len(part.info.key)
        return part

    def fits(self, other: Part, *, pad: bool) -> bool:
        """Returns whether the items of both can be in one batch."""
        if self.layout is other.layout:
            return True
        if len(self.layout) != len(other.layout):
            return False
        return all(
            path == other_path and column.fits(other_column, pad=pad)
            for (path, column), (other_path, other_column) in zip(self.layout, other.layout, strict=True)
        )


def join_padded(parts: list[Part], i: int, join: Callable[[list[Any]], Any]) -> tuple[Any, Any]:
    """Returns column i of all parts, padded to the longest item, and the lengths of the items. REQUIRES: they fit."""
    layouts = [part.layout[i][1] for part in parts]
    columns = [part.columns[i] for part in parts]
    if any(layout.has_time is False for layout in layouts):
        return join(columns), join([np.ones(part.size, np.int64) for part in parts])
    lengths: list[Any] = [
        np.full(part.size, column.shape[1], np.int64) if part.lengths is None else part.lengths[i]
        for part, column in zip(parts, columns, strict=True)
    ]
    longest = max((int(each.max()) for each in lengths if len(each) > 0), default=0)
    return join([_with_length(column, longest) for column in columns]), join(lengths)


def _with_length(column: Any, length: int) -> Any:
    """Returns a column of that many rows for each item: padded, or without some of its padding."""
    size, rows, *shape = column.shape
    if rows >= length:
        return column[:, :length]
    padded = np.full((size, length, *shape), b"" if column.dtype == object else 0, column.dtype)
    padded[:, :rows] = column
    return padded


def explain(first: Part, first_source: Any, other: Part, other_source: Any, *, pad: bool) -> str:
    """Returns why the items of both cannot be in one batch."""
    if first_source is other_source:
        names = f"batches of {first_source}"
    else:
        names = f"the sources {first_source} and {other_source}"
    ours, theirs = dict(first.layout), dict(other.layout)
    for path in [*ours, *theirs]:
        name = checkpoints.path_text(path)
        if path not in ours or path not in theirs:
            have, lack = (first_source, other_source) if path in ours else (other_source, first_source)
            return (
                f"{names} differ in structure: {have} has the column {name!r}, {lack} has only "
                f"{[checkpoints.path_text(each) for each in (theirs if path in ours else ours)]}"
            )
        if not ours[path].fits(theirs[path], pad=pad):
            remedy = (
                "pad=True fills up shorter items with zeros"
                if ours[path].differs_in_length(theirs[path])
                else "items of one batch must have the same dtype and shape"
            )
            return f"{names} differ in column {name!r}: {ours[path]} and {theirs[path]}; {remedy}"
    return f"{names} have their columns in a different order"
