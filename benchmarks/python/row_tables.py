"""Measures row tables beside a Ray actor that holds a dict (row_tables_sides.py), in one run.

    make bench-rows
    PYTHONPATH=python build/framework-ray/bin/python benchmarks/python/row_tables.py --rounds 5 --only put-8

Servers, producers and consumers are processes of one host. The sides take turns, round by round; `ratio` is the median
over the rounds of the ratio of two neighbouring slices. Rows have three token columns of 256 to 8,192 tokens, 27 kB on
average, and get a fourth one later, except those of the last two lines: four columns, 832 bytes. `CPU` is the ratio of
the processor time of all processes of a side for the same work, fillings included; other programs hardly change it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import row_tables_sides as sides

HERE = pathlib.Path(__file__).resolve().parent
PAYLOAD = 832  # bytes of a short row
_VERDICTS = {True: "met", False: "MISSED", None: ""}


class Child:
    """A process with loops."""

    def __init__(self, side: str, address: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "row_tables_loops.py"), side, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            self._log.seek(0)
            raise RuntimeError(f"{answer['error']}\n{self._log.read()[-2000:]}")
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive()

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:  # it waits in a loop that was given up
            self._process.kill()
            self._process.wait()
        self._log.close()


def cpu_seconds(roots: list[int]) -> float:
    """Of these processes and all that they have started, so far."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            parents[int(path.parent.name)] = int(fields[1])
            spent[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def belongs(pid: int) -> bool:
        while pid in parents:
            if pid in roots:
                return True
            pid = parents[pid]
        return False

    return sum(seconds for pid, seconds in spent.items() if belongs(pid))


class Side:
    """A server and the processes that use it."""

    def __init__(self, name: str, processes: int) -> None:
        self.name = name
        self.server = sides.SERVERS[name]()
        self.children = [Child(name, self.server.address) for _ in range(processes)]

    def cpu_seconds(self) -> float:
        """Of all processes of this side; those of Ray are processes of this one too."""
        own = [self.server.pid, *(child.pid for child in self.children)]
        return cpu_seconds([*own, *self.server.daemons()])

    def together(self, commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each in a process of its own."""
        for child, command in zip(self.children, commands, strict=False):
            child.send(**command)
        return [child.receive() for child, _ in zip(self.children, commands, strict=False)]

    def close(self) -> None:
        for child in self.children:
            child.close()
        self.server.close()


Figures = dict[str, float]


def _put(producers: int, per_call: int, figure: str) -> Callable[[Side, argparse.Namespace], Figures]:
    def run(side: Side, arguments: argparse.Namespace) -> Figures:
        most = max(per_call, 16_384 // producers // per_call * per_call)
        command = {"do": "put", "table": "large", "per_call": per_call, "seconds": arguments.seconds, "most": most}
        answers = side.together([command] * producers)
        side.children[0].ask("clear", table="large")
        return {key: sum(answer[key] for answer in answers) for key in (figure, "rows")}

    return run


def _late(side: Side, arguments: argparse.Namespace) -> Figures:
    return side.children[0].ask("late", table="large", count=arguments.rows)


def _get(side: Side, arguments: argparse.Namespace) -> Figures:
    return side.children[0].ask("get", table="large", count=arguments.rows)


def _wake(side: Side, arguments: argparse.Namespace) -> Figures:
    count = 100
    claims, writes = side.together(
        [
            {"do": "wait_claims", "table": "single", "count": count},
            {"do": "wait_writes", "table": "single", "count": count},
        ]
    )
    side.children[0].ask("clear", table="single")
    latencies = [end - begin for end, begin in zip(claims["times"], writes["times"], strict=True)]
    return {"p50_ms": statistics.median(latencies[10:]) * 1e3}


def _end_to_end(side: Side, arguments: argparse.Namespace) -> Figures:
    commands = [{"do": do, "table": "bounded", "count": arguments.rows} for do in ("produce", "stage", "train")]
    answers = side.together(commands)
    side.children[0].ask("clear", table="bounded")
    return answers[2]


def _short(side: Side, arguments: argparse.Namespace) -> Figures:
    # In a process that has not held anything before: memory that others have left would be used again.
    server = side.server.fresh()
    child = Child(side.name, server.address)
    child.ask("fill_short", table="short", begin=0, end=1000)  # what is there once
    before = sides.resident_bytes(server.pid)
    child.ask("fill_short", table="short", begin=1000, end=1000 + sides.SHORT_ROWS)
    after = sides.resident_bytes(server.pid)
    claimed = child.ask("claim_short", table="short", count=50)
    child.ask("clear", table="short")
    child.close()
    if server is not side.server:
        server.close()
    return {"bytes_per_row": (after - before) / sides.SHORT_ROWS - PAYLOAD} | claimed


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number of a workload. `goal`: a ratio to the other side, or an absolute bound."""

    key: str
    title: str
    unit: str
    goal: float | None = None
    is_absolute: bool = False
    is_less_better: bool = False
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Workload:
    """One line of the table, or more."""

    name: str
    run: Callable[[Side, argparse.Namespace], Figures]
    figures: tuple[Figure, ...]
    rounds: int | None = None  # at most


WORKLOADS = (
    Workload("put-8", _put(1, 8, "rows_per_s"), (Figure("rows_per_s", "put, 8 rows a call", "rows/s", 8),)),
    Workload(
        "put-8-4", _put(4, 8, "rows_per_s"), (Figure("rows_per_s", "put, 8 rows a call, 4 producers", "rows/s", 6),)
    ),
    Workload(
        "put-512", _put(1, 512, "bytes_per_s"), (Figure("bytes_per_s", "put, 512 rows a call", "MB/s", 2, scale=1e-6),)
    ),
    Workload("late", _late, (Figure("rows_per_s", "late column, 8 rows a call", "rows/s", 8),)),
    Workload(
        "get",
        _get,
        (
            Figure("batches_per_s", "claim + get, 64 rows x 4 columns", "batches/s", 3),
            Figure("p99_ms", "the same, p99", "ms", is_less_better=True),
        ),
    ),
    Workload(
        "wake",
        _wake,
        (Figure("p50_ms", "a write makes a row ready -> claim returns, p50", "ms", 0.5, is_less_better=True),),
    ),
    Workload(
        "end-to-end",
        _end_to_end,
        (
            Figure("rows_per_s", "producer, stage, trainer", "rows/s", 5),
            Figure("age_p99_ms", "the same, age p99", "ms", is_less_better=True),
            Figure("in_order", "the same, rows in order (1 = all)", "", 1, is_absolute=True),
        ),
    ),
    Workload(
        "short",
        _short,
        (
            Figure("bytes_per_row", "memory of a short row beyond its data", "B", 400, True, True),
            Figure("p50_ms", "claim 64 of 50,000 rows, p50", "ms", 0.3, is_less_better=True),
        ),
        rounds=3,
    ),
)


def _median_ratio(found: dict[str, list[Figures]], key: str) -> float | None:
    if len(found) < 2:
        return None
    return statistics.median(a[key] / b[key] for a, b in zip(found["reverb"], found["ray"], strict=True) if b[key])


def _lines(workload: Workload, found: dict[str, list[Figures]]) -> list[dict[str, Any]]:
    lines = []
    for figure in workload.figures:
        values = {side: [each[figure.key] * figure.scale for each in rounds] for side, rounds in found.items()}
        ratio = _median_ratio(found, figure.key)
        judged = statistics.median(values["reverb"]) if figure.is_absolute and "reverb" in values else ratio
        lines.append(
            {
                "workload": figure.title,
                "unit": figure.unit,
                **{side: statistics.median(each) for side, each in values.items()},
                "values": values,
                "ratio": ratio,
                "cpu_ratio": _median_ratio(found, "cpu") if figure is workload.figures[0] else None,
                "goal": figure.goal,
                "is_less_better": figure.is_less_better,
                "is_absolute": figure.is_absolute,
                "met": None
                if figure.goal is None or judged is None
                else (judged <= figure.goal if figure.is_less_better else judged >= figure.goal),
            }
        )
    return lines


def _text(line: dict[str, Any]) -> str:
    def number(side: str) -> str:
        return f"{line[side]:,.3g}" if side in line and line[side] < 100 else f"{line.get(side, float('nan')):,.0f}"

    goal = ""
    if line["goal"] is not None:
        sign = "<=" if line["is_less_better"] else ">="
        goal = f"{sign} {line['goal']:g}{'' if line['is_absolute'] else ' x'}  {_VERDICTS[line['met']]}"
    ratio = "" if line["ratio"] is None else f"{line['ratio']:.3g} x"
    cpu = "" if line["cpu_ratio"] is None else f"{line['cpu_ratio']:.2g} x"
    figures = f"{number('ray'):>9} {number('reverb'):>9} {line['unit']:10} {ratio:>8} {cpu:>8}"
    return f"{line['workload']:48} {figures}  {goal}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a slice of puts (1)")
    parser.add_argument("--rows", type=int, default=4096, help="of the other slices (4096)")
    parser.add_argument("--only", action="append", choices=[each.name for each in WORKLOADS], help="default: all")
    parser.add_argument("--side", dest="sides", action="append", choices=sides.SERVERS, help="default: both")
    parser.add_argument("--json", action="store_true", help="one record a line in place of the table")
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    measured = [Side(name, 4) for name in arguments.sides or sides.SERVERS]
    try:
        if not arguments.json:
            print(f"{'':48} {'Ray':>9} {'Reverb':>9} {'':10} {'ratio':>8} {'CPU':>8}  goal")
        for workload in WORKLOADS:
            if arguments.only and workload.name not in arguments.only:
                continue
            found: dict[str, list[Figures]] = {side.name: [] for side in measured}
            for number in range(min(arguments.rounds, workload.rounds or arguments.rounds) + 1):
                for side in measured if number % 2 == 0 else measured[::-1]:
                    before = side.cpu_seconds()
                    figures = workload.run(side, arguments)
                    # Both sides do the same work, unless the figures say how much it was.
                    figures["cpu"] = (side.cpu_seconds() - before) / figures.get("rows", 1)
                    if number > 0:  # the first one warms up
                        found[side.name].append(figures)
            for line in _lines(workload, found):
                print(json.dumps(line) if arguments.json else _text(line), flush=True)
    finally:
        for side in measured:
            side.close()


if __name__ == "__main__":
    main()
