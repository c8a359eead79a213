"""Checks of arguments that several classes have."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["as_bytes", "as_int32"]


def _as_int(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}") from None


def as_int32(name: str, value: Any) -> int:
    """Returns an int of 32 bits. TypeError for anything else."""
    number = _as_int(name, value)
    if not -(2**31) <= number < 2**31:
        raise TypeError(f"{name} ({number}) must fit into 32 bits")
    return number


def as_bytes(name: str, value: Any) -> int | None:
    """Returns a maximum number of bytes, or None. ValueError for numbers that are not positive."""
    if value is None:
        return None
    number = _as_int(name, value)
    if not 0 < number < 2**63:
        raise ValueError(f"{name} ({number}) must be a positive number of bytes, or None for no bound")
    return number
