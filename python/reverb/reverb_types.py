"""What tables tell about themselves, and names for annotations.

The parts of TableInfo are messages in the sense of protobuf, but need no protobuf package:
`info.sampler_options.WhichOneof('distribution')`, `info.rate_limiter_info.insert_stats.completed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any, TypeAlias

from reverb import _specs
from reverb._message import Field, Message

# A nest of specs: of TensorSpec, or of what has a shape and a dtype.
SpecNest: TypeAlias = Any
# What selectors.Uniform() and its like return.
SelectorType: TypeAlias = Any


class Prioritized(Message):
    """Probability in proportion to priority ** priority_exponent."""

    FIELDS = (Field(1, "priority_exponent", "double"),)


class Heap(Message):
    """The item of lowest (min_heap) or highest priority."""

    FIELDS = (Field(1, "min_heap", "bool"),)


class KeyDistributionOptions(Message):
    """Which selector a table uses: a oneof `distribution`; nothing is set for one written by the user."""

    FIELDS = (
        Field(1, "fifo", "bool", oneof="distribution"),
        Field(2, "uniform", "bool", oneof="distribution"),
        Field(3, "prioritized", Prioritized, oneof="distribution"),
        Field(4, "heap", Heap, oneof="distribution"),
        Field(6, "lifo", "bool", oneof="distribution"),
        Field(7, "is_deterministic", "bool"),
    )


class RateLimiterCallStats(Message):
    """How many calls of one kind the limiter has let through."""

    FIELDS = (Field(2, "completed", "int64"),)


class RateLimiterInfo(Message):
    """The numbers of a rate limiter, and what it has counted."""

    FIELDS = (
        Field(1, "samples_per_insert", "double"),
        Field(2, "min_diff", "double"),
        Field(3, "max_diff", "double"),
        Field(4, "min_size_to_sample", "int64"),
        Field(5, "insert_stats", RateLimiterCallStats),
        Field(6, "sample_stats", RateLimiterCallStats),
    )


class TableWorkerTime(Message):
    """Where the time of a table went, in milliseconds since it was made."""

    FIELDS = (
        Field(1, "running_ms", "int64"),
        Field(2, "sampling_ms", "int64"),
        Field(3, "inserting_ms", "int64"),
        Field(4, "sleeping_ms", "int64"),
        Field(5, "waiting_for_sampling_ms", "int64"),
        Field(6, "waiting_for_inserts_ms", "int64"),
    )


class _TableInfoProto(Message):
    PROTO_NAME = "TableInfo"
    FIELDS = (
        Field(1, "sampler_options", KeyDistributionOptions),
        Field(2, "remover_options", KeyDistributionOptions),
        Field(3, "max_size", "int64"),
        Field(4, "max_times_sampled", "int32"),
        Field(5, "rate_limiter_info", RateLimiterInfo),
        Field(6, "signature", _specs.StructuredValue),
        Field(7, "current_size", "int64"),
        Field(8, "name", "string"),
        Field(9, "num_episodes", "int64"),
        Field(10, "num_deleted_episodes", "int64"),
        Field(11, "num_unique_samples", "int64"),
        Field(12, "table_worker_time", TableWorkerTime),
    )


# Why a caller waits: nothing; too few items; samples, and inserts, that are ahead of the other; a server whose
# max_bytes are full; earlier callers of the same kind. By the numbers that travel.
WAIT_REASONS = ("none", "min_size", "too_many_samples", "too_many_inserts", "memory", "queued")


def _now(default: Any) -> Any:
    return dataclasses.field(default=default, compare=False, kw_only=True)


@dataclasses.dataclass
class TableInfo:
    """A snapshot of a table: what it was made with, and what is in it."""

    name: str
    sampler_options: KeyDistributionOptions
    remover_options: KeyDistributionOptions
    max_size: int
    max_times_sampled: int
    rate_limiter_info: RateLimiterInfo
    # A nest of specs, None for none: TensorFlow's when it is imported in this process, else ours.
    signature: SpecNest | None
    # Items in the table.
    current_size: int
    # Episodes that items in the table refer to.
    num_episodes: int
    # Episodes that no item refers to any more.
    num_deleted_episodes: int
    # Items that were sampled at least once, also those that are gone.
    num_unique_samples: int
    table_worker_time: TableWorkerTime

    # What follows dm-reverb does not tell. It says how the table does at the moment: it is no part of a comparison, nor
    # of what is serialized.
    # Bytes of the chunks that items refer to, as stored. One that several items share counts once for each; the
    # `stored_bytes` of ServerInfo count it once.
    referenced_bytes: int = _now(0)
    # Where the limiter stands: inserts * samples_per_insert - samples. It lets through what keeps it between
    # min_diff and max_diff.
    cursor: float = _now(0.0)
    # Items that went because of max_size or max_bytes, and because of max_times_sampled.
    evictions: int = _now(0)
    expirations: int = _now(0)
    # Over the last ten seconds or so.
    inserts_per_second: float = _now(0.0)
    samples_per_second: float = _now(0.0)
    # Callers that wait now, why the first of them does (a word of WAIT_REASONS; None when nobody waits), and for
    # how long the one that has waited the longest.
    waiting_inserts: int = _now(0)
    waiting_samples: int = _now(0)
    insert_wait_reason: str | None = _now(None)
    sample_wait_reason: str | None = _now(None)
    longest_wait_seconds: float = _now(0.0)

    @classmethod
    def from_serialized_proto(cls, proto_string: bytes) -> TableInfo:
        """From the bytes of a TableInfo message. ValueError when they are none."""
        proto = _TableInfoProto.FromString(proto_string)
        has_signature = proto.HasField("signature") and proto.signature.WhichOneof("kind") is not None
        return cls(
            name=proto.name,
            sampler_options=proto.sampler_options,
            remover_options=proto.remover_options,
            max_size=proto.max_size,
            max_times_sampled=proto.max_times_sampled,
            rate_limiter_info=proto.rate_limiter_info,
            signature=_specs.signature_from_structured_value(proto.signature) if has_signature else None,
            current_size=proto.current_size,
            num_episodes=proto.num_episodes,
            num_deleted_episodes=proto.num_deleted_episodes,
            num_unique_samples=proto.num_unique_samples,
            table_worker_time=proto.table_worker_time,
        )

    def to_serialized_proto(self) -> bytes:
        """The reverse of from_serialized_proto()."""
        proto = _TableInfoProto(
            name=self.name,
            sampler_options=self.sampler_options,
            remover_options=self.remover_options,
            max_size=self.max_size,
            max_times_sampled=self.max_times_sampled,
            rate_limiter_info=self.rate_limiter_info,
            current_size=self.current_size,
            num_episodes=self.num_episodes,
            num_deleted_episodes=self.num_deleted_episodes,
            num_unique_samples=self.num_unique_samples,
            table_worker_time=self.table_worker_time,
        )
        if not _specs.is_empty(self.signature):
            proto.signature.CopyFrom(_specs.signature_to_structured_value(self.signature))
        return proto.SerializeToString()


@dataclasses.dataclass(frozen=True)
class Waiter:
    """A client whose inserts, or samples, a table makes wait."""

    table: str
    # "insert" or "sample".
    operation: str
    # A word of WAIT_REASONS; of the first in line.
    reason: str
    # For how long.
    seconds: float
    # Items that wait to go in, or samples that are still to come.
    count: int
    # The `name` that the client was made with; may be empty.
    client: str
    # Where it calls from; empty within the server's own process.
    address: str


class ServerInfo(dict[str, TableInfo]):
    """The tables of a server by name, and what concerns all of them."""

    def __init__(
        self,
        tables: Mapping[str, TableInfo],
        *,
        stored_bytes: int = 0,
        live_bytes: int = 0,
        max_bytes: int | None = None,
        chunks: int = 0,
        waiters: Iterable[Waiter] = (),
    ) -> None:
        """Of one moment.

        Args:
            tables: by name.
            stored_bytes: of the chunks that items refer to, each counted once.
            live_bytes: of all chunks, those of samples and inserts on their way included.
            max_bytes: the bound on `stored_bytes`; None for none.
            chunks: how many there are.
            waiters: who waits, longest first; at most some hundred, the numbers in `tables` are of all.
        """
        super().__init__(tables)
        self.stored_bytes = stored_bytes
        self.live_bytes = live_bytes
        self.max_bytes = max_bytes
        self.chunks = chunks
        self.waiters = tuple(waiters)


def selector_options(kind: str, priority_exponent: float = 1.0) -> KeyDistributionOptions:
    """The options of a selector.

    `kind`: fifo, lifo, uniform, min_heap, max_heap, prioritized, or custom for one that the user wrote.
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
    """The numbers of a limiter and its counters, as TableInfo has them."""
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
