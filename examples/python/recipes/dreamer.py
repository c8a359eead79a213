"""Dreamer's data: uniform replay of sequences with first-step flags, for a world model.

Recorder: `VectorSequenceRecorder(length=4, period=2)`. Sequences start at steps 0, 2, 4 of an episode;
`is_first` marks the step in which the model resets its state, `discount` is what it learns to predict as "continues",
and `mask` is False in the padding after the end. Learner: a world model that predicts the next observation, the reward
and the discount from the observation and the action. Its imagination would then train an actor and a critic.

Run it with `python examples/python/recipes/dreamer.py`, or with `--with torch` or `--with jax`.
"""

from typing import Any

from environments import Catch, Vector
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

NUM_ENVS, LENGTH, PERIOD, BATCH = 8, 4, 2, 32


def make_tables() -> list[reverb.Table]:
    """Creates the table of sequences."""
    return [
        reverb.Table(
            name="sequences",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverb.rate_limiters.MinSize(BATCH),
        )
    ]


def make_recorder(client: reverb.Client, envs: Any) -> Any:
    """Creates what cuts the episodes of all environments into sequences."""
    return reverb.recorders.VectorSequenceRecorder(client, "sequences", env=envs, length=LENGTH, period=PERIOD)


def play(envs: Any, recorder: Any, steps: int) -> None:
    """Plays at random and records."""
    rng = np.random.default_rng(0)
    recorder.reset(*envs.reset())
    for _ in range(steps):
        actions = rng.integers(Catch.num_actions, size=envs.num_envs)
        recorder.step(actions, *envs.step(actions))


def learn(client: reverb.Client, learner: Any, num_batches: int) -> list[float]:
    """Trains the world model and returns its losses."""
    return [
        learner.update(batch.data)
        for batch in client.sample_batches("sequences", batch_size=BATCH, num_batches=num_batches)
    ]


def run(learner: Any, steps: int = 150, num_batches: int = 150) -> list[float]:
    """Plays, then learns; returns the losses."""
    envs = Vector([Catch(seed) for seed in range(NUM_ENVS)])
    with reverb.Server(make_tables()) as server:
        client = server.localhost_client()
        with make_recorder(client, envs) as recorder:
            play(envs, recorder, steps)
        return learn(client, learner, num_batches)


if __name__ == "__main__":
    losses = run(make_learner("Dreamer", framework_of_the_command_line()))
    print(f"error of the model: {np.mean(losses[:10]):.3f} at first, {np.mean(losses[-10:]):.3f} at last")
