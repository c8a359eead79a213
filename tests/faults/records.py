"""What the campaign knows: its client processes, and the facts that they report."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import time

Item = tuple[int, int]  # the number of the writer, the number of the item


class CampaignError(AssertionError):
    """A check that did not hold."""


def check(condition: object, text: str) -> None:
    """Fails with the text unless the condition holds."""
    if not condition:
        raise CampaignError(text)


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """A group of items whose flush() returned. Times are those of time.monotonic(), which all processes share."""

    writer: int
    first: int
    last: int
    began: float
    ended: float

    def items(self) -> list[Item]:
        """Returns the items of the group."""
        return [(self.writer, number) for number in range(self.first, self.last + 1)]


@dataclasses.dataclass(frozen=True)
class Death:
    """A server that was killed: what was confirmed in (saved, killed] may be lost."""

    server: int
    saved: float
    killed: float


class Client:
    """A process with writers or a sampler. A restart is a new process, whose writers have new numbers."""

    _next_writer = itertools.count(1)

    def __init__(self, name: str, role: str, folder: pathlib.Path, settings: dict, writers: int, server: int | None):
        self.name = name
        self.role = role
        self.server = server  # the only one that it uses
        self.is_direct = bool(settings["local"])
        self._folder = folder
        self._settings = settings
        self._num_writers = writers
        self._generation = 0
        self.logs: list[pathlib.Path] = []
        self.writers: set[int] = set()
        self.process: subprocess.Popen[bytes]
        self.started = 0.0
        self.warm: dict[str, float] | None = None

    def start(self) -> None:
        self._generation += 1
        log = self._folder / f"{self.name}-{self._generation}.facts"
        log.touch()
        self.logs.append(log)
        writers = [next(self._next_writer) for _ in range(self._num_writers)]
        self.writers |= set(writers)
        settings = {**self._settings, "log": str(log), "writers": writers, "name": self.name}
        command = [sys.executable, str(pathlib.Path(__file__).with_name("client_main.py")), self.role]
        with (self._folder / f"{self.name}.err").open("ab") as errors:
            self.process = subprocess.Popen([*command, json.dumps(settings)], stderr=errors)
        self.started = time.monotonic()
        self.warm = None

    def size(self) -> int:
        """Returns how much the present process has reported."""
        return self.logs[-1].stat().st_size

    def facts(self) -> list[list[str]]:
        """Returns the lines of all processes; a last line that is not complete is left out."""
        lines = []
        for log in self.logs:
            lines += [line.split() for line in log.read_text().split("\n")[:-1]]
        return lines

    def said(self) -> str:
        """Returns the end of what the processes wrote to stderr."""
        return (self._folder / f"{self.name}.err").read_text(errors="replace")[-3000:]


# --- Checks of what was reported ---

Losses = list[tuple[Confirmation, list[Item]]]


def find_lost(groups: list[Confirmation], present: set[Item], home: dict[int, int | None]) -> Losses:
    """Returns confirmed items of the writers in `home` that are not present, by group."""
    missing = ((group, [item for item in group.items() if item not in present]) for group in groups)
    return [(group, items) for group, items in missing if items and group.writer in home]


def find_unexplained(lost: Losses, home: dict[int, int | None], deaths: list[Death]) -> Losses:
    """Returns those of the lost items that no death of a server explains.

    A server that dies loses what it confirmed after its last checkpoint. `home` has the server of each writer, or None
    if the writer may have used any.
    """

    def explains(death: Death, group: Confirmation) -> bool:
        if home[group.writer] not in (None, death.server):
            return False
        return death.saved <= group.ended and group.began <= death.killed

    return [(group, items) for group, items in lost if not any(explains(death, group) for death in deaths)]


def find_repeated(
    received: dict[Item, list[float]], groups: list[Confirmation], reasons: list[float]
) -> list[tuple[Item, list[float]]]:
    """Returns items that a queue returned more often than once and once more for each reason in their life."""
    began = {item: group.began for group in groups for item in group.items()}
    return [
        (item, times)
        for item, times in received.items()
        if len(times) > 1 + sum(began.get(item, 0.0) <= reason <= max(times) for reason in reasons)
    ]
