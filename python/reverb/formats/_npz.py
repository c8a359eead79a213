"""A table as one .npz file of NumPy.

It has an array for each column: `data/NAME` with the rows of all items one after the other, and, unless the column is
without time, `lengths/NAME` with the number of rows of each item. Strings are bytes, one after the other, with the size
of each in `sizes/NAME`. `info/key`, `info/priority`, `info/times_sampled` and `info/inserted_at` (nanoseconds since
1970) have an element for each item. `reverb` is JSON: names, dtypes and structure. bfloat16 is stored as uint16.
"""

from __future__ import annotations

from collections.abc import Iterator
import math
from pathlib import Path
from typing import Any
import zipfile

import numpy as np

from reverb.formats import _tables
from reverb.formats._tables import Column, Item, Layout, Table

OPTIONS = ()

_INFO = {"key": np.uint64, "priority": np.float64, "times_sampled": np.int32, "inserted_at": np.int64}


def write(path: Path, table: Table) -> int:
    """Writes the table. Returns the number of items."""
    layout, items = _tables.first_of(table)
    saved = [layout.check(item, "npz") for item in items]
    arrays: dict[str, Any] = {"reverb": np.frombuffer(layout.to_json().encode(), np.uint8)}
    for name, dtype in _INFO.items():
        arrays[f"info/{name}"] = np.array([getattr(item, name) for item in saved], dtype)
    for i, column in enumerate(layout.columns):
        values = [item.columns[i] for item in saved]
        if not column.squeezed:
            arrays[f"lengths/{column.name}"] = np.array([len(value) for value in values], np.int64)
        joined = np.stack(values) if column.squeezed else np.concatenate(values)
        if column.dtype == "string":
            texts = [bytes(text) for text in joined.reshape(-1)]
            arrays[f"sizes/{column.name}"] = np.array([len(text) for text in texts], np.int64)
            joined = np.frombuffer(b"".join(texts), np.uint8)
        arrays[f"data/{column.name}"] = _tables.to_plain(joined, column)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return len(saved)


def read(path: Path) -> tuple[Layout, int, Iterator[Item]]:
    """Returns the layout, the number of items, and the items."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file")
    file = np.load(path, allow_pickle=False)
    if "reverb" not in file.files:
        raise ValueError(f"{path} is not an export of reverb: it has no array 'reverb'")
    try:
        description = _array(file, "reverb", np.uint8).tobytes()
    except (ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an export of reverb, or damaged: {error}") from None
    layout, _ = Layout.from_json(description, str(path))
    try:
        size = len(file["info/priority"])
        infos = {name: _array(file, f"info/{name}", dtype, size) for name, dtype in _INFO.items()}
        columns = [_split(file, column, size) for column in layout.columns]
    except (KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: {error}") from None
    squeezed = tuple(column.squeezed for column in layout.columns)

    def items() -> Iterator[Item]:
        for i in range(size):
            info = {name: values[i].item() for name, values in infos.items()}
            yield Item(**info, columns=[column[i] for column in columns], squeezed=squeezed)

    return layout, size, items()


def _array(file: Any, name: str, dtype: Any, length: int | None = None) -> Any:
    """Returns an array of the file. ValueError unless it has that dtype and, if given, length."""
    array = file[name]
    wanted = np.dtype(dtype)
    if array.dtype != wanted:
        raise ValueError(
            f"the array {name!r} is of dtype {array.dtype}, the description of the table says {wanted}; convert it "
            f"with astype({wanted.name!r}), or export the table again"
        )
    if array.ndim == 0 or (length is not None and len(array) != length):
        raise ValueError(
            f"the array {name!r} has shape {list(array.shape)} instead of {length} elements; export the table again"
        )
    return array


def _split(file: Any, column: Column, size: int) -> list[Any]:
    """Returns the values of a column, by item."""
    lengths = np.ones(size, np.int64)
    if not column.squeezed:
        lengths = _array(file, f"lengths/{column.name}", np.int64, size)
    rows = int(lengths.sum())
    name = f"data/{column.name}"
    if column.dtype == "string":
        data = _split_texts(_array(file, name, np.uint8), _array(file, f"sizes/{column.name}", np.int64), name)
    else:
        data = _tables.from_plain(_array(file, name, "uint16" if column.dtype == "bfloat16" else column.dtype), column)
    shape = (rows, *column.shape)
    if (lengths < 0).any() or data.size != math.prod(shape):
        raise ValueError(
            f"the array {name!r} has {data.size} elements, the description of the table and the lengths of its items "
            f"say {list(shape)}; export the table again"
        )
    data = data.reshape(shape)
    parts = np.split(data, np.cumsum(lengths)[:-1]) if size > 0 else []
    return [part[0] if column.squeezed else part for part in parts]


def _split_texts(data: Any, sizes: Any, name: str) -> Any:
    """Returns strings that are stored one after the other."""
    if (sizes < 0).any() or int(sizes.sum()) != len(data):
        raise ValueError(f"the array {name!r} has {len(data)} bytes, the sizes of its strings add up to {sizes.sum()}")
    raw = data.tobytes()
    texts = np.empty(len(sizes), object)
    texts[:] = [raw[end - size : end] for end, size in zip(np.cumsum(sizes), sizes, strict=True)]
    return texts
