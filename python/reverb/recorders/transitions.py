"""Recorders of transitions: one item for each step, with n-step returns and stacks of frames."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reverb import _tree
from reverb.recorders import _items
from reverb.recorders._environments import Step
from reverb.recorders._items import DEFAULT_TIMEOUT, Index, Priority, Selection, Settings, Tables
from reverb.recorders._layout import Layout, factor, frames_of, positive
from reverb.recorders._recorder import SingleRecorder, VectorRecorder
from reverb.recorders._rows import Mask

if TYPE_CHECKING:
    from reverb.client import Client

__all__ = ["TransitionRecorder", "VectorTransitionRecorder"]

Numbers = npt.NDArray[np.float64]


def _scaled(factors: Numbers, values: Numbers) -> Numbers:
    """Returns values [N, ...] times factors [N]."""
    return factors * values if values.ndim == 1 else factors.reshape(-1, *[1] * (values.ndim - 1)) * values


class TransitionLayout(Layout):
    """One item for each step k: observation k, action k, the return of up to n steps, and the observation after them.

    The return of step k is known in row k + n, and is stored there. Those of the last n - 1 steps of an episode are in
    additional rows after its end. In terms of the newest row, which is -1, a transition of m steps whose return is in
    the newest row, q rows after the last observation, has its observation in row -(m + q) - 1, its action in row
    -(m + q), and its next observation in row -q - 1. m + q is always n.
    """

    def __init__(self, n_step: int, discount: float, frame_stack: int | Mapping[str, int]) -> None:
        self._n_step = positive("n_step", n_step)
        self._discount = factor("discount", discount)
        self._frames = frames_of(frame_stack)
        self._max_frames = max(frame_stack.values()) if isinstance(frame_stack, Mapping) else int(frame_stack)
        self.num_keep_alive_refs = self._n_step + self._max_frames
        self.steps_per_item = 1
        # Of the newest n steps, the newest last.
        self._rewards: collections.deque[Numbers] = collections.deque(maxlen=self._n_step)
        self._discounts: collections.deque[Numbers] = collections.deque(maxlen=self._n_step)
        self._new: Step | None = None
        self._last: Step | None = None
        # Returns and discounts of the newest 1, 2, ..., n steps.
        self._new_returns: list[tuple[Numbers, Numbers]] = []
        self._returns: list[tuple[Numbers, Numbers]] = []
        self._stacked_keys = set(frame_stack) if isinstance(frame_stack, Mapping) else set()

    def check_observation(self, observation: Any) -> None:
        if self._stacked_keys and not (isinstance(observation, Mapping) and self._stacked_keys <= observation.keys()):
            has = f"the keys {sorted(observation)}" if isinstance(observation, Mapping) else "no keys"
            raise ValueError(f"frame_stack has the keys {sorted(self._stacked_keys)}, but the observation has {has}")

    def make_row(self, step: Step, mask: Mask | None) -> dict[str, Any]:
        value, discount = step.reward, self._discount * step.discount
        # Sums that reach beyond the start of an episode are not used.
        returns = [(value, discount)]
        for i in range(len(self._rewards) - 1, max(len(self._rewards) - self._n_step, -1), -1):
            value = self._rewards[i] + _scaled(self._discounts[i], value)
            discount = self._discounts[i] * discount
            returns.append((value, discount))
        self._new, self._new_returns = step, returns
        return {
            "observation": step.observation,
            "action": step.action,
            "reward": value.astype(np.float32),
            "discount": discount.astype(np.float32),
            "terminated": step.terminated,
            "truncated": step.truncated,
        }

    def commit(self) -> None:
        assert self._new is not None
        self._last, self._returns = self._new, self._new_returns
        reward, discount = self._returns[0]
        self._rewards.append(reward)
        self._discounts.append(discount)

    def create_items(self, mask: Mask | None) -> None:
        self._create(self._n_step, mask)

    def create_last_items(self, mask: Mask, *, complete: bool) -> None:
        assert self._last is not None
        last = self._last
        for steps in range(self._n_step - 1, 0, -1):
            if steps > len(self._returns):
                value, discount = self._returns[-1]  # no environment has taken so many steps
            else:
                value, discount = self._returns[steps - 1]
            self.append_padding(
                last.observation,
                mask,
                reward=value.astype(np.float32),
                discount=discount.astype(np.float32),
                terminated=last.terminated,
                truncated=last.truncated,
            )
            self._create(steps, mask)

    def _create(self, steps: int, mask: Mask | None) -> None:
        # Early transitions differ from each other in how often their stacks repeat the first frame.
        def create(group: int, chosen: Mask | None) -> None:
            self.writer.create((steps, group), lambda: self._selection(steps, group), chosen)

        if len(self.lengths) == 1:  # not necessary, but fast
            first = int(self.lengths[0]) - steps
            if first >= 0:
                create(min(first, self._max_frames - 1), None)
        else:
            self.for_each_group(np.minimum(self.lengths - steps, self._max_frames - 1), mask, create)

    def _selection(self, steps: int, first: int) -> Selection:
        n = self._n_step

        def stack(age: int, available: int) -> Any:
            """Frames up to the one `age` rows before the newest row; the episode has `available` frames before it."""

            def rows(path: _tree.Path) -> Index:
                frames = self._frames(path)
                if frames == 1:
                    return -age - 1
                return _items.contiguous([-age - 1 - min(i, available) for i in range(frames - 1, -1, -1)])

            return rows

        selection = self.fields(
            observation=stack(n, first), action=-n, reward=-1, discount=-1, terminated=-1, truncated=-1
        )
        selection["next_observation"] = ("observation", stack(n - steps, first + steps))
        return selection


class TransitionRecorder(SingleRecorder):
    """Stores one transition for each step of an environment.

    >>> import reverb
    >>> server = reverb.Server([reverb.Table.queue("replay", 100)])
    >>> client = server.localhost_client()
    >>> with reverb.recorders.TransitionRecorder(client, "replay", n_step=2, discount=0.5) as recorder:
    ...     recorder.reset(0)  # what environment.reset() returns
    ...     recorder.step("left", 1, 1.0, False, False)  # an action, and what environment.step(action) returns
    ...     recorder.step("left", 2, 1.0, False, False)
    ...     recorder.step("right", 3, 8.0, True, False)
    >>> for batch in client.sample_batches("replay", 3, num_batches=1):
    ...     for name in ("observation", "reward", "discount", "next_observation", "terminated"):
    ...         print(name, batch.data[name])
    observation [0 1 2]
    reward [1.5 5.  8. ]
    discount [0.25 0.   0.  ]
    next_observation [2 3 3]
    terminated [False  True  True]
    >>> server.stop()

    An item is a dict of:

    - observation, action: of a step k.
    - reward: the discounted sum of the rewards of n_step steps from k on; of fewer at the end of an episode. float32.
    - discount: what to multiply the value of next_observation with: discount ** n_step (with fewer steps at the end of
      an episode), 0 after termination, but not after truncation. float32. The target of a value is
      reward + discount * value(next_observation).
    - next_observation: the observation after these steps.
    - terminated, truncated: whether the episode ended there.
    - extras: if step() was given any, those of step k.
    """

    def __init__(
        self,
        client: Client,
        table: Tables,
        *,
        n_step: int = 1,
        discount: float = 0.99,
        frame_stack: int | Mapping[str, int] = 1,
        priority: Priority = 1.0,
        validate_items: bool = True,
        max_in_flight_items: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Creates a recorder.

        Args:
            client: of the server.
            table: where the items go; or a dict with the priority for each of several tables.
            n_step: how many rewards are summed up.
            discount: of one step (gamma). An environment's own discount (dm_env) is multiplied with it.
            frame_stack: how many observations form a stack, oldest first. Near the start of an episode, the first one
                is repeated. Frames are stored once, not once for each stack. A dict specifies this for some keys of
                observations that are dicts; others are not stacked.
            priority: a number, or a function of the item: a dict of NumPy arrays.
            validate_items: check every item against the signature of its table when it is created.
            max_in_flight_items: how many items may be on their way to each table before step() waits. None: as many as
                can share a chunk, and those of 16 further steps.
            timeout: seconds to wait for the server: here, for the signatures of its tables; in step(), for a table that
                accepts no items; at the end of a `with` block, for all items. None: no limit.
        """
        layout = TransitionLayout(n_step, discount, frame_stack)
        super().__init__(client, layout, table, priority, Settings(validate_items, max_in_flight_items, timeout))


class VectorTransitionRecorder(VectorRecorder):
    """Stores one transition for each step of each environment of a vector environment.

    Items are those of TransitionRecorder.
    """

    def __init__(
        self,
        client: Client,
        table: Tables,
        *,
        env: Any = None,
        num_envs: int | None = None,
        autoreset: Any = None,
        n_step: int = 1,
        discount: float = 0.99,
        frame_stack: int | Mapping[str, int] = 1,
        priority: Priority = 1.0,
        validate_items: bool = True,
        max_in_flight_items: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Creates a recorder.

        Args:
            client: as for TransitionRecorder, like all arguments that are not listed here.
            table: as for TransitionRecorder.
            env: the vector environment, of which only `num_envs` and `metadata["autoreset_mode"]` are read.
            num_envs: the number of environments, if `env` is not given.
            autoreset: "next_step", "same_step" or "disabled": when environments are reset after the end of an episode,
                if `env` does not say so.
            n_step: as for TransitionRecorder.
            discount: as for TransitionRecorder.
            frame_stack: as for TransitionRecorder.
            priority: as for TransitionRecorder.
            validate_items: as for TransitionRecorder.
            max_in_flight_items: of each environment.
            timeout: as for TransitionRecorder.
        """
        layout = TransitionLayout(n_step, discount, frame_stack)
        settings = Settings(validate_items, max_in_flight_items, timeout)
        super().__init__(client, layout, table, priority, env, num_envs, autoreset, settings)
