"""The loops of row_tables.py, each in a process of its own, the same for both sides. One line of JSON in, one out."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

import numpy as np
from row_tables_sides import ROWS

NEEDS = ("tokens", "logprobs", "mask", "advantages")
FIRST = NEEDS[:3]
# Log-uniform, 256 to 8,192 tokens: three columns of four bytes each are 27 kB on average.
LENGTHS = np.exp(np.random.default_rng(7).uniform(np.log(256), np.log(8192), 512)).astype(int)
SHORT = 52  # tokens of a short row: four columns are 832 bytes


class Data:
    """Rows that exist before they are sent, as those of a rollout do."""

    def __init__(self) -> None:
        random = np.random.default_rng(11)
        self._rows = []
        for length in LENGTHS:
            self._rows.append(
                {
                    "tokens": random.integers(0, 150_000, length, np.int32),
                    "logprobs": random.standard_normal(length, np.float32),
                    "mask": random.integers(0, 2, length, np.int32),
                    "advantages": random.standard_normal(length, np.float32),
                }
            )
        self.bytes = [sum(self._rows[i][name].nbytes for name in FIRST) for i in range(len(LENGTHS))]

    def columns(self, first: int, count: int, names: tuple[str, ...]) -> dict[str, list[Any]]:
        rows = [self._rows[(first + i) % len(LENGTHS)] for i in range(count)]
        return {name: [row[name] for row in rows] for name in names}


# The group of a row is its key without the last digit.
def _keys(prefix: str, first: int, count: int) -> list[str]:
    return [f"{prefix}/{i // 8}.{i % 8}" for i in range(first, first + count)]


def _tags(first: int, count: int) -> list[dict[str, Any]]:
    return [{"prompt": i // 8, "reward": 0.5} for i in range(first, first + count)]


def _fill(rows: Any, data: Data, count: int, late: bool) -> None:
    for first in range(0, count, 64):
        keys = _keys("f", first, 64)
        rows.put(keys, data.columns(first, 64, FIRST), _tags(first, 64))
        if late:
            rows.add(keys, data.columns(first, 64, ("advantages",)))


class Loops:
    """One process."""

    def __init__(self, side: str, address: str) -> None:
        self._side = side
        self._address = address
        self._data = Data()
        self._tables: dict[str, Any] = {}
        self._runs = 0

    def _rows(self, table: str) -> Any:
        if table not in self._tables:
            self._tables[table] = ROWS[self._side](self._address, table)
        return self._tables[table]

    def clear(self, table: str) -> dict[str, float]:
        self._rows(table).clear()
        return {}

    def put(self, table: str, per_call: int, seconds: float, most: int) -> dict[str, float]:
        """Puts new rows for a while."""
        rows, data = self._rows(table), self._data
        self._runs += 1
        prefix = f"{os.getpid()}.{self._runs}"
        done = size = 0
        began = time.perf_counter()
        while done < most and time.perf_counter() - began < seconds:
            rows.put(_keys(prefix, done, per_call), data.columns(done, per_call, FIRST), _tags(done, per_call))
            size += sum(data.bytes[(done + i) % len(LENGTHS)] for i in range(per_call))
            done += per_call
        took = time.perf_counter() - began
        return {"rows_per_s": done / took, "bytes_per_s": size / took, "rows": done}

    def late(self, table: str, count: int) -> dict[str, float]:
        """Adds a column to rows, eight a call."""
        rows, data = self._rows(table), self._data
        _fill(rows, data, count, late=False)
        began = time.perf_counter()
        for first in range(0, count, 8):
            rows.add(_keys("f", first, 8), data.columns(first, 8, ("advantages",)))
        took = time.perf_counter() - began
        rows.clear()
        return {"rows_per_s": count / took}

    def get(self, table: str, count: int) -> dict[str, float]:
        """Claims batches of 64 rows with four columns."""
        rows, data = self._rows(table), self._data
        _fill(rows, data, count, late=True)
        times = []
        began = time.perf_counter()
        for first in range(0, count, 64):
            start = time.perf_counter()
            keys, columns, _ = rows.claim("train", 64, NEEDS)
            times.append(time.perf_counter() - start)
            if (
                keys != _keys("f", first, 64)
                or columns["tokens"][0][0] != data.columns(first, 1, FIRST)["tokens"][0][0]
            ):
                raise RuntimeError(f"wrong rows: {keys[0]} for row {first}")
        took = time.perf_counter() - began
        rows.clear()
        return {"batches_per_s": count / 64 / took, "p99_ms": float(np.quantile(times, 0.99)) * 1e3}

    def wait_claims(self, table: str, count: int) -> dict[str, list[float]]:
        """Claims single rows; when each claim returned."""
        rows = self._rows(table)
        times = []
        for _ in range(count):
            rows.claim("train", 1, ("tokens", "advantages"))
            times.append(time.monotonic())
        return {"times": times}

    def wait_writes(self, table: str, count: int) -> dict[str, list[float]]:
        """Makes rows ready that claims wait for; when each write began."""
        rows, data = self._rows(table), self._data
        times = []
        for i in range(count):
            rows.put([f"w/{i}"], data.columns(i, 1, ("tokens",)), _tags(i, 1))
            time.sleep(0.005)  # the claim waits
            times.append(time.monotonic())
            rows.add([f"w/{i}"], data.columns(i, 1, ("advantages",)))
        return {"times": times}

    def produce(self, table: str, count: int) -> dict[str, float]:
        """Puts rows, eight a call, as the bound of the table allows."""
        rows, data = self._rows(table), self._data
        for first in range(0, count, 8):
            tags = [{**tag, "row": first, "created": time.monotonic()} for tag in _tags(first, 8)]
            rows.put(_keys("p", first, 8), data.columns(first, 8, FIRST), tags)
        return {}

    def stage(self, table: str, count: int) -> dict[str, float]:
        """Claims rows, eight at a time, and adds a column."""
        rows, data = self._rows(table), self._data
        for first in range(0, count, 8):
            keys, _, _ = rows.claim("stage", 8, ("tokens",))
            rows.add(keys, data.columns(first, 8, ("advantages",)))
        return {}

    def train(self, table: str, count: int) -> dict[str, float]:
        """Claims batches of 64 complete rows."""
        rows = self._rows(table)
        ages: list[float] = []
        order: list[int] = []
        skip = count // 8 // 64 * 64  # rows; until all stages run
        began = 0.0
        for first in range(0, count, 64):
            if first == skip:
                began = time.perf_counter()
            _, _, tags = rows.claim("train", 64, NEEDS)
            now = time.monotonic()
            ages += [now - tag["created"] for tag in tags]
            order += [tag["row"] for tag in tags]
        took = time.perf_counter() - began
        return {
            "rows_per_s": (count - skip) / took,
            "age_p99_ms": float(np.quantile(ages, 0.99)) * 1e3,
            "in_order": float(order == sorted(order)),
        }

    def fill_short(self, table: str, begin: int, end: int) -> dict[str, float]:
        """Puts short rows, eight a call, with all columns."""
        rows = self._rows(table)
        random = np.random.default_rng(3)
        for first in range(begin, end, 8):
            columns = {
                name: [random.integers(0, 150_000, SHORT, np.int32) for _ in range(8)] for name in ("tokens", "mask")
            } | {
                name: [random.standard_normal(SHORT, np.float32) for _ in range(8)]
                for name in ("logprobs", "advantages")
            }
            rows.put(_keys("s", first, 8), columns, _tags(first, 8))
        return {}

    def claim_short(self, table: str, count: int) -> dict[str, float]:
        """Claims 64 of many rows."""
        rows = self._rows(table)
        rows.claim("train", 64, NEEDS)  # the first one makes the server sort
        times = []
        for _ in range(count):
            start = time.perf_counter()
            rows.claim("train", 64, NEEDS)
            times.append(time.perf_counter() - start)
        return {"p50_ms": float(np.median(times)) * 1e3}


def main() -> None:
    """Answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not get between the answers
    loops = Loops(*sys.argv[1:3])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            result = getattr(loops, command.pop("do"))(**command)
        except Exception:  # noqa: BLE001  # told to the parent, which ends
            result = {"error": traceback.format_exc()}
        print(json.dumps(result), file=answers)
    os._exit(0)


if __name__ == "__main__":
    main()
