"""What sampling gives: data, and what the table knew about the item at that moment."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np


class SampleInfo(NamedTuple):
    """About the item of a sample, as of when it was sampled.

    Fields hold numbers, arrays of them for batches, or whatever else a program puts there.
    """

    # Names the item in its table, for mutate_priorities().
    key: Any
    # Of the item being selected, given what was in the table.
    probability: Any
    # Items in the table, before a deletion that this very sample caused.
    table_size: Any
    priority: Any
    # This time included.
    times_sampled: Any

    @classmethod
    def tf_dtypes(cls) -> SampleInfo:
        """The dtypes of the fields: TensorFlow's where it can be imported, else NumPy's."""
        try:
            tf = importlib.import_module("tensorflow")
        except ImportError:
            return cls(*(np.dtype(name) for name in ("uint64", "float64", "int64", "float64", "int32")))
        return cls(tf.uint64, tf.float64, tf.int64, tf.float64, tf.int32)

    @classmethod
    def tf_shapes(cls) -> SampleInfo:
        """The shapes of the fields, all scalars: TensorShapes where TensorFlow can be imported, else ()."""
        try:
            tf = importlib.import_module("tensorflow")
        except ImportError:
            return cls(*(() for _ in cls._fields))
        return cls(*(tf.TensorShape([]) for _ in cls._fields))

    @classmethod
    def zeros(cls) -> SampleInfo:
        """All fields zero."""
        return cls(key=0, probability=0.0, table_size=0, priority=0.0, times_sampled=0)


class ReplaySample(NamedTuple):
    """A sampled item, or one step of it."""

    info: SampleInfo
    data: Any


class PaddedBatch(ReplaySample):
    """A batch of items of different lengths, filled up with zeros at their ends.

    `lengths` has the structure of `data`: for each column, how many rows of each item are not padding.
    """

    lengths: Any
