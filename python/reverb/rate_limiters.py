"""Rate limiters: they decide when inserts and samples of a table have to wait.

A limiter has a cursor, `inserts * samples_per_insert - samples`. It admits a call only if the cursor stays between
`min_diff` and `max_diff`, and samples only if the table has `min_size_to_sample` items. Inserts into a smaller table
are always admitted.
"""

from __future__ import annotations

import logging
import operator
import sys
from typing import Any

from reverb import _core

__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]

_MAX = sys.float_info.max


class RateLimiter:
    """A limiter with explicit numbers. The other classes set them for a purpose."""

    def __init__(self, samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float) -> None:
        """ValueError unless the first two numbers are > 0.

        Args:
            samples_per_insert: how far an insert moves the cursor up; a sample moves it down by one.
            min_size_to_sample: how many items the table must have before anything is sampled.
            min_diff: samples that would move the cursor below this wait.
            max_diff: inserts that would move the cursor above this wait.
        """
        self._samples_per_insert = float(samples_per_insert)
        self._min_size_to_sample = operator.index(min_size_to_sample)
        self._min_diff = float(min_diff)
        self._max_diff = float(max_diff)
        self.internal_limiter = _core.RateLimiter(
            samples_per_insert=self._samples_per_insert,
            min_size_to_sample=self._min_size_to_sample,
            min_diff=self._min_diff,
            max_diff=self._max_diff,
        )

    def __repr__(self) -> str:
        return repr(self.internal_limiter)


def native_limiter(rate_limiter: object) -> _core.RateLimiter:
    """Returns the native limiter of an argument. TypeError if it is not a limiter."""
    if isinstance(rate_limiter, RateLimiter):
        return rate_limiter.internal_limiter
    raise TypeError(
        f"rate_limiter must be one of reverb.rate_limiters, got {rate_limiter!r} of type "
        f"{type(rate_limiter).__name__}; use reverb.rate_limiters.MinSize(1) or another of them"
    )


class MinSize(RateLimiter):
    """Samples wait until the table has `min_size_to_sample` items; nothing else is limited."""

    def __init__(self, min_size_to_sample: int) -> None:
        if min_size_to_sample < 1:
            raise ValueError(f"min_size_to_sample ({min_size_to_sample}) must be a positive integer")
        super().__init__(samples_per_insert=1.0, min_size_to_sample=min_size_to_sample, min_diff=-_MAX, max_diff=_MAX)


class SampleToInsertRatio(RateLimiter):
    """Keeps the number of samples per insert near a target."""

    def __init__(
        self,
        samples_per_insert: float,
        min_size_to_sample: int,
        error_buffer: float | tuple[float, float],
    ) -> None:
        """ValueError for a buffer that would block inserts or samples forever.

        Args:
            samples_per_insert: the target for the average number of samples of an item.
            min_size_to_sample: how many items the table must have before anything is sampled.
            error_buffer: how far the cursor may be from `samples_per_insert * min_size_to_sample`, in both directions;
                or the two bounds of the cursor. A larger buffer means less waiting.
        """
        target = samples_per_insert * min_size_to_sample
        bounds: Any = error_buffer
        if isinstance(bounds, (int, float)):
            min_diff, max_diff = target - bounds, target + bounds
        else:
            try:
                min_diff, max_diff = bounds
            except TypeError:
                raise TypeError(
                    f"error_buffer must be a number or a pair of them, got {bounds!r} of type {type(bounds).__name__}"
                ) from None
        if samples_per_insert <= 0:
            raise ValueError(f"samples_per_insert ({samples_per_insert}) must be > 0")
        if max_diff - min_diff < 2 * max(1.0, samples_per_insert):
            raise ValueError(
                f"the size of error_buffer is {max_diff - min_diff}, it must be >= 2 * max(1, samples_per_insert) "
                f"= {2 * max(1.0, samples_per_insert)}: a smaller one could block inserts and samples completely"
            )
        if max_diff < target:
            logging.getLogger("reverb").warning(
                "max_diff (%s) is below samples_per_insert * min_size_to_sample (%s): inserts may wait before a table "
                "can be sampled, forever unless something samples at the same time",
                max_diff,
                target,
            )
        if min_diff > target:
            raise ValueError(
                f"min_diff ({min_diff}) is above samples_per_insert * min_size_to_sample ({target}): samples would "
                "wait for inserts that are not let through"
            )
        if min_size_to_sample < 1:
            raise ValueError(f"min_size_to_sample ({min_size_to_sample}) must be a positive integer")
        super().__init__(
            samples_per_insert=samples_per_insert,
            min_size_to_sample=min_size_to_sample,
            min_diff=min_diff,
            max_diff=max_diff,
        )


class Queue(RateLimiter):
    """Admits at most `size` items that were not sampled yet. For tables with Fifo selectors and max_times_sampled=1."""

    def __init__(self, size: int) -> None:
        """ValueError for a size below 1."""
        if not size >= 1:
            raise ValueError(f"the size of a {type(self).__name__} ({size}) must be at least 1")
        super().__init__(samples_per_insert=1.0, min_size_to_sample=1, min_diff=0.0, max_diff=size)


class Stack(RateLimiter):
    """As Queue, for tables with Lifo selectors."""

    def __init__(self, size: int) -> None:
        """ValueError for a size below 1."""
        if not size >= 1:
            raise ValueError(f"the size of a {type(self).__name__} ({size}) must be at least 1")
        super().__init__(samples_per_insert=1.0, min_size_to_sample=1, min_diff=0.0, max_diff=size)
