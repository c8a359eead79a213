"""Behaviour cloning: demonstrations are recorded and saved; a learner reads the checkpoint without a server.

Recorder: `EpisodeRecorder()`, an item per episode: observations [T + 1], and [T] of everything else. Table: keeps
everything that fits. The learner pairs `observation[:-1]` with `action`; the last observation has no action. It reads
a few episodes at a time, each pass in another order, so that the demonstrations may be larger than its memory.

Run it with `python examples/python/recipes/behaviour_cloning.py`, or with `--with torch` or `--with jax`.
"""

from collections.abc import Iterator
import itertools
import tempfile
from typing import Any

from environments import Catch
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

EPISODES = 16  # that are read at a time
BATCH = 32  # steps of them
# The time is None: episodes differ in length.
SIGNATURE = {
    "observation": reverb.TensorSpec((None, Catch.rows, Catch.columns), np.uint8),
    "action": reverb.TensorSpec((None,), np.int64),
    **{name: reverb.TensorSpec((None,), np.float32) for name in ("reward", "discount")},
    **{name: reverb.TensorSpec((None,), np.bool_) for name in ("terminated", "truncated", "is_first", "mask")},
}


def make_tables() -> list[reverb.Table]:
    """Creates the table of demonstrations."""
    return [
        reverb.Table(
            name="demonstrations",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=SIGNATURE,
        )
    ]


def demonstrate(root: str, episodes: int = 80) -> str:
    """Records what an expert does, saves it, and returns the path of the checkpoint."""
    env = Catch(seed=1)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(root)
    with reverb.Server(make_tables(), checkpointer=checkpointer) as server:
        client = server.localhost_client()
        with reverb.recorders.EpisodeRecorder(client, "demonstrations") as recorder:
            for _ in range(episodes):
                recorder.reset(*env.reset())
                ended = False
                while not ended:
                    action = env.best_action()
                    observation, reward, terminated, truncated, info = env.step(action)
                    recorder.step(action, observation, reward, terminated, truncated, info)
                    ended = terminated or truncated
        return str(client.checkpoint())


def batches(path: str, num_batches: int) -> Iterator[dict[str, np.ndarray]]:
    """Reads the demonstrations in random order, and yields batches of observations and actions."""
    columns = ["observation", "action", "mask"]
    episodes = reverb.checkpoints.read(
        path, "demonstrations", batch_size=EPISODES, shuffle=True, seed=0, select=columns, pad=True
    )
    passes = itertools.chain.from_iterable(itertools.repeat(episodes))
    rng = np.random.default_rng(0)
    for batch in itertools.islice(passes, num_batches):
        mask = batch.data["mask"]  # False where shorter episodes are padded
        observations, actions = batch.data["observation"][:, :-1][mask], batch.data["action"][mask]
        rows = rng.integers(len(actions), size=BATCH)
        yield {"observation": observations[rows], "action": actions[rows]}


def run(learner: Any, num_batches: int = 300) -> tuple[float, list[float]]:
    """Demonstrates, learns, and returns the share of caught balls and the losses."""
    with tempfile.TemporaryDirectory() as root:
        path = demonstrate(root)
        losses = [learner.update(batch) for batch in batches(path, num_batches)]
    env, caught = Catch(seed=2), 0
    for _ in range(50):
        observation, _ = env.reset()
        ended = False
        while not ended:
            observation, reward, ended, _, _ = env.step(learner.act(observation))
        caught += reward > 0
    return caught / 50, losses


if __name__ == "__main__":
    caught, losses = run(make_learner("Cloning", framework_of_the_command_line()))
    print(f"balls caught: {caught:.0%}; loss {np.mean(losses[:10]):.2f} at first, {np.mean(losses[-10:]):.2f} at last")
