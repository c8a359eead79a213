"""How many items of a batch come from each source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import math
from typing import Any, TypeAlias

# A share of each batch: a number, a function from the number of the batch (0, 1, ...) to one, or None: the rest.
Share: TypeAlias = float | Callable[[int], float] | None

_EPSILON = 1e-9  # of sums of shares


class Shares:
    """Rounds shares of batches to whole items.

    Hands out the whole items of each share, and the others such that every source is close to the total of its shares.
    With fixed shares that is Tijdeman's solution of the chairman assignment problem: with n sources, no total is ever
    off by more than 1 - 1 / (2 n - 2) items. With two sources, none is off by more than half an item even if their
    shares change.
    """

    def __init__(self, shares: Sequence[Any], batch_size: int) -> None:
        """Checks the shares, as far as they are numbers."""
        self._shares: list[Share] = []
        for share in shares:
            if isinstance(share, (str, bytes)) or (
                share is not None and not callable(share) and not hasattr(share, "__float__")
            ):
                raise TypeError(f"a share must be a number, a function or None, got {share!r}")
            self._shares.append(share if share is None or callable(share) else float(share))
        if sum(share is None for share in self._shares) > 1:
            raise ValueError("only one share may be None, which is what the others leave")
        self._batch_size = batch_size
        self._owed = [0.0] * len(self._shares)  # items that a source is behind the total of its shares
        if not any(callable(share) for share in self._shares):
            self.at(0)

    def at(self, step: int) -> list[float]:
        """Returns the shares of a batch. ValueError unless they add up to 1."""
        numbers = [self._share_at(i, step) for i in range(len(self._shares))]
        given = [number for number in numbers if number is not None]
        total = math.fsum(given)
        if any(not 0 <= number <= 1 for number in given):
            raise ValueError(f"shares must be between 0 and 1; those of batch {step} are {numbers}")
        if len(given) < len(numbers):
            if total > 1 + 1e-6:
                raise ValueError(f"the shares of batch {step} leave nothing: {numbers} add up to {total}")
            return [max(0.0, 1 - total) if number is None else number for number in numbers]
        if abs(total - 1) > 1e-6:
            raise ValueError(
                f"the shares of batch {step}, {numbers}, add up to {total} instead of 1; None as a share is what the "
                "others leave"
            )
        return [number / total for number in given]

    def _share_at(self, i: int, step: int) -> float | None:
        share = self._shares[i]
        if not callable(share):
            return share
        value: Any = share(step)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            raise TypeError(
                f"the share of source {i} must be a number, its function returned {value!r} for batch {step}"
            )
        return float(value)

    def counts(self, step: int) -> list[int]:
        """Returns the number of items of each source in a batch. Call it once for each batch, in order."""
        wanted = [share * self._batch_size for share in self.at(step)]
        counts = [math.floor(number + _EPSILON) for number in wanted]
        fractions = {i: number - counts[i] for i, number in enumerate(wanted) if number - counts[i] > _EPSILON}
        total = math.fsum(fractions.values())
        rates = {i: fraction / total for i, fraction in fractions.items()}
        for _ in range(self._batch_size - sum(counts)):
            for i, rate in rates.items():
                self._owed[i] += rate
            chosen = self._next(rates)
            self._owed[chosen] -= 1
            counts[chosen] += 1
        return counts

    def _next(self, rates: dict[int, float]) -> int:
        """Returns the source that gets the next item: of those not ahead, the one that must have it first."""
        slack = 1 / (2 * len(rates) - 2) if len(rates) > 1 else 1.0
        due = {i: rate for i, rate in rates.items() if self._owed[i] >= slack - _EPSILON}
        if not due:  # only if shares change
            return max(rates, key=lambda i: self._owed[i])
        return min(due, key=lambda i: (1 - slack - self._owed[i]) / due[i])
