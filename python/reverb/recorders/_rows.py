"""Nests of arrays that have a row for each environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reverb import _tree

Mask = npt.NDArray[np.bool_]

# The writer keeps rows of at least this size in chunks of their own. Smaller columns share chunks as long as each row
# has values for all of them.
_LARGE_ROW_BYTES = 1024


def as_rows(value: Any) -> Any:
    """Returns the nest with a leading dimension of 1 for each leaf: a row of a single environment."""
    if isinstance(value, np.ndarray):
        return value[None]
    if isinstance(value, (int, float, np.generic)):  # not necessary, but fast
        return np.array([value])
    if type(value) is dict:
        return {key: as_rows(child) for key, child in value.items()}
    if _tree.is_nested(value):
        return _tree.map_structure(lambda leaf: np.asarray(leaf)[None], value)
    return np.asarray(value)[None]


def copy_of(value: Any) -> Any:
    """Returns the nest with copies of its arrays."""
    return _tree.map_structure(np.array, value)


def _common_dtype(rows: npt.NDArray[Any], new: npt.NDArray[Any]) -> np.dtype[Any] | None:
    """Returns the dtype for rows of both arrays; None if that of `rows` cannot represent `new`."""
    old_kind, new_kind = rows.dtype.kind, new.dtype.kind
    if old_kind in "OSU" and new_kind in "OSU":
        return np.result_type(rows, new) if old_kind == new_kind else np.dtype(object)
    if rows.dtype == new.dtype or (old_kind in "fc" and np.can_cast(new.dtype, rows.dtype, "same_kind")):
        return rows.dtype
    if old_kind in "biu" and new_kind in "biuf":
        with np.errstate(invalid="ignore"):  # nan, and numbers that are too large
            return rows.dtype if np.array_equal(new.astype(rows.dtype), new) else None
    return None


def with_rows(rows: Any, mask: Mask, new: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Returns a copy of `rows`, the rows of a leaf, that has `new` where the mask is set. `name` is that of `new`.

    Strings may have any length. ValueError for another shape, and for a dtype whose values would be changed.
    """
    rows = np.asarray(rows)
    if new.shape[1:] != rows.shape[1:]:
        raise ValueError(f"{name} has shape {new.shape[1:]}, but the other observations have {rows.shape[1:]}")
    dtype = _common_dtype(rows, new)
    if dtype is None:
        raise ValueError(
            f"{name} has dtype {new.dtype}, but the other observations have {rows.dtype}, which cannot represent its "
            "values; let the environment return one dtype"
        )
    result = np.array(rows, dtype)
    result[mask] = new
    return result


def merged(old: Any, new: Any, mask: Mask) -> Any:
    """Returns a nest with the rows of `new` where the mask is set, and of `old` elsewhere."""

    def choose(first: Any, second: Any) -> npt.NDArray[Any]:
        return with_rows(first, mask, np.asarray(second)[mask], "the observation of reset()")

    return _tree.map_structure(choose, old, new, check_types=False)


def zeros_like(value: Any) -> Any:
    """Returns the nest with zeros, or empty strings, instead of its values."""

    def zeros(leaf: Any) -> npt.NDArray[Any]:
        array = np.asarray(leaf)
        return np.full(array.shape, b"", object) if array.dtype == object else np.zeros_like(array)

    return _tree.map_structure(zeros, value)


def small_leaves(value: Any) -> Any:
    """Returns the nest with None instead of its large leaves."""

    def keep(leaf: Any) -> Any:
        rows = np.asarray(leaf)
        return None if rows.nbytes >= _LARGE_ROW_BYTES * len(rows) else leaf

    return _tree.map_structure(keep, value)
