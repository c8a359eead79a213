"""Comparing the tensors that a dataset requests, a table's signature, and the samples that arrive.

All errors are ValueErrors, which TensorFlow reports as InvalidArgumentError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reverb import _specs, _tree
from reverb._tensorflow.arguments import Settings


def check_signature(settings: Settings, table: str, signature: Any) -> None:
    """Raises ValueError if the tensors that are requested cannot be those of the table."""
    specs = [_specs.as_spec(leaf) for leaf in _tree.flatten(signature)]
    if len(specs) != len(settings.dtypes):
        raise ValueError(
            f"Inconsistent number of tensors requested from table '{table}'.  Requested {len(settings.dtypes)} "
            f"tensors, but table signature shows {len(specs)} tensors."
        )
    for i, (dtype, shape, spec) in enumerate(zip(settings.dtypes, settings.shapes, specs, strict=True)):
        wanted = _specs.as_dtype(dtype)
        if wanted != spec.dtype or not _specs.shapes_are_compatible(shape, spec.shape):
            raise ValueError(
                f"Requested incompatible tensor at flattened index {i} from table '{table}'.  Requested "
                f"(dtype, shape): {_describe(wanted, shape)}.  Signature (dtype, shape): "
                f"{_describe(spec.dtype, spec.shape)}."
            )


def check_columns(specs: list[_specs.TensorSpec], table: str, columns: list[Any]) -> None:
    """Raises ValueError if a batch of samples has other columns than the dataset announces."""
    if len(columns) != len(specs):
        raise ValueError(
            f"Inconsistent number of tensors received from table '{table}'.  Specification has "
            f"{len(specs)} tensors, but data coming from the table shows {len(columns)} tensors."
        )
    for i, (spec, column) in enumerate(zip(specs, columns, strict=True)):
        got = column.shape[1:]
        fits = column.dtype == spec.dtype and (got == spec.shape or _specs.shapes_are_compatible(spec.shape, got))
        if not fits:
            raise ValueError(
                f"Received incompatible tensor at flattened index {i} from table '{table}'.  Specification has "
                f"(dtype, shape): {_describe(spec.dtype, spec.shape)}.  Tensor has (dtype, shape): "
                f"{_describe(column.dtype, got)}."
            )


def split_into_timesteps(info: list[Any], columns: list[Any], squeezed: list[bool]) -> tuple[list[Any], list[Any]]:
    """Returns the steps of a batch of trajectories, one after the other; a squeezed column has one step."""
    lengths = {1 if is_squeezed else column.shape[1] for column, is_squeezed in zip(columns, squeezed, strict=True)}
    if len(lengths) != 1:
        raise ValueError(
            "Sampled trajectory cannot be decomposed into timesteps.  Its columns have "
            f"{', '.join(map(str, sorted(lengths)))} steps; sample it with TrajectoryDataset."
        )
    (length,) = lengths
    steps = [
        column if is_squeezed else column.reshape(-1, *column.shape[2:])
        for column, is_squeezed in zip(columns, squeezed, strict=True)
    ]
    return [np.repeat(field, length) for field in info], steps


def _describe(dtype: Any, shape: Any) -> str:
    name = "string" if dtype.kind == "O" else dtype.name
    return f"({name}, {'unknown rank' if shape is None else list(shape)})"
