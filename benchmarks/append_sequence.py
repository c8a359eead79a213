"""Compares TrajectoryWriter.append_sequence() with as many calls of append(), in one interleaved run.

    PYTHONPATH=python benchmarks/append_sequence.py [--rounds 20]

For each number of steps: microseconds per step of both ways, the median over rounds, and their ratio. A round appends
the same responses (int32 tokens, float32 log probabilities, bool mask) in both ways, each in a new episode, and creates
an item of all steps.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import reverb


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    server = reverb.Server([reverb.Table.queue("t", 1000)])
    client = server.localhost_client()
    print(f"{'steps':>7}{'append':>12}{'sequence':>12}{'ratio':>8}   us per step, median of {rounds}")
    for steps in (10, 100, 1000, 10_000):
        random = np.random.default_rng(1)
        data = {
            "token": random.integers(0, 50_000, steps, dtype=np.int32),
            "logprob": random.normal(size=steps).astype(np.float32),
            "mask": random.random(steps) < 0.5,
        }
        by_step = [{name: column[i] for name, column in data.items()} for i in range(steps)]
        times: dict[str, list[float]] = {"append": [], "sequence": []}
        with client.trajectory_writer(num_keep_alive_refs=steps) as writer:
            for turn in range(2 * rounds):
                name = "append" if turn % 2 else "sequence"
                start = time.perf_counter()
                if name == "append":
                    for step in by_step:
                        writer.append(step)
                else:
                    writer.append_sequence(data)
                writer.create_item("t", 1.0, {key: column[:] for key, column in writer.history.items()})
                times[name].append(time.perf_counter() - start)
                writer.end_episode()
                client.reset("t")
        append, sequence = (statistics.median(times[name]) / steps * 1e6 for name in ("append", "sequence"))
        print(f"{steps:7}{append:12.3f}{sequence:12.3f}{append / sequence:8.1f}", flush=True)
    server.stop()


if __name__ == "__main__":
    main()
