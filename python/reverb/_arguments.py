"""Checks of arguments that several classes have."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

__all__ = ["as_bytes", "as_int", "as_int32", "as_max_age", "as_positive"]


def as_int(name: str, value: Any) -> int:
    """Returns an int. TypeError for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}") from None


def as_int32(name: str, value: Any) -> int:
    """Returns an int of 32 bits. TypeError for anything else."""
    number = as_int(name, value)
    if not -(2**31) <= number < 2**31:
        raise TypeError(f"{name} ({number}) must fit into 32 bits")
    return number


def as_positive(name: str, value: Any) -> int:
    """Returns a positive int. TypeError or ValueError for anything else."""
    number = as_int(name, value)
    if number < 1:
        raise ValueError(f"{name} ({number}) must be a positive integer")
    return number


def as_bytes(name: str, value: Any) -> int | None:
    """Returns a maximum number of bytes, or None. ValueError for numbers that are not positive."""
    if value is None:
        return None
    number = as_int(name, value)
    if not 0 < number < 2**63:
        raise ValueError(f"{name} ({number}) must be a positive number of bytes, or None for no bound")
    return number


def as_max_age(value: Any) -> int:
    """Returns nanoseconds, 0 for None and infinity. TypeError unless it is a number, ValueError unless positive."""
    if value is None:
        return 0
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"max_age must be a number of seconds, got {value!r} of type {type(value).__name__}")
    seconds = float(value)
    if not seconds > 0:
        raise ValueError(f"max_age ({seconds}) must be a positive number of seconds, or None if items do not age")
    if math.isinf(seconds):
        return 0
    return min(max(round(seconds * 1e9), 1), 2**63 - 1)
