"""Converts the dicts of the native code to TableInfo and ServerInfo."""

from __future__ import annotations

import dataclasses
from typing import Any

from reverb import _signatures, reverb_types, rows
from reverb._compat import table_messages

# In nanoseconds, and in seconds.
_MILLISECOND = 1_000_000
_NANOSECOND = 1e-9


def from_native(info: dict[str, Any]) -> reverb_types.TableInfo:
    """Returns the public value. Fields of the same name are taken over as they are."""
    limiter = info["rate_limiter"]
    converted = {
        "sampler_options": table_messages.selector_options(*info["sampler"]),
        "remover_options": table_messages.selector_options(*info["remover"]),
        "rate_limiter_info": table_messages.rate_limiter_info(
            **limiter, inserts=info["inserts"], samples=info["samples"]
        ),
        "signature": _signatures.decode_signature(info["signature"]),
        "table_worker_time": reverb_types.TableWorkerTime(
            running_ms=(info["inserting_nanos"] + info["sampling_nanos"]) // _MILLISECOND,
            sampling_ms=info["sampling_nanos"] // _MILLISECOND,
            inserting_ms=info["inserting_nanos"] // _MILLISECOND,
            sleeping_ms=info["idle_nanos"] // _MILLISECOND,
            waiting_for_sampling_ms=info["waiting_for_sampling_nanos"] // _MILLISECOND,
            waiting_for_inserts_ms=info["waiting_for_inserts_nanos"] // _MILLISECOND,
        ),
        "insert_wait_reason": _reason(info["insert_wait_reason"]) if info["waiting_inserts"] else None,
        "sample_wait_reason": _reason(info["sample_wait_reason"]) if info["waiting_samples"] else None,
        "max_age": info["max_age_nanos"] / 1e9 if info["max_age_nanos"] else None,
        "max_bytes": info["max_bytes"] or None,
        "longest_wait_seconds": info["longest_wait_nanos"] * _NANOSECOND,
    }
    names = [field.name for field in dataclasses.fields(reverb_types.TableInfo)]
    return reverb_types.TableInfo(**{name: converted[name] if name in converted else info[name] for name in names})


def _reason(number: int) -> str:
    return reverb_types.WAIT_REASONS[number] if number < len(reverb_types.WAIT_REASONS) else "unknown"


def _storage_info(info: dict[str, Any]) -> reverb_types.StorageInfo | None:
    if info["storage_memory_limit"] is None:
        return None
    names = [field.name for field in dataclasses.fields(reverb_types.StorageInfo)]
    return reverb_types.StorageInfo(**{name: info["storage_" + name] for name in names})


def server_info_from_native(info: dict[str, Any]) -> reverb_types.ServerInfo:
    """Returns the public value."""
    return reverb_types.ServerInfo(
        {table["name"]: from_native(table) for table in info["tables"]},
        row_tables={table["name"]: rows.info_from_native(table) for table in info["row_tables"]},
        stored_bytes=info["stored_bytes"],
        live_bytes=info["live_bytes"],
        max_bytes=info["max_bytes"],
        memory=info["memory"],
        storage=_storage_info(info),
        chunks=info["live_chunks"],
        local_path=info["local_path"],
        waiters=[
            reverb_types.Waiter(
                table=waiter["table"],
                operation="insert" if waiter["is_insert"] else "sample",
                reason=_reason(waiter["reason"]),
                seconds=waiter["waited_nanos"] * _NANOSECOND,
                count=waiter["count"],
                client=waiter["client_name"],
                address=waiter["address"],
            )
            for waiter in info["waiters"]
        ],
    )
