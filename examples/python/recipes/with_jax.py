"""The learners of the recipes in JAX, without other libraries."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Batch = dict[str, Any]
Parameters = Any


def pixels(frames: jax.Array) -> jax.Array:
    """Returns uint8 frames, with any number of dimensions before the last two, as vectors of numbers up to 1."""
    return frames.reshape(*frames.shape[:-2], -1).astype(jnp.float32) / 255


def layer(key: jax.Array, inputs: int, outputs: int) -> dict[str, jax.Array]:
    """Creates the parameters of a layer."""
    return {"w": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}


def mlp(key: jax.Array, inputs: int, outputs: int, hidden: int = 64) -> list[dict[str, jax.Array]]:
    """Creates the parameters of a small network."""
    first, second = jax.random.split(key)
    return [layer(first, inputs, hidden), layer(second, hidden, outputs)]


def apply(net: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    """Computes a network."""
    for one in net[:-1]:
        x = jax.nn.relu(x @ one["w"] + one["b"])
    return x @ net[-1]["w"] + net[-1]["b"]


def gru(key: jax.Array, inputs: int, size: int) -> dict[str, dict[str, jax.Array]]:
    """Creates the parameters of a gated recurrent unit."""
    keys = jax.random.split(key, 3)
    return {name: layer(k, inputs + size, size) for name, k in zip(("update", "reset", "new"), keys, strict=True)}


def apply_gru(unit: dict[str, dict[str, jax.Array]], x: jax.Array, state: jax.Array) -> jax.Array:
    """Computes the next state."""

    def gate(name: str, memory: jax.Array) -> jax.Array:
        return jnp.concatenate([x, memory], axis=-1) @ unit[name]["w"] + unit[name]["b"]

    update, reset = jax.nn.sigmoid(gate("update", state)), jax.nn.sigmoid(gate("reset", state))
    return (1 - update) * state + update * jnp.tanh(gate("new", reset * state))


def picked(values: jax.Array, actions: jax.Array) -> jax.Array:
    """Returns the value of each action."""
    return jnp.take_along_axis(values, actions[..., None].astype(jnp.int32), axis=-1)[..., 0]


class Adam:
    """Minimises a loss function of the parameters and of what a step gets: it returns the loss and anything else."""

    def __init__(self, loss: Callable[..., tuple[jax.Array, Any]], parameters: Parameters, rate: float) -> None:
        self.parameters = parameters
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        self._moments = (zeros, zeros, jnp.zeros(()))

        @jax.jit
        def step(parameters: Parameters, moments: Any, *arguments: Any) -> Any:
            (value, others), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, *arguments)
            means, squares, time = moments
            time = time + 1
            means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradient)
            squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, squares, gradient)
            scale = rate * jnp.sqrt(1 - 0.999**time) / (1 - 0.9**time)
            parameters = jax.tree.map(lambda p, m, s: p - scale * m / (jnp.sqrt(s) + 1e-8), parameters, means, squares)
            return parameters, (means, squares, time), value, others

        self._step = step

    def step(self, *arguments: Any) -> tuple[float, Any]:
        """Takes a step; returns the loss before it, and what else the function returned."""
        self.parameters, self._moments, value, others = self._step(self.parameters, self._moments, *arguments)
        return float(value), others


class DQN:
    """Double Q-learning with a target network."""

    def __init__(self, seed: int = 0) -> None:
        def loss(net: Parameters, target: Parameters, data: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
            now, then = (pixels(data[name]).reshape(len(weights), -1) for name in ("observation", "next_observation"))
            future = picked(apply(target, then), apply(net, then).argmax(axis=1))
            wanted = data["reward"] + data["discount"] * jax.lax.stop_gradient(future)
            errors = picked(apply(net, now), data["action"]) - wanted
            return (weights * errors**2).mean(), errors

        self._optimizer = Adam(loss, mlp(jax.random.key(seed), 2 * 35, 3), rate=2e-3)
        self._target = self._optimizer.parameters
        self._values = jax.jit(lambda net, stack: apply(net, pixels(stack).reshape(-1)))
        self._updates = 0

    def act(self, stack: np.ndarray) -> int:
        """Returns the best action."""
        return int(self._values(self._optimizer.parameters, stack).argmax())

    def update(self, batch: Batch, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Takes a step; returns the loss and the error of each item."""
        loss, errors = self._optimizer.step(self._target, batch, weights)
        self._updates += 1
        if self._updates % 20 == 0:
            self._target = self._optimizer.parameters
        return loss, np.asarray(errors)


class R2D2:
    """A gated recurrent unit with Q-values of its state."""

    def __init__(self, seed: int = 0) -> None:
        def values(net: Parameters, data: Batch) -> jax.Array:
            state, mask, found = data["extras"]["state"][:, 0], data["mask"], []
            for t in range(data["observation"].shape[1]):
                following = apply_gru(net["cell"], data["observation"][:, t], state)
                found.append(apply(net["head"], following))
                if t < mask.shape[1]:  # padding does not change the state
                    state = jnp.where(mask[:, t, None], following, state)
            return jnp.stack(found, axis=1)  # for long burn-ins, stop the gradient of the state after them

        def loss(net: Parameters, data: Batch, weights: jax.Array, skipped: jax.Array) -> tuple[jax.Array, jax.Array]:
            burn_in = len(skipped)  # a shape, so that it is known when the function is compiled
            q = values(net, data)
            wanted = data["reward"] + data["discount"] * jax.lax.stop_gradient(q[:, 1:].max(axis=2))
            errors = ((picked(q[:, :-1], data["action"]) - wanted) * data["mask"])[:, burn_in:]
            return (weights[:, None] * errors**2).mean(), errors

        first, second = jax.random.split(jax.random.key(seed))
        self._optimizer = Adam(loss, {"cell": gru(first, 3, 16), "head": mlp(second, 16, 2)}, rate=1e-2)

        @jax.jit
        def act(net: Parameters, observation: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
            state = apply_gru(net["cell"], observation, state)
            return apply(net["head"], state).argmax(), state

        self._act = act

    def initial_state(self) -> np.ndarray:
        """Returns the state at the start of an episode."""
        return np.zeros(16, np.float32)

    def act(self, observation: np.ndarray, state: np.ndarray) -> tuple[int, np.ndarray]:
        """Returns the best action and the next state."""
        action, state = self._act(self._optimizer.parameters, observation, state)
        return int(action), np.asarray(state)

    def update(self, batch: Batch, weights: np.ndarray, burn_in: int) -> tuple[float, np.ndarray]:
        """Takes a step; returns the loss and the error of each trained step."""
        loss, errors = self._optimizer.step(batch, weights, np.empty(burn_in))
        return loss, np.asarray(errors)


class SAC:
    """Two critics, and a squashed Gaussian policy."""

    def __init__(self, seed: int = 0, temperature: float = 0.01) -> None:
        def draw(net: Parameters, state: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            mean, log_deviation = jnp.split(apply(net, state), 2, axis=-1)
            log_deviation = log_deviation.clip(-4, 1)
            noise = jax.random.normal(key, mean.shape)
            action = jnp.tanh(mean + jnp.exp(log_deviation) * noise)
            log_prob = -0.5 * noise**2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi) - jnp.log(1 - action**2 + 1e-6)
            return action, log_prob[..., 0]

        def values(nets: Parameters, state: jax.Array, action: jax.Array) -> jax.Array:
            return jnp.stack([apply(net, jnp.concatenate([state, action], axis=-1))[..., 0] for net in nets])

        def critic_loss(nets: Parameters, targets: Parameters, policy: Parameters, data: Batch, key: jax.Array) -> Any:
            action, log_prob = draw(policy, data["next_observation"], key)
            future = values(targets, data["next_observation"], action).min(axis=0) - temperature * log_prob
            wanted = data["reward"] + data["discount"] * jax.lax.stop_gradient(future)
            return ((values(nets, data["observation"], data["action"]) - wanted) ** 2).mean(), None

        def policy_loss(policy: Parameters, nets: Parameters, data: Batch, key: jax.Array) -> Any:
            action, log_prob = draw(policy, data["observation"], key)
            return (temperature * log_prob - values(nets, data["observation"], action).min(axis=0)).mean(), None

        self._key, *keys = jax.random.split(jax.random.key(seed), 4)
        self._critics = Adam(critic_loss, [mlp(key, 2, 1) for key in keys[:2]], rate=5e-3)
        self._policy = Adam(policy_loss, mlp(keys[2], 1, 2), rate=3e-3)
        self._targets = self._critics.parameters
        self._draw = jax.jit(draw)
        self._follow = jax.jit(partial(jax.tree.map, lambda slow, fast: slow + 0.05 * (fast - slow)))

    def _next_key(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Draws an action."""
        return np.asarray(self._draw(self._policy.parameters, observation, self._next_key())[0])

    def update(self, batch: Batch) -> float:
        """Takes a step of critics and policy; returns the loss of the critics."""
        loss, _ = self._critics.step(self._targets, self._policy.parameters, batch, self._next_key())
        self._policy.step(self._critics.parameters, batch, self._next_key())
        self._targets = self._follow(self._targets, self._critics.parameters)
        return loss


def evaluate(nets: Parameters, frames: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the values of all frames [B, T + 1], and the log probabilities of the actions [B, T]."""
    inputs = pixels(frames)
    log_probs = jax.nn.log_softmax(apply(nets["policy"], inputs[:, :-1]))
    return apply(nets["value"], inputs)[..., 0], picked(log_probs, actions)


class _ActorCritic:
    """A policy and a value."""

    def __init__(self, seed: int, loss: Callable[..., tuple[jax.Array, Any]]) -> None:
        self._key, first, second = jax.random.split(jax.random.key(seed), 3)
        self._optimizer = Adam(loss, {"policy": mlp(first, 35, 3), "value": mlp(second, 35, 1)}, rate=1e-2)
        self._evaluate = jax.jit(evaluate)
        self._values = jax.jit(lambda nets, frames: apply(nets["value"], pixels(frames))[..., 0])

        @jax.jit
        def act(nets: Parameters, frames: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            log_probs = jax.nn.log_softmax(apply(nets["policy"], pixels(frames)))
            actions = jax.random.categorical(key, log_probs)
            return actions, picked(log_probs, actions)

        self._act = act

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws an action for each observation; returns the log probabilities, too."""
        self._key, key = jax.random.split(self._key)
        actions, log_probs = self._act(self._optimizer.parameters, observations, key)
        return np.asarray(actions), np.asarray(log_probs)

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Returns the value of each observation."""
        return np.asarray(self._values(self._optimizer.parameters, observations))


class PPO(_ActorCritic):
    """The clipped objective, for four epochs over a batch."""

    def __init__(self, seed: int = 0, clip: float = 0.2) -> None:
        def loss(nets: Parameters, data: Batch, targets: jax.Array, gain: jax.Array) -> tuple[jax.Array, None]:
            values, log_probs = evaluate(nets, data["observation"], data["action"])
            ratios = jnp.exp(log_probs - data["extras"]["log_prob"])
            surrogate = jnp.minimum(ratios * gain, ratios.clip(1 - clip, 1 + clip) * gain)
            errors = (values[:, :-1] - targets) ** 2
            return ((0.5 * errors - surrogate) * data["mask"]).sum() / data["mask"].sum(), None

        super().__init__(seed, loss)

    def update(self, batch: Batch, advantages: np.ndarray) -> float:
        """Takes four steps; returns the loss of the values before them."""
        targets = self.values(batch["observation"])[:, :-1] + advantages
        for _ in range(4):
            self._optimizer.step(batch, targets, advantages)
        return float((advantages**2 * batch["mask"]).sum() / batch["mask"].sum())


class IMPALA(_ActorCritic):
    """A step with V-trace targets; the parameters travel as a list of arrays."""

    def __init__(self, seed: int = 0) -> None:
        def loss(nets: Parameters, data: Batch, targets: jax.Array, gain: jax.Array) -> tuple[jax.Array, jax.Array]:
            values, log_probs = evaluate(nets, data["observation"], data["action"])
            count = data["mask"].sum()
            value_loss = ((values[:, :-1] - targets) ** 2 * data["mask"]).sum() / count
            return 0.5 * value_loss - (log_probs * gain * data["mask"]).sum() / count, value_loss

        super().__init__(seed, loss)

    def parameters(self) -> list[np.ndarray]:
        """Returns what actors need."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._optimizer.parameters)]

    def set_parameters(self, arrays: list[np.ndarray]) -> None:
        """Uses the parameters of the learner."""
        structure = jax.tree.structure(self._optimizer.parameters)
        self._optimizer.parameters = jax.tree.unflatten(structure, arrays)

    def evaluate(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values [B, T + 1] and the log probabilities of the actions [B, T]."""
        values, log_probs = self._evaluate(self._optimizer.parameters, observations, actions)
        return np.asarray(values), np.asarray(log_probs)

    def update(self, batch: Batch, targets: np.ndarray, advantages: np.ndarray) -> float:
        """Takes a step; returns the loss of the values before it."""
        return float(self._optimizer.step(batch, targets, advantages)[1])


class Dreamer:
    """A world model: a recurrent unit that predicts the next observation, the reward and the discount."""

    def __init__(self, seed: int = 0) -> None:
        def loss(net: Parameters, data: Batch) -> tuple[jax.Array, None]:
            frames, mask = pixels(data["observation"]), data["mask"][..., None]
            inputs = jnp.concatenate([frames[:, :-1], jax.nn.one_hot(data["action"], 3)], axis=-1)
            state, predictions = jnp.zeros((len(frames), 64)), []
            for t in range(inputs.shape[1]):
                state = jnp.where(data["is_first"][:, t, None], 0.0, state)  # an episode starts here
                state = apply_gru(net["cell"], inputs[:, t], state)
                predictions.append(apply(net["head"], state))
            wanted = jnp.concatenate([frames[:, 1:], data["reward"][..., None], data["discount"][..., None]], axis=-1)
            return (((jnp.stack(predictions, axis=1) - wanted) * mask) ** 2).sum() / mask.sum(), None

        first, second = jax.random.split(jax.random.key(seed))
        self._optimizer = Adam(loss, {"cell": gru(first, 38, 64), "head": mlp(second, 64, 37)}, rate=1e-2)

    def update(self, batch: Batch) -> float:
        """Takes a step; returns the error of the predictions before it."""
        return self._optimizer.step(batch)[0]


class Cloning:
    """A policy that is trained on the actions of an expert."""

    def __init__(self, seed: int = 0) -> None:
        def loss(net: Parameters, data: Batch) -> tuple[jax.Array, None]:
            log_probs = jax.nn.log_softmax(apply(net, pixels(data["observation"])))
            return -picked(log_probs, data["action"]).mean(), None

        self._optimizer = Adam(loss, mlp(jax.random.key(seed), 35, 3), rate=1e-2)
        self._logits = jax.jit(lambda net, frame: apply(net, pixels(frame)))

    def act(self, observation: np.ndarray) -> int:
        """Returns the most likely action."""
        return int(self._logits(self._optimizer.parameters, observation).argmax())

    def update(self, batch: Batch) -> float:
        """Takes a step; returns the cross entropy before it."""
        return self._optimizer.step(batch)[0]
