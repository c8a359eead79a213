#!/usr/bin/env python3
"""Draws what `make bench-python BENCH_ARGS=--json` measured: how many times better than dm-reverb each row is.

    plot.py build/bench-python.json docs/pictures/comparison.svg

Reads one record a line (other lines are passed over). A row that was not measured on both sides is left out, and so are
99th percentiles; where ours is slower the bar goes to the left. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
from html import escape
import json
import math
import pathlib
import statistics
import sys

BETTER, WORSE, INK, FAINT, LINE = "#2f6fb5", "#c23b3b", "#1f2933", "#7b8794", "#cbd2d9"
ROW, LEFT, RIGHT, WIDTH = 26, 400, 250, 960
FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
NAMES = {"import_s": "import reverb", "resident_mb": "memory of a process after its first insert and sample"}
KINDS = {"p50_us": "median", "mean_us": "mean", "step_us": "mean"}


def read(lines: list[str]) -> list[dict]:
    """The records that were measured on both sides."""
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return [
        record
        for record in records
        if record["ours"] and record["dm_reverb"] and record["ratio"] and not record["figure"].startswith("p99")
    ]


def number(value: float) -> str:
    """For people."""
    if value >= 10_000:
        return f"{value / 1000:,.0f} k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def label(record: dict, records: list[dict]) -> str:
    """What was measured, with what tells it from others of the same row."""
    text = NAMES.get(record["figure"], record["title"])
    same = [other for other in records if other["title"] == record["title"]]
    if text == record["title"] and len({other["figure"] for other in same}) > 1:
        text += f" ({KINDS.get(record['figure'], record['figure'])})"
    if len({other["tables"] for other in same}) > 1:
        text += f", {record['tables']} table"
    return text


def draw(records: list[dict], note: str) -> str:
    """The picture."""
    records = sorted(records, key=lambda record: -record["ratio"])
    most = max(1.0, math.log10(records[0]["ratio"]))
    least = max(0.0, -math.log10(records[-1]["ratio"]))
    height = 74 + ROW * len(records) + 46
    span = WIDTH - LEFT - RIGHT
    zero = LEFT + span * least / (least + most)

    def at(ratio: float) -> float:
        return zero + span * math.log10(ratio) / (least + most)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" font-family="{FONT}">',
        "<title>How many times better than dm-reverb</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="20" y="28" font-size="15" font-weight="bold" fill="{INK}">Times better than dm-reverb '
        "(more per second, or less time or memory)</text>",
        f'<text x="{WIDTH - RIGHT + 14}" y="54" font-size="11.5" fill="{FAINT}">this / dm-reverb</text>',
    ]
    bottom = 64 + ROW * len(records)
    for ratio in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000):
        if LEFT - 1 <= at(ratio) <= WIDTH - RIGHT + 1:
            x = at(ratio)
            colour, width = (INK, 1.5) if ratio == 1 else (LINE, 1)
            parts.append(
                f'<line x1="{x:.1f}" y1="60" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" stroke-width="{width}"/>'
            )
            parts.append(
                f'<text x="{x:.1f}" y="54" font-size="11" text-anchor="middle" fill="{FAINT}">{ratio:g}×</text>'
            )
    for i, record in enumerate(records):
        y = 64 + ROW * i
        ratio = record["ratio"]
        left, right = sorted((zero, at(ratio)))
        colour = BETTER if ratio >= 1 else WORSE
        ours, theirs = statistics.median(record["ours"]), statistics.median(record["dm_reverb"])
        parts += [
            f'<text x="{LEFT - 12}" y="{y + 17}" font-size="12" text-anchor="end" fill="{INK}">'
            f"{escape(label(record, records))}</text>",
            f'<rect x="{left:.1f}" y="{y + 4}" width="{max(right - left, 1):.1f}" height="{ROW - 9}" rx="2" '
            f'fill="{colour}"/>',
            f'<text x="{WIDTH - RIGHT + 14}" y="{y + 17}" font-size="12" fill="{INK}">'
            f'<tspan font-weight="bold" fill="{colour}">{ratio:.1f}×</tspan>  {number(ours)} / {number(theirs)} '
            f"{escape(record['unit'])}</text>",
        ]
    parts.append(f'<text x="20" y="{bottom + 30}" font-size="11.5" fill="{FAINT}">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Reads, draws, says where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=pathlib.Path, help="what --json printed; - for the standard input")
    parser.add_argument("picture", type=pathlib.Path, help="the SVG to write")
    parser.add_argument("--note", default="", help="a line below: machine, versions, date")
    arguments = parser.parse_args()
    source = sys.stdin if str(arguments.records) == "-" else arguments.records.open(encoding="utf-8")
    with source:
        records = read(source.readlines())
    if not records:
        print(f"plot.py: {arguments.records} has no row that was measured on both sides", file=sys.stderr)
        return 1
    arguments.picture.write_text(draw(records, arguments.note), encoding="utf-8")
    print(f"{len(records)} rows in {arguments.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
