"""Rollout workers and a learner on Ray, with Reverb servers between them.

    python examples/python/ray_rollouts.py

Needs Ray: pip install ray. Use this when your workers run on a Ray cluster. `reverb.ray.start` starts two servers as
actors, which Ray restarts after a crash. Workers are actors too: each has a client of "ray://replay", plays episodes
with the weights that it was given, and writes transitions. The learner samples batches, updates a table of action
values, and hands the new weights to the workers through Ray's object store.

The environment is a corridor with eight cells; the reward is at its right end. Look for the length of the episodes: it
starts at dozens of steps and ends at 7, the shortest way. Set RAY_ADDRESS to use a cluster that is running.
"""

import numpy as np
import ray

import reverb
import reverb.ray

CELLS = 8
MAX_STEPS = 200
WORKERS = 2
ROUNDS = 12
BATCHES = 40


@ray.remote(num_cpus=0.5)
class RolloutWorker:
    """Plays episodes, and writes each transition as an item."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        # The name suffices: the worker may run on any node.
        self._client = reverb.Client("ray://replay")
        self._writer = self._client.trajectory_writer(num_keep_alive_refs=2)

    def rollout(self, values, epsilon, episodes):
        """Plays episodes greedily, with random actions in between. Returns their lengths."""
        return [self._play(values, epsilon) for _ in range(episodes)]

    def _play(self, values, epsilon):
        cell = 0
        length = 0
        while cell < CELLS - 1 and length < MAX_STEPS:
            length += 1
            explores = self._rng.random() < epsilon or values[cell, 0] == values[cell, 1]
            action = int(self._rng.integers(2)) if explores else int(values[cell].argmax())
            after = min(max(cell + 2 * action - 1, 0), CELLS - 1)
            done = after == CELLS - 1
            self._writer.append({"cell": cell, "action": action, "reward": float(done), "done": done, "after": after})
            last = {name: column[-1] for name, column in self._writer.history.items()}
            self._writer.create_item("replay", priority=1.0, trajectory=last)
            cell = after
        # Returns when all items are in their table.
        self._writer.end_episode()
        return length


def learn(values, batch, rate=0.2, discount=0.9):
    """Does one step of Q-learning for each transition."""
    data = batch.data
    best = np.where(data["done"], 0.0, values[data["after"]].max(axis=1))
    targets = data["reward"] + discount * best
    for cell, action, target in zip(data["cell"], data["action"], targets, strict=True):
        values[cell, action] += rate * (target - values[cell, action])


def main():
    """Runs workers and the learner in turns."""
    ray.init(log_to_driver=False)
    table = reverb.Table(
        "replay",
        sampler=reverb.selectors.Uniform(seed=1),
        remover=reverb.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverb.rate_limiters.MinSize(10),
    )
    # On several machines, `checkpoint_root` on a shared disk lets a server that is restarted continue with its items.
    servers = reverb.ray.start("replay", [table], num_servers=2, num_cpus=0.5)
    print(f"{len(servers.addresses())} servers are up")
    workers = [RolloutWorker.remote(seed) for seed in range(WORKERS)]
    batches = servers.client().sample_batches("replay", batch_size=64)
    values = np.zeros((CELLS, 2))
    for number in range(ROUNDS):
        weights = ray.put(values)
        lengths = ray.get([worker.rollout.remote(weights, 0.1, 3) for worker in workers])
        for _ in range(BATCHES):
            learn(values, next(batches))
        print(f"round {number}: episodes of {np.mean(lengths):.1f} steps")
    (final,) = ray.get(workers[0].rollout.remote(ray.put(values), 0.0, 1))
    print(f"the last episode, without exploration, took {final} steps")
    batches.close()
    servers.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
