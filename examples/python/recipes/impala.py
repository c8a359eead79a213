"""IMPALA: actors in threads write unrolls, the learner uses each once, with V-trace for the policies' lag.

Recorder: one `SequenceRecorder(length=6, max_in_flight_items=1)` per actor, with the log probability under the actor's
policy in `extras`. Table: uniform, `max_times_sampled=1`, and a limiter that keeps actors at most two batches ahead of
the learner. The parameters go back through a table of size 1.

Run it with `python examples/python/recipes/impala.py`, or with `--with torch` or `--with jax`.
"""

import threading
from typing import Any

from environments import Catch
from frameworks import framework_of_the_command_line, make_learner
import numpy as np

import reverb

NUM_ACTORS, LENGTH, DISCOUNT, BATCH = 2, 6, 0.95, 16


def make_tables() -> list[reverb.Table]:
    """Creates the table of unrolls and the one of parameters."""
    return [
        reverb.Table(
            name="unrolls",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=1_000,
            max_times_sampled=1,
            rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                1.0, min_size_to_sample=BATCH, error_buffer=2.0 * BATCH
            ),
        ),
        reverb.Table(
            name="parameters",
            sampler=reverb.selectors.Lifo(),
            remover=reverb.selectors.Fifo(),
            max_size=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        ),
    ]


def make_recorder(client: reverb.Client) -> Any:
    """Creates what cuts the episodes of an actor into unrolls. The actor stops while one waits for the table."""
    return reverb.recorders.SequenceRecorder(client, "unrolls", length=LENGTH, discount=DISCOUNT, max_in_flight_items=1)


def play(env: Any, recorder: Any, actor: Any) -> None:
    """Plays an episode and records it."""
    observation, info = env.reset()
    recorder.reset(observation, info)
    ended = False
    while not ended:
        (action,), (log_prob,) = actor.act(observation[None])
        observation, reward, terminated, truncated, info = env.step(action)
        recorder.step(action, observation, reward, terminated, truncated, info, extras={"log_prob": log_prob})
        ended = terminated or truncated


def act(client: reverb.Client, actor: Any, seed: int, stop: threading.Event) -> None:
    """Plays with the newest parameters until `stop` is set."""
    env = Catch(seed)
    with make_recorder(client) as recorder:
        while not stop.is_set():
            (newest,) = next(client.sample("parameters", timeout=30))
            actor.set_parameters(newest.data)
            play(env, recorder, actor)


def v_trace(batch: dict[str, np.ndarray], values: np.ndarray, log_probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the targets of the values [B, T] and the weighted advantages [B, T]; both 0 in padding."""
    mask = batch["mask"].astype(np.float32)
    ratios = np.minimum(1.0, np.exp(log_probs - batch["extras"]["log_prob"])) * mask
    deltas = ratios * (batch["reward"] + batch["discount"] * values[:, 1:] - values[:, :-1])
    corrections = np.zeros_like(deltas)
    following = np.zeros(len(values), np.float32)
    for t in reversed(range(deltas.shape[1])):
        following = deltas[:, t] + batch["discount"][:, t] * ratios[:, t] * following
        corrections[:, t] = following
    targets = values[:, :-1] + corrections
    next_targets = np.concatenate([targets[:, 1:], values[:, -1:]], axis=1)
    # The step after the last one of an episode is padding: its target is its value.
    next_mask = np.concatenate([mask[:, 1:], np.zeros_like(mask[:, :1])], axis=1)
    next_targets = np.where(next_mask > 0, next_targets, values[:, 1:])
    advantages = ratios * (batch["reward"] + batch["discount"] * next_targets - values[:, :-1])
    return targets * mask, advantages


def run(learner: Any, actors: list[Any], updates: int = 100) -> tuple[list[float], list[float]]:
    """Learns from unrolls while the actors play; returns the mean reward at the ends of episodes, and the losses."""
    rewards_at_end: list[float] = []
    losses: list[float] = []
    stop = threading.Event()
    with reverb.Server(make_tables()) as server:
        client = server.localhost_client()
        client.insert(learner.parameters(), {"parameters": 1.0})
        threads = [threading.Thread(target=act, args=(client, actor, seed, stop)) for seed, actor in enumerate(actors)]
        for thread in threads:
            thread.start()
        try:
            for batch in client.sample_batches("unrolls", batch_size=BATCH, num_batches=updates, exact=True):
                data = batch.data
                values, log_probs = learner.evaluate(data["observation"], data["action"])
                targets, advantages = v_trace(data, values, log_probs)
                losses.append(learner.update(data, targets, advantages))
                rewards_at_end.append(float(data["reward"][data["terminated"]].mean()))
                client.insert(learner.parameters(), {"parameters": 1.0})
        finally:
            stop.set()
            for thread in threads:
                while thread.is_alive():
                    client.reset("unrolls")  # makes room for what the actors still send
                    thread.join(timeout=0.1)
    return rewards_at_end, losses


def main(framework: str) -> tuple[list[float], list[float]]:
    """Runs it with a learner and actors of that framework."""
    return run(make_learner("IMPALA", framework), [make_learner("IMPALA", framework, seed=i) for i in (1, 2)])


if __name__ == "__main__":
    rewards, losses = main(framework_of_the_command_line())
    print(f"mean return: {np.mean(rewards[:5]):.2f} at first, {np.mean(rewards[-5:]):.2f} at last")
