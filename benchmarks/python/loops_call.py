"""A loop of single calls, each waited for. It runs on dm-reverb as well."""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import Any

import stores
import timing


class Call:
    """One call at a time, each waited for."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        values = stores.Values(100).steps
        kind = options["call"]
        if kind == "sample":

            def once(index: int) -> None:
                for _ in client.sample("uniform", 1):
                    pass

        elif kind == "insert":

            def once(index: int) -> None:
                client.insert(values[index % len(values)], {"uniform": 1.0})

        elif kind == "nothing":

            def once(index: int) -> None:
                client.mutate_priorities("prioritized", {1: 1.0})  # of no item: the least that a server can be asked

        else:
            keys = [sample.info.key for sample in client.sample("prioritized", 1000, emit_timesteps=False)]

            def once(index: int) -> None:
                client.mutate_priorities("prioritized", {keys[index % len(keys)]: 1.0 + index % 5})

        self._once = once

    def run(self, seconds: float) -> dict[str, float]:
        once, calls, index = self._once, timing.Calls(), 0
        end = perf_counter() + seconds
        while perf_counter() < end:
            start = perf_counter_ns()
            once(index)
            calls.add(perf_counter_ns() - start)
            index += 1
        return {"operations": index, **calls.figures()}
