"""What all formats share: a table as a layout and items."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
import dataclasses
import importlib
import itertools
import json
from typing import Any, NamedTuple

import numpy as np

from reverb import _core, _signatures, _specs, _tree, checkpoints


class Item(NamedTuple):
    """An item of a table."""

    key: int
    priority: float
    times_sampled: int
    inserted_at: int  # nanoseconds since 1970
    columns: list[Any]
    squeezed: tuple[bool, ...]


class Table(NamedTuple):
    """A table to export."""

    name: str
    size: int  # approximate if it is a server's
    structure: bytes | None
    signature: bytes | None
    items: Iterator[Item]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of all items."""

    name: str  # unique
    dtype: str  # "string" for strings
    shape: tuple[int, ...]  # of a row
    squeezed: bool  # a single row, without a dimension of time

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of its arrays."""
        return np.dtype(object) if self.dtype == "string" else _specs.as_dtype(self.dtype)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Returns "string" for strings, and the name that NumPy and ml_dtypes use for all others."""
    return "string" if dtype.kind == "O" else dtype.name


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a table and how they are nested."""

    table: str
    structure: bytes | None
    signature: bytes | None
    columns: list[Column]

    @classmethod
    def of(cls, table: Table, first: Item | None) -> Layout:
        """Returns the layout of a table, from its first item."""
        structure = table.signature or table.structure or None
        nest = _decode(structure)
        columns = []
        if first is not None:
            num_columns = len(first.columns)
            if nest is None or len(_tree.flatten(nest)) != num_columns:
                structure = None
                names = [f"column_{i}" for i in range(num_columns)]
            else:
                names = [checkpoints.path_text(path) or "data" for path, _ in _tree.flatten_with_path(nest)]
            for i, (array, squeezed) in enumerate(zip(first.columns, first.squeezed, strict=True)):
                name = names[i] if names.count(names[i]) == 1 else f"{names[i]}#{i}"
                columns.append(
                    Column(name, dtype_name(array.dtype), array.shape if squeezed else array.shape[1:], squeezed)
                )
        return cls(table.name, structure, table.signature, columns)

    def nest(self) -> Any:
        """Returns a nest with a leaf for each column, or None if they are a flat list."""
        return _decode(self.structure)

    def decoded_signature(self) -> Any:
        """Returns the signature of the table, or None."""
        return _signatures.decode_signature(self.signature)

    def check(self, item: Item, format: str) -> Item:
        """Returns the item. ValueError if it has another layout."""
        needs = f"the format {format} needs items with the same columns, dtypes and shapes"
        if len(item.columns) != len(self.columns):
            raise ValueError(
                f"item {item.key} of table {self.table!r} has {len(item.columns)} columns, the first item has "
                f"{len(self.columns)}; {needs}"
            )
        for column, array, squeezed in zip(self.columns, item.columns, item.squeezed, strict=True):
            shape = array.shape if squeezed else array.shape[1:]
            if (dtype_name(array.dtype), shape, squeezed) != (column.dtype, column.shape, column.squeezed):
                raise ValueError(
                    f"item {item.key} of table {self.table!r}: column {column.name!r} has rows {array.dtype}"
                    f"{list(shape)}{' without time' if squeezed else ''}, in the first item it has {column.dtype}"
                    f"{list(column.shape)}{' without time' if column.squeezed else ''}; {needs}"
                )
        return item

    def to_json(self, **more: Any) -> str:
        """Returns a text that from_json() understands."""
        return json.dumps(
            {
                "reverb_format": 1,
                "table": self.table,
                "structure": _to_text(self.structure),
                "signature": _to_text(self.signature),
                "columns": [dataclasses.asdict(column) for column in self.columns],
                **more,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> tuple[Layout, dict[str, Any]]:
        """Returns the layout, and everything in the text. ValueError if it is not one of to_json()."""
        try:
            said = json.loads(text)
            if said["reverb_format"] != 1:
                raise ValueError(f"{where} was written by a later release (its format is {said['reverb_format']})")
            columns = [
                Column(each["name"], each["dtype"], tuple(each["shape"]), each["squeezed"]) for each in said["columns"]
            ]
            return cls(said["table"], _from_text(said["structure"]), _from_text(said["signature"]), columns), said
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"the description of the table in {where} is damaged: {error!r}") from None


def encode_nest(nest: Any) -> bytes:
    """Returns a nest as Layout.structure; its leaves do not matter."""
    return _core.encode_signature(_tree.map_structure(lambda _: _specs.TensorSpec([], np.float32), nest))


def _decode(encoded: bytes | None) -> Any:
    return _core.decode_signature(encoded) if encoded else None


def _to_text(encoded: bytes | None) -> str | None:
    return base64.b64encode(encoded).decode() if encoded else None


def _from_text(text: str | None) -> bytes | None:
    return base64.b64decode(text) if text else None


def first_of(table: Table) -> tuple[Layout, Iterator[Item]]:
    """Returns the layout, and all items, the first one included."""
    first = next(table.items, None)
    return Layout.of(table, first), itertools.chain(() if first is None else (first,), table.items)


def to_plain(array: Any, column: Column) -> Any:
    """Returns the array with a dtype that every library knows: bfloat16 as uint16."""
    return array.view(np.uint16) if column.dtype == "bfloat16" else array


def from_plain(array: Any, column: Column) -> Any:
    """Reverts to_plain()."""
    return array.view(column.numpy) if column.dtype == "bfloat16" else array


def choose(table: str | None, known: Iterable[str], where: str) -> str:
    """Returns the name of the table, or of the only one. ValueError if there is no such table."""
    names = list(known)
    listed = ", ".join(repr(name) for name in names)
    if table is None:
        if len(names) != 1:
            raise ValueError(f"{where} has the tables {listed or '(none)'}; name one (table=, --table)")
        return names[0]
    if table not in names:
        raise ValueError(f"{where} has no table {table!r}; it has {listed or 'none'}")
    return table


def require(module: str, package: str, format: str) -> Any:
    """Imports a module. ImportError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"the format {format} needs the package {package}, which cannot be imported ({error}); install it with: "
            f"pip install '{package}'",
            name=module,
        ) from error
