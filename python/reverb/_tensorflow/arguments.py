"""The arguments of datasets, and the specs of their elements."""

from __future__ import annotations

import enum
import operator
from typing import Any, NamedTuple

from reverb import _tree
from reverb.replay_sample import ReplaySample, SampleInfo


class Part(enum.Enum):
    """What an element has of a sampled item."""

    TRAJECTORY = enum.auto()
    TIMESTEP = enum.auto()  # one step; the others follow
    FIRST_STEP = enum.auto()


class Settings(NamedTuple):
    """The settings of a dataset, as plain values: datasets with equal ones share TensorFlow's functions."""

    max_in_flight: int
    num_workers: int
    rate_limiter_timeout: float | None  # seconds
    max_samples: int
    batch_size: int  # 0: single elements
    part: Part
    # Of the columns, in flat order: tf.DType, and the dimensions (None: unknown) or None for an unknown rank.
    dtypes: tuple[Any, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]


def make_settings(
    *,
    dtypes: Any,
    shapes: Any,
    max_in_flight_samples_per_worker: int,
    num_workers_per_iterator: int,
    max_samples_per_stream: int,
    rate_limiter_timeout_ms: int,
    max_samples: int,
    batch_size: int | None,
    part: Part,
    tf: Any,
) -> Settings:
    """Checks the arguments of a dataset. ValueError, naming the argument and its value."""
    tf.nest.assert_same_structure(dtypes, shapes)
    _check("max_in_flight_samples_per_worker", max_in_flight_samples_per_worker, "must be a positive integer", least=1)
    for name, value in (
        ("num_workers_per_iterator", num_workers_per_iterator),
        ("max_samples_per_stream", max_samples_per_stream),
        ("max_samples", max_samples),
    ):
        if value != -1:
            _check(name, value, "must be -1 or a positive integer", least=1)
    _check("rate_limiter_timeout_ms", rate_limiter_timeout_ms, "must be an integer >= -1", least=-1)
    if batch_size is not None:
        _check("batch_size", batch_size, "must be a positive integer, or None for single elements", least=1)
        if max_samples != -1 and max_samples % batch_size != 0:
            raise ValueError(f"max_samples ({max_samples}) must be a multiple of batch_size ({batch_size})")
    return Settings(
        max_in_flight=max_in_flight_samples_per_worker,
        num_workers=num_workers_per_iterator,
        rate_limiter_timeout=None if rate_limiter_timeout_ms < 0 else rate_limiter_timeout_ms / 1000,
        max_samples=max_samples,
        batch_size=batch_size or 0,
        part=part,
        dtypes=tuple(tf.as_dtype(dtype) for dtype in tf.nest.flatten(dtypes)),
        shapes=tuple(_dimensions(tf.TensorShape(shape)) for shape in tf.nest.flatten(shapes)),
    )


def _check(name: str, value: Any, rule: str, least: int) -> None:
    try:
        fits = operator.index(value) >= least
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"{name} ({value!r}) {rule}")


def _dimensions(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def with_tuples(nest: Any) -> Any:
    """Returns the nest with its lists as tuples: tf.data takes lists for tensors."""
    if not _tree.is_nested(nest) or hasattr(nest, "as_list"):  # a TensorShape is a leaf
        return nest
    if isinstance(nest, list):
        return tuple(with_tuples(child) for child in nest)
    mapped = [with_tuples(child) for _, child in _tree.children(nest)]
    return _tree._rebuilt(nest, mapped)


def element_spec(dtypes: Any, settings: Settings, tf: Any) -> ReplaySample:
    """Returns the spec of the elements; `dtypes` gives the structure of the data."""
    batch = (settings.batch_size,) if settings.batch_size else ()
    info = SampleInfo(*(tf.TensorSpec(batch, dtype) for dtype in SampleInfo.tf_dtypes()))
    columns = [
        tf.TensorSpec(None if shape is None else (*batch, *shape), dtype)
        for dtype, shape in zip(settings.dtypes, settings.shapes, strict=True)
    ]
    return ReplaySample(info=info, data=tf.nest.pack_sequence_as(dtypes, columns))


def specs_of_signature(client: Any, table: str, timeout: float | None) -> tuple[Any, Any]:
    """Returns the dtypes and shapes of a table's signature.

    ValueError if there is no such table, or if it has no signature; DeadlineExceededError after `timeout` seconds.
    """
    info = client.server_info(timeout)
    where = client.server_address
    if table not in info:
        raise ValueError(
            f"Server at {where} does not contain any table named {table}. Found: {', '.join(sorted(info))}."
        )
    signature = info[table].signature
    if signature is None:
        raise ValueError(f"Table {table} at {where} does not have a signature.")
    signature = with_tuples(signature)
    return (
        _tree.map_structure(lambda spec: spec.dtype, signature),
        _tree.map_structure(lambda spec: spec.shape, signature),
    )
