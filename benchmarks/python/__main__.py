"""Measures what Python programs feel, beside dm-reverb. See benchmarks/README.md."""

from __future__ import annotations

import argparse
import os
import sys
import time

import children
import contest
import empty_call
import peers
import report
import rows


def _arguments() -> argparse.Namespace:
    names = ", ".join(row.name for row in rows.ROWS)
    parser = argparse.ArgumentParser(prog="benchmarks/python", description=__doc__)
    parser.add_argument("--only", action="append", metavar="ROW", help=f"measure this row; may be repeated. {names}")
    parser.add_argument("--tables", choices=("hot", "cold", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a slice (1)")
    parser.add_argument("--rounds", type=int, default=5, help="slices of each side (5)")
    parser.add_argument(
        "--dm-reverb",
        metavar="PYTHON",
        default=os.environ.get("DM_REVERB_PYTHON") or None,
        help="an interpreter that can import dm-reverb, to measure it in the same run (DM_REVERB_PYTHON)",
    )
    parser.add_argument("--json", action="store_true", help="one record a line in place of the table")
    arguments = parser.parse_args()
    known = {row.name for row in rows.ROWS}
    for name in arguments.only or ():
        if name not in known:
            parser.error(f"there is no row {name}; there are {names}")
    if arguments.seconds <= 0 or arguments.rounds < 1:
        parser.error("--seconds and --rounds must be positive")
    return arguments


def _say(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Measures, prints."""
    arguments = _arguments()
    sides = [peers.ours()] + ([peers.dm_reverb(arguments.dm_reverb)] if arguments.dm_reverb else [])
    program = empty_call.find_program()
    for side in sides:
        _say(f"{side.name}: {side.version}")
    least = "an update of no item through our client, as the program `reverb` is not built"
    _say(f"empty call: {f'{program} bench latency' if program else least}")
    contestants = contest.Contest(sides, arguments.rounds, arguments.seconds, program, _say)
    outcomes = []
    failed = 0
    chosen = [row for row in rows.ROWS if not arguments.only or row.name in arguments.only]
    # Rows on the same tables one after the other: filling a million items takes dm-reverb minutes.
    jobs = [(row, size) for row in chosen for size in _sizes(row, arguments.tables)]
    places = list(dict.fromkeys((row.store, size, row.in_process) for row, size in jobs))
    jobs.sort(key=lambda job: places.index((job[0].store, job[1], job[0].in_process)))
    try:
        for row, size in jobs:
            try:
                outcome = contestants.run(row, size)
            except children.ChildError as error:
                _say(f"{row.name} FAILED: {error}")
                failed = 1
                continue
            for name, reason in outcome.missing.items():
                _say(f"{row.name}: {name}: not available: {reason}")
            for cells in report.lines(outcome):
                _say("  ".join(cell for cell in cells if cell))
            outcomes.append(outcome)
    except KeyboardInterrupt:
        failed = 130
    finally:
        contestants.close()
    order = [row.name for row in rows.ROWS]
    outcomes.sort(key=lambda outcome: order.index(outcome.row.name))
    print(report.as_json(outcomes) if arguments.json else report.table(outcomes), flush=True)
    return failed


def _sizes(row: rows.Row, tables: str) -> list[int]:
    if tables == "both":
        return list(row.sizes)
    if tables == "hot":
        return [row.sizes[0]]
    return list(row.sizes[1:])


if __name__ == "__main__":
    sys.exit(main())
