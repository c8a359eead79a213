"""Objects of a column as byte strings: text as it is, other objects as JSON or, where that loses something, pickled."""

from __future__ import annotations

from collections.abc import Iterable
import json
import pickle
from typing import Any

__all__ = ["from_strings", "to_strings"]

# How a value begins that is not plain text.
_JSON, _PICKLE, _TEXT = b"\0j", b"\0p", b"\0s"


def to_strings(values: Iterable[Any]) -> list[bytes]:
    """Returns each object as a byte string."""
    return [_to_string(value) for value in values]


def from_strings(values: Iterable[bytes], *, allow_pickle: bool) -> list[Any]:
    """Returns the objects. ValueError if one is pickled and that is not allowed."""
    return [_from_string(bytes(value), allow_pickle) for value in values]


def _to_string(value: Any) -> bytes:
    if type(value) is str:
        text = value.encode("utf-8", "surrogatepass")
        return _TEXT + text if text.startswith(b"\0") else text
    try:
        described = json.dumps(value).encode()
        if _is_same(json.loads(described), value):
            return _JSON + described
    except (TypeError, ValueError, RecursionError):
        pass
    return _PICKLE + pickle.dumps(value, protocol=5)


def _from_string(value: bytes, allow_pickle: bool) -> Any:
    kind, rest = value[:2], value[2:]
    if kind == _JSON:
        return json.loads(rest)
    if kind == _PICKLE:
        if not allow_pickle:
            raise ValueError("the object is pickled, which allow_pickle=False excludes")
        return pickle.loads(rest)
    return (rest if kind == _TEXT else value).decode("utf-8", "surrogatepass")


def _is_same(left: Any, right: Any) -> bool:
    """Returns whether the values are equal and of the same types."""
    if type(left) is not type(right):
        return False
    if type(left) is list:
        return len(left) == len(right) and all(map(_is_same, left, right))
    if type(left) is dict:
        return list(left) == list(right) and all(_is_same(left[key], right[key]) for key in left)
    return bool(left == right)
