"""Information about tables, and names for annotations.

The parts of TableInfo are messages in the sense of protobuf, but need no protobuf package:
`info.sampler_options.WhichOneof('distribution')`, `info.rate_limiter_info.insert_stats.completed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any, Literal, TypeAlias

from reverb import _core, _signatures
from reverb._compat import structured_value
from reverb._compat.table_messages import (
    Heap,
    KeyDistributionOptions,
    Prioritized,
    RateLimiterCallStats,
    RateLimiterInfo,
    TableInfoProto,
    TableWorkerTime,
)

__all__ = [
    "WAIT_REASONS",
    "Heap",
    "KeyDistributionOptions",
    "Prioritized",
    "RateLimiterCallStats",
    "RateLimiterInfo",
    "SelectorType",
    "ServerInfo",
    "SpecNest",
    "TableInfo",
    "TableWorkerTime",
    "Waiter",
]

# A nest of TensorSpec, or of anything with a shape and a dtype.
SpecNest: TypeAlias = Any
# The type of selectors.Uniform() and the other selectors.
SelectorType: TypeAlias = _core.ItemSelector


# Why a call waits, by the number on the wire: it does not; too few items; too many samples, or inserts, relative to the
# other; the server's max_bytes are exceeded; earlier calls of the same kind are waiting.
WAIT_REASONS = ("none", "min_size", "too_many_samples", "too_many_inserts", "memory", "queued", "leased")


def _now(default: Any) -> Any:
    return dataclasses.field(default=default, compare=False, kw_only=True)


@dataclasses.dataclass
class TableInfo:
    """A snapshot of a table: its settings and its content."""

    name: str
    sampler_options: KeyDistributionOptions
    remover_options: KeyDistributionOptions
    max_size: int
    max_times_sampled: int
    rate_limiter_info: RateLimiterInfo
    # A nest of specs, or None: TensorFlow's specs if it is imported in this process, else reverb's.
    signature: SpecNest | None
    # Items in the table.
    current_size: int
    # Episodes that items in the table refer to.
    num_episodes: int
    # Episodes that no item refers to any more.
    num_deleted_episodes: int
    # Items that were sampled at least once, including removed ones.
    num_unique_samples: int
    table_worker_time: TableWorkerTime

    # dm-reverb does not have the following fields. They describe the current state of the table, and are neither
    # compared nor serialized.
    # Which items the table accepts: "first" or "any"; see Table.
    layout: Literal["first", "any"] = _now("first")
    # The stored size of the chunks that items refer to. A chunk that several items share counts for each of them; the
    # `stored_bytes` of ServerInfo count it once.
    referenced_bytes: int = _now(0)
    # The limiter's cursor: (inserts - uncounted_inserts) * samples_per_insert - samples. The limiter admits calls that
    # keep it between min_diff and max_diff. The uncounted inserts are those of items that left because of max_age, or
    # because max_size was lowered, before they were sampled, in a table with max_times_sampled.
    cursor: float = _now(0.0)
    uncounted_inserts: int = _now(0)
    # Items that were removed because of max_size or max_bytes, and because of max_times_sampled.
    evictions: int = _now(0)
    expirations: int = _now(0)
    # Seconds after which items are removed, None if they are not; and how many were.
    max_age: float | None = _now(None)
    aged_out: int = _now(0)
    # The maximum size of the data of the items, of which chunks that they share count once; None: no bound.
    max_bytes: int | None = _now(None)
    # Items that are leased now. Leases since the server started: granted, acknowledged in time, expired, and those that
    # were acknowledged, released or extended too late.
    leased_items: int = _now(0)
    leases_granted: int = _now(0)
    leases_acknowledged: int = _now(0)
    leases_expired: int = _now(0)
    leases_late: int = _now(0)
    # Over the last ten seconds or so.
    inserts_per_second: float = _now(0.0)
    samples_per_second: float = _now(0.0)
    # Calls that are waiting, the reason of the first one (a word of WAIT_REASONS; None if none waits), and the longest
    # wait so far.
    waiting_inserts: int = _now(0)
    waiting_samples: int = _now(0)
    insert_wait_reason: str | None = _now(None)
    sample_wait_reason: str | None = _now(None)
    longest_wait_seconds: float = _now(0.0)

    @classmethod
    def from_serialized_proto(cls, proto_string: bytes) -> TableInfo:
        """Decodes a TableInfo message. ValueError if the bytes are not such a message."""
        proto = TableInfoProto.FromString(proto_string)
        return cls(
            name=proto.name,
            sampler_options=proto.sampler_options,
            remover_options=proto.remover_options,
            max_size=proto.max_size,
            max_times_sampled=proto.max_times_sampled,
            rate_limiter_info=proto.rate_limiter_info,
            signature=structured_value.decode_structured_value(proto.signature.SerializeToString()),
            current_size=proto.current_size,
            num_episodes=proto.num_episodes,
            num_deleted_episodes=proto.num_deleted_episodes,
            num_unique_samples=proto.num_unique_samples,
            table_worker_time=proto.table_worker_time,
        )

    def to_serialized_proto(self) -> bytes:
        """Returns the bytes for from_serialized_proto()."""
        proto = TableInfoProto(
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
        if not _signatures.is_empty(self.signature):
            proto.signature.ParseFromString(_core.encode_structured_value(self.signature))
        return proto.SerializeToString()


@dataclasses.dataclass(frozen=True)
class Waiter:
    """A client whose inserts or samples are waiting for a table."""

    table: str
    # "insert" or "sample".
    operation: str
    # A word of WAIT_REASONS; of the first waiting call.
    reason: str
    # The time waited so far.
    seconds: float
    # Items waiting to be inserted, or samples still missing.
    count: int
    # The client's `name`; may be empty.
    client: str
    # The client's address; empty within the server's own process.
    address: str


@dataclasses.dataclass(frozen=True)
class StorageInfo:
    """The disk tier of a server."""

    # Of data in memory that can move to disk, and of data on disk.
    memory_bytes: int
    disk_bytes: int
    # Of the files.
    file_bytes: int
    # The limits of memory_bytes and file_bytes.
    memory_limit: int
    disk_limit: int
    # Of data, since the start.
    written_bytes: int
    read_bytes: int
    # Chunks whose data could not be read; the items that used them were deleted.
    lost_chunks: int
    # Why data cannot be moved to disk; empty: it can.
    error: str


class ServerInfo(dict[str, TableInfo]):
    """The tables of a server by name, and information about the server."""

    def __init__(
        self,
        tables: Mapping[str, TableInfo],
        *,
        stored_bytes: int = 0,
        live_bytes: int = 0,
        max_bytes: int | None = None,
        storage: StorageInfo | None = None,
        chunks: int = 0,
        waiters: Iterable[Waiter] = (),
        local_path: str = "",
        row_tables: Mapping[str, dict[str, Any]] | None = None,
        memory: Mapping[str, int | None] | None = None,
    ) -> None:
        """Describes one point in time.

        Args:
            tables: by name.
            stored_bytes: the size of the chunks that items and rows refer to, each counted once.
            live_bytes: the size of all chunks, including those of samples and inserts in flight.
            max_bytes: the maximum of `stored_bytes`; None: unlimited.
            storage: the disk tier; None if all data is in memory.
            chunks: the number of chunks.
            waiters: waiting clients, longest first; at most some hundred, while `tables` counts all of them.
            local_path: the socket for clients on the server's host; empty if there is none.
            row_tables: the row tables by name; the values are those of `Rows.info`.
            memory: what the server holds in memory, in bytes, by part: "used" of "limit", and of these "stored",
                "parked", "waiting", "in_transit", "receiving", "replies", "index" and "sessions".
        """
        super().__init__(tables)
        self.stored_bytes = stored_bytes
        self.live_bytes = live_bytes
        self.max_bytes = max_bytes
        self.storage = storage
        self.chunks = chunks
        self.waiters = tuple(waiters)
        self.local_path = local_path
        self.row_tables = dict(row_tables or {})
        self.memory = dict(memory or {})
