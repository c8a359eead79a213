"""R2D2: overlapping sequences with the state of the recurrent network, burn-in, and priorities.

Recorder: `SequenceRecorder(length=4, period=2, burn_in=2)`. Sequences start every 2 steps and never cross the end of an
episode; `mask` is False in padding. `extras` stores the network's state before each step; the learner starts from the
first one and uses the burn-in steps to refresh it. Priorities mix the largest and the mean error.

Run it with `python examples/python/recipes/r2d2.py`, or with `--with torch` or `--with jax`.
"""

from typing import Any

from environments import Recall
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

LENGTH, PERIOD, BURN_IN, DISCOUNT, BATCH, ETA = 4, 2, 2, 0.95, 32, 0.9


def make_tables() -> list[reverb.Table]:
    """Creates the table of sequences."""
    return [
        reverb.Table(
            name="sequences",
            sampler=reverb.selectors.Prioritized(0.9),
            remover=reverb.selectors.Fifo(),
            max_size=5_000,
            rate_limiter=reverb.rate_limiters.MinSize(50),
        )
    ]


def make_recorder(client: reverb.Client) -> Any:
    """Creates what cuts episodes into sequences."""
    return reverb.recorders.SequenceRecorder(
        client, "sequences", length=LENGTH, period=PERIOD, burn_in=BURN_IN, discount=DISCOUNT
    )


def play(env: Any, recorder: Any, learner: Any, rng: np.random.Generator, epsilon: float) -> float:
    """Plays an episode, records it with the network's states, and returns the sum of its rewards."""
    observation, info = env.reset()
    recorder.reset(observation, info)
    state = learner.initial_state()
    total, ended = 0.0, False
    while not ended:
        action, next_state = learner.act(observation, state)
        if rng.random() < epsilon:
            action = int(rng.integers(2))
        observation, reward, terminated, truncated, info = env.step(action)
        recorder.step(action, observation, reward, terminated, truncated, info, extras={"state": state})
        state = next_state
        total += reward
        ended = terminated or truncated
    return total


def learn(client: reverb.Client, learner: Any, num_batches: int) -> list[float]:
    """Learns from batches, sends the new priorities, and returns the losses."""
    losses = []
    for batch in client.sample_batches("sequences", batch_size=BATCH, num_batches=num_batches, exact=True):
        weights = reverb.importance_weights(batch, beta=0.6).astype(np.float32)
        loss, errors = learner.update(batch.data, weights, BURN_IN)  # errors: 0 where the mask is False
        errors = np.abs(errors)
        priorities = ETA * errors.max(axis=1) + (1 - ETA) * errors.mean(axis=1)
        client.update_priorities("sequences", batch.info.key, priorities + 1e-3)
        losses.append(loss)
    return losses


def run(learner: Any, episodes: int = 300) -> tuple[list[float], list[float]]:
    """Plays and learns in turns; returns the return of each episode and the losses."""
    env, rng = Recall(seed=1), np.random.default_rng(0)
    returns: list[float] = []
    losses: list[float] = []
    with reverb.Server(make_tables()) as server:
        client = server.localhost_client()
        with make_recorder(client) as recorder:
            for episode in range(episodes):
                returns.append(play(env, recorder, learner, rng, epsilon=0.2))
                if episode >= 30:
                    recorder.flush()
                    losses += learn(client, learner, num_batches=2)
    return returns, losses


if __name__ == "__main__":
    returns, losses = run(make_learner("R2D2", framework_of_the_command_line()))
    print(f"cues recalled: {np.mean(returns[:50]):.0%} at first, {np.mean(returns[-50:]):.0%} at last")
