"""Measures rows: the sides take turns, slice by slice, so that a noisy machine spoils both alike."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

import children
import empty_call
import peers
import rows


@dataclasses.dataclass
class Outcome:
    """The slices of one row on tables of one size. `figures[side][metric]` has a value for each round."""

    row: rows.Row
    size: int
    figures: dict[str, dict[str, list[float]]]
    missing: dict[str, str]  # why a side was not measured
    empty_call_us: list[float]

    @property
    def temperature(self) -> str:
        """Whether the tables were the small or the large ones."""
        if len(self.row.sizes) == 1:
            return ""
        return "hot" if self.size == self.row.sizes[0] else "cold"


class Host:
    """The tables of one side: served by a process of their own, or by the one that runs the loops."""

    def __init__(self, peer: peers.Peer, row: rows.Row, size: int) -> None:
        self._peer = peer
        self._server = children.Child(peer)
        self._runners: list[children.Child] = []
        self._in_process = row.in_process
        try:
            self._address = self._server.ask(do="serve", store=row.store, size=size)["address"]
            if row.is_filled:
                self.runner(0).ask(do="fill", address=self._address, store=row.store, size=size)
        except BaseException:
            self.close()
            raise

    def runner(self, index: int) -> children.Child:
        """The process of a row's loop; started when it is first asked for."""
        if self._in_process:
            return self._server
        while len(self._runners) <= index:
            self._runners.append(children.Child(self._peer))
        return self._runners[index]

    def cpu_seconds(self) -> float:
        """Of all its processes, so far."""
        return sum(child.cpu_seconds() for child in (*self._runners, self._server))

    def open(self, row: rows.Row) -> Loops:
        """Opens the loops of a row. Loops.missing says why if that cannot be."""
        return Loops(self, row, self._address)

    def close(self) -> None:
        """Ends all processes."""
        for child in (*self._runners, self._server):
            child.close()


class Loops:
    """The opened loops of one row on one side."""

    def __init__(self, host: Host, row: rows.Row, address: str) -> None:
        self.missing = ""
        self._host = host
        self._children = [host.runner(index) for index in range(len(row.loops))]
        self._numbers: list[int] = []
        for child, loop in zip(self._children, row.loops, strict=True):
            answer = child.ask(do="open", address=address, loop=loop, options=row.options, local=row.local)
            if "missing" in answer:
                self.missing = answer["missing"]
                return
            self._numbers.append(answer["loop"])

    def run(self, seconds: float) -> dict[str, float]:
        """One slice of all loops at once; the figures of the last one, and what the side spent on each operation."""
        before, machine = self._host.cpu_seconds(), children.MachineTime.now()
        for child, number in zip(self._children, self._numbers, strict=True):
            child.send(do="run", loop=number, seconds=seconds)
        figures = [child.receive() for child in self._children][-1]
        own = self._host.cpu_seconds() - before
        figures["cpu_us"] = own / figures["operations"] * 1e6
        figures["others"] = machine.share_of_others(own)
        return figures

    def close(self) -> None:
        """Ends what the loops had opened."""
        for child, number in zip(self._children, self._numbers, strict=False):
            child.ask(do="close", loop=number)


@dataclasses.dataclass
class Contest:
    """How to measure: who, how often, how long, and what an empty call is measured with."""

    sides: list[peers.Peer]
    rounds: int
    seconds: float
    program: str | None
    say: Callable[[str], None]
    _hosts: dict[str, Host] = dataclasses.field(default_factory=dict)
    _hosted: Any = None

    def run(self, row: rows.Row, size: int) -> Outcome:
        """Measures one row on tables of one size."""
        outcome = Outcome(row, size, {side.name: {} for side in self.sides}, {}, [])
        if row.is_start_up:
            self._take_turns(outcome, {side.name: lambda side=side: children.start_up(side) for side in self.sides})
        else:
            self._run_loops(row, size, outcome)
        return outcome

    def close(self) -> None:
        """Ends all processes."""
        for host in self._hosts.values():
            host.close()
        self._hosts = {}

    def _run_loops(self, row: rows.Row, size: int, outcome: Outcome) -> None:
        opened: dict[str, Loops] = {}
        try:
            for side in self.sides:
                loops = self._host(side, row, size).open(row)
                opened[side.name] = loops
                if loops.missing:
                    outcome.missing[side.name] = loops.missing
            slices = {
                name: lambda loops=loops: loops.run(self.seconds) for name, loops in opened.items() if not loops.missing
            }
            self._take_turns(outcome, slices, self._reference(row, size, opened))
        except BaseException:
            self.close()
            raise
        for loops in opened.values():
            loops.close()

    def _reference(self, row: rows.Row, size: int, opened: dict[str, Loops]) -> Callable[[], float] | None:
        """What measures an empty call, in microseconds; None for rows that need none."""
        if not any(metric.goal_calls for metric in row.metrics):
            return None
        if self.program is not None:
            program = self.program
            return lambda: empty_call.measure(program, self.seconds / 3)
        nothing = self._host(self.sides[0], row, size).open(dataclasses.replace(row, options={"call": "nothing"}))
        opened["nothing"] = nothing
        return lambda: nothing.run(self.seconds / 3)["p50_us"]

    def _take_turns(
        self,
        outcome: Outcome,
        slices: dict[str, Callable[[], dict[str, float]]],
        reference: Callable[[], float] | None = None,
    ) -> None:
        for _ in range(self.rounds if slices else 0):
            if reference is not None:
                outcome.empty_call_us.append(reference())
            for name, measure in slices.items():
                for key, value in measure().items():
                    outcome.figures[name].setdefault(key, []).append(value)

    def _host(self, side: peers.Peer, row: rows.Row, size: int) -> Host:
        """The tables for a row; those of the row before if they are the same."""
        wanted = (row.store, size, row.in_process)
        if wanted != self._hosted:
            self.close()
            self._hosted = wanted
        if side.name not in self._hosts:
            self.say(f"filling {row.store} of {side.name} with {size} items" if row.is_filled else "starting")
            self._hosts[side.name] = Host(side, row, size)
        return self._hosts[side.name]
