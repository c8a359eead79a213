"""How episodes become rows of a writer: the part that all kinds of items share.

Row 0 of an episode has its first observation. Row t + 1 has action t and what followed it: the reward, the flags and
the next observation. So an item finds observation t in row t, and everything else about step t in row t + 1.

Small columns share chunks as long as every row has values for all of them. So rows without a step have values too:
zeros, which serve as padding. The first row of all is held back until a step shows what the other columns look like.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from reverb import _tree
from reverb.recorders import _rows
from reverb.recorders._environments import Step
from reverb.recorders._items import ItemWriter
from reverb.recorders._rows import Mask


def positive(name: str, value: Any, minimum: int = 1) -> int:
    """Returns the integer; an error that names it if it is less than `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def factor(name: str, value: Any) -> float:
    """Returns the number; an error that names it if it is not in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0.0 <= float(value) <= 1.0:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return float(value)


class Layout(abc.ABC):
    """Writes episodes of all environments as rows, and creates items of them."""

    # How many of the newest rows items refer to.
    num_keep_alive_refs: int
    # How many steps are usually between one item of an environment and the next.
    steps_per_item: int

    def bind(self, writer: ItemWriter) -> None:
        """Sets the writer. Called once, before anything else."""
        self.writer = writer
        self.lengths: npt.NDArray[np.int64] = np.zeros(writer.num_envs, np.int64)  # steps of the episodes so far
        self._padding: dict[str, Any] | None = None  # unknown before the first step
        self._has_extras = False
        self._keys: dict[str, Any] = {}  # those of the dicts in each argument of the first step
        # First observations before the first step.
        self._held: tuple[Any, Mask] | None = None

    def start(self, observation: Any, mask: Mask | None) -> None:
        """Starts episodes. REQUIRES: the previous ones of these environments have ended."""
        self.check_observation(observation)
        if self._padding is not None:
            self._check_keys("observation", observation)
            self.writer.append({"observation": observation, **self._padding}, mask)
        elif self._held is None or mask is None:
            held = np.ones(self.writer.num_envs, np.bool_) if mask is None else mask.copy()
            self._held = _rows.copy_of(observation), held
        else:
            old, held = self._held
            self._held = _rows.merged(old, observation, mask), held | mask
        if mask is None:
            self.lengths[:] = 0
        else:
            self.lengths[mask] = 0

    def step(self, step: Step, mask: Mask | None) -> None:
        """Adds a step to each environment of the mask, and creates the items that it completes."""
        row = self.make_row(step, mask)
        if step.extras is not None:
            row["extras"] = step.extras
        if self._padding is None:
            self._check_structure(step.observation)
            self._append_held({name: value for name, value in row.items() if name != "observation"})
            self._has_extras = step.extras is not None
            self._keys = {name: _keys_of(getattr(step, name)) for name in ("observation", "action", "extras")}
        else:
            self._check_extras(step.extras)
            self._check_keys("observation", step.observation)
            self._check_keys("action", step.action)
        self.writer.append(row, mask)
        if mask is None:
            self.lengths += 1
        else:
            self.lengths[mask] += 1
        self.commit()
        self.create_items(mask)

    def finish(self, mask: Mask, *, complete: bool) -> None:
        """Ends the episodes of the mask and creates their remaining items.

        `complete` is False for episodes that the environment has not ended.
        """
        try:
            with_steps = mask & (self.lengths > 0)
            if with_steps.any():
                self.create_last_items(with_steps, complete=complete)
        finally:
            self.lengths[mask] = 0
            if self._padding is not None:
                self.writer.end_episode(mask)

    def check_observation(self, observation: Any) -> None:  # noqa: B027 (optional)
        """Raises ValueError for a first observation that does not have the expected structure."""

    @abc.abstractmethod
    def make_row(self, step: Step, mask: Mask | None) -> dict[str, Any]:
        """Returns the columns of a row, without extras. Writing it may fail, so it changes no state."""

    def commit(self) -> None:  # noqa: B027 (optional)
        """Called after the row of the last make_row() was written."""

    @abc.abstractmethod
    def create_items(self, mask: Mask | None) -> None:
        """Creates the items that the newest step completes."""

    @abc.abstractmethod
    def create_last_items(self, mask: Mask, *, complete: bool) -> None:
        """Creates the items that the ends of episodes complete. All of them have at least one step."""

    def fields(self, **columns: Any) -> dict[str, Any]:
        """Returns a selection of fields that are the columns of the same names, and `extras` if there are any."""
        if self._has_extras:
            columns["extras"] = columns["action"]
        return {name: (name, index) for name, index in columns.items()}

    def append_padding(self, observation: Any, mask: Mask, **values: Any) -> None:
        """Adds a row without a step: zeros except for `values`, which have the environments as first dimension."""
        assert self._padding is not None
        self.writer.append({"observation": _rows.small_leaves(observation), **self._padding, **values}, mask)

    def for_each_group(
        self, keys: npt.NDArray[np.int64], mask: Mask | None, create: Callable[[int, Mask | None], None]
    ) -> None:
        """Calls create(key, mask) for each distinct key of the environments in the mask; keys below 0 are left out."""
        if len(keys) == 1:
            if keys[0] >= 0 and (mask is None or mask[0]):
                create(int(keys[0]), None)
            return
        chosen = keys if mask is None else np.where(mask, keys, -1)
        first = int(chosen[0])
        if (chosen == first).all():
            if first >= 0:
                create(first, None)
            return
        for key in np.unique(chosen):
            if key >= 0:
                create(int(key), chosen == key)

    def _append_held(self, columns: dict[str, Any]) -> None:
        assert self._held is not None
        observation, mask = self._held
        padding = {name: _rows.zeros_like(value) for name, value in columns.items()}
        self.writer.append({"observation": observation, **padding}, mask)
        self._padding = padding
        self._held = None

    def _check_structure(self, observation: Any) -> None:
        """Compares the first observation of all with the second one; the writer compares the others."""
        assert self._held is not None
        try:
            _tree.assert_same_structure(self._held[0], observation, check_types=False)
        except ValueError:
            before, now = ([path for path, _ in _tree.flatten_with_path(nest)] for nest in (self._held[0], observation))
            raise ValueError(
                f"the observation of reset() has another structure than that of step(): values at {before}, now at "
                f"{now}; reset() takes observation and info as two arguments, as in recorder.reset(*env.reset())"
            ) from None

    def _check_extras(self, extras: Any) -> None:
        if (extras is not None) != self._has_extras:
            raise ValueError(
                "the first step had extras, this one has none; pass the same ones in every step"
                if self._has_extras
                else "the first step had no extras, this one has; pass the same ones in every step"
            )
        self._check_keys("extras", extras)

    def _check_keys(self, name: str, value: Any) -> None:
        """Finds missing keys at once; the writer would find them when an item refers to them."""
        keys = _keys_of(value)
        if keys != self._keys[name]:
            raise ValueError(
                f"{name} has the keys {_text_of(keys)}, in the first step it had {_text_of(self._keys[name])}; pass "
                "the same ones in every step"
            )


def _keys_of(value: Any) -> Any:
    """Returns the nested keys of a dict that may contain dicts; None for other values."""
    return {key: _keys_of(child) for key, child in value.items()} if isinstance(value, dict) else None


def _text_of(keys: Any) -> str:
    if keys is None:
        return "no keys"
    parts = (repr(key) if child is None else f"{key!r}: {_text_of(child)}" for key, child in keys.items())
    return f"[{', '.join(sorted(parts))}]"


def frames_of(frame_stack: Any) -> Callable[[_tree.Path], int]:
    """Returns a function from the path of a leaf of the observation to the number of its frames in an item."""
    if isinstance(frame_stack, Mapping):
        depths = {key: positive(f"frame_stack[{key!r}]", value) for key, value in frame_stack.items()}
        if not depths:
            raise ValueError("frame_stack is an empty dict; give the number of frames for at least one key")

        def by_key(path: _tree.Path) -> int:
            return depths.get(path[0], 1) if path else 1

        return by_key
    depth = positive("frame_stack", frame_stack)
    return lambda path: depth
