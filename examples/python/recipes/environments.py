"""Small environments for the recipes, with the interface of Gymnasium and no dependency but NumPy.

Replace them with `gymnasium.make(...)` and `gymnasium.make_vec(...)`: the recipes use `reset`, `step`, `num_envs` and
`metadata["autoreset_mode"]` only.
"""

from typing import Any

import numpy as np


class Catch:
    """A ball falls; the paddle in the bottom row has to be under it. An episode is 6 steps long and terminates."""

    rows, columns, num_actions = 7, 5, 3  # actions: to the left, stay, to the right

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def reset(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        self._row = 0
        self._column, self._paddle = (int(column) for column in self._rng.integers(self.columns, size=2))
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the ball and the paddle."""
        self._row += 1
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self.columns - 1)
        ended = self._row == self.rows - 1
        reward = float(np.sign(0.5 - abs(self._column - self._paddle))) if ended else 0.0
        return self._frame(), reward, ended, False, {}

    def best_action(self) -> int:
        """Returns what an expert does."""
        return 1 + int(np.sign(self._column - self._paddle))

    def _frame(self) -> np.ndarray:
        frame = np.zeros((self.rows, self.columns), np.uint8)
        frame[-1, self._paddle] = 255
        frame[self._row, self._column] = 255
        return frame


class Recall:
    """A cue is visible in the first step only; the action of the last step has to repeat it. It takes a memory."""

    size, num_actions, length = 3, 2, 5

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def reset(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode and shows the cue."""
        self._cue, self._time = int(self._rng.integers(2)), 0
        observation = np.zeros(3, np.float32)
        observation[self._cue] = 1
        return observation, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes the answer in the last step."""
        self._time += 1
        ended = self._time == self.length
        reward = float(int(action) == self._cue) if ended else 0.0
        observation = np.zeros(3, np.float32)
        observation[2] = self._time == self.length - 1  # answer now
        return observation, reward, ended, False, {}


class Reach:
    """A point moves on a line towards 0. Episodes have no end of their own; a time limit truncates them."""

    limit = 20

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def reset(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode at a random position."""
        self._position, self._time = float(self._rng.uniform(-1, 1)), 0
        return np.array([self._position], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves by at most 0.3."""
        self._position = float(np.clip(self._position + 0.3 * np.clip(action[0], -1, 1), -1, 1))
        self._time += 1
        observation = np.array([self._position], np.float32)
        return observation, -(self._position**2), False, self._time == self.limit, {}


class Vector:
    """Environments that step together, with the autoreset of Gymnasium: the step after an end resets."""

    metadata = {"autoreset_mode": "next_step"}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, environments: list[Any]) -> None:
        self._environments = environments
        self.num_envs = len(environments)

    def reset(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode in each."""
        self._ended = np.zeros(self.num_envs, bool)
        return np.stack([environment.reset()[0] for environment in self._environments]), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes a step in each, or resets it if its episode ended before."""
        results = [
            (environment.reset()[0], 0.0, False, False) if ended else environment.step(action)[:4]
            for environment, ended, action in zip(self._environments, self._ended, actions, strict=True)
        ]
        observations, rewards, terminated, truncated = (np.stack(values) for values in zip(*results, strict=True))
        self._ended = terminated | truncated
        return observations, rewards, terminated, truncated, {}
