"""The fields of the JSON that `reverb info`, `peek` and `sample` print, as docs/program.md has them."""

import unittest

NUMBER = (int, float)
MAYBE = type(None)
TABLE_FIELDS = {
    "name": str, "size": int, "max_size": int, "bytes": int, "sampler": str, "remover": str,
    "max_times_sampled": (int, MAYBE), "rate_limiter": dict, "cursor": NUMBER, "signature": (str, MAYBE),
    "inserts": int, "samples": int, "deletes": int, "evictions": int, "expirations": int, "explicit_deletes": int,
    "priority_updates": int, "unknown_keys": int, "episodes": int, "inserts_per_second": NUMBER,
    "samples_per_second": NUMBER, "waiting_inserts": int, "waiting_samples": int, "insert_wait_reason": (str, MAYBE),
    "sample_wait_reason": (str, MAYBE), "longest_wait_seconds": NUMBER, "closed": bool,
}  # fmt: skip
INFO_FIELDS = {
    "address": str, "server": str, "uptime_seconds": (*NUMBER, MAYBE), "stored_bytes": int, "live_bytes": int,
    "max_bytes": (int, MAYBE), "chunks": int, "tables": list, "waiters": list,
}  # fmt: skip
LIMITER_FIELDS = {
    "samples_per_insert": NUMBER, "min_size_to_sample": int, "min_diff": (*NUMBER, MAYBE), "max_diff": (*NUMBER, MAYBE),
}  # fmt: skip
WAITER_FIELDS = {
    "table": str, "operation": str, "reason": str, "count": int, "seconds": NUMBER, "client": str, "address": str,
}  # fmt: skip
ITEM_FIELDS = {
    "table": str, "key": str, "priority": NUMBER, "probability": (*NUMBER, MAYBE), "times_sampled": int,
    "age_seconds": (*NUMBER, MAYBE), "columns": list,
}  # fmt: skip
COLUMN_FIELDS = {"name": str, "dtype": str, "shape": list, "first_values": list}


def check_fields(test: unittest.TestCase, value: dict, fields: dict) -> None:
    test.assertEqual(list(value), list(fields))
    for name, kind in fields.items():
        test.assertIsInstance(value[name], kind, name)
