"""The learners of the recipes in PyTorch."""

from typing import Any

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812  # the usual name

Batch = dict[str, Any]

torch.set_num_threads(1)  # networks as small as these are faster so


def tensors(data: Any) -> Any:
    """Returns a batch as tensors. On the CPU they share the memory of the arrays; for a GPU, add `.to("cuda")`."""
    if isinstance(data, dict):
        return {name: tensors(value) for name, value in data.items()}
    return torch.from_numpy(np.ascontiguousarray(data))


def pixels(frames: torch.Tensor) -> torch.Tensor:
    """Returns uint8 frames, with any number of dimensions before the last two, as vectors of numbers up to 1."""
    return frames.flatten(-2).float() / 255


def mlp(inputs: int, outputs: int, hidden: int = 64) -> nn.Sequential:
    """Creates a small network."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def picked(values: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Returns the value of each action."""
    return values.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    """Takes a step and returns the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


class DQN:
    """Double Q-learning with a target network."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self._net, self._target = mlp(2 * 35, 3), mlp(2 * 35, 3)
        self._target.load_state_dict(self._net.state_dict())
        self._optimizer = torch.optim.Adam(self._net.parameters(), lr=2e-3)
        self._updates = 0

    @torch.no_grad()
    def act(self, stack: np.ndarray) -> int:
        """Returns the best action."""
        return int(self._net(pixels(tensors(stack)).flatten()).argmax())

    def update(self, batch: Batch, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Takes a step; returns the loss and the error of each item."""
        data, importance = tensors(batch), tensors(weights)
        now, then = pixels(data["observation"]).flatten(1), pixels(data["next_observation"]).flatten(1)
        with torch.no_grad():
            future = picked(self._target(then), self._net(then).argmax(1))
            target = data["reward"] + data["discount"] * future
        errors = picked(self._net(now), data["action"]) - target
        loss = descend(self._optimizer, (importance * errors**2).mean())
        self._updates += 1
        if self._updates % 20 == 0:
            self._target.load_state_dict(self._net.state_dict())
        return loss, errors.detach().numpy()


class R2D2:
    """A GRU cell with Q-values of its state."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self._cell, self._head = nn.GRUCell(3, 16), nn.Linear(16, 2)
        self._optimizer = torch.optim.Adam([*self._cell.parameters(), *self._head.parameters()], lr=1e-2)

    def initial_state(self) -> np.ndarray:
        """Returns the state at the start of an episode."""
        return np.zeros(16, np.float32)

    @torch.no_grad()
    def act(self, observation: np.ndarray, state: np.ndarray) -> tuple[int, np.ndarray]:
        """Returns the best action and the next state."""
        following = self._cell(tensors(observation)[None], tensors(state)[None])
        return int(self._head(following).argmax()), following[0].numpy()

    def update(self, batch: Batch, weights: np.ndarray, burn_in: int) -> tuple[float, np.ndarray]:
        """Takes a step; returns the loss and the error of each trained step."""
        data = tensors(batch)
        state, mask, values = data["extras"]["state"][:, 0], data["mask"], []
        for t in range(data["observation"].shape[1]):
            following = self._cell(data["observation"][:, t], state)
            values.append(self._head(following))
            if t < mask.shape[1]:  # padding does not change the state
                state = torch.where(mask[:, t, None], following, state)
        q = torch.stack(values, dim=1)  # for long burn-ins, detach the state after them
        target = data["reward"] + data["discount"] * q[:, 1:].max(dim=2).values.detach()
        errors = ((picked(q[:, :-1], data["action"]) - target) * mask)[:, burn_in:]
        loss = descend(self._optimizer, (tensors(weights)[:, None] * errors**2).mean())
        return loss, errors.detach().numpy()


class SAC:
    """Two critics, and a squashed Gaussian policy."""

    def __init__(self, seed: int = 0, temperature: float = 0.01) -> None:
        torch.manual_seed(seed)
        self._temperature = temperature
        self._policy = mlp(1, 2)
        self._critics = nn.ModuleList([mlp(2, 1), mlp(2, 1)])
        self._targets = nn.ModuleList([mlp(2, 1), mlp(2, 1)])
        self._targets.load_state_dict(self._critics.state_dict())
        self._critic_optimizer = torch.optim.Adam(self._critics.parameters(), lr=5e-3)
        self._policy_optimizer = torch.optim.Adam(self._policy.parameters(), lr=3e-3)

    def _draw(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_deviation = self._policy(state).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_deviation.clamp(-4, 1).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        return action, (normal.log_prob(raw) - torch.log(1 - action**2 + 1e-6)).squeeze(-1)

    @staticmethod
    def _values(critics: nn.ModuleList, state: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
        return [critic(torch.cat([state, action], dim=-1)).squeeze(-1) for critic in critics]

    @torch.no_grad()
    def act(self, observation: np.ndarray) -> np.ndarray:
        """Draws an action."""
        return self._draw(tensors(observation))[0].numpy()

    def update(self, batch: Batch) -> float:
        """Takes a step of critics and policy; returns the loss of the critics."""
        data = tensors(batch)
        with torch.no_grad():
            action, log_prob = self._draw(data["next_observation"])
            future = torch.minimum(*self._values(self._targets, data["next_observation"], action))
            target = data["reward"] + data["discount"] * (future - self._temperature * log_prob)
        values = self._values(self._critics, data["observation"], data["action"])
        loss = descend(self._critic_optimizer, sum(((value - target) ** 2).mean() for value in values))
        action, log_prob = self._draw(data["observation"])
        value = torch.minimum(*self._values(self._critics, data["observation"], action))
        descend(self._policy_optimizer, (self._temperature * log_prob - value).mean())
        with torch.no_grad():
            for slow, fast in zip(self._targets.parameters(), self._critics.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return loss


class _ActorCritic:
    """A policy and a value."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self._nets = nn.ModuleDict({"policy": mlp(35, 3), "value": mlp(35, 1)})
        self._optimizer = torch.optim.Adam(self._nets.parameters(), lr=1e-2)

    @torch.no_grad()
    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws an action for each observation; returns the log probabilities, too."""
        policy = torch.distributions.Categorical(logits=self._nets["policy"](pixels(tensors(observations))))
        actions = policy.sample()
        return actions.numpy(), policy.log_prob(actions).numpy()

    @torch.no_grad()
    def values(self, observations: np.ndarray) -> np.ndarray:
        """Returns the value of each observation."""
        return self._nets["value"](pixels(tensors(observations))).squeeze(-1).numpy()

    def _evaluate(self, frames: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the values of all frames, and the log probabilities of the actions in all but the last."""
        inputs = pixels(frames)
        log_probs = F.log_softmax(self._nets["policy"](inputs[:, :-1]), dim=-1)
        return self._nets["value"](inputs).squeeze(-1), picked(log_probs, actions)


class PPO(_ActorCritic):
    """The clipped objective, for four epochs over a batch."""

    def update(self, batch: Batch, advantages: np.ndarray, clip: float = 0.2) -> float:
        """Takes four steps; returns the loss of the values before them."""
        data, gain = tensors(batch), tensors(advantages)
        targets = tensors(self.values(batch["observation"])[:, :-1]) + gain
        count = data["mask"].sum()
        for _ in range(4):
            values, log_probs = self._evaluate(data["observation"], data["action"])
            ratios = (log_probs - data["extras"]["log_prob"]).exp()
            surrogate = torch.minimum(ratios * gain, ratios.clamp(1 - clip, 1 + clip) * gain)
            errors = (values[:, :-1] - targets) ** 2
            descend(self._optimizer, ((0.5 * errors - surrogate) * data["mask"]).sum() / count)
        return float((advantages**2 * batch["mask"]).sum() / batch["mask"].sum())


class IMPALA(_ActorCritic):
    """A step with V-trace targets; the parameters travel as a list of arrays."""

    def parameters(self) -> list[np.ndarray]:
        """Returns what actors need."""
        return [parameter.detach().numpy().copy() for parameter in self._nets.parameters()]

    @torch.no_grad()
    def set_parameters(self, arrays: list[np.ndarray]) -> None:
        """Uses the parameters of the learner."""
        for parameter, array in zip(self._nets.parameters(), arrays, strict=True):
            parameter.copy_(tensors(array))

    @torch.no_grad()
    def evaluate(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values [B, T + 1] and the log probabilities of the actions [B, T]."""
        values, log_probs = self._evaluate(tensors(observations), tensors(actions))
        return values.numpy(), log_probs.numpy()

    def update(self, batch: Batch, targets: np.ndarray, advantages: np.ndarray) -> float:
        """Takes a step; returns the loss of the values before it."""
        data, mask = tensors(batch), tensors(batch["mask"].astype(np.float32))
        values, log_probs = self._evaluate(data["observation"], data["action"])
        errors = (values[:, :-1] - tensors(targets)) * mask
        value_loss = (errors**2).sum() / mask.sum()
        policy_loss = -(log_probs * tensors(advantages) * mask).sum() / mask.sum()
        descend(self._optimizer, 0.5 * value_loss + policy_loss)
        return float(value_loss.detach())


class Dreamer:
    """A world model: a GRU that predicts the next observation, the reward and the discount."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self._cell, self._head = nn.GRUCell(35 + 3, 64), mlp(64, 37)
        self._optimizer = torch.optim.Adam([*self._cell.parameters(), *self._head.parameters()], lr=1e-2)

    def update(self, batch: Batch) -> float:
        """Takes a step; returns the error of the predictions before it."""
        data = tensors(batch)
        frames, mask = pixels(data["observation"]), data["mask"][..., None].float()
        inputs = torch.cat([frames[:, :-1], F.one_hot(data["action"].long(), 3).float()], dim=-1)
        state, predictions = torch.zeros(len(frames), 64), []
        for t in range(inputs.shape[1]):
            state = state * ~data["is_first"][:, t, None]  # an episode starts here
            state = self._cell(inputs[:, t], state)
            predictions.append(self._head(state))
        targets = torch.cat([frames[:, 1:], data["reward"][..., None], data["discount"][..., None]], dim=-1)
        errors = (torch.stack(predictions, dim=1) - targets) * mask
        return descend(self._optimizer, (errors**2).sum() / mask.sum())


class Cloning:
    """A policy that is trained on the actions of an expert."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self._net = mlp(35, 3)
        self._optimizer = torch.optim.Adam(self._net.parameters(), lr=1e-2)

    @torch.no_grad()
    def act(self, observation: np.ndarray) -> int:
        """Returns the most likely action."""
        return int(self._net(pixels(tensors(observation))).argmax())

    def update(self, batch: Batch) -> float:
        """Takes a step; returns the cross entropy before it."""
        data = tensors(batch)
        return descend(self._optimizer, F.cross_entropy(self._net(pixels(data["observation"])), data["action"].long()))
