"""Loops that write. They run on dm-reverb as well."""

from __future__ import annotations

import threading
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
import stores
import timing

import reverb


class Write:
    """One item a step, `flush(200)` every 64, all confirmed inside the time."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._content = stores.STORES[options["store"]]()
        self._writer = client.trajectory_writer(num_keep_alive_refs=self._content.refs)
        self._next = 0
        self._bytes = self._content.steps[0]["x"].nbytes

    def run(self, seconds: float) -> dict[str, float]:
        writer, steps = self._writer, self._content.steps
        count = 0
        began = perf_counter()
        end = began + seconds
        while perf_counter() < end:
            for _ in range(64):
                writer.append(steps[self._next % len(steps)])
                self._next += 1
                writer.create_item("uniform", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(200)
            count += 64
        writer.flush()
        took = perf_counter() - began
        return {"items_per_s": count / took, "bytes_per_s": count * self._bytes / took, "operations": count}


class Actor:
    """What an actor pays for a step: append, create_item, `flush(200)` every 64 steps, and the last flush."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._content = stores.Frames()
        self._writer = client.trajectory_writer(num_keep_alive_refs=2)
        self._writer.append(self._content.steps[0])
        self._next = 1

    def run(self, seconds: float) -> dict[str, float]:
        writer, content, steps = self._writer, self._content, self._content.steps
        calls = timing.Calls()
        count = 0
        began = perf_counter()
        end = began + seconds
        while perf_counter() < end:
            for _ in range(64):
                step = steps[self._next % len(steps)]
                self._next += 1
                start = perf_counter_ns()
                writer.append(step)
                appended = perf_counter_ns()
                writer.create_item("uniform", 1.0, content.item(writer.history))
                calls.add(appended - start)
                calls.add(perf_counter_ns() - appended)
            start = perf_counter_ns()
            writer.flush(200)
            calls.add(perf_counter_ns() - start)
            count += 64
        writer.flush()
        return {"step_us": (perf_counter() - began) / count * 1e6, "operations": count, **calls.figures()}


class _Transitions:
    """What the caller waits for small transitions: a step appended, and an item made of it and the one before.

    Flushes between bursts are not counted.
    """

    BURST = 64  # calls
    ENVIRONMENTS = 1  # transitions in a call

    def __init__(self, writer: Any, create: Any, steps: list[dict[str, Any]]) -> None:
        self._writer, self._create, self._steps = writer, create, steps
        self._writer.append(steps[0])
        self._next = 1

    def run(self, seconds: float) -> dict[str, float]:
        writer, create, steps = self._writer, self._create, self._steps
        spent = 0
        count = 0
        calls = timing.Calls()
        end = perf_counter() + seconds
        while perf_counter() < end:
            for _ in range(self.BURST):
                step = steps[self._next % len(steps)]
                self._next += 1
                start = perf_counter_ns()
                writer.append(step)
                history = writer.history
                create(
                    "uniform",
                    1.0,
                    {
                        "observation": history["observation"][-2],
                        "action": history["action"][-2],
                        "reward": history["reward"][-2],
                        "next_observation": history["observation"][-1],
                    },
                )
                took = perf_counter_ns() - start
                spent += took
                calls.add(took)
            writer.flush()
            count += self.BURST * self.ENVIRONMENTS
        figures = calls.figures() if self.ENVIRONMENTS == 1 else {}
        return {"mean_us": spent / count / 1e3, "operations": count, **figures}


class WriteTransition(_Transitions):
    """Of one environment."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        writer = client.trajectory_writer(num_keep_alive_refs=2)
        super().__init__(writer, writer.create_item, stores.Transitions().steps)


class WriteVector(_Transitions):
    """The same of many environments, in one call a step; what each of them costs the caller."""

    BURST = 4
    ENVIRONMENTS = 64

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        if not hasattr(reverb, "VectorWriter"):
            raise timing.NotAvailableError("reverb.VectorWriter is not in this package")
        singles = stores.Transitions().steps
        steps = [
            {name: np.stack([step[name] for step in singles[begin : begin + self.ENVIRONMENTS]]) for name in singles[0]}
            for begin in range(0, len(singles), self.ENVIRONMENTS)
        ]
        writer = client.vector_writer(self.ENVIRONMENTS, 2)
        super().__init__(writer, writer.create_items, steps)


class Produce:
    """Keeps a queue full from a thread of its own; nothing is measured here."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._writer = client.trajectory_writer(num_keep_alive_refs=1)
        self._steps = stores.Values(100).steps
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        writer, steps = self._writer, self._steps
        while True:
            for index in range(64):
                writer.append(steps[index])
                writer.create_item("queue", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(200)

    def run(self, seconds: float) -> dict[str, float]:
        return {}
