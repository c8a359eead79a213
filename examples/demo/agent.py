"""The agent of the demo: a Q network in NumPy, the actors that play with it, and the learner that trains it.

Double Q-learning over three steps with prioritized replay and importance weights. It uses these parts of Reverb:

- a TrajectoryWriter in each actor: observations are stored once, although each is part of several items;
- the priorities of the table, set first by the actors and then by the learner, through `update_priorities`;
- a table of size 1 that carries the latest parameters from the learner to the actors;
- the rate limiter of the table, which needs no code: the faster side waits in its next call.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import itertools
import signal
import time
from typing import Any

import gymnasium
import numpy as np

import reverb

TASK = "CartPole-v1"
STEPS = 3  # per transition: the return over three steps, then the value of the last state
GAMMA = 0.99
BATCH = 64
LAYERS = (4, 128, 128, 2)
LEARNING_RATE = 1e-3
TARGET_RATE = 0.01  # how fast the target network follows
UPDATES_PER_POLICY = 50  # between two publications of the parameters
EXPLORATION_UPDATES = 1500  # until the actors reach their minimum exploration
SECONDS_PER_STEP = 0.02  # of the cart, in the physics of the task
RECENT = 1280  # samples whose priorities are published with the parameters

Weights = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Pace:
    """When the environments run at full speed, and when in real time, like a real cart.

    The two alternate, in all processes at the same time. At full speed the actors produce more than the learner can
    use, and wait; in real time they produce less, and the learner waits.
    """

    full_speed_seconds: float
    real_time_seconds: float
    start: float  # of time.monotonic(), which all processes of a machine share

    def is_real_time(self) -> bool:
        """Returns whether the environments run in real time now."""
        period = self.full_speed_seconds + self.real_time_seconds
        return (time.monotonic() - self.start) % period >= self.full_speed_seconds


def initial_weights(rng: np.random.Generator) -> Weights:
    """Draws normal weights with a variance for rectified units; the last layer is small, for values near zero."""
    weights: Weights = {}
    for i, (inputs, outputs) in enumerate(itertools.pairwise(LAYERS)):
        scale = 0.01 if i == len(LAYERS) - 2 else np.sqrt(2 / inputs)
        weights[f"w{i}"] = (scale * rng.standard_normal((inputs, outputs))).astype(np.float32)
        weights[f"b{i}"] = np.zeros(outputs, np.float32)
    return weights


def q_values(weights: Weights, observations: np.ndarray) -> np.ndarray:
    """Computes the Q values: [..., 4] -> [..., 2]."""
    hidden = np.maximum(observations @ weights["w0"] + weights["b0"], 0)
    hidden = np.maximum(hidden @ weights["w1"] + weights["b1"], 0)
    return hidden @ weights["w2"] + weights["b2"]


class Learner:
    """The parameters, their running averages, and the update rule."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = initial_weights(rng)
        self._target = {name: value.copy() for name, value in self.weights.items()}
        self._mean = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self._square = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self._updates = 0

    def update(self, batch: dict[str, np.ndarray], importance: np.ndarray) -> np.ndarray:
        """Performs a gradient step on the weighted Huber loss; returns the errors, one for each transition."""
        w = self.weights
        x0 = batch["observation"]
        x1 = np.maximum(x0 @ w["w0"] + w["b0"], 0)
        x2 = np.maximum(x1 @ w["w1"] + w["b1"], 0)
        rows = np.arange(len(x0))
        q = (x2 @ w["w2"] + w["b2"])[rows, batch["action"]]

        # One network chooses the action and the other one evaluates it, which avoids overestimation.
        best = q_values(w, batch["next_observation"]).argmax(axis=1)
        value = q_values(self._target, batch["next_observation"])[rows, best]
        errors = q - n_step_target(batch["rewards"], batch["discounts"], value)

        slope = np.zeros((len(x0), LAYERS[-1]), np.float32)
        slope[rows, batch["action"]] = importance * np.clip(errors, -1, 1) / len(x0)
        gradient = {"w2": x2.T @ slope, "b2": slope.sum(axis=0)}
        slope = (slope @ w["w2"].T) * (x2 > 0)
        gradient |= {"w1": x1.T @ slope, "b1": slope.sum(axis=0)}
        slope = (slope @ w["w1"].T) * (x1 > 0)
        gradient |= {"w0": x0.T @ slope, "b0": slope.sum(axis=0)}
        self._descend(gradient)
        return errors

    def _descend(self, gradient: Weights) -> None:
        """Applies Adam; then moves the target network a little."""
        self._updates += 1
        norm = np.sqrt(sum(float((g * g).sum()) for g in gradient.values()))
        scale = min(1.0, 10.0 / (norm + 1e-8))
        rate = LEARNING_RATE * np.sqrt(1 - 0.999**self._updates) / (1 - 0.9**self._updates)
        for name, g in gradient.items():
            self._mean[name] += 0.1 * (scale * g - self._mean[name])
            self._square[name] += 0.001 * ((scale * g) ** 2 - self._square[name])
            self.weights[name] -= np.float32(rate) * self._mean[name] / (np.sqrt(self._square[name]) + 1e-8)
            self._target[name] += np.float32(TARGET_RATE) * (self.weights[name] - self._target[name])


def n_step_target(rewards: np.ndarray, discounts: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns r0 + d0 * (r1 + d1 * (r2 + d2 * value)); a discount of 0 anywhere in the window ends the episode."""
    for i in reversed(range(STEPS)):
        value = rewards[..., i] + discounts[..., i] * value
    return value


# --- The processes --------------------------------------------------------------------------------------------


def run_learner(address: str, seed: int, stop: Any) -> None:
    """Runs the learner: samples, learns, sends priorities back, publishes parameters."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    client = reverb.Client(address)
    learner = Learner(np.random.default_rng(seed))
    recent = np.zeros(RECENT, np.float32)
    loss = 0.0
    updates = 0
    publish(client, learner, updates, loss, recent)
    for info, transitions in batches(client, stop):
        # beta grows to 1, where the weights fully correct for the priorities.
        beta = min(1.0, 0.4 + 0.6 * updates / 10_000)
        errors = learner.update(transitions, reverb.importance_weights(info, beta))
        client.update_priorities("replay", info.key, np.abs(errors) + 1e-2)
        updates += 1
        loss += 0.01 * (float(np.abs(errors).mean()) - loss)
        recent = np.concatenate([recent[BATCH:], info.priority.astype(np.float32)])
        if updates % UPDATES_PER_POLICY == 0:
            publish(client, learner, updates, loss, recent)
    publish(client, learner, updates, loss, recent)


def publish(client: reverb.Client, learner: Learner, updates: int, loss: float, recent: np.ndarray) -> None:
    """Replaces the item of the table "policy"."""
    step = {"updates": updates, "loss": np.float32(loss), "sampled_priorities": recent, "weights": learner.weights}
    client.insert(step, priorities={"policy": 1.0}, timeout=30)


def batches(client: reverb.Client, stop: Any) -> Iterator[reverb.ReplaySample]:
    """Yields batches of transitions until `stop` is set: info and data with arrays of BATCH rows."""
    samples = client.sample_batches("replay", BATCH, timeout=0.5)
    while not stop.is_set():
        # A timeout is due to the limiter: the actors are behind. The next call continues to wait.
        with contextlib.suppress(reverb.DeadlineExceededError):
            yield next(samples)


def newest_policy(client: reverb.Client, timeout: float = 60) -> dict[str, Any]:
    """Returns the latest parameters of the learner; waits for the first ones."""
    (step,) = next(client.sample("policy", unpack_as_table_signature=True, timeout=timeout))
    return step.data


class TransitionWriter:
    """Creates an item for every STEPS steps, with a priority from the actor's own network."""

    def __init__(self, client: reverb.Client) -> None:
        self._writer = client.trajectory_writer(num_keep_alive_refs=STEPS + 1)
        # For the steps in the window, oldest first: value of the chosen action, reward, discount.
        self._window: collections.deque[tuple[float, float, float]] = collections.deque(maxlen=STEPS)

    def add(self, observation: np.ndarray, q: np.ndarray, action: int, reward: float, discount: float) -> None:
        """Adds one step of the environment: observation, values, action and result."""
        self._writer.append(
            {
                "observation": np.asarray(observation, np.float32),
                "action": action,
                "reward": np.float32(reward),
                "discount": np.float32(discount),
            }
        )
        if len(self._window) == STEPS:
            target = float(q.max())
            for _, r, d in reversed(self._window):
                target = r + d * target
            history = self._writer.history
            self._writer.create_item(
                table="replay",
                priority=abs(target - self._window[0][0]) + 1e-2,
                trajectory={
                    "observation": history["observation"][-STEPS - 1],
                    "action": history["action"][-STEPS - 1],
                    "rewards": history["reward"][-STEPS - 1 : -1],
                    "discounts": history["discount"][-STEPS - 1 : -1],
                    "next_observation": history["observation"][-1],
                },
            )
        self._window.append((float(q[action]), reward, discount))

    def end(self, observation: np.ndarray, q: np.ndarray) -> None:
        """Adds the last observation. Appends steps with zero reward and discount, so that each step starts an item."""
        for _ in range(STEPS):
            self.add(observation, q, 0, 0.0, 1.0)
        self._window.clear()
        with contextlib.suppress(reverb.DeadlineExceededError):
            self._writer.end_episode(timeout_ms=0)  # does not wait; keep_up() does

    def keep_up(self, stop: Any) -> None:
        """Waits while too many items are not in the table yet: for the limiter, and so for the learner."""
        while not stop.is_set():
            with contextlib.suppress(reverb.DeadlineExceededError):
                self._writer.flush(block_until_num_items=50, timeout_ms=500)
                return

    def close(self) -> None:
        """Discards items that are not in the table yet."""
        self._writer.close()


def run_actor(address: str, index: int, count: int, seed: int, pace: Pace, stop: Any) -> None:
    """Runs an actor: plays with the latest parameters, and writes the results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client = reverb.Client(address)
    rng = np.random.default_rng([seed, index])
    env = gymnasium.make(TASK)
    writer = TransitionWriter(client)
    # Some actors explore, others play almost as well as they can.
    least_exploration = 0.2 ** (1 + 2 * index / max(1, count - 1))
    while not stop.is_set():
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        score, ended = 0, False
        while not ended and not stop.is_set():
            if score % 50 == 0:
                policy = newest_policy(client)
                exploration = max(least_exploration, 1 - int(policy["updates"]) / EXPLORATION_UPDATES)
                writer.keep_up(stop)
            q = q_values(policy["weights"], observation)
            action = int(rng.integers(2)) if rng.random() < exploration else int(q.argmax())
            if pace.is_real_time():
                stop.wait(SECONDS_PER_STEP)
            next_observation, _, fell, timed_out, _ = env.step(action)
            writer.add(observation, q, action, 1.0, 0.0 if fell else GAMMA)
            observation, ended = next_observation, fell or timed_out
            score += 1
        if ended:
            writer.end(observation, q_values(policy["weights"], observation))
            client.insert({"actor": index, "score": np.float32(score)}, priorities={"episodes": 1.0}, timeout=60)
    writer.close()
