"""Fields of samples as columns of rows, and back: TensorDicts, and dicts of tensors, arrays and lists.

Imports PyTorch and tensordict only to create TensorDicts. A caller that passes tensors has imported them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
import sys
from typing import Any

import numpy as np

from reverb.integrations import _objects
from reverb.integrations._calls import result_of
from reverb.rows import Jagged, RowBatch

__all__ = ["check_complete", "quoted_name", "to_columns", "to_dict", "to_tensordict"]


def quoted_name(name: str) -> str:
    """Returns the name of a column as a condition refers to it."""
    if "`" in name:
        raise ValueError(f"field {name!r}: the name must not contain a back quote")
    return f"`{name}`"


# --- From fields to columns ---


def to_columns(fields: Any, count: int, *, objects: bool) -> dict[str, list[Any]]:
    """Returns the columns of `count` rows: by field, a value for each row.

    Args:
        fields: a TensorDict or a dict.
        count: the number of rows.
        objects: accept fields that are not tensors, as lists of strings or other objects; otherwise TypeError.
    """
    columns: dict[str, list[Any]] = {}
    for name in fields.keys():  # noqa: SIM118  # iterating over a TensorDict splits it into samples
        if not isinstance(name, str):
            raise TypeError(f"names of fields must be str, got {name!r} of type {type(name).__name__}")
        # get() returns NonTensorData itself where fields[name] returns what it holds.
        value = fields.get(name)
        if _is_tensor(value):
            column = _rows_of_tensor(name, value)
        elif not objects:
            raise TypeError(
                f"field {name!r} is a non-tensor leaf of type {type(value).__name__}; pass numbers, truth values and "
                "strings as tags, flatten nested TensorDicts with flatten_keys(), and encode other values as tensors"
            )
        else:
            column = _rows_of_objects(name, value, count)
        if len(column) != count:
            raise ValueError(f"field {name!r} has {len(column)} samples for {count} keys")
        columns[name] = column
    return columns


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _rows_of_tensor(name: str, tensor: Any) -> list[np.ndarray]:
    """Returns the value of each row, without a copy if the tensor is on the host."""
    import torch

    from reverb.torch._tensors import to_array

    if tensor.dim() == 0:
        raise ValueError(f"field {name!r} is a single number; its first dimension must be that of the samples")
    if not tensor.is_nested:
        return list(to_array(tensor))
    if tensor.layout is torch.jagged and tensor.lengths() is None and tensor._ragged_idx == 1:
        values, offsets = to_array(tensor.values()), to_array(tensor.offsets()).tolist()
        return [values[first:last] for first, last in pairwise(offsets)]
    rows = [to_array(row) for row in tensor.unbind()]
    if len({row.shape[1:] for row in rows}) > 1:
        raise ValueError(f"field {name!r} is ragged in a dimension other than the first of each sample; transpose it")
    return rows


def _rows_of_objects(name: str, value: Any, count: int) -> list[Any]:
    tensordict = sys.modules.get("tensordict")
    if tensordict is not None:
        if isinstance(value, tensordict.NonTensorStack):
            value = value.tolist()
        elif isinstance(value, tensordict.NonTensorData):
            value = value.data if isinstance(value.data, list) else [value.data] * count
        elif isinstance(value, tensordict.TensorDictBase):
            raise TypeError(f"field {name!r} is a nested TensorDict; pass fields.flatten_keys()")
    if isinstance(value, np.ndarray) and value.dtype != object:
        return list(value)
    values = list(value)
    if all(_is_tensor(each) for each in values):
        from reverb.torch._tensors import to_array

        return [to_array(each) for each in values]
    if all(_is_number_or_array(each) for each in values):
        return [np.asarray(each) for each in values]
    return _objects.to_strings(values)


def _is_number_or_array(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (
        isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf"
    )


# --- From columns to fields ---


async def check_complete(rows: Any, table: str, keys: list[str], batch: RowBatch, fields: Sequence[str]) -> None:
    """Raises KeyError unless the batch of these keys has all rows, and each row has all columns."""
    if batch.keys != keys:
        present = set(batch.keys)
        missing = [key for key in keys if key not in present]
        if missing:
            number = f"{len(missing)} of {len(keys)} are missing"
            raise KeyError(f'partition "{table}" has no samples {_listed(missing)}; {number}')
        raise ValueError("a key is given twice")
    for field in fields:
        if field in batch and batch[field].lengths.all():
            continue
        # A row that lacks the column has no values, like one with an empty tensor.
        without = await result_of(rows.list(f"not has({quoted_name(field)})", limit=2**28))
        lacking = {row.key for row in without}.intersection(keys)
        if lacking:
            raise KeyError(f'partition "{table}": samples {_listed(sorted(lacking))} lack the field "{field}"')


def _listed(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys[:5]) + (", ..." if len(keys) > 5 else "")


def to_dict(batch: RowBatch, fields: Sequence[str], *, allow_pickle: bool) -> dict[str, Any]:
    """Returns the columns of a batch: arrays if all rows have the same shape, otherwise lists of arrays or objects."""
    return {name: _to_array(batch[name], allow_pickle) for name in fields}


def _to_array(column: Jagged, allow_pickle: bool) -> Any:
    if _is_text(column):
        return _objects.from_strings(column, allow_pickle=allow_pickle)
    if column.is_scalar:
        return column.values
    return _stacked(column) if _is_even(column) else list(column)


def _is_text(column: Jagged) -> bool:
    return column.values.dtype.kind in "OS"


def _is_even(column: Jagged) -> bool:
    lengths = column.lengths
    return bool((lengths == lengths[0]).all())


def _stacked(column: Jagged) -> np.ndarray:
    return column.values.reshape(len(column), int(column.lengths[0]), *column.values.shape[1:])


def to_tensordict(batch: RowBatch, fields: Sequence[str], *, allow_pickle: bool = False) -> Any:
    """Returns the columns of a batch as a TensorDict: rows of equal length stacked, others as jagged nested tensors."""
    import tensordict
    import torch

    from reverb.torch._tensors import to_tensor

    # Columns of equal lengths share one tensor of offsets: PyTorch combines jagged tensors only then.
    known: dict[bytes, Any] = {}

    def convert(column: Jagged) -> Any:
        if _is_text(column):
            return tensordict.NonTensorStack(*_objects.from_strings(column, allow_pickle=allow_pickle))
        if column.is_scalar:
            return to_tensor(column.values)
        if _is_even(column):
            return to_tensor(_stacked(column))
        offsets = known.setdefault(column.offsets.tobytes(), torch.from_numpy(column.offsets))
        lengths = column.lengths
        return torch.nested.nested_tensor_from_jagged(
            to_tensor(column.values), offsets, min_seqlen=int(lengths.min()), max_seqlen=int(lengths.max())
        )

    return tensordict.TensorDict({name: convert(batch[name]) for name in fields}, batch_size=[len(batch)])
