"""How long single calls take, and what a loop says when it cannot be run."""

from __future__ import annotations

# Of one slice; what comes after it is not recorded.
MOST_CALLS = 400_000


class NotAvailableError(Exception):
    """The package cannot do what the row measures."""


def percentile(values: list[int], share: float) -> float:
    """Of nanoseconds, in microseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e3


class Calls:
    """Times of single calls, kept without allocating while they are taken."""

    def __init__(self) -> None:
        self.times = [0] * MOST_CALLS
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        if self.count < MOST_CALLS:
            self.times[self.count] = nanoseconds
            self.count += 1

    def figures(self) -> dict[str, float]:
        times = self.times[: self.count]
        return {"p50_us": percentile(times, 0.5), "p99_us": percentile(times, 0.99)}
