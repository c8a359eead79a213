"""Samples: data, and information about the item at the time of sampling.

Type checkers read replay_sample.pyi, where the classes are generic.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, TypeVar

import numpy as np


class SampleInfo(NamedTuple):
    """Information about a sampled item, at the time of sampling.

    Fields are numbers, arrays for batches, or anything that a program assigns.
    """

    # Identifies the item in its table, for mutate_priorities().
    key: Any
    # Of selecting the item, given the content of the table.
    probability: Any
    # Items in the table, before a deletion that this sample caused.
    table_size: Any
    priority: Any
    # Including this time.
    times_sampled: Any

    @classmethod
    def tf_dtypes(cls) -> SampleInfo:
        """Returns the dtypes of the fields: TensorFlow's if it can be imported, else NumPy's."""
        try:
            tf = importlib.import_module("tensorflow")
        except ImportError:
            return cls(*(np.dtype(name) for name in ("uint64", "float64", "int64", "float64", "int32")))
        return cls(tf.uint64, tf.float64, tf.int64, tf.float64, tf.int32)

    @classmethod
    def tf_shapes(cls) -> SampleInfo:
        """Returns the shapes of the fields, all scalars: TensorShapes if TensorFlow can be imported, else ()."""
        try:
            tf = importlib.import_module("tensorflow")
        except ImportError:
            return cls(*(() for _ in cls._fields))
        return cls(*(tf.TensorShape([]) for _ in cls._fields))

    @classmethod
    def zeros(cls) -> SampleInfo:
        """Returns a SampleInfo with all fields zero."""
        return cls(key=0, probability=0.0, table_size=0, priority=0.0, times_sampled=0)


class ReplaySample(NamedTuple):
    """A sampled item, or one step of it."""

    info: SampleInfo
    data: Any


class PaddedBatch(ReplaySample):
    """A batch of items of different lengths, padded with zeros at the end.

    `lengths` has the structure of `data`: for each column, the number of rows of each item without padding.
    """

    lengths: Any


class MixedBatch(ReplaySample):
    """A batch of reverb.mix(), with items of several sources.

    `source` has shape [B]: the position, among the sources given to mix(), of the source of each item. `lengths` is
    that of a PaddedBatch, or None if the batch is not padded.
    """

    source: Any
    lengths: Any


# The structure of batches, as far as the caller declares it, and the types of what Client.sample(),
# Client.sample_batches() and mix() yield; more precise in the stub.
_Data = TypeVar("_Data")
_Sample = ReplaySample
_Batch = ReplaySample
_PaddedBatch = PaddedBatch
_MixedBatch = MixedBatch
