"""The fields of the JSON that `reverb info`, `peek` and `sample` print, as docs/program.md lists them."""

import pathlib
import re
import unittest

NUMBER = (int, float)
MAYBE = type(None)
# Types of fields that are not integers.
TYPES = {
    "name": str, "sampler": str, "remover": str, "max_times_sampled": (int, MAYBE),
    "max_age_seconds": (*NUMBER, MAYBE), "rate_limiter": dict,
    "cursor": NUMBER, "signature": (str, MAYBE), "layout": str, "inserts_per_second": NUMBER, "samples_per_second": NUMBER,
    "insert_wait_reason": (str, MAYBE), "sample_wait_reason": (str, MAYBE), "longest_wait_seconds": NUMBER,
    "closed": bool, "address": str, "transport": str, "local_path": str, "server": str, "uptime_seconds": (*NUMBER, MAYBE), "max_bytes": (int, MAYBE),
    "storage_memory_limit": (int, MAYBE), "storage_disk_limit": (int, MAYBE), "storage_error": str,
    "memory": dict, "limit": (int, MAYBE), "tables": list, "waiters": list, "samples_per_insert": NUMBER, "min_diff": (*NUMBER, MAYBE),
    "row_tables": list, "consumers": list, "settings": dict, "write_reason": (str, MAYBE), "claim_reason": (str, MAYBE),
    "reservation_reason": (str, MAYBE),
    "max_diff": (*NUMBER, MAYBE), "table": str, "operation": str, "reason": str, "seconds": NUMBER, "client": str,
}  # fmt: skip
ITEM_FIELDS = {
    "table": str, "key": str, "priority": NUMBER, "probability": (*NUMBER, MAYBE), "times_sampled": int,
    "age_seconds": (*NUMBER, MAYBE), "columns": list,
}  # fmt: skip
ROW_FIELDS = {
    "table": str, "key": str, "group": (str, MAYBE), "version": int, "open": bool, "requeued": bool, "stale": bool,
    "leased_by": list, "consumed_by": list, "tags": dict, "columns": list,
}  # fmt: skip
COLUMN_FIELDS = {"name": str, "dtype": str, "shape": list, "first_values": list}


def documented(documents: pathlib.Path, start: str, inside: str = "") -> dict:
    """Returns the fields, with their types, of the list item of program.md that begins with `start`.

    Leaves out text in parentheses; with `inside`, returns the fields in the parentheses after that field.
    """
    text = (documents / "program.md").read_text()
    item = re.search(rf"^- {start}: (.*?)(?=^- |^$)", text, re.DOTALL | re.MULTILINE).group(1)
    if inside:
        item = re.search(rf"`{inside}` \((.*?)\)", item, re.DOTALL).group(1)
    names = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", item, flags=re.DOTALL))
    return {name: TYPES.get(name, int) for name in names}


def check_fields(test: unittest.TestCase, value: dict, fields: dict) -> None:
    test.assertEqual(list(value), list(fields))
    for name, kind in fields.items():
        test.assertIsInstance(value[name], kind, name)
