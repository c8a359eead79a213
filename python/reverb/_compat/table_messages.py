"""The parts of TableInfo as dm-reverb has them: messages in the sense of protobuf, without the protobuf package."""

from __future__ import annotations

from reverb._compat.message import Field, Message
from reverb._compat.structured_value import StructuredValue


class Prioritized(Message):
    """Probability proportional to priority ** priority_exponent."""

    FIELDS = (Field(1, "priority_exponent", "double"),)


class Heap(Message):
    """The item of lowest (min_heap) or highest priority."""

    FIELDS = (Field(1, "min_heap", "bool"),)


class KeyDistributionOptions(Message):
    """The selector of a table: a oneof `distribution`; empty for a custom selector."""

    FIELDS = (
        Field(1, "fifo", "bool", oneof="distribution"),
        Field(2, "uniform", "bool", oneof="distribution"),
        Field(3, "prioritized", Prioritized, oneof="distribution"),
        Field(4, "heap", Heap, oneof="distribution"),
        Field(6, "lifo", "bool", oneof="distribution"),
        Field(7, "is_deterministic", "bool"),
    )


class RateLimiterCallStats(Message):
    """The number of calls of one kind that the limiter has admitted."""

    FIELDS = (Field(2, "completed", "int64"),)


class RateLimiterInfo(Message):
    """The numbers of a rate limiter, and its counters."""

    FIELDS = (
        Field(1, "samples_per_insert", "double"),
        Field(2, "min_diff", "double"),
        Field(3, "max_diff", "double"),
        Field(4, "min_size_to_sample", "int64"),
        Field(5, "insert_stats", RateLimiterCallStats),
        Field(6, "sample_stats", RateLimiterCallStats),
    )


class TableWorkerTime(Message):
    """How a table spent its time, in milliseconds since it was created."""

    FIELDS = (
        Field(1, "running_ms", "int64"),
        Field(2, "sampling_ms", "int64"),
        Field(3, "inserting_ms", "int64"),
        Field(4, "sleeping_ms", "int64"),
        Field(5, "waiting_for_sampling_ms", "int64"),
        Field(6, "waiting_for_inserts_ms", "int64"),
    )


class TableInfoProto(Message):
    """deepmind.reverb.TableInfo."""

    PROTO_NAME = "TableInfo"
    FIELDS = (
        Field(1, "sampler_options", KeyDistributionOptions),
        Field(2, "remover_options", KeyDistributionOptions),
        Field(3, "max_size", "int64"),
        Field(4, "max_times_sampled", "int32"),
        Field(5, "rate_limiter_info", RateLimiterInfo),
        Field(6, "signature", StructuredValue),
        Field(7, "current_size", "int64"),
        Field(8, "name", "string"),
        Field(9, "num_episodes", "int64"),
        Field(10, "num_deleted_episodes", "int64"),
        Field(11, "num_unique_samples", "int64"),
        Field(12, "table_worker_time", TableWorkerTime),
    )


def selector_options(kind: str, priority_exponent: float = 1.0) -> KeyDistributionOptions:
    """Returns the options of a selector.

    `kind`: fifo, lifo, uniform, min_heap, max_heap, prioritized, or custom.
    """
    options = KeyDistributionOptions()
    if kind in ("fifo", "lifo", "uniform"):
        setattr(options, kind, True)
    elif kind == "prioritized":
        options.prioritized.SetInParent()
        options.prioritized.priority_exponent = priority_exponent
    elif kind in ("min_heap", "max_heap"):
        options.heap.SetInParent()
        options.heap.min_heap = kind == "min_heap"
    elif kind != "custom":
        raise ValueError(f"selector kind {kind!r} is not known")
    options.is_deterministic = kind in ("fifo", "lifo", "min_heap", "max_heap")
    return options


def rate_limiter_info(
    samples_per_insert: float,
    min_size_to_sample: int,
    min_diff: float,
    max_diff: float,
    inserts: int = 0,
    samples: int = 0,
) -> RateLimiterInfo:
    """Returns the numbers of a limiter and its counters, as in TableInfo."""
    info = RateLimiterInfo(
        samples_per_insert=samples_per_insert,
        min_size_to_sample=min_size_to_sample,
        min_diff=min_diff,
        max_diff=max_diff,
    )
    for stats, completed in ((info.insert_stats, inserts), (info.sample_stats, samples)):
        stats.SetInParent()
        stats.completed = completed
    return info
