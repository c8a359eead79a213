"""Nested structures, flattened and rebuilt by the rules of dm-tree, which is not needed.

These values are nests, with children in this order:

| value                                        | children                                |
| -------------------------------------------- | --------------------------------------- |
| dict and other mappings                      | by sorted key                           |
| namedtuple                                   | by declared field                       |
| instance of an attrs class                   | by declared attribute                   |
| list, tuple and other sequences (deque, range, array.array, memoryview, ...) | by index |
| keys(), values() and items() of a mapping    | in the order of iteration               |

Everything else is a leaf: None, numbers, arrays, str, bytes, bytearray, sets, dataclasses, generators. A path is
the tuple of keys, field names and indices that leads to a leaf; that of a bare leaf is ().

The native code (python/bindings/tree.cc) flattens. It calls the functions of this module once for each new type to
find out what kind of nest it is.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, MappingView, Sequence
import types
from typing import Any

from reverb import _core

Path = tuple[Any, ...]

# Sequences of characters or bytes, which are leaves.
_STRING_LIKE = (str, bytes, bytearray, collections.UserString)
# Sequences that cannot be created from their elements: rebuilt as lists.
_REBUILT_AS_LIST = (range, memoryview, MappingView)


def is_namedtuple(value: object) -> bool:
    """Returns whether `value` is an instance of a namedtuple class."""
    fields = getattr(type(value), "_fields", None)
    return isinstance(value, tuple) and isinstance(fields, tuple) and all(isinstance(f, str) for f in fields)


def is_attrs(value: object) -> bool:
    """Returns whether `value` is an instance of an attrs class."""
    return hasattr(type(value), "__attrs_attrs__")


def is_nested(value: object) -> bool:
    """Returns whether `value` is a container, even if it is empty.

    >>> is_nested([]), is_nested("abc"), is_nested(None)
    (True, False, False)
    """
    if isinstance(value, (list, tuple, dict)):
        return True
    if isinstance(value, (Mapping, MappingView)) or is_attrs(value):
        return True
    return isinstance(value, Sequence) and not isinstance(value, _STRING_LIKE)


def sorted_keys(mapping: Mapping[Any, Any]) -> list[Any]:
    """Returns the keys in flat order. TypeError if they cannot be compared with each other."""
    try:
        return sorted(mapping)
    except TypeError:
        kinds = ", ".join(sorted({type(key).__name__ for key in mapping}))
        raise TypeError(f"the keys of a dict must be sortable, these are of types {kinds}") from None


def children(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the (key, child) pairs of a nest in flat order. REQUIRES: is_nested(value)."""
    if isinstance(value, Mapping):
        for key in sorted_keys(value):
            yield key, value[key]
    elif is_namedtuple(value):
        yield from zip(value._fields, value, strict=True)
    elif is_attrs(value):
        for attribute in type(value).__attrs_attrs__:
            yield attribute.name, getattr(value, attribute.name)
    else:
        yield from enumerate(value)


def flatten(structure: Any) -> list[Any]:
    """Returns the leaves in flat order.

    >>> flatten({"b": [1, (2, 3)], "a": None})
    [None, 1, 2, 3]
    """
    return _core._flatten(structure)


def flatten_with_path(structure: Any) -> list[tuple[Path, Any]]:
    """Returns the leaves in flat order, each with its path.

    >>> flatten_with_path({"x": [10, 20]})
    [(('x', 0), 10), (('x', 1), 20)]
    """
    return _core._flatten_with_path(structure)


def _rebuilt(like: Any, values: list[Any]) -> Any:
    """Returns a nest like `like` with other children, which are given in flat order."""
    kind: Any = like.__class__  # not type(): the class behind a transparent proxy
    if isinstance(like, Mapping):
        by_key = dict(zip(sorted_keys(like), values, strict=True))
        ordered = {key: by_key[key] for key in like}
        if kind is dict:
            return ordered
        if isinstance(like, collections.defaultdict):
            return kind(like.default_factory, ordered)
        if isinstance(like, types.MappingProxyType):
            return types.MappingProxyType(ordered)
        return kind(ordered)
    if is_namedtuple(like):
        return kind(*values)
    if is_attrs(like):
        arguments: dict[str, Any] = {}
        for attribute, value in zip(kind.__attrs_attrs__, values, strict=True):
            if attribute.init:
                arguments[getattr(attribute, "alias", None) or attribute.name.lstrip("_")] = value
        return kind(**arguments)
    if isinstance(like, _REBUILT_AS_LIST) or kind is list:
        return values
    if kind.__module__ == "array":
        return values  # an element may not be a number any more
    return kind(values)


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        return next(leaves)
    return _rebuilt(structure, [_pack(child, leaves) for _, child in children(structure)])


def unflatten_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Returns `structure` with other leaves, given in flat order. ValueError if their number differs.

    >>> unflatten_as({"b": 0, "a": [0, 0]}, [1, 2, 3])
    {'b': 3, 'a': [1, 2]}
    """
    if isinstance(flat_sequence, _STRING_LIKE) or not hasattr(flat_sequence, "__len__"):
        raise TypeError(f"flat_sequence must be a sequence, not {type(flat_sequence).__name__}")
    wanted = len(flatten(structure))
    if len(flat_sequence) != wanted:
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} elements, but flat_sequence had "
            f"{len(flat_sequence)} elements. Structure: {structure!r}, flat_sequence: {flat_sequence!r}."
        )
    return _pack(structure, iter(flat_sequence))


def assert_same_structure(first: Any, second: Any, *, check_types: bool = True) -> None:
    """Raises ValueError if the nests differ in shape, TypeError if only the kinds of containers differ.

    All mappings are of one kind, and so are namedtuples of the same name and fields.
    """
    _assert_same((), first, second, check_types=check_types)


def _assert_same(path: Path, first: Any, second: Any, *, check_types: bool) -> None:
    def differ(error: type[Exception], why: str) -> Exception:
        return error(f"The two structures don't have the same nested structure. At {path}: {why}")

    if not is_nested(first) and not is_nested(second):
        return
    if is_nested(first) != is_nested(second):
        raise differ(ValueError, f"{first!r} and {second!r}, of which one is a sequence and the other is not.")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if set(first) != set(second):
            raise differ(ValueError, f"the keys are {sorted_keys(first)} and {sorted_keys(second)}.")
    elif check_types and type(first) is not type(second):
        same_names = (
            is_namedtuple(first)
            and is_namedtuple(second)
            and type(first).__name__ == type(second).__name__
            and first._fields == second._fields
        )
        if not same_names:
            raise differ(TypeError, f"the types are {type(first).__name__} and {type(second).__name__}.")
    ours, theirs = list(children(first)), list(children(second))
    if len(ours) != len(theirs):
        raise differ(ValueError, f"the numbers of elements are {len(ours)} and {len(theirs)}.")
    for (key, child), (_, other) in zip(ours, theirs, strict=True):
        _assert_same((*path, key), child, other, check_types=check_types)


def map_structure(func: Callable[..., Any], *structures: Any, check_types: bool = True) -> Any:
    """Returns a nest like the first one, with `func` applied to the leaves at the same place of each.

    >>> map_structure(lambda a, b: a + b, {"x": 1, "y": (2,)}, {"x": 10, "y": (20,)})
    {'x': 11, 'y': (22,)}
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func!r}")
    return map_structure_with_path(lambda _, *leaves: func(*leaves), *structures, check_types=check_types)


def map_structure_with_path(func: Callable[..., Any], *structures: Any, check_types: bool = True) -> Any:
    """Like map_structure(), with the path as the first argument of `func`."""
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func!r}")
    if not structures:
        raise ValueError("Must provide at least one structure")
    first = structures[0]
    for other in structures[1:]:
        assert_same_structure(first, other, check_types=check_types)
    leaves = flatten_with_path(first)
    others = [flatten(other) for other in structures[1:]]
    mapped = [func(path, leaf, *(other[i] for other in others)) for i, (path, leaf) in enumerate(leaves)]
    return _pack(first, iter(mapped))
