"""Converts the native code's dicts to TableInfo and ServerInfo."""

from __future__ import annotations

from typing import Any

from reverb import _signatures, reverb_types
from reverb._compat import table_messages

_NANOS = 1_000_000
_SECOND = 1e-9


def from_native(info: dict[str, Any]) -> reverb_types.TableInfo:
    """Returns the public value."""
    idle = info["idle_ns"]
    working = info["inserting_ns"] + info["sampling_ns"]
    return reverb_types.TableInfo(
        name=info["name"],
        sampler_options=table_messages.selector_options(*info["sampler"]),
        remover_options=table_messages.selector_options(*info["remover"]),
        max_size=info["max_size"],
        max_times_sampled=info["max_times_sampled"],
        rate_limiter_info=table_messages.rate_limiter_info(
            samples_per_insert=info["samples_per_insert"],
            min_size_to_sample=info["min_size_to_sample"],
            min_diff=info["min_diff"],
            max_diff=info["max_diff"],
            inserts=info["inserts"],
            samples=info["samples"],
        ),
        signature=_signatures.decode_signature(info["signature"]),
        current_size=info["current_size"],
        num_episodes=info["num_episodes"],
        num_deleted_episodes=info["num_deleted_episodes"],
        num_unique_samples=info["num_unique_samples"],
        table_worker_time=reverb_types.TableWorkerTime(
            running_ms=working // _NANOS,
            sampling_ms=info["sampling_ns"] // _NANOS,
            inserting_ms=info["inserting_ns"] // _NANOS,
            sleeping_ms=idle // _NANOS,
            waiting_for_sampling_ms=info["waiting_for_sampling_ns"] // _NANOS,
            waiting_for_inserts_ms=info["waiting_for_inserts_ns"] // _NANOS,
        ),
        referenced_bytes=info["referenced_bytes"],
        cursor=info["cursor"],
        evictions=info["evictions"],
        expirations=info["expirations"],
        inserts_per_second=info["inserts_per_second"],
        samples_per_second=info["samples_per_second"],
        waiting_inserts=info["waiting_inserts"],
        waiting_samples=info["waiting_samples"],
        insert_wait_reason=_reason(info["insert_wait_reason"]) if info["waiting_inserts"] else None,
        sample_wait_reason=_reason(info["sample_wait_reason"]) if info["waiting_samples"] else None,
        longest_wait_seconds=info["longest_wait_ns"] * _SECOND,
    )


def _reason(number: int) -> str:
    return reverb_types.WAIT_REASONS[number] if number < len(reverb_types.WAIT_REASONS) else "unknown"


def server_info_from_native(info: dict[str, Any]) -> reverb_types.ServerInfo:
    """Returns the public value."""
    return reverb_types.ServerInfo(
        {table["name"]: from_native(table) for table in info["tables"]},
        stored_bytes=info["stored_bytes"],
        live_bytes=info["live_bytes"],
        max_bytes=info["max_bytes"],
        chunks=info["chunks"],
        waiters=[
            reverb_types.Waiter(
                table=waiter["table"],
                operation="insert" if waiter["is_insert"] else "sample",
                reason=_reason(waiter["reason"]),
                seconds=waiter["waited_ns"] * _SECOND,
                count=waiter["count"],
                client=waiter["client"],
                address=waiter["address"],
            )
            for waiter in info["waiters"]
        ],
    )
