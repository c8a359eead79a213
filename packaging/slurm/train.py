"""The actor and the learner of the example job in reverb.sbatch: replace them by your own.

    REVERB_ADDRESS=localhost:8000 python3 train.py actor [--steps N] [--table TABLE]
    REVERB_ADDRESS=localhost:8000 python3 train.py learner [--batches N] [--actors N] [--table TABLE]

An actor writes steps of random numbers to the table until it is stopped; the learner takes batches from all servers that
have items, reports what it saw, and ends.
"""

import argparse
import os

import numpy as np

import reverb


def act(addresses: list[str], table: str, steps: int | None) -> None:
    """Writes overlapping pairs of steps to one of the servers."""
    number = int(os.environ.get("SLURM_PROCID", "0"))
    client = reverb.Client(addresses)  # spreads writers over the servers
    random = np.random.default_rng(number)
    written = 0
    with client.trajectory_writer(num_keep_alive_refs=2) as writer:
        while steps is None or written < steps:
            writer.append({"actor": np.int32(number), "observation": random.random(4, np.float32)})
            written += 1
            if written >= 2:
                trajectory = {name: column[-2:] for name, column in writer.history.items()}
                writer.create_item(table, priority=1.0, trajectory=trajectory)
            if written % 100 == 0:
                writer.flush()
    print(f"actor {number}: wrote {written} steps", flush=True)


def learn(addresses: list[str], table: str, batches: int, num_actors: int) -> None:
    """Takes batches, in place of learning from them, until there were enough of them with items of enough actors."""
    client = reverb.Client(addresses)
    actors: set[int] = set()
    taken = 0
    for batch in client.sample_batches(table, batch_size=16):
        assert batch.data["observation"].shape == (16, 2, 4)
        actors.update(np.unique(batch.data["actor"]).tolist())
        taken += 1
        if taken >= batches and len(actors) >= num_actors:
            break
    print(f"learner: took {taken} batches with items of the actors {sorted(actors)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["actor", "learner"])
    parser.add_argument("--steps", type=int, help="of an actor; default: until it is stopped")
    parser.add_argument("--batches", type=int, default=1000, help="of the learner, at least")
    parser.add_argument("--actors", type=int, default=1, help="whose items the learner waits for")
    parser.add_argument("--table", default="replay")
    arguments = parser.parse_args()
    addresses = os.environ["REVERB_ADDRESS"].split(",")
    if arguments.role == "actor":
        act(addresses, arguments.table, arguments.steps)
    else:
        learn(addresses, arguments.table, arguments.batches, arguments.actors)


if __name__ == "__main__":
    main()
