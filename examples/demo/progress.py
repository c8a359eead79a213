"""The progress display of the demo: the server's information, as a page or as a line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from typing import Any, TextIO

REASONS = {
    "min_size": "the table has too few items yet",
    "too_many_samples": "the actors are behind",
    "too_many_inserts": "the learner is behind",
    "memory": "the server's memory is full",
    "queued": "others are first",
}


class ServerWatcher:
    """Runs `reverb info --json --watch`, and stores its latest output."""

    def __init__(self, program: str, address: str) -> None:
        self._process = subprocess.Popen(
            [program, "info", address, "--json", "--watch", "--every", "0.5"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        self.newest: dict[str, Any] = {}  # replaced, never modified
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.newest = json.loads(line)

    def close(self) -> None:
        """Stops the program."""
        self._process.terminate()
        self._process.wait()
        self._reader.join()


def who_waits(table: dict[str, Any]) -> str:
    """Describes who waits, from a table of `reverb info --json`."""
    if table["sample_wait_reason"] not in (None, "none") and table["waiting_samples"]:
        return f"the learner waits: {REASONS.get(table['sample_wait_reason'], table['sample_wait_reason'])}"
    if table["insert_wait_reason"] not in (None, "none") and table["waiting_inserts"]:
        return f"actors wait: {REASONS.get(table['insert_wait_reason'], table['insert_wait_reason'])}"
    return "nobody waits"


def size_of(count: float) -> str:
    """Formats bytes for display."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def mark_between(share: float, width: int = 24) -> str:
    """Draws a marker between two ends."""
    position = round(min(1.0, max(0.0, share)) * (width - 1))
    return "[" + "-" * position + "#" + "-" * (width - 1 - position) + "]"


def filled(share: float, width: int = 24) -> str:
    """Draws a bar."""
    full = round(min(1.0, max(0.0, share)) * width)
    return "[" + "#" * full + "-" * (width - full) + "]"


def curve(values: list[float], highest: float) -> str:
    """Draws the last values, each as a character of its height."""
    levels = "▁▂▃▄▅▆▇█"
    return "".join(levels[min(7, int(8 * max(0.0, value) / highest))] for value in values[-40:])


class Screen:
    """A page that is redrawn on a terminal; elsewhere an occasional line."""

    def __init__(self, stream: TextIO = sys.stdout, seconds_per_line: float = 5.0) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._is_coloured = self._is_terminal and not os.environ.get("NO_COLOR")
        self._drawn = 0
        self._seconds_per_line = seconds_per_line
        self._next_line = 0.0

    def bold(self, text: str) -> str:
        """Formats a heading, if colours are supported."""
        return f"\x1b[1m{text}\x1b[0m" if self._is_coloured else text

    def say(self, text: str) -> None:
        """Prints a permanent line."""
        self._drawn = 0
        print(text, file=self._stream, flush=True)

    def show(self, state: dict[str, Any]) -> None:
        """Shows the current state."""
        if self._is_terminal:
            self._draw(page(state, self.bold))
        elif state["seconds"] >= self._next_line:
            self._next_line = state["seconds"] + self._seconds_per_line
            self.say(line(state))

    def _draw(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns
        above = f"\x1b[{self._drawn}A" if self._drawn else ""
        text = "".join(f"\x1b[2K{text[: width + 8 if chr(27) in text else width]}\n" for text in lines)
        encoding = self._stream.encoding or "ascii"
        self._stream.write((above + text).encode(encoding, "replace").decode(encoding))
        self._stream.flush()
        self._drawn = len(lines)


def page(state: dict[str, Any], bold: Any) -> list[str]:
    """Formats the page for terminals."""
    replay = state["replay"]
    low, high = replay["rate_limiter"]["min_diff"], replay["rate_limiter"]["max_diff"]
    size, room = replay["size"], replay["max_size"]
    return [
        "",
        bold(f"{state['seconds']:5.0f} s   {state['task']}: {state['headline']}"),
        f"  evaluated  {curve(state['evaluations'], state['highest'])}",
        f"  actors     {replay['inserts']:,} transitions, {replay['inserts_per_second']:,.0f} /s; "
        f"return {state['training_return']:.0f} (last 20 of {state['episodes']:,} episodes)",
        f"  learner    {state['updates']:,} updates, {replay['samples_per_second']:,.0f} samples/s; "
        f"mean error {state['loss']:.2f}",
        f"  table      {filled(size / room)} {size:,} of {room:,} items, {size_of(state['stored_bytes'])}",
        f"  limiter    {mark_between((replay['cursor'] - low) / (high - low))} cursor {replay['cursor']:,.0f}, "
        f"from {low:,.0f} to {high:,.0f}",
        f"             {state['samples_per_insert']:.2f} samples per insert so far, aim {state['aim']:g}",
        f"  pace       the environments run {'in real time' if state['is_real_time'] else 'at full speed'}",
        f"  waiting    {who_waits(replay)}",
        f"    actors   {curve(state['actors_waiting'], 1.0):40} {state['actors_waited']:6.1f} s so far",
        f"    learner  {curve(state['learner_waiting'], 1.0):40} {state['learner_waited']:6.1f} s so far",
    ]


def line(state: dict[str, Any]) -> str:
    """Formats the line for files and pipes."""
    replay = state["replay"]
    return (
        f"{state['seconds']:5.0f} s  {replay['inserts']:7,} transitions  {state['updates']:6,} updates  "
        f"return {state['training_return']:5.1f}, evaluated {state['evaluated']:5.1f}  "
        f"{state['samples_per_insert']:5.2f} samples/insert  {replay['size']:6,} items  "
        f"{size_of(state['stored_bytes']):>9}  {who_waits(replay)}"
    )
