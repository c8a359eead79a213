"""SAC: uniform replay of transitions with continuous actions; a rate limiter sets the replay ratio.

Recorder: `TransitionRecorder()`. The episodes of this task end by a time limit only. They are truncated, not
terminated, so `discount` stays gamma and the learner bootstraps from `next_observation`, which is the last observation
of the episode and not the first one of the next. Table: `SampleToInsertRatio`, which makes the faster side wait when
actors and learner are separate programs.

Run it with `python examples/python/recipes/sac.py`, or with `--with torch` or `--with jax`.
"""

from typing import Any

from environments import Reach
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

DISCOUNT, BATCH, SAMPLES_PER_INSERT = 0.9, 32, 8.0


def make_tables() -> list[reverb.Table]:
    """Creates the table of transitions: each is sampled about 8 times."""
    return [
        reverb.Table(
            name="replay",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                SAMPLES_PER_INSERT, min_size_to_sample=100, error_buffer=2_000.0
            ),
        )
    ]


def make_recorder(client: reverb.Client) -> Any:
    """Creates what turns steps into transitions."""
    return reverb.recorders.TransitionRecorder(client, "replay", discount=DISCOUNT)


def play(env: Any, recorder: Any, learner: Any) -> float:
    """Plays an episode, records it, and returns the sum of its rewards."""
    observation, info = env.reset()
    recorder.reset(observation, info)
    total, ended = 0.0, False
    while not ended:
        action = learner.act(observation)  # float32 [1], drawn from the policy
        observation, reward, terminated, truncated, info = env.step(action)
        recorder.step(action, observation, reward, terminated, truncated, info)
        total += reward
        ended = terminated or truncated
    return total


def learn(client: reverb.Client, learner: Any, num_batches: int) -> list[float]:
    """Learns from batches and returns the losses of the critic."""
    return [
        learner.update(batch.data)
        for batch in client.sample_batches("replay", batch_size=BATCH, num_batches=num_batches)
    ]


def run(learner: Any, episodes: int = 60) -> tuple[list[float], list[float]]:
    """Plays and learns in turns; returns the return of each episode and the losses."""
    env = Reach(seed=1)
    returns: list[float] = []
    losses: list[float] = []
    with reverb.Server(make_tables()) as server:
        client = server.localhost_client()
        with make_recorder(client) as recorder:
            for episode in range(episodes):
                returns.append(play(env, recorder, learner))
                recorder.flush()
                if episode >= 10:
                    losses += learn(client, learner, num_batches=int(SAMPLES_PER_INSERT * env.limit / BATCH))
    return returns, losses


if __name__ == "__main__":
    returns, losses = run(make_learner("SAC", framework_of_the_command_line()))
    print(f"return: {np.mean(returns[:10]):.2f} at first, {np.mean(returns[-10:]):.2f} at last")
