#!/usr/bin/env python3
"""Records a run of the demo as an animated picture, docs/pictures/demo.svg.

    record_demo.py [--output FILE] [--speed 2] COMMAND...     such as: record_demo.py tools/demo.sh --seed 3

Runs the command in a terminal of its own, takes the content of its screen twice a second, and draws the frames as text. An
animation in CSS shows one after the other and repeats; without animation, the picture shows the end of the run. Fails if
the command fails.
"""

import argparse
import codecs
import fcntl
import os
import pathlib
import pty
import re
import struct
import sys
import termios
import time
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 102, 60
SECONDS_PER_FRAME = 0.5
SECONDS_AT_THE_END = 6.0
LEFT_MARGIN, TOP_MARGIN, ROW_HEIGHT, LETTER_WIDTH = 16, 40, 18, 7.8
CONTROL = re.compile(r"\x1b\[(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)|(\x1b.?)")

Row = list[tuple[str, bool]]  # letters, each with whether it is bold


class Terminal:
    """The content of a terminal, for the control sequences that the demo uses."""

    def __init__(self) -> None:
        self.rows: list[Row] = [[]]
        self._row = 0
        self._column = 0
        self._is_bold = False

    def write(self, text: str) -> None:
        """Interprets a piece of output; a control sequence must not be divided between two."""
        for number, command, end, plain, _ in CONTROL.findall(text):
            if plain:
                row = self.rows[self._row]
                row.extend([(" ", False)] * (self._column - len(row)))
                row[self._column : self._column + len(plain)] = [(letter, self._is_bold) for letter in plain]
                self._column += len(plain)
            elif end:
                self._column = 0
                if end == "\n":
                    self._row += 1
                    if self._row == len(self.rows):
                        self.rows.append([])
            elif command == "A":
                self._row = max(0, self._row - int(number or 1))
            elif command == "K":
                self.rows[self._row] = []
                self._column = 0
            elif command == "m":
                self._is_bold = number == "1"

    def content(self) -> tuple[tuple[tuple[str, bool], ...], ...]:
        """Returns the rows, without empty ones at the end."""
        rows = [tuple(row) for row in self.rows]
        while rows and not rows[-1]:
            rows.pop()
        return tuple(rows)


def record(command: list[str]) -> tuple[list[tuple[float, tuple]], int]:
    """Runs the command in a terminal; returns (seconds, content) for each change of the screen, and the exit code."""
    child, terminal_file = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execvp(command[0], command)
    fcntl.ioctl(terminal_file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    terminal, frames, pending, start = Terminal(), [], "", time.monotonic()
    while True:
        try:
            data = os.read(terminal_file, 65536)
        except OSError:  # the terminal has no other end any more
            break
        if not data:
            break
        text = pending + decoder.decode(data)
        complete = text.rpartition("\n")[0] + "\n" if "\n" in text else ""
        pending = text[len(complete) :]
        terminal.write(complete)
        frames.append((time.monotonic() - start, terminal.content()))
        print(f"\r{frames[-1][0]:5.1f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    return frames, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def choose_frames(changes: list[tuple[float, tuple]]) -> list[tuple[float, tuple]]:
    """Returns the last content of each interval, with its time."""
    frames: dict[int, tuple[float, tuple]] = {}
    for seconds, content in changes:
        frames[int(seconds / SECONDS_PER_FRAME)] = (seconds, content)
    return list(frames.values())


def draw_row(row: tuple[tuple[str, bool], ...], y: float) -> str:
    """Returns a row as a text of fixed width, so that all rows have the same columns in every font."""
    text = "".join(letter for letter, _ in row).rstrip()
    if not text:
        return ""
    left = len(text) - len(text.lstrip())
    text = text.strip()
    bold = ' class="b"' if row[left][1] else ""
    return (
        f'<text{bold} x="{LEFT_MARGIN + left * LETTER_WIDTH:.1f}" y="{y}" textLength="{len(text) * LETTER_WIDTH:.1f}">'
        f"{escape(text)}</text>"
    )


def draw(frames: list[tuple[float, tuple]], title: str, speed: float) -> str:
    """Returns the animation as SVG."""
    width = round(2 * LEFT_MARGIN + COLUMNS * LETTER_WIDTH)
    height = TOP_MARGIN + ROW_HEIGHT * max(len(content) for _, content in frames) + 10
    start, end = frames[0][0], frames[-1][0] + speed * SECONDS_AT_THE_END
    styles, groups = [], []
    for i, (seconds, content) in enumerate(frames):
        until = frames[i + 1][0] if i + 1 < len(frames) else end
        begins, ends = (100 * (each - start) / (end - start) for each in (seconds, until))
        # The first frame begins at 0 % and the last one ends at 100 %: neither needs to be hidden before or after.
        steps = f"0%{{visibility:hidden}}{begins:.2f}%{{visibility:visible}}" if i else "0%{visibility:visible}"
        styles.append(f"@keyframes f{i}{{{steps}{f'{ends:.2f}%,100%{{visibility:hidden}}' if i + 1 < len(frames) else ''}}}")
        rows = [draw_row(row, TOP_MARGIN + ROW_HEIGHT * (number + 1)) for number, row in enumerate(content)]
        shown = "" if i + 1 < len(frames) else ";visibility:visible"
        groups.append(f'<g class="f" style="animation-name:f{i}{shown}">{"".join(rows)}</g>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{escape(title)}</title>
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d8dee9;white-space:pre}}
.b{{font-weight:bold;fill:#fff}}
.t{{fill:#8a94a6;text-anchor:middle}}
.f{{visibility:hidden;animation:{(end - start) / speed:.1f}s step-end infinite}}
@media (prefers-reduced-motion:reduce){{.f{{animation:none}}}}
{"".join(styles)}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#1f2430"/>
<text class="t" x="{width / 2}" y="24">{escape(title)}</text>
{chr(10).join(groups)}
</svg>
"""


def main() -> int:
    """Records and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "pictures" / "demo.svg")
    parser.add_argument("--speed", type=float, default=2.0, help="of the animation, relative to the run")
    parser.add_argument("--title", default="make demo")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("the command to record is missing")
    changes, code = record(arguments.command)
    if code != 0:
        print(f"record_demo: the command ended with {code}; the picture is unchanged", file=sys.stderr)
        return 1
    frames = choose_frames(changes)
    arguments.output.write_text(draw(frames, arguments.title, arguments.speed), encoding="utf-8")
    size = arguments.output.stat().st_size
    print(f"record_demo: {len(frames)} frames of {frames[-1][0]:.0f} s, {size / 1024:.0f} KiB in {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
