"""The learners of the recipes in NumPy: linear models and small networks with the gradients written out.

They show what each algorithm does with a batch. with_torch.py and with_jax.py have the same classes with networks.
"""

from typing import Any

import numpy as np

Batch = dict[str, Any]


def features(frames: np.ndarray, num_dims: int = 2) -> np.ndarray:
    """Returns frames as vectors of numbers up to 1, with a constant 1 at the end; the last `num_dims` are one frame."""
    flat = frames.reshape(*frames.shape[: frames.ndim - num_dims], -1).astype(np.float32) / 255
    return np.concatenate([flat, np.ones((*flat.shape[:-1], 1), np.float32)], axis=-1)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the log softmax over the last dimension."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Adam:
    """Changes arrays in place, against their gradients."""

    def __init__(self, arrays: list[np.ndarray], rate: float) -> None:
        self._arrays, self._rate, self._time = arrays, rate, 0
        self._means = [np.zeros_like(array) for array in arrays]
        self._squares = [np.zeros_like(array) for array in arrays]

    def step(self, gradients: list[np.ndarray]) -> None:
        """Takes a step."""
        self._time += 1
        for array, gradient, mean, square in zip(self._arrays, gradients, self._means, self._squares, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            scale = np.sqrt(square / (1 - 0.999**self._time)) + 1e-8
            array -= self._rate * mean / (1 - 0.9**self._time) / scale


class DQN:
    """Q-values for stacks of two frames, with a hidden layer and a target network."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        inputs = 2 * 7 * 5 + 1
        self._first = (rng.normal(size=(inputs, 64)) / inputs**0.5).astype(np.float32)
        self._second = np.zeros((64, 3), np.float32)
        self._target = self._first.copy(), self._second.copy()
        self._optimizer = Adam([self._first, self._second], rate=3e-3)
        self._updates = 0

    def act(self, stack: np.ndarray) -> int:
        """Returns the best action."""
        return int(np.argmax(np.maximum(features(stack, 3) @ self._first, 0) @ self._second))

    def update(self, batch: Batch, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Takes a step; returns the loss and the error of each item."""
        inputs, rows = features(batch["observation"], 3), np.arange(len(weights))
        hidden = np.maximum(inputs @ self._first, 0)
        target_first, target_second = self._target
        future = np.maximum(features(batch["next_observation"], 3) @ target_first, 0) @ target_second
        wanted = batch["reward"] + batch["discount"] * future.max(axis=1)
        errors = (hidden @ self._second)[rows, batch["action"]] - wanted
        slopes = np.zeros((len(rows), 3), np.float32)
        slopes[rows, batch["action"]] = weights * errors / len(rows)
        self._optimizer.step([inputs.T @ (slopes @ self._second.T * (hidden > 0)), hidden.T @ slopes])
        self._updates += 1
        if self._updates % 20 == 0:
            self._target = self._first.copy(), self._second.copy()
        return float((weights * errors**2).mean()), errors


class R2D2:
    """A recurrent network with fixed random weights, and Q-values that are learned from its state."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._inputs = rng.normal(size=(3, 16)).astype(np.float32)
        self._recurrent = (0.95 * np.linalg.qr(rng.normal(size=(16, 16)))[0]).astype(np.float32)
        self._weights = np.zeros((17, 2), np.float32)
        self._optimizer = Adam([self._weights], rate=0.02)

    def initial_state(self) -> np.ndarray:
        """Returns the state at the start of an episode."""
        return np.zeros(16, np.float32)

    def _step(self, observation: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the inputs of the Q-values, and the next state."""
        state = np.tanh(observation @ self._inputs + state @ self._recurrent)
        return np.concatenate([state, np.ones((*state.shape[:-1], 1), np.float32)], axis=-1), state

    def act(self, observation: np.ndarray, state: np.ndarray) -> tuple[int, np.ndarray]:
        """Returns the best action and the next state."""
        inputs, state = self._step(observation, state)
        return int(np.argmax(inputs @ self._weights)), state

    def update(self, batch: Batch, weights: np.ndarray, burn_in: int) -> tuple[float, np.ndarray]:
        """Takes a step; returns the loss and the error of each trained step."""
        state = batch["extras"]["state"][:, 0]
        mask, steps = batch["mask"], []
        for t in range(batch["observation"].shape[1]):
            inputs, following = self._step(batch["observation"][:, t], state)
            steps.append(inputs)
            if t < mask.shape[1]:  # padding does not change the state
                state = np.where(mask[:, t, None], following, state)
        inputs = np.stack(steps, axis=1)
        values = inputs @ self._weights
        chosen = np.take_along_axis(values[:, :-1], batch["action"][..., None].astype(np.int64), axis=2)[..., 0]
        errors = (chosen - (batch["reward"] + batch["discount"] * values[:, 1:].max(axis=2))) * mask
        errors[:, :burn_in] = 0
        slopes = np.eye(2, dtype=np.float32)[batch["action"]] * (weights[:, None] * errors)[..., None]
        self._optimizer.step([np.einsum("btf,bta->fa", inputs[:, :-1], slopes) / len(weights)])
        return float((weights[:, None] * errors**2).mean()), errors[:, burn_in:]


class SAC:
    """A critic that is quadratic in state and action, and a squashed Gaussian policy with a linear mean."""

    def __init__(self, seed: int = 0, temperature: float = 0.01) -> None:
        self._rng, self._temperature = np.random.default_rng(seed), temperature
        self._critic = np.zeros(6, np.float32)
        self._target = self._critic.copy()
        self._policy = np.array([0.0, 0.0, -0.5], np.float32)  # slope and constant of the mean, log of the deviation
        self._critic_optimizer = Adam([self._critic], rate=0.03)
        self._policy_optimizer = Adam([self._policy], rate=0.02)

    def _draw(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        slope, constant, log_deviation = self._policy
        noise = self._rng.normal(size=state.shape).astype(np.float32)
        action = np.tanh(slope * state + constant + np.exp(log_deviation) * noise)
        log_probs = -0.5 * noise**2 - log_deviation - 0.5 * np.log(2 * np.pi) - np.log(1 - action**2 + 1e-6)
        return action, log_probs, noise

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Draws an action."""
        return self._draw(observation)[0]

    def update(self, batch: Batch) -> float:
        """Takes a step of critic and policy; returns the loss of the critic."""
        state, action, next_state = batch["observation"][:, 0], batch["action"][:, 0], batch["next_observation"][:, 0]
        next_action, log_probs, _ = self._draw(next_state)
        future = _quadratic(next_state, next_action) @ self._target - self._temperature * log_probs
        inputs = _quadratic(state, action)
        errors = inputs @ self._critic - (batch["reward"] + batch["discount"] * future)
        self._critic_optimizer.step([inputs.T @ errors / len(errors)])
        self._target += 0.05 * (self._critic - self._target)

        action, _, noise = self._draw(state)
        _, _, w_action, _, w_mixed, w_square = self._critic
        by_action = w_action + w_mixed * state + 2 * w_square * action  # the slope of the value
        by_raw = 2 * self._temperature * action - by_action * (1 - action**2)  # of the loss, before the tanh
        by_deviation = by_raw * noise * np.exp(self._policy[2]) - self._temperature
        self._policy_optimizer.step([np.array([(by_raw * state).mean(), by_raw.mean(), by_deviation.mean()])])
        self._policy[2] = np.clip(self._policy[2], -4, 1)
        return float((errors**2).mean())


def _quadratic(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(state), state, action, state**2, state * action, action**2], axis=-1)


class _ActorCritic:
    """A softmax policy and a value, both linear in the frame."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._policy, self._value = np.zeros((36, 3), np.float32), np.zeros(36, np.float32)
        self._optimizer = Adam([self._policy, self._value], rate=0.05)

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws an action for each observation; returns the log probabilities, too."""
        log_probs = log_softmax(features(observations) @ self._policy)
        actions = (np.exp(log_probs).cumsum(axis=1) < self._rng.random((len(log_probs), 1))).sum(axis=1).clip(0, 2)
        return actions, log_probs[np.arange(len(actions)), actions]

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Returns the value of each observation."""
        return features(observations) @ self._value

    def _log_probs(self, inputs: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns all probabilities, and the log probabilities of the actions."""
        log_probs = log_softmax(inputs @ self._policy)
        return np.exp(log_probs), np.take_along_axis(log_probs, actions[..., None].astype(np.int64), axis=-1)[..., 0]

    def _descend(self, inputs: np.ndarray, actions: np.ndarray, by_log_prob: np.ndarray, by_value: np.ndarray) -> None:
        """Takes a step, given the slopes of the loss by the log probabilities and by the values."""
        probabilities, _ = self._log_probs(inputs, actions)
        by_logits = by_log_prob[..., None] * (np.eye(3, dtype=np.float32)[actions] - probabilities)
        self._optimizer.step([np.einsum("btf,bta->fa", inputs, by_logits), np.einsum("btf,bt->f", inputs, by_value)])


class PPO(_ActorCritic):
    """The clipped objective, for four epochs over a batch."""

    def update(self, batch: Batch, advantages: np.ndarray, clip: float = 0.2) -> float:
        """Takes four steps; returns the loss of the values before them."""
        inputs, mask = features(batch["observation"][:, :-1]), batch["mask"].astype(np.float32)
        targets = inputs @ self._value + advantages
        for _ in range(4):
            _, log_probs = self._log_probs(inputs, batch["action"])
            ratios = np.exp(log_probs - batch["extras"]["log_prob"])
            is_clipped = np.where(advantages > 0, ratios > 1 + clip, ratios < 1 - clip)
            by_log_prob = -advantages * ratios * ~is_clipped * mask / mask.sum()
            by_value = (inputs @ self._value - targets) * mask / mask.sum()
            self._descend(inputs, batch["action"], by_log_prob, by_value)
        return float((advantages**2 * mask).sum() / mask.sum())


class IMPALA(_ActorCritic):
    """A step with V-trace targets; the parameters travel as a list of arrays."""

    def parameters(self) -> list[np.ndarray]:
        """Returns what actors need."""
        return [self._policy.copy(), self._value.copy()]

    def set_parameters(self, arrays: list[np.ndarray]) -> None:
        """Uses the parameters of the learner."""
        self._policy[...], self._value[...] = arrays

    def evaluate(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values [B, T + 1] and the log probabilities of the actions [B, T]."""
        inputs = features(observations)
        return inputs @ self._value, self._log_probs(inputs[:, :-1], actions)[1]

    def update(self, batch: Batch, targets: np.ndarray, advantages: np.ndarray) -> float:
        """Takes a step; returns the loss of the values before it."""
        inputs, mask = features(batch["observation"][:, :-1]), batch["mask"].astype(np.float32)
        errors = (inputs @ self._value - targets) * mask
        self._descend(inputs, batch["action"], -advantages * mask / mask.sum(), errors / mask.sum())
        return float((errors**2).sum() / mask.sum())


class Dreamer:
    """A world model: next observation, reward and discount, linear in what the observation and the action are."""

    def __init__(self, seed: int = 0) -> None:
        self._weights = np.zeros((36 * 3, 37), np.float32)
        self._optimizer = Adam([self._weights], rate=0.02)

    def update(self, batch: Batch) -> float:
        """Takes a step; returns the error of the predictions before it."""
        frames, mask = features(batch["observation"]), batch["mask"][..., None].astype(np.float32)
        actions = np.eye(3, dtype=np.float32)[batch["action"]]
        inputs = np.einsum("btf,bta->btfa", frames[:, :-1], actions).reshape(*mask.shape[:2], -1)
        targets = np.concatenate([frames[:, 1:, :-1], batch["reward"][..., None], batch["discount"][..., None]], axis=2)
        errors = (inputs @ self._weights - targets) * mask
        self._optimizer.step([np.einsum("btf,bto->fo", inputs, errors) / mask.sum()])
        return float((errors**2).sum() / mask.sum())


class Cloning:
    """A softmax policy, trained on the actions of an expert."""

    def __init__(self, seed: int = 0) -> None:
        self._weights = np.zeros((36, 3), np.float32)
        self._optimizer = Adam([self._weights], rate=0.05)

    def act(self, observation: np.ndarray) -> int:
        """Returns the most likely action."""
        return int(np.argmax(features(observation) @ self._weights))

    def update(self, batch: Batch) -> float:
        """Takes a step; returns the cross entropy before it."""
        inputs, wanted = features(batch["observation"]), np.eye(3, dtype=np.float32)[batch["action"]]
        log_probs = log_softmax(inputs @ self._weights)
        self._optimizer.step([inputs.T @ (np.exp(log_probs) - wanted) / len(wanted)])
        return float(-(log_probs * wanted).sum(axis=1).mean())
