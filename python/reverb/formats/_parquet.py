"""A table as one Parquet file: an item is a row.

A column without time is a value, or fixed-size lists for the dimensions of its shape; a column with time is a list of
those. `_key`, `_priority`, `_times_sampled` and `_inserted_at` describe the items. The metadata `reverb` of the schema
is JSON: names, dtypes and structure. bfloat16 is stored as uint16, a complex number as two numbers, a string as binary.

Files of other programs can be read too: a row is an item with a priority of 1, lists are columns with time, all other
columns have none.
"""

from __future__ import annotations

from collections.abc import Iterator
import math
from pathlib import Path
from typing import Any

import numpy as np

from reverb.formats import _tables
from reverb.formats._tables import Column, Item, Layout, Table

OPTIONS = ()

# Columns that describe items, and the fields of Item that they are.
_INFO = {"_key": "key", "_priority": "priority", "_times_sampled": "times_sampled", "_inserted_at": "inserted_at"}
_GROUP_BYTES = 32 << 20  # of the items that are written at once
_GROUP_ITEMS = 8192
_READ_ITEMS = 64  # that are read at once


def _libraries() -> tuple[Any, Any]:
    return _tables.require("pyarrow", "pyarrow", "parquet"), _tables.require("pyarrow.parquet", "pyarrow", "parquet")


def write(path: Path, table: Table) -> int:
    """Writes the table. Returns the number of items."""
    arrow, parquet = _libraries()
    layout, items = _tables.first_of(table)
    taken = [column.name for column in layout.columns if column.name in _INFO]
    if taken:
        raise ValueError(f"the column {taken[0]!r} has a name that describes items in the format parquet; rename it")
    fields = [
        arrow.field("_key", arrow.uint64()),
        arrow.field("_priority", arrow.float64()),
        arrow.field("_times_sampled", arrow.int32()),
        arrow.field("_inserted_at", arrow.timestamp("us", "UTC")),
    ]
    fields += [arrow.field(column.name, _type(arrow, column)) for column in layout.columns]
    schema = arrow.schema(fields, metadata={"reverb": layout.to_json()})
    count, group_bytes = 0, 0
    group: list[Item] = []
    with parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            infos: list[list[Any]] = [[getattr(item, name) for item in group] for name in _INFO.values()]
            infos[3] = [nanos // 1000 for nanos in infos[3]]
            arrays = [arrow.array(values, schema.field(i).type) for i, values in enumerate(infos)]
            for i, column in enumerate(layout.columns):
                arrays.append(_to_arrow(arrow, column, [item.columns[i] for item in group], schema.field(i + 4).type))
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))

        for item in items:
            group.append(layout.check(item, "parquet"))
            group_bytes += sum(array.nbytes for array in item.columns)
            count += 1
            if group_bytes >= _GROUP_BYTES or len(group) >= _GROUP_ITEMS:
                flush()
                group, group_bytes = [], 0
        if group:
            flush()
    return count


def _stored(column: Column) -> tuple[str, tuple[int, ...]]:
    """Returns the dtype and the shape of a row as they are stored."""
    if math.prod(column.shape) == 0:
        return "int8", ()  # Parquet has no empty lists of a fixed size: a zero stands for the row
    if column.dtype == "bfloat16":
        return "uint16", column.shape
    if column.dtype.startswith("complex"):
        return {"complex64": "float32", "complex128": "float64"}[column.dtype], (*column.shape, 2)
    return column.dtype, column.shape


def _type(arrow: Any, column: Column) -> Any:
    dtype, shape = _stored(column)
    made = arrow.binary() if dtype == "string" else arrow.from_numpy_dtype(np.dtype(dtype))
    for size in reversed(shape):
        made = arrow.list_(made, size)
    return made if column.squeezed else arrow.large_list(made)


def _to_arrow(arrow: Any, column: Column, values: list[Any], type: Any) -> Any:
    dtype, shape = _stored(column)
    rows = np.stack(values) if column.squeezed else np.concatenate(values)
    if math.prod(column.shape) == 0:
        flat = np.zeros(len(rows), np.int8)
    elif dtype == "string":
        flat = rows.reshape(-1)
    else:
        flat = _tables.to_plain(np.ascontiguousarray(rows), column).reshape(-1).view(dtype)
    made = arrow.array(flat, arrow.binary()) if dtype == "string" else arrow.array(flat)
    for size in reversed(shape):
        made = arrow.FixedSizeListArray.from_arrays(made, size)
    if column.squeezed:
        return made.cast(type)
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])])
    return arrow.LargeListArray.from_arrays(arrow.array(offsets, arrow.int64()), made).cast(type)


def read(path: Path) -> tuple[Layout, int, Iterator[Item]]:
    """Returns the layout, the number of items, and the items."""
    arrow, parquet = _libraries()
    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from None
    schema = file.schema_arrow
    repeated = [name for name in schema.names if schema.names.count(name) > 1]
    if repeated:
        raise ValueError(f"{path} has several columns {repeated[0]!r}; rename all but one")
    metadata = schema.metadata or {}
    if b"reverb" in metadata:
        layout, _ = Layout.from_json(metadata[b"reverb"], str(path))
        _check_columns(arrow, schema, layout, path)
    else:
        layout = _guess(arrow, schema, path)
    if "_priority" in schema.names:
        type = schema.field("_priority").type
        if not (arrow.types.is_floating(type) or arrow.types.is_integer(type)):
            raise ValueError(
                f"{path}: the column '_priority' is of type {type}; priorities are numbers: cast it to float64"
            )
    squeezed = tuple(column.squeezed for column in layout.columns)

    def items() -> Iterator[Item]:
        for batch in file.iter_batches(batch_size=_READ_ITEMS):
            priorities = [1.0] * len(batch)
            if "_priority" in batch.schema.names:
                if batch.column("_priority").null_count:
                    raise ValueError(f"{path}: the column '_priority' has missing values; every item has a priority")
                priorities = batch.column("_priority").cast(arrow.float64()).to_pylist()
            columns = [_from_arrow(arrow, column, batch.column(column.name), path) for column in layout.columns]
            for i, priority in enumerate(priorities):
                yield Item(0, priority, 0, 0, [column[i] for column in columns], squeezed)

    return layout, file.metadata.num_rows, items()


def _from_arrow(arrow: Any, column: Column, array: Any, path: Path) -> list[Any]:
    """Returns the values of a column, by item."""
    dtype, shape = _stored(column)
    lengths = None
    has_nulls = array.null_count > 0
    if not column.squeezed:
        lengths = np.asarray(array.value_lengths().fill_null(0))
        array = array.flatten()
        has_nulls = has_nulls or array.null_count > 0
    for _ in shape:
        array = array.flatten()
        has_nulls = has_nulls or array.null_count > 0
    if has_nulls:
        raise ValueError(f"{path}: column {column.name!r} has missing values, which a table cannot hold")
    if dtype == "string":
        flat = np.empty(len(array), object)
        flat[:] = array.cast(arrow.binary()).to_pylist()
    else:
        flat = array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    if math.prod(column.shape) == 0:
        rows = np.empty((len(flat), *column.shape), column.numpy)
    elif column.dtype.startswith("complex"):
        rows = np.ascontiguousarray(flat).view(column.dtype).reshape(-1, *column.shape)
    else:
        rows = _tables.from_plain(flat, column).reshape(-1, *column.shape)
    if lengths is None:
        return list(rows) if column.shape else [rows[i, ...] for i in range(len(rows))]
    return np.split(rows, np.cumsum(lengths)[:-1]) if len(lengths) > 0 else []


# Arrow's names of types that NumPy calls otherwise.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


def _column_of(arrow: Any, field: Any) -> Column | None:
    """Returns what a column of the file has stored; None if a table cannot hold it."""
    types = arrow.types
    squeezed, type, shape = True, field.type, []
    if types.is_list(type) or types.is_large_list(type):
        squeezed, type = False, type.value_type
    while types.is_fixed_size_list(type):
        shape.append(type.list_size)
        type = type.value_type
    if types.is_string(type) or types.is_large_string(type) or types.is_binary(type) or types.is_large_binary(type):
        dtype = "string"
    elif types.is_boolean(type) or types.is_integer(type) or types.is_floating(type):
        # Not to_pandas_dtype(), which needs pandas in some releases.
        dtype = np.dtype(_FLOATS.get(str(type), str(type))).name
    else:
        return None
    return Column(field.name, dtype, tuple(shape), squeezed)


def _check_columns(arrow: Any, schema: Any, layout: Layout, path: Path) -> None:
    """ValueError unless the file has the columns of its metadata: other programs keep metadata that is out of date."""
    remedy = (
        "correct it, or drop the metadata with pyarrow's Table.replace_schema_metadata(), which makes the file one of "
        "another program"
    )
    described = {column.name: column for column in layout.columns}
    present = [name for name in schema.names if name not in _INFO]
    for name in [*described, *present]:
        if name not in present:
            raise ValueError(
                f"{path} has no column {name!r}, which its metadata 'reverb' describes; it has "
                f"{', '.join(map(repr, present)) or 'none'}; {remedy}"
            )
        if name not in described:
            raise ValueError(f"{path} has a column {name!r}, which its metadata 'reverb' does not describe; {remedy}")
        column = described[name]
        dtype, shape = _stored(column)
        if _column_of(arrow, schema.field(name)) != Column(name, dtype, shape, column.squeezed):
            raise ValueError(
                f"{path}: column {name!r} is of type {schema.field(name).type}, its metadata 'reverb' describes "
                f"{_type(arrow, column)} ({column.dtype}{list(column.shape)}); {remedy}"
            )


def _guess(arrow: Any, schema: Any, path: Path) -> Layout:
    """Returns the layout of a file of another program."""
    columns = []
    for field in schema:
        if field.name in _INFO:
            continue
        column = _column_of(arrow, field)
        if column is None:
            raise ValueError(
                f"{path}: column {field.name!r} is of type {field.type}; numbers, strings, and lists of them can "
                "be imported"
            )
        columns.append(column)
    if not columns:
        raise ValueError(f"{path} has no columns")
    # The columns of a dict are in the order of its keys.
    columns.sort(key=lambda column: column.name)
    return Layout("", _tables.encode_nest({column.name: 0 for column in columns}), None, columns)
