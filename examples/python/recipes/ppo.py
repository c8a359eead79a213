"""PPO: fragments of vector environments through a queue, each used for one update.

Recorder: `VectorSequenceRecorder(length=8)` with the log probability of each action in `extras`. The environments reset
themselves (next-step autoreset); the recorder leaves out the steps that only reset. A fragment ends where its episode
ends and is padded there: `mask` is False. Table: a queue, which returns each fragment once, in order. Learner:
generalized advantages; `discount` is 0 after termination, and the observation after the last action gives the value to
bootstrap from.

Run it with `python examples/python/recipes/ppo.py`, or with `--with torch` or `--with jax`.
"""

from typing import Any

from environments import Catch, Vector
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

NUM_ENVS, LENGTH, DISCOUNT, LAMBDA, BATCH = 16, 8, 0.95, 0.95, 16


def make_tables() -> list[reverb.Table]:
    """Creates the queue. A full queue blocks the actors; in this program actor and learner take turns."""
    return [reverb.Table.queue("fragments", max_size=10 * BATCH)]


def make_recorder(client: reverb.Client, envs: Any) -> Any:
    """Creates what cuts the episodes of all environments into fragments."""
    return reverb.recorders.VectorSequenceRecorder(client, "fragments", env=envs, length=LENGTH, discount=DISCOUNT)


def advantages_of(batch: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Returns generalized advantages [B, T] for values [B, T + 1]; 0 in padding."""
    advantages = np.zeros_like(batch["reward"])
    following = np.zeros(len(values), np.float32)
    for t in reversed(range(advantages.shape[1])):
        delta = batch["reward"][:, t] + batch["discount"][:, t] * values[:, t + 1] - values[:, t]
        # A truncated episode bootstraps from its last value; no advantage of a later step belongs to it.
        goes_on = ~batch["truncated"][:, t] & batch["mask"][:, t]
        following = (delta + LAMBDA * batch["discount"][:, t] * following * goes_on) * batch["mask"][:, t]
        advantages[:, t] = following
    return advantages


def play(envs: Any, recorder: Any, learner: Any, observations: np.ndarray, steps: int) -> np.ndarray:
    """Takes steps in all environments, records them, and returns the last observations."""
    for _ in range(steps):
        actions, log_probs = learner.act(observations)
        observations, rewards, terminated, truncated, info = envs.step(actions)
        recorder.step(actions, observations, rewards, terminated, truncated, info, extras={"log_prob": log_probs})
    recorder.flush()
    return observations


def run(learner: Any, updates: int = 60) -> tuple[list[float], list[float]]:
    """Plays and learns in turns; returns the mean reward at the ends of episodes for each update, and the losses."""
    envs = Vector([Catch(seed) for seed in range(NUM_ENVS)])
    rewards_at_end: list[float] = []
    losses: list[float] = []
    with reverb.Server(make_tables()) as server:
        client = server.localhost_client()
        with make_recorder(client, envs) as recorder:
            observations, info = envs.reset()
            recorder.reset(observations, info)
            for _ in range(updates):
                observations = play(envs, recorder, learner, observations, steps=LENGTH)
                ready = client.server_info()["fragments"].current_size // BATCH
                for batch in client.sample_batches("fragments", batch_size=BATCH, num_batches=ready, exact=True):
                    data = batch.data
                    advantages = advantages_of(data, learner.values(data["observation"]))
                    losses.append(learner.update(data, advantages))
                    rewards_at_end.append(float(data["reward"][data["terminated"]].mean()))
    return rewards_at_end, losses


if __name__ == "__main__":
    rewards, losses = run(make_learner("PPO", framework_of_the_command_line()))
    print(f"mean return: {np.mean(rewards[:5]):.2f} at first, {np.mean(rewards[-5:]):.2f} at last")
