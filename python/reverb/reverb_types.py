"""What tables tell about themselves, and names for annotations.

The parts of TableInfo are messages in the sense of protobuf, but need no protobuf package:
`info.sampler_options.WhichOneof('distribution')`, `info.rate_limiter_info.insert_stats.completed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any, TypeAlias

from reverb import _specs
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

# A nest of specs: of TensorSpec, or of what has a shape and a dtype.
SpecNest: TypeAlias = Any
# What selectors.Uniform() and its like return.
SelectorType: TypeAlias = Any


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
        proto = TableInfoProto.FromString(proto_string)
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
