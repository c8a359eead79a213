"""Measures batches of 256 transitions in one process beside cpprb, in turn: uniform, and prioritized with updates.

    pip install cpprb, next to this package, then: python benchmarks/python/cpprb_batches.py [--size 100000]

Both sides hold the same transitions of 832 bytes and give batches as dicts of NumPy arrays. Prioritized batches come
with importance weights on cpprb's side and with probabilities on ours; every batch is followed by 256 new priorities.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import statistics
from time import perf_counter

import cpprb
import numpy as np
import stores

import reverb

BATCH = 256
COLUMNS = {
    "observation": {"shape": 100},
    "action": {"shape": 6},
    "reward": {},
    "next_observation": {"shape": 100},
}


def _cpprb_buffer(size: int, *, prioritized: bool) -> cpprb.ReplayBuffer:
    buffer = cpprb.PrioritizedReplayBuffer(size, COLUMNS, alpha=0.6) if prioritized else cpprb.ReplayBuffer(size, COLUMNS)
    steps = stores.Transitions().steps
    for index in range(size):
        step, following = steps[index % len(steps)], steps[(index + 1) % len(steps)]
        values = {**step, "next_observation": following["observation"]}
        if prioritized:
            buffer.add(**values, priorities=0.5 + index % 7)
        else:
            buffer.add(**values)
    return buffer


def _sides(size: int, client: reverb.Client) -> dict[str, dict[str, Callable[[int], None]]]:
    priorities = np.random.default_rng(4).random((16, BATCH)) + 0.1
    uniform, prioritized = (_cpprb_buffer(size, prioritized=kind) for kind in (False, True))
    our_uniform = client.sample_batches("uniform", BATCH)
    our_prioritized = client.sample_batches("prioritized", BATCH)

    def our_batch(_: int) -> None:
        next(our_uniform)

    def our_updated_batch(index: int) -> None:
        batch = next(our_prioritized)
        client.update_priorities("prioritized", batch.info.key, priorities[index % 16])

    def their_batch(_: int) -> None:
        uniform.sample(BATCH)

    def their_updated_batch(index: int) -> None:
        batch = prioritized.sample(BATCH, beta=0.4)
        prioritized.update_priorities(batch["indexes"], priorities[index % 16])

    return {
        "uniform": {"reverb": our_batch, "cpprb": their_batch},
        "prioritized with updates": {"reverb": our_updated_batch, "cpprb": their_updated_batch},
    }


def _rate(call: Callable[[int], None], seconds: float) -> float:
    warm = perf_counter() + seconds / 10
    while perf_counter() < warm:
        call(0)
    count = 0
    began = perf_counter()
    while (now := perf_counter()) < began + seconds:
        call(count)
        count += 1
    return count / (now - began)


def main() -> None:
    """Measures, prints a line for each kind of batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="transitions on each side (100000)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each side in a round (0.5)")
    arguments = parser.parse_args()
    server = stores.make_server("transitions", arguments.size)
    client = reverb.Client(f"localhost:{server.port}")
    stores.fill(client, "transitions", arguments.size)
    for kind, sides in _sides(arguments.size, client).items():
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.rounds):
            for name, call in sides.items():
                rates[name].append(_rate(call, arguments.seconds))
        ours, theirs = (statistics.median(rates[name]) for name in ("reverb", "cpprb"))
        print(f"{kind:26} reverb {ours:8.0f}/s   cpprb {theirs:8.0f}/s   ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
