"""Complete objects as the server sends them, for tests that show the page values that a server rarely has."""

from __future__ import annotations


def table(name: str, **changes) -> dict:
    """Returns a table of /api/v1/info."""
    record = {
        "name": name, "size": 10, "max_size": 100, "bytes": 4000, "sampler": "uniform", "remover": "fifo",
        "max_times_sampled": None, "max_age_seconds": None, "max_bytes": None,
        "rate_limiter": {"samples_per_insert": 1.0, "min_size_to_sample": 1, "min_diff": None, "max_diff": None},
        "cursor": 10.0, "signature": None, "layout": "first", "inserts": 10, "samples": 0, "deletes": 0,
        "uncounted_inserts": 0, "evictions": 0, "expirations": 0, "aged_out": 0, "explicit_deletes": 0,
        "priority_updates": 0, "unknown_keys": 0, "episodes": 1, "inserts_per_second": 0.0, "samples_per_second": 0.0,
        "waiting_inserts": 0, "waiting_samples": 0, "insert_wait_reason": None, "sample_wait_reason": None,
        "longest_wait_seconds": 0.0, "leased_items": 0, "leases_granted": 0, "leases_acknowledged": 0, "leases_expired": 0,
        "leases_late": 0, "closed": False, "wait_seconds": {"insert": {}, "sample": {}},
        "age_histogram": None, "times_sampled_histogram": None, "priority_histogram": None,
    }  # fmt: skip
    return record | changes


def info(tables: list[dict], **changes) -> dict:
    """Returns the object of /api/v1/info."""
    record = {
        "address": "127.0.0.1:8000", "transport": None, "server": "reverb 0.1.0", "uptime_seconds": 60.0,
        "stored_bytes": 4000, "live_bytes": 4000, "max_bytes": None, "chunks": 10, "local_path": "", "shard": 1,
        "tables": tables, "row_tables": [], "waiters": [], "ready": True, "not_ready_reason": None,
        "now_seconds": 1_700_000_060.0, "started_seconds": 1_700_000_000.0, "build": {"version": "0.1.0", "commit": ""},
        "resident_bytes": 20_000_000, "memory": {
            "limit": 1 << 30, "used": 5000, "stored": 4000, "parked": 0, "waiting": 0, "in_transit": 0, "receiving": 0, "replies": 0,
            "index": 1000, "sessions": 0,
        },
        "connections": {"local": 0, "grpc": 0, "inproc": 0}, "streams": {"insert": 0, "sample": 0, "calls": 0, "rows": 0},
        "clients": [], "clients_total": 0, "traffic": {"messages_in": 0, "messages_out": 0, "bytes_in": 0, "bytes_out": 0},
        "errors": {}, "checkpoint": None,
    }  # fmt: skip
    return record | changes
