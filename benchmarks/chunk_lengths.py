"""Prints the stored bytes of common workloads, relative to their raw bytes, for tuned and fixed chunk lengths.

    PYTHONPATH=python benchmarks/chunk_lengths.py [WORKLOAD ...]

A row is a workload and a number of items; each run starts a new writer. Columns: tuned lengths (the default), the best
of the fixed ones, the ratio of the two, and every fixed length. Raw bytes are those of the steps that items refer to,
each counted once. Nothing here is timed: the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
import dataclasses

import numpy as np

import reverb

LENGTHS = (1, 2, 4, 10, 20, 40, 80, 200, 1000)
ITEMS = (1, 10, 50)


@dataclasses.dataclass(frozen=True)
class Workload:
    """Items of consecutive steps: the first after `length` steps of an episode, then one every `period`."""

    name: str
    step: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    keep: int  # num_keep_alive_refs
    length: int
    period: int
    episode: int  # steps
    late: bool = False  # items are created at the end of the episode


def _frame(random: np.random.Generator, step: int) -> dict[str, np.ndarray]:
    """Returns a screen on which a few things move."""
    frame = np.zeros((84, 84), np.uint8)
    frame[::7, :] = 60
    frame[60 + step % 10 : 66 + step % 10, step % 70 : step % 70 + 12] = 200
    frame[random.integers(84), random.integers(84)] = 255
    return {"frame": frame, "reward": np.float32(step)}


def _tokens(random: np.random.Generator, _: int) -> dict[str, np.ndarray]:
    return {"token": np.int32(random.integers(50_000))}


def _responses(random: np.random.Generator, step: int) -> dict[str, np.ndarray]:
    return {**_tokens(random, step), "logprob": np.float32(random.normal())}


def _floats(random: np.random.Generator, step: int) -> dict[str, np.ndarray]:
    return {"observation": random.normal(size=64).astype(np.float32), "reward": np.float32(step)}


WORKLOADS = (
    Workload("tokens", _tokens, 1000, 1000, 1000, 1000),
    Workload("tokens and logprobs", _responses, 1000, 1000, 1000, 1000),
    Workload("episodes of frames", _frame, 200, 200, 200, 200),
    Workload("episodes of floats", _floats, 200, 200, 200, 200),
    Workload("frames 80/40", _frame, 80, 80, 40, 400),
    Workload("floats 80/40", _floats, 80, 80, 40, 400),
    Workload("transitions of frames", _frame, 2, 2, 1, 200),
    Workload("transitions of floats", _floats, 2, 2, 1, 200),
    Workload("late transitions", _floats, 200, 2, 1, 200, late=True),
    Workload("late floats 80/40", _floats, 400, 80, 40, 400, late=True),
    Workload("single floats", _floats, 1, 1, 1, 200),
    Workload("5-step of floats", _floats, 6, 6, 1, 200),
    Workload("5-step, short episodes", _floats, 6, 6, 1, 12),
    Workload("4 floats of every 100", _floats, 1000, 4, 100, 1000),
)


def _run(workload: Workload, max_chunk_length: int | None, items: int) -> float:
    """Returns stored bytes / raw bytes after `items` items."""
    random = np.random.default_rng(7)
    server = reverb.Server([reverb.Table.queue("t", items)])
    client = server.localhost_client()
    raw = created = 0
    with client.trajectory_writer(num_keep_alive_refs=workload.keep) as writer:
        example = workload.step(np.random.default_rng(7), 0)
        if max_chunk_length is not None:
            for name in example:
                writer.configure((name,), num_keep_alive_refs=workload.keep, max_chunk_length=max_chunk_length)
        row_bytes = sum(value.nbytes for value in example.values())
        while created < items:
            counted = 0  # steps of this episode that an item refers to
            late = []
            for end in range(1, workload.episode + 1):
                writer.append(workload.step(random, end - 1))
                begin = end - workload.length
                if begin < 0 or begin % workload.period or created == items:
                    continue
                if workload.late:
                    late.append((begin, end))
                else:
                    writer.create_item("t", 1.0, {name: writer.history[name][begin:end] for name in example})
                raw += row_bytes * (end - max(counted, begin))
                counted = end
                created += 1
                if created == items and not workload.late:
                    break
            for begin, end in late:
                writer.create_item("t", 1.0, {name: writer.history[name][begin:end] for name in example})
            writer.end_episode()
    stored = client.server_info().stored_bytes
    server.stop()
    return stored / raw


def table(names: list[str]) -> Iterator[tuple[str, int, float, dict[int, float]]]:
    """Yields workload, items, the ratio of tuned lengths, and those of fixed lengths."""
    for workload in WORKLOADS:
        if names and workload.name not in names:
            continue
        for items in ITEMS:
            fixed = {length: _run(workload, length, items) for length in LENGTHS if length <= workload.keep}
            yield workload.name, items, _run(workload, None, items), fixed


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(each.name for each in WORKLOADS))
    arguments = parser.parse_args()
    print(f"{'workload':24}{'items':>6}{'tuned':>8}{'best':>8}{'ratio':>8}   fixed lengths")
    for name, items, tuned, fixed in table(arguments.workloads):
        best = min(fixed.values())
        lengths = "  ".join(f"{length}: {ratio:.3g}" for length, ratio in fixed.items())
        print(f"{name:24}{items:6}{tuned:8.3f}{best:8.3f}{tuned / best:8.2f}   {lengths}", flush=True)


if __name__ == "__main__":
    main()
