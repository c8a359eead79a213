"""Creates tables from the messages that describe them.

The messages are those of reverb_config_pb2 and schema_pb2, or the value classes of reverb.reverb_types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reverb import item_selectors, rate_limiters, reverb_types, server


def selector_from_proto(proto: Any) -> reverb_types.SelectorType:
    """Returns the selector that a KeyDistributionOptions message describes.

    ValueError if a bool of it is set to false, NotImplementedError if no selector is set.
    """
    kind = proto.WhichOneof("distribution")
    if kind in ("fifo", "lifo", "uniform"):
        if not getattr(proto, kind):
            raise ValueError(f"{kind} is set to false; set it to true, or set another selector")
        return {"fifo": item_selectors.Fifo, "lifo": item_selectors.Lifo, "uniform": item_selectors.Uniform}[kind]()
    if kind == "heap":
        return item_selectors.MinHeap() if proto.heap.min_heap else item_selectors.MaxHeap()
    if kind == "prioritized":
        return item_selectors.Prioritized(proto.prioritized.priority_exponent)
    raise NotImplementedError("the message names no selector: set fifo, lifo, uniform, heap or prioritized")


def rate_limiter_from_proto(proto: Any) -> rate_limiters.RateLimiter:
    """Returns the rate limiter that a RateLimiterCheckpoint message describes, without its counters."""
    return rate_limiters.RateLimiter(
        samples_per_insert=proto.samples_per_insert,
        min_size_to_sample=proto.min_size_to_sample,
        min_diff=proto.min_diff,
        max_diff=proto.max_diff,
    )


def tables_from_proto(configs: Iterable[Any]) -> list[server.Table]:
    """Returns an empty table for each PriorityTableCheckpoint message."""
    return [
        server.Table(
            name=config.table_name,
            sampler=selector_from_proto(config.sampler),
            remover=selector_from_proto(config.remover),
            max_size=config.max_size,
            rate_limiter=rate_limiter_from_proto(config.rate_limiter),
            max_times_sampled=config.max_times_sampled,
        )
        for config in configs
    ]
