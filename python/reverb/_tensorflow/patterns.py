"""Patterns applied to a dataset of steps.

Each iterator has a StructuredWriter and a queue of its own in this process, so that patterns and conditions mean what
they mean for a writer. The writer takes the steps one by one; the items that they create are the elements.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
import functools
import itertools
from typing import Any

import numpy as np

from reverb import structured_writer
from reverb._tensorflow import arguments, graph
from reverb.server import Server, Table

_TABLE = "items"


class Applied:
    """The writer and the queue of one iterator."""

    def __init__(self, configs: Sequence[structured_writer.Config], clear_buffers: bool) -> None:
        self._table = Table.queue(_TABLE, max_size=len(configs) * 2)  # a step and its end create one item each
        self._server = Server([self._table])
        self._client = self._server.localhost_client()
        self._writer = self._client.structured_writer(configs)
        self._clear_buffers = clear_buffers
        self._items: collections.deque[list[Any]] = collections.deque()

    def append(self, step: list[Any], ends_episode: bool) -> int:
        """Writes a step, and returns the number of items that it created."""
        self._writer.append(step)
        if ends_episode:
            self._writer.end_episode(clear_buffers=self._clear_buffers)
        self._writer.flush()
        created = self._table.info.current_size
        if created:
            samples = self._client.sample(_TABLE, created, emit_timesteps=False, exact=True)
            self._items.extend(list(sample.data) for sample in samples)
        return created

    def pop(self) -> list[Any]:
        """Returns the columns of the oldest item."""
        return self._items.popleft()

    def close(self) -> None:
        """Ends the writer and its queue."""
        self._writer.close()
        self._server.stop()


_applied: dict[int, Applied] = {}
_numbers = itertools.count(1)


def _open(configs: Sequence[structured_writer.Config], clear_buffers: bool) -> Any:
    number = next(_numbers)
    _applied[number] = Applied(configs, clear_buffers)
    return np.int64(number)


def _close(number: Any) -> Any:
    _applied.pop(int(number)).close()
    return np.int64(0)


def pattern_dataset(
    tf: Any,
    input_dataset: Any,
    configs: Sequence[structured_writer.Config],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> tuple[Any, Any, Any]:
    """Returns the variant tensor of a dataset of items, the spec of its elements, and what must live as long as it."""
    step_spec = input_dataset.element_spec
    spec = arguments.with_tuples(structured_writer.infer_signature(configs, step_spec))
    dtypes = [leaf.dtype for leaf in tf.nest.flatten(spec)]
    shapes = [leaf.shape for leaf in tf.nest.flatten(spec)]
    ends = tf.function(is_end_of_episode)

    def flat(*arguments: Any) -> Any:
        # tf.data passes the elements of a plain tuple one by one.
        step = arguments if type(step_spec) is tuple else arguments[0]
        end = tf.convert_to_tensor(ends(step))
        if end.dtype != tf.bool or end.shape.rank not in (0, None):
            raise ValueError(
                f"is_end_of_episode must return a scalar of dtype bool, got {end.dtype.name} of shape {end.shape}"
            )
        return (end, *tf.nest.flatten(step))

    def append(number: Any, end: Any, *leaves: Any) -> Any:
        if end.shape != ():
            raise ValueError(f"is_end_of_episode must return a scalar of dtype bool, got shape {end.shape}")
        return np.int64(_applied[int(number)].append(list(leaves), bool(end)))

    def pop(number: Any) -> Any:
        items = tf.numpy_function(lambda number: _applied[int(number)].pop(), [number], dtypes)
        for item, shape in zip(items, shapes, strict=True):
            item.set_shape(shape)
        return tuple(items)

    lifetime = graph.Lifetime(tf, functools.partial(_open, _copies(configs), respect_episode_boundaries), _close)
    numbers = tf.data.experimental.from_variant(lifetime.dataset(tf), tf.TensorSpec((), tf.int64))
    quiet = tf.autograph.experimental.do_not_convert
    items = (
        tf.data.Dataset.zip((numbers, input_dataset.map(quiet(flat))))
        .map(quiet(lambda number, step: (number, tf.numpy_function(append, [number, *step], tf.int64))))
        .flat_map(quiet(lambda number, created: tf.data.Dataset.range(created).map(quiet(lambda _: pop(number)))))
        .map(quiet(lambda *columns: tf.nest.pack_sequence_as(spec, columns)))
    )
    return tf.data.experimental.to_variant(items), spec, (lifetime, items)


def _copies(configs: Sequence[structured_writer.Config]) -> list[structured_writer.Config]:
    """Returns the configs with the table of this module; those of the caller stay as they are."""
    copies = []
    for config in configs:
        copy = structured_writer.Config()
        copy.CopyFrom(structured_writer.as_config(config))
        copy.table = _TABLE
        if copy.priority.WhichOneof("priority_fn") is None:
            copy.priority.CopyFrom(structured_writer.constant_priority_fn(1.0))
        copies.append(copy)
    return copies
