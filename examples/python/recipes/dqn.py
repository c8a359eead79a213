"""DQN with prioritized replay, 3-step returns and stacks of frames (Rainbow's data).

Recorder: `TransitionRecorder(n_step=3, frame_stack=2)`. It computes the returns, shortens them at the end of an
episode, and stores every frame once. Table: prioritized sampling, the oldest items are evicted. Learner: targets are
`reward + discount * max Q(next_observation)`; `discount` is gamma**3, less near the end, and 0 where the episode
terminated. The errors become priorities.

Run it with `python examples/python/recipes/dqn.py`, or with `--with torch` or `--with jax`.
"""

import collections
from typing import Any

from environments import Catch
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

N_STEP, DISCOUNT, STACK, BATCH, BETA = 3, 0.95, 2, 32, 0.4


def make_tables() -> list[reverb.Table]:
    """Creates the table of transitions."""
    return [
        reverb.Table(
            name="replay",
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverb.rate_limiters.MinSize(100),
        )
    ]


def make_recorder(client: reverb.Client) -> Any:
    """Creates what turns steps into items. New items get the highest priority seen so far in most programs; here 1."""
    return reverb.recorders.TransitionRecorder(
        client, "replay", n_step=N_STEP, discount=DISCOUNT, frame_stack=STACK, priority=1.0
    )


def play(env: Any, recorder: Any, learner: Any, rng: np.random.Generator, epsilon: float) -> float:
    """Plays an episode, records it, and returns the sum of its rewards."""
    observation, info = env.reset()
    recorder.reset(observation, info)
    frames = collections.deque([observation] * STACK, maxlen=STACK)  # what the network sees
    total, ended = 0.0, False
    while not ended:
        action = int(rng.integers(3)) if rng.random() < epsilon else learner.act(np.stack(frames))
        observation, reward, terminated, truncated, info = env.step(action)
        recorder.step(action, observation, reward, terminated, truncated, info)
        frames.append(observation)
        total += reward
        ended = terminated or truncated
    return total


def learn(client: reverb.Client, learner: Any, num_batches: int) -> list[float]:
    """Learns from batches, sends the new priorities, and returns the losses."""
    losses = []
    for batch in client.sample_batches("replay", batch_size=BATCH, num_batches=num_batches, exact=True):
        weights = reverb.importance_weights(batch, beta=BETA).astype(np.float32)
        loss, errors = learner.update(batch.data, weights)
        client.update_priorities("replay", batch.info.key, np.abs(errors) + 1e-3)
        losses.append(loss)
    return losses


def run(learner: Any, episodes: int = 300) -> tuple[list[float], list[float]]:
    """Plays and learns in turns; returns the return of each episode and the losses."""
    env, rng = Catch(seed=1), np.random.default_rng(0)
    returns: list[float] = []
    losses: list[float] = []
    with reverb.Server(make_tables()) as server:
        client = server.localhost_client()
        with make_recorder(client) as recorder:
            for episode in range(episodes):
                returns.append(play(env, recorder, learner, rng, epsilon=0.2))
                if episode >= 30:
                    recorder.flush()
                    losses += learn(client, learner, num_batches=4)
    return returns, losses


if __name__ == "__main__":
    returns, losses = run(make_learner("DQN", framework_of_the_command_line()))
    first, last = (np.mean(np.array(part) > 0) for part in (returns[:50], returns[-50:]))
    print(f"balls caught: {first:.0%} at first, {last:.0%} at last")
