"""Recorders of sequences of fixed length, as recurrent agents use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from reverb.recorders import _items
from reverb.recorders._environments import Step
from reverb.recorders._items import DEFAULT_TIMEOUT, Priority, Selection, Settings, Tables
from reverb.recorders._layout import Layout, factor, positive
from reverb.recorders._recorder import SingleRecorder, VectorRecorder
from reverb.recorders._rows import Mask

if TYPE_CHECKING:
    from reverb.client import Client

__all__ = ["SequenceRecorder", "VectorSequenceRecorder"]

PadEnd: TypeAlias = bool | Literal["drop"]


class StepLayout(Layout):
    """Rows for items that have a time dimension."""

    def __init__(self, discount: float) -> None:
        self._discount = factor("discount", discount)
        self.last_observation: Any = None
        self._new_observation: Any = None

    def make_row(self, step: Step, mask: Mask | None) -> dict[str, Any]:
        self._new_observation = step.observation
        return {
            "observation": step.observation,
            "action": step.action,
            "reward": step.reward.astype(np.float32),
            "discount": (self._discount * step.discount).astype(np.float32),
            "terminated": step.terminated,
            "truncated": step.truncated,
            "is_first": self.lengths == 0,
            "mask": np.ones(len(self.lengths), np.bool_),
        }

    def commit(self) -> None:
        self.last_observation = self._new_observation

    def selection(self, observations: Any, steps: Any) -> Selection:
        """Returns a selection of these rows."""
        return self.fields(
            observation=observations,
            action=steps,
            reward=steps,
            discount=steps,
            terminated=steps,
            truncated=steps,
            is_first=steps,
            mask=steps,
        )


class SequenceLayout(StepLayout):
    """Items of `burn_in` + `length` steps. The last `length` steps start at steps 0, `period`, 2 * `period`, ...

    Padding before the episode refers to its row 0, padding after its end to an additional row.
    """

    def __init__(self, length: int, period: int | None, burn_in: int, pad_end: PadEnd, discount: float) -> None:
        super().__init__(discount)
        self._length = positive("length", length)
        self._period = self._length if period is None else positive("period", period)
        self._burn_in = positive("burn_in", burn_in, minimum=0)
        if pad_end not in (True, False, "drop"):
            raise ValueError(f'pad_end must be True, False or "drop", got {pad_end!r}')
        self._pad_end = pad_end
        self.num_keep_alive_refs = self._burn_in + self._length + 2
        self.steps_per_item = self._period

    def create_items(self, mask: Mask | None) -> None:
        start = self.lengths - self._length
        is_complete = (start >= 0) & (start % self._period == 0)
        if is_complete.any():
            self._create(
                start, np.full_like(start, self._length), is_complete if mask is None else is_complete & mask, 0
            )

    def create_last_items(self, mask: Mask, *, complete: bool) -> None:
        if self._pad_end == "drop":
            return
        # The first one that does not fit in, unless complete ones have all steps already.
        start = np.maximum(-(-(self.lengths - self._length + 1) // self._period), 0) * self._period
        is_new = (start == 0) | (self.lengths > start - self._period + self._length)
        mask = mask & is_new & (start < self.lengths)
        if not mask.any():
            return
        if self._pad_end:
            self.append_padding(self.last_observation, mask)
        self._create(start, self.lengths - start, mask, 1 if self._pad_end else 0)

    def _create(self, start: Any, steps: Any, mask: Mask, padding_rows: int) -> None:
        """Creates items of the `steps` steps from `start` on. `padding_rows` are between the last step and the end."""
        # Those near the start of an episode differ from each other in their burn-in part.
        context = np.minimum(start, self._burn_in)
        self.for_each_group(
            context * (self._length + 1) + steps,
            mask,
            lambda group, chosen: self.writer.create(
                (group, padding_rows),
                lambda: self._rows(*divmod(group, self._length + 1), padding_rows),
                chosen,
            ),
        )

    def _rows(self, start: int, steps: int, padding_rows: int) -> Selection:
        """`start` is that of the item, or any that is not less than the burn-in."""
        end = start + steps  # the number of steps, and the row of the last observation
        newest = end + padding_rows
        last = start + self._length if padding_rows else end
        # Steps before the episode are in row 0, those after its end in the newest row.
        rows = [min(max(step + 1, 0), newest) for step in range(start - self._burn_in, last)]
        observations = [min(max(step, 0), end) for step in range(start - self._burn_in, last + 1)]
        return self.selection(
            _items.contiguous([row - newest - 1 for row in observations]),
            _items.contiguous([row - newest - 1 for row in rows]),
        )


class SequenceRecorder(SingleRecorder):
    """Stores sequences of steps of an environment, for recurrent agents and world models.

    >>> import reverb
    >>> server = reverb.Server([reverb.Table.queue("replay", 100)])
    >>> client = server.localhost_client()
    >>> with reverb.recorders.SequenceRecorder(client, "replay", length=3) as recorder:
    ...     recorder.reset(0)  # what environment.reset() returns
    ...     for step in range(1, 5):  # an action, and what environment.step(action) returns
    ...         recorder.step(-step, step, 1.0, step == 4, False)
    >>> for batch in client.sample_batches("replay", 2, num_batches=1):
    ...     for name in ("observation", "action", "mask"):
    ...         print(name, batch.data[name].tolist())
    observation [[0, 1, 2, 3], [3, 4, 4, 4]]
    action [[-1, -2, -3], [-4, 0, 0]]
    mask [[True, True, True], [True, False, False]]
    >>> server.stop()

    An item is a dict of arrays with time as first dimension. It has burn_in + length steps and one more observation:

    - observation: action[i] was taken at observation[i] and led to reward[i] and observation[i + 1]. So the last
      observation of an episode is stored, and there is one to bootstrap from after every sequence.
    - action, reward (float32).
    - discount: 0 after termination, otherwise `discount` times that of the environment. float32.
    - terminated, truncated: whether the episode ended with this step.
    - is_first: whether the step is the first of its episode: where a recurrent state must be reset.
    - mask: False for padding. Padding repeats the nearest observation; all other values are zero.
    - extras: if step() was given any.

    Sequences never cross the end of an episode.
    """

    def __init__(
        self,
        client: Client,
        table: Tables,
        *,
        length: int,
        period: int | None = None,
        burn_in: int = 0,
        pad_end: PadEnd = True,
        discount: float = 1.0,
        priority: Priority = 1.0,
        validate_items: bool = True,
        max_in_flight_items: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Creates a recorder.

        Args:
            client: of the server.
            table: where the items go; or a dict with the priority for each of several tables.
            length: the number of steps, without the burn-in.
            period: sequences start at steps 0, period, 2 * period, ... of an episode; None: `length`. Shorter periods
                make sequences overlap, longer ones leave steps out.
            burn_in: how many steps before those are included, to warm up a recurrent state. At the start of an episode
                they are padding, so that every step is trained on.
            pad_end: what becomes of the last steps of an episode, if they do not fill a sequence: True: it is padded;
                False: it is shorter; "drop": it is left out. With overlapping sequences, at most one of each episode
                is affected: the first that reaches the end.
            discount: of one step (gamma), if the stored discount is to contain it.
            priority: a number, or a function of the item: a dict of NumPy arrays.
            validate_items: check every item against the signature of its table when it is created.
            max_in_flight_items: how many items may be on their way to each table before step() waits. None: as many as
                can share a chunk, and those of 16 further steps.
            timeout: seconds to wait for the server: here, for the signatures of its tables; in step(), for a table that
                accepts no items; at the end of a `with` block, for all items. None: no limit.
        """
        layout = SequenceLayout(length, period, burn_in, pad_end, discount)
        super().__init__(client, layout, table, priority, Settings(validate_items, max_in_flight_items, timeout))


class VectorSequenceRecorder(VectorRecorder):
    """Stores sequences of steps of each environment of a vector environment.

    Items are those of SequenceRecorder.
    """

    def __init__(
        self,
        client: Client,
        table: Tables,
        *,
        length: int,
        env: Any = None,
        num_envs: int | None = None,
        autoreset: Any = None,
        period: int | None = None,
        burn_in: int = 0,
        pad_end: PadEnd = True,
        discount: float = 1.0,
        priority: Priority = 1.0,
        validate_items: bool = True,
        max_in_flight_items: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Creates a recorder.

        `env`, `num_envs` and `autoreset` are those of VectorTransitionRecorder, the others those of SequenceRecorder.
        """
        layout = SequenceLayout(length, period, burn_in, pad_end, discount)
        settings = Settings(validate_items, max_in_flight_items, timeout)
        super().__init__(client, layout, table, priority, env, num_envs, autoreset, settings)
