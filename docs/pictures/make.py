#!/usr/bin/env python3
"""Draws the pictures of docs/ as SVG, beside itself. With --check it only tells which are not current.

What the pictures show is computed where it can be: the probabilities of the selectors, the way of the limiter's cursor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from html import escape
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

INK = "#1f2933"
FAINT = "#7b8794"
LINE = "#cbd2d9"
PAPER = "#ffffff"
PANEL = "#f5f7fa"
BLUE, GREEN, ORANGE, PURPLE, RED, TEAL = "#2f6fb5", "#3a8f4d", "#d9822b", "#7a5bb5", "#c23b3b", "#1f8a8a"
PALE = {BLUE: "#d9e7f6", GREEN: "#dcefdf", ORANGE: "#fbe7d0", PURPLE: "#e6def4", RED: "#f7d9d9", TEAL: "#d3ecec"}


class Picture:
    """Shapes and texts on a white sheet."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.size = (width, height)
        self.title = title
        self.parts: list[str] = []
        self.colours: set[str] = set()

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        *,
        fill: str = PANEL,
        stroke: str = LINE,
        r: float = 6,
        width: float = 1.2,
        dash: str = "",
    ) -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{r:g}" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="{width:g}"{dashes}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        fill: str = INK,
        anchor: str = "start",
        weight: str = "normal",
        mono: bool = False,
        italic: bool = False,
    ) -> None:
        family = "DejaVu Sans Mono, Menlo, Consolas, monospace" if mono else "DejaVu Sans, Helvetica, Arial, sans-serif"
        style = ' font-style="italic"' if italic else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-family="{family}" font-size="{size:g}" fill="{fill}" '
            f'text-anchor="{anchor}" font-weight="{weight}"{style}>{escape(text)}</text>'
        )

    def line(
        self,
        points: list[tuple[float, float]],
        *,
        stroke: str = INK,
        width: float = 1.5,
        arrow: bool = False,
        dash: str = "",
    ) -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        head = ""
        if arrow:
            self.colours.add(stroke)
            head = f' marker-end="url(#head{stroke[1:]})"'
        where = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{where}" fill="none" stroke="{stroke}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dashes}{head}/>'
        )

    def curve(self, path: str, *, stroke: str = INK, width: float = 1.5, arrow: bool = False) -> None:
        head = ""
        if arrow:
            self.colours.add(stroke)
            head = f' marker-end="url(#head{stroke[1:]})"'
        self.parts.append(f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{head}/>')

    def shape(self, points: list[tuple[float, float]], *, fill: str, stroke: str = "none") -> None:
        where = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polygon points="{where}" fill="{fill}" stroke="{stroke}"/>')

    def svg(self) -> str:
        w, h = self.size
        heads = "".join(
            f'<marker id="head{c[1:]}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0.8 L9.5,5 L0,9.2 z" fill="{c}"/></marker>'
            for c in sorted(self.colours)
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:g}" height="{h:g}" viewBox="0 0 {w:g} {h:g}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<defs>{heads}</defs>\n"
            f'<rect width="{w:g}" height="{h:g}" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n'
        )


def overview() -> Picture:
    """Who talks to whom."""
    p = Picture(860, 330, "Actors write through writers into tables of a server; learners read through samplers")
    for i, y in enumerate((40, 125, 210)):
        p.rect(20, y, 150, 62, fill=PALE[GREEN], stroke=GREEN)
        p.text(95, y + 26, f"actor {i + 1}", anchor="middle", weight="bold")
        p.text(95, y + 46, "writer", anchor="middle", size=12, fill=FAINT)
        p.line([(170, y + 31), (296, y + 31)], stroke=GREEN, arrow=True, width=2)
    p.text(233, 28, "items and", anchor="middle", size=11.5, fill=FAINT)
    p.text(233, 43, "chunks, once each", anchor="middle", size=11.5, fill=FAINT)
    p.rect(300, 20, 260, 290, fill=PANEL, stroke=INK)
    p.text(430, 44, "server", anchor="middle", weight="bold", size=14)
    for i, (name, what) in enumerate((("table “replay”", "prioritized · fifo"), ("table “queue”", "fifo · fifo"))):
        y = 58 + i * 74
        p.rect(320, y, 220, 62, fill=PALE[BLUE], stroke=BLUE)
        p.text(430, y + 25, name, anchor="middle", weight="bold")
        p.text(430, y + 45, what + ", rate limiter", anchor="middle", size=11.5, fill=FAINT)
    p.line([(430, 194), (430, 216)], stroke=FAINT, dash="3 3")
    p.rect(320, 218, 220, 78, fill=PALE[ORANGE], stroke=ORANGE)
    p.text(430, 242, "chunk store", anchor="middle", weight="bold")
    p.text(430, 262, "data, compressed, once,", anchor="middle", size=11.5, fill=FAINT)
    p.text(430, 279, "however many items share it", anchor="middle", size=11.5, fill=FAINT)
    for i, y in enumerate((80, 180)):
        p.rect(690, y, 150, 62, fill=PALE[PURPLE], stroke=PURPLE)
        p.text(765, y + 26, f"learner {i + 1}", anchor="middle", weight="bold")
        p.text(765, y + 46, "sampler", anchor="middle", size=12, fill=FAINT)
        p.line([(560, y + 22), (686, y + 22)], stroke=PURPLE, arrow=True, width=2)
        p.line([(690, y + 44), (564, y + 44)], stroke=FAINT, arrow=True)
    p.text(625, 92, "samples", anchor="middle", size=11.5, fill=FAINT)
    p.text(625, 142, "new priorities", anchor="middle", size=11.5, fill=FAINT)
    p.text(625, 192, "samples", anchor="middle", size=11.5, fill=FAINT)
    p.text(625, 242, "new priorities", anchor="middle", size=11.5, fill=FAINT)
    return p


STEPS = 10
CELL = 54


def grid(p: Picture, x: float, y: float, rows: list[tuple[str, str]], cuts: dict[str, list[int]]) -> None:
    """Steps to the right, columns downwards; every chunk a box around its cells."""
    for s in range(STEPS):
        p.text(x + s * CELL + CELL / 2, y - 10, f"step {s}", anchor="middle", size=11, fill=FAINT)
    for r, (name, colour) in enumerate(rows):
        top = y + r * 40
        p.text(x - 12, top + 25, name, anchor="end", mono=True, size=12.5)
        for s in range(STEPS):
            p.rect(x + s * CELL + 3, top + 3, CELL - 6, 34, fill=PALE[colour], stroke="none", r=3)
        start = 0
        for length in cuts[name]:
            dash = "5 4" if length < 4 else ""
            p.rect(x + start * CELL, top, length * CELL, 40, fill="none", stroke=colour, r=5, width=2, dash=dash)
            start += length


def chunks() -> Picture:
    """How steps become chunks."""
    p = Picture(860, 316, "Ten steps with three columns, cut into chunks of one or two columns")
    x, y = 150, 50
    grid(p, x, y, [("image", ORANGE)], {"image": [4, 4, 2]})
    for s in range(STEPS):
        p.text(x + s * CELL + CELL / 2, y + 25, "▦", anchor="middle", size=15, fill=ORANGE)
    top = y + 52
    for r, name in enumerate(("action", "reward")):
        p.text(x - 12, top + r * 40 + 25, name, anchor="end", mono=True, size=12.5)
        for s in range(STEPS):
            p.rect(x + s * CELL + 3, top + r * 40 + 3, CELL - 6, 34, fill=PALE[BLUE], stroke="none", r=3)
            value = str((s * 3) % 4) if name == "action" else f"{0.1 * s:.1f}"
            p.text(x + s * CELL + CELL / 2, top + r * 40 + 25, value, anchor="middle", size=12, fill=BLUE, mono=True)
    start = 0
    for length in (4, 4, 2):
        dash = "5 4" if length < 4 else ""
        p.rect(x + start * CELL, top, length * CELL, 80, fill="none", stroke=BLUE, r=5, width=2, dash=dash)
        start += length
    p.text(x + 9 * CELL, top + 97, "still growing", anchor="middle", size=11, fill=FAINT, italic=True)
    p.rect(40, 214, 780, 86, fill=PANEL)
    p.text(
        60,
        238,
        "A chunk is a run of steps of one column, or of several small ones that always arrive together.",
        size=12.5,
    )
    p.text(
        60, 260, "It is compressed when it is full, or when an item needs it, and never changes afterwards.", size=12.5
    )
    p.text(
        60,
        282,
        "Inside, a column is cut into blocks of about 64 kB, so that a sample decodes only what it touches.",
        size=12.5,
    )
    return p


def items() -> Picture:
    """Items over shared chunks."""
    p = Picture(860, 350, "Items of two tables refer to overlapping runs of the same three chunks")
    x, y = 150, 140
    for s in range(STEPS):
        p.text(x + s * CELL + CELL / 2, y + 66, f"step {s}", anchor="middle", size=11, fill=FAINT)
        p.rect(x + s * CELL + 3, y + 3, CELL - 6, 38, fill=PALE[ORANGE], stroke="none", r=3)
    start = 0
    for i, length in enumerate((4, 4, 2)):
        p.rect(x + start * CELL, y, length * CELL, 44, fill="none", stroke=ORANGE, r=5, width=2)
        p.text(
            x + (start + length / 2) * CELL, y + 27, f"chunk {i}", anchor="middle", size=12, fill=ORANGE, weight="bold"
        )
        start += length
    p.text(x - 12, y + 27, "observation", anchor="end", mono=True, size=12.5)

    def item(first: int, last: int, top: float, colour: str, name: str) -> None:
        p.rect(x + first * CELL + 4, top, (last - first) * CELL - 8, 26, fill=PALE[colour], stroke=colour, r=13)
        p.text(x + (first + last) / 2 * CELL, top + 17, name, anchor="middle", size=11.5)

    p.text(20, 32, "table “replay”", weight="bold", size=12.5, fill=BLUE)
    p.text(20, 48, "3 steps each,", size=11, fill=FAINT)
    p.text(20, 62, "one every step", size=11, fill=FAINT)
    for i, first in enumerate((0, 1, 2, 3)):
        item(first, first + 3, 12 + i * 30, BLUE, f"item {i}: priority {(0.4, 1.7, 0.9, 2.2)[i]}")
    p.text(20, 246, "table “episodes”", weight="bold", size=12.5, fill=PURPLE)
    p.text(20, 262, "one for the whole", size=11, fill=FAINT)
    item(0, STEPS, 232, PURPLE, "item: steps 0 to 9 = chunk 0 [0:4] + chunk 1 [0:4] + chunk 2 [0:2]")
    p.rect(40, 282, 780, 54, fill=PANEL)
    p.text(
        60,
        304,
        "An item holds no data: a key, a priority, and for each column a list of slices (chunk, first row, rows).",
        size=12.5,
    )
    p.text(60, 324, "A chunk is stored once, however many items share it, and goes with the last of them.", size=12.5)
    return p


def table() -> Picture:
    """What a table does."""
    p = Picture(860, 340, "Inserts pass the rate limiter into the table; the sampler picks, the remover evicts")
    p.rect(250, 70, 360, 190, fill=PANEL, stroke=INK)
    p.text(430, 94, "table", anchor="middle", weight="bold", size=14)
    priorities = (0.4, 1.7, 0.9, 2.2, 0.1, 1.2)
    for i, priority in enumerate(priorities):
        px = 272 + i * 54
        p.rect(px, 112, 46, 60, fill=PALE[BLUE], stroke=BLUE)
        p.text(px + 23, 137, f"item {i}", anchor="middle", size=10.5)
        p.text(px + 23, 157, f"{priority}", anchor="middle", size=11.5, mono=True, fill=BLUE)
    p.text(430, 192, "oldest … newest, each with its priority", anchor="middle", size=11, fill=FAINT)
    p.rect(286, 204, 130, 40, fill=PALE[PURPLE], stroke=PURPLE)
    p.text(351, 229, "sampler: picks", anchor="middle", size=12)
    p.rect(444, 204, 130, 40, fill=PALE[RED], stroke=RED)
    p.text(509, 229, "remover: evicts", anchor="middle", size=12)
    p.text(40, 118, "insert", weight="bold", fill=GREEN)
    p.line([(40, 132), (246, 132)], stroke=GREEN, arrow=True, width=2)
    p.rect(120, 104, 52, 56, fill=PAPER, stroke=GREEN, width=2)
    p.text(146, 127, "rate", anchor="middle", size=11)
    p.text(146, 143, "limiter", anchor="middle", size=11)
    p.text(40, 182, "waits while there were too", size=11, fill=FAINT)
    p.text(40, 198, "many inserts per sample", size=11, fill=FAINT)
    p.line([(614, 132), (812, 132)], stroke=PURPLE, arrow=True, width=2)
    p.text(768, 118, "sample", weight="bold", fill=PURPLE)
    p.rect(688, 104, 52, 56, fill=PAPER, stroke=PURPLE, width=2)
    p.text(714, 127, "rate", anchor="middle", size=11)
    p.text(714, 143, "limiter", anchor="middle", size=11)
    p.text(646, 182, "waits while there are too few", size=11, fill=FAINT)
    p.text(646, 198, "items, or were too many", size=11, fill=FAINT)
    p.text(646, 214, "samples per insert", size=11, fill=FAINT)
    p.line([(509, 244), (509, 290)], stroke=RED, arrow=True, width=2)
    p.text(522, 284, "evicted, when full", size=11.5, fill=FAINT)
    p.line([(351, 244), (351, 306)], stroke=PURPLE, width=1.5, dash="4 3")
    p.line([(351, 306), (632, 306), (632, 136)], stroke=PURPLE, width=1.5, dash="4 3", arrow=True)
    p.text(364, 325, "handed out, and gone after max_times_sampled, if that is set", size=11.5, fill=FAINT)
    p.line([(430, 30), (430, 66)], stroke=FAINT, arrow=True)
    p.text(444, 36, "new priorities and deletes, by key: never wait", size=11.5, fill=FAINT)
    return p


PRIORITIES = (3.0, 1.0, 0.5, 4.0, 0.0, 2.0, 1.0, 0.5)


def selector_probabilities() -> list[tuple[str, str, list[float]]]:
    """How likely each of the items, oldest first, is picked by each selector."""

    def one(index: int) -> list[float]:
        return [1.0 if i == index else 0.0 for i in range(len(PRIORITIES))]

    weights = [priority**0.6 if priority > 0 else 0.0 for priority in PRIORITIES]
    return [
        ("Fifo", "the oldest", one(0)),
        ("Lifo", "the newest", one(len(PRIORITIES) - 1)),
        ("Uniform", "any", [1 / len(PRIORITIES)] * len(PRIORITIES)),
        ("MinHeap", "lowest priority", one(PRIORITIES.index(min(PRIORITIES)))),
        ("MaxHeap", "highest priority", one(PRIORITIES.index(max(PRIORITIES)))),
        ("Prioritized(0.6)", "priority ** 0.6", [weight / sum(weights) for weight in weights]),
    ]


def selectors() -> Picture:
    """What each selector picks of the same items."""
    p = Picture(860, 460, "The probability with which each of six selectors picks each of eight items")
    w = 34.0
    p.text(30, 34, "Eight items, oldest first, with their priorities:", size=13)
    for i, priority in enumerate(PRIORITIES):
        p.rect(382 + i * 54, 12, 46, 36, fill=PALE[BLUE], stroke=BLUE)
        p.text(405 + i * 54, 35, f"{priority:g}", anchor="middle", mono=True, fill=BLUE)
    p.text(30, 72, "How likely each is to be picked next:", size=13)
    for n, (name, what, probabilities) in enumerate(selector_probabilities()):
        x, y = 30 + (n % 3) * 276, 86 + (n // 3) * 186
        p.rect(x, y, 256, 172)
        p.text(x + 12, y + 24, name, weight="bold", mono=True, size=13)
        p.text(x + 244, y + 24, what, anchor="end", size=11.5, fill=FAINT)
        base = y + 148
        p.line([(x + 10, base), (x + 246, base)], stroke=LINE)
        for i, probability in enumerate(probabilities):
            bx = x + 12 + i * (w - 5)
            h = 94 * probability
            if probability > 0:
                p.rect(bx + 2, base - h, w - 10, h, fill=PURPLE, stroke="none", r=1.5)
                label = f"{round(probability, 3):g}".removeprefix("0") if probability < 1 else "1"
                p.text(bx + w / 2 - 3, base - h - 5, label, anchor="middle", size=9.5, fill=PURPLE)
            p.text(bx + w / 2 - 3, base + 15, f"{PRIORITIES[i]:g}", anchor="middle", size=9.5, fill=FAINT)
    return p


def limiter() -> Picture:
    """The cursor between its bounds."""
    p = Picture(860, 420, "The rate limiter's cursor between min_diff and max_diff")
    left, right = 130.0, 730.0
    low, high = 3.0, 13.0

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    states = (
        (12, "inserts wait", "the next insert would take the cursor beyond max_diff; samples go on", RED, GREEN),
        (8, "nobody waits", "", GREEN, GREEN),
        (3, "samples wait", "the next sample would take the cursor below min_diff; inserts go on", GREEN, RED),
    )
    p.text(430, 30, "cursor = inserts × samples_per_insert − samples", anchor="middle", mono=True, size=13.5)
    p.text(
        430,
        52,
        "SampleToInsertRatio(samples_per_insert=2, min_size_to_sample=4, error_buffer=5): bounds 2 × 4 ± 5",
        anchor="middle",
        size=11.5,
        fill=FAINT,
    )
    for n, (cursor, title, why, insert, sample) in enumerate(states):
        y = 110 + n * 104
        p.rect(left, y - 9, right - left, 18, fill=PALE[TEAL], stroke=TEAL, r=9)
        for value in range(int(low), int(high) + 1):
            p.line([(at(value), y - 5), (at(value), y + 5)], stroke=TEAL, width=1)
        p.text(left, y + 30, "min_diff 3", anchor="middle", size=11.5, fill=TEAL, mono=True)
        p.text(right, y + 30, "max_diff 13", anchor="middle", size=11.5, fill=TEAL, mono=True)
        x = at(cursor)
        p.shape([(x - 8, y - 22), (x + 8, y - 22), (x, y - 7)], fill=INK)
        p.text(x, y - 27, f"{cursor}", anchor="middle", weight="bold", size=12.5)
        p.line([(x + 3, y), (min(x + 2 * (right - left) / 10, right + 60) - 2, y)], stroke=insert, arrow=True, width=3)
        p.line([(x - 3, y), (x - (right - left) / 10 + 2, y)], stroke=sample, arrow=True, width=3)
        p.text(430, y + 30, title, anchor="middle", weight="bold", size=13)
        p.text(430, y + 47, why, anchor="middle", size=11.5, fill=FAINT)
    p.line([(150, 398), (190, 398)], stroke=FAINT, arrow=True, width=3)
    p.text(200, 402, "an insert: + samples_per_insert", size=11.5)
    p.line([(500, 398), (470, 398)], stroke=FAINT, arrow=True, width=3)
    p.text(510, 402, "a sample: − 1", size=11.5)
    p.text(640, 402, "red: has to wait", size=11.5, fill=RED)
    return p


def simulate_limiter() -> tuple[list[tuple[float, float]], list[tuple[float, float, str]]]:
    """Cursor over time, and who waited when: a fast actor first, then a fast learner; the rules of rate_limiter.h."""
    ratio, min_size, low, high = 2.0, 4, 3.0, 13.0
    inserts = samples = 0
    way: list[tuple[float, float]] = [(0.0, 0.0)]
    waits: list[tuple[float, float, str]] = []
    for tick in range(240):
        now = tick / 4
        insert_wanted = tick % (4 if now < 30 else 20) == 0
        sample_wanted = tick % (6 if now < 30 else 3) == 2
        cursor = inserts * ratio - samples
        if insert_wanted:
            if inserts + 1 <= min_size or cursor + ratio <= high:
                inserts += 1
            else:
                waits.append((now, now + 0.9, "insert"))
        cursor = inserts * ratio - samples
        if sample_wanted:
            if inserts >= min_size and cursor - 1 >= low:
                samples += 1
            else:
                waits.append((now, now + 0.7, "sample"))
        after = inserts * ratio - samples
        if after != way[-1][1]:
            way += [(now, way[-1][1]), (now, after)]
    way.append((60.0, way[-1][1]))
    return way, waits


def limiter_time() -> Picture:
    """The cursor over time."""
    p = Picture(860, 330, "The limiter's cursor over time: filling, a fast actor, a fast learner")
    left, right, top, bottom = 90.0, 830.0, 30.0, 230.0

    def at(time: float, value: float) -> tuple[float, float]:
        return left + time / 60 * (right - left), bottom - value / 16 * (bottom - top)

    band_top, band_bottom = at(0, 13)[1], at(0, 3)[1]
    p.rect(left, band_top, right - left, band_bottom - band_top, fill=PALE[TEAL], stroke="none", r=0)
    for value, name in ((13, "max_diff"), (3, "min_diff")):
        y = at(0, value)[1]
        p.line([(left, y), (right, y)], stroke=TEAL, dash="5 4")
        p.text(left - 8, y + 4, f"{name}", anchor="end", size=11, fill=TEAL, mono=True)
    p.line([(left, top), (left, bottom), (right, bottom)], stroke=FAINT)
    p.text(left - 8, bottom + 4, "0", anchor="end", size=11, fill=FAINT)
    way, waits = simulate_limiter()
    p.line([at(*point) for point in way], stroke=INK, width=1.8)
    for row, (kind, colour) in enumerate((("insert", GREEN), ("sample", PURPLE))):
        y = bottom + 24 + row * 24
        p.text(left - 8, y + 10, f"{kind}s wait", anchor="end", size=11, fill=colour)
        p.line([(left, y + 7), (right, y + 7)], stroke=LINE, width=1)
        for begin, end, which in waits:
            if which == kind:
                p.rect(at(begin, 0)[0], y, at(end, 0)[0] - at(begin, 0)[0], 13, fill=colour, stroke="none", r=2)
    middle = at(30, 0)[0]
    p.line([(middle, top), (middle, bottom + 62)], stroke=FAINT, dash="2 4")
    p.text((left + middle) / 2, 22, "the actor is faster: inserts wait at max_diff", anchor="middle", size=12)
    p.text((middle + right) / 2, 22, "the learner is faster: samples wait at min_diff", anchor="middle", size=12)
    p.text(right, bottom + 84, "time →", anchor="end", size=11, fill=FAINT)
    return p


SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"
POWERS = ("", "γ ", "γ² ", "γ³ ")


def n_step_items(length: int, n_step: int) -> list[tuple[int, int, str, str, str]]:
    """Items of an episode: first and last observation, the return, the discount after termination and truncation."""
    found = []
    for start in range(length):
        end = min(start + n_step, length)
        total = " + ".join(f"{POWERS[i]}r{SUBSCRIPTS[start + i]}" for i in range(end - start))
        discount = POWERS[end - start].strip()
        found.append((start, end, total, "0" if end == length else discount, discount))
    return found


def n_step_end() -> Picture:
    """The items at the end of an episode, and the step that resets."""
    length, n_step = 5, 3
    p = Picture(860, 506, "The 3-step items of an episode of five steps, and the step in which the environment resets")
    left, gap, y = 70.0, 86.0, 118.0

    def at(observation: int) -> float:
        return left + observation * gap

    p.text(30, 32, "What the environment returns, call by call", weight="bold", size=14)
    p.text(30, 52, "next-step autoreset: the call after the end of an episode only resets", size=11.5, fill=FAINT)
    for i in range(length + 3):
        is_next = i > length
        colour = TEAL if is_next else BLUE
        if i == length:
            colour = RED
        p.rect(at(i) - 17, y - 17, 34, 34, fill=PALE[colour], stroke=colour, r=17, width=2)
        name = f"o{SUBSCRIPTS[i - length - 1]}" if is_next else f"o{SUBSCRIPTS[i]}"
        p.text(at(i), y + 5, name, anchor="middle", size=14, mono=True, fill=colour)
        if i == 0:
            continue
        is_reset = i == length + 1
        middle = (at(i - 1) + at(i)) / 2
        p.line(
            [(at(i - 1) + 20, y), (at(i) - 20, y)],
            stroke=FAINT if is_reset else INK, arrow=True, width=1.5, dash="4 3" if is_reset else "",
        )  # fmt: skip
        if not is_reset:
            step = i - 1 if not is_next else i - length - 2
            p.text(middle, y - 26, f"r{SUBSCRIPTS[step]}", anchor="middle", size=13, mono=True)
    p.text(at(length), y + 36, "the last observation:", anchor="middle", size=10.5, fill=RED)
    p.text(at(length), y + 50, "terminated or truncated", anchor="middle", size=10.5, fill=RED)
    reset = (at(length) + at(length + 1)) / 2
    p.text(reset, y - 40, "resets;", anchor="middle", size=10.5, fill=FAINT)
    p.text(reset, y - 26, "action ignored", anchor="middle", size=10.5, fill=FAINT)
    p.text(at(length + 1) + 60, y + 36, "the next episode", anchor="middle", size=10.5, fill=TEAL)

    top = 232.0
    p.text(30, top - 18, "What a recorder stores with n_step=3", weight="bold", size=14)
    p.text(at(length) + 218, top - 32, "discount, if the episode was", anchor="middle", size=11.5, fill=FAINT)
    for column, name in ((175, "terminated"), (262, "truncated")):
        p.text(at(length) + column, top - 12, name, anchor="middle", size=11.5)
    for row, (start, end, total, terminated, truncated) in enumerate(n_step_items(length, n_step)):
        line = top + row * 38
        is_tail = end - start < n_step
        colour = ORANGE if is_tail else BLUE
        p.rect(at(start) - 17, line, at(end) - at(start) + 34, 28, fill=PALE[colour], stroke=colour, r=14)
        p.text(at(start), line + 19, f"o{SUBSCRIPTS[start]}", anchor="middle", size=12.5, mono=True, fill=colour)
        p.text(at(end), line + 19, f"o{SUBSCRIPTS[end]}", anchor="middle", size=12.5, mono=True, fill=colour)
        inside = (at(start) + at(end)) / 2
        p.text(inside, line + 19, total, anchor="middle", size=12 if end - start > 1 else 11, mono=True)
        for column, value in ((175, terminated), (262, truncated)):
            fill = RED if value == "0" else INK
            p.text(at(length) + column, line + 19, value, anchor="middle", size=13, mono=True, fill=fill)
    line = top + length * 38
    p.line([(at(length) + 36, top - 4), (at(length) + 36, line + 34)], stroke=FAINT, dash="4 3")
    p.rect(at(length + 1) - 17, line, 3 * gap / 2, 28, fill=PALE[TEAL], stroke=TEAL, r=14)
    p.text(at(length + 1), line + 19, f"o{SUBSCRIPTS[0]}", anchor="middle", size=12.5, mono=True, fill=TEAL)
    p.text(at(length + 1) + 46, line + 19, "…", anchor="middle", size=13)
    p.text(30, line + 19, "No item crosses the dashed line.", size=11.5, fill=FAINT)
    p.text(
        30,
        line + 52,
        "Every step starts one item. The last two are shorter: their returns have fewer rewards.",
        size=12,
    )
    p.text(
        30, line + 70, "target = return + discount × value(last observation of the item), for all items alike", size=12
    )
    return p


def row_life() -> Picture:
    """The states of a row, and the calls that change them."""
    p = Picture(960, 390, "A row is opened, stored, ready, leased and consumed, or becomes stale")
    middle, height, width = 165, 56, 118
    states = {
        "open": (30, GREEN, "grows"),
        "stored": (220, BLUE, "readable by key"),
        "ready": (430, BLUE, "has what is needed"),
        "leased": (620, PURPLE, "with one holder"),
        "consumed": (810, TEAL, "not handed out again"),
    }
    p.rect(418, 84, 528, 220, fill=PANEL, stroke=LINE, dash="5 4")
    p.text(928, 106, "for each consumer", anchor="end", size=12, fill=FAINT, italic=True)
    for name, (x, colour, what) in states.items():
        p.rect(x, middle - height / 2, width, height, fill=PALE[colour], stroke=colour, width=1.6)
        p.text(x + width / 2, middle - 3, name, anchor="middle", weight="bold", size=14)
        p.text(x + width / 2, middle + 16, what, anchor="middle", size=10.5, fill=FAINT)

    def go(source: str, target: str, label: str, colour: str = INK) -> None:
        first, last = states[source][0] + width, states[target][0]
        p.line([(first, middle), (last - 3, middle)], stroke=colour, arrow=True, width=1.8)
        p.text((first + last) / 2, middle - 9, label, anchor="middle", size=12, mono=True)

    def loop(state: str, label: str) -> None:
        x = states[state][0] + width / 2
        top = middle - height / 2
        bend = f"{x - 44:g},{top - 44:g} {x + 44:g},{top - 44:g}"
        p.curve(f"M{x - 24:g},{top:g} C{bend} {x + 24:g},{top - 3:g}", arrow=True)
        p.text(x - 22, top - 42, label, size=12, mono=True)

    go("open", "stored", "close")
    go("ready", "leased", "claim", PURPLE)
    go("leased", "consumed", "ack", TEAL)
    first, last = states["stored"][0] + width, states["ready"][0]
    p.line([(first, middle), (last - 3, middle)], stroke=BLUE, arrow=True, width=1.8)
    p.text((first + last) / 2 - 6, middle - 24, "the columns", anchor="middle", size=11)
    p.text((first + last) / 2 - 6, middle - 9, "are there", anchor="middle", size=11)
    loop("open", "put(append=True)")
    loop("stored", "put: columns, tags")
    for state, label in (("open", "put(open=True)"), ("stored", "put")):
        x = states[state][0] + 14
        p.text(x - 6, 40, label, size=12, mono=True)
        p.line([(x, 48), (x, middle - height / 2 - 3)], arrow=True, width=1.8)
    # What comes back keeps its place.
    bottom = middle + height / 2
    bend = f"650,{bottom + 56:g} 520,{bottom + 56:g}"
    p.curve(f"M670,{bottom:g} C{bend} 496,{bottom + 3:g}", stroke=ORANGE, width=1.8, arrow=True)
    p.text(582, bottom + 60, "release, lease lost: back to its old place", anchor="middle", size=11.5, fill=ORANGE)
    # Ends.
    end = 336
    for x, w, label, colour in ((30, 118, "dropped", RED), (220, 328, "stale: dropped, kept, or avoided", RED)):
        p.rect(x, end, w, 38, fill=PALE[colour], stroke=colour)
        p.text(x + w / 2, end + 24, label, anchor="middle", size=12.5)
    p.rect(810, end, 118, 38, fill=PALE[RED], stroke=RED)
    p.text(869, end + 24, "dropped", anchor="middle", size=12.5)
    p.line([(50, bottom), (50, end - 3)], stroke=RED, arrow=True)
    p.text(58, 318, "abort", size=12, mono=True)
    for x in (279, 450):
        p.line([(x, bottom), (x, end - 3)], stroke=RED, arrow=True)
    p.text(288, 270, "set_version", size=12, mono=True)
    p.line([(869, bottom), (869, end - 3)], stroke=TEAL, arrow=True)
    p.text(860, 270, "by all consumers", size=11.5, anchor="end")
    # Partial rollouts.
    p.line([(148, 180), (172, 180), (172, 232), (110, 232), (110, bottom + 3)], stroke=GREEN, arrow=True, dash="4 3")
    p.text(72, 252, "requeue", size=12, mono=True)
    p.text(72, 270, "another worker goes on", size=11.5, fill=GREEN)
    return p


PICTURES: dict[str, Callable[[], Picture]] = {
    "overview": overview,
    "chunks": chunks,
    "items": items,
    "table": table,
    "selectors": selectors,
    "limiter": limiter,
    "limiter_time": limiter_time,
    "n_step_end": n_step_end,
    "row_life": row_life,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which pictures are not what this script draws")
    check = parser.parse_args().check
    stale = []
    for name, draw in PICTURES.items():
        file = HERE / f"{name}.svg"
        text = draw().svg()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(file.name)
            if not check:
                file.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"not current: {', '.join(stale)}; run docs/pictures/make.py")
        return 1
    print(f"{len(PICTURES)} pictures, " + ("all current" if check or not stale else f"{len(stale)} drawn anew"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
