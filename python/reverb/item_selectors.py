"""Selectors: they choose the items that a table samples (its sampler) and evicts (its remover).

| name                               | chooses                                                     |
| ---------------------------------- | ----------------------------------------------------------- |
| `Fifo()`                           | the oldest item                                             |
| `Lifo()`                           | the newest item                                             |
| `Uniform(seed=None)`               | any item, with equal probability                            |
| `Prioritized(exponent, seed=None)` | with probability in proportion to priority ** exponent      |
| `MinHeap()`, `MaxHeap()`           | the lowest or highest priority; the least recently updated of equals |

`seed`, keyword-only, makes choices reproducible. Selectors are values: one may be used for several tables.
"""

from __future__ import annotations

import functools

from reverb import _core

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform"]

Fifo = _core.FifoSelector
Lifo = _core.LifoSelector
Uniform = _core.UniformSelector
Prioritized = _core.PrioritizedSelector
MinHeap = functools.partial(_core.HeapSelector, True)
MaxHeap = functools.partial(_core.HeapSelector, False)
MinHeap.__doc__ = "The item of lowest priority; the least recently updated of equals."
MaxHeap.__doc__ = "The item of highest priority; the least recently updated of equals."


def _rebuild(kind: str, priority_exponent: float, seed: int | None) -> _core.ItemSelector:
    """Returns a selector from a pickle's content."""
    if kind == "uniform":
        return Uniform(seed=seed)
    if kind == "prioritized":
        return Prioritized(priority_exponent, seed=seed)
    if kind in ("min_heap", "max_heap"):
        return _core.HeapSelector(kind == "min_heap")
    return Fifo() if kind == "fifo" else Lifo()
