"""Recorders of whole episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reverb.recorders._items import DEFAULT_TIMEOUT, Priority, Settings, Tables
from reverb.recorders._recorder import SingleRecorder, VectorRecorder
from reverb.recorders._rows import Mask
from reverb.recorders.sequences import StepLayout

if TYPE_CHECKING:
    from reverb.client import Client

__all__ = ["EpisodeRecorder", "VectorEpisodeRecorder"]

# Items refer to all rows of an episode, however long it is.
_ALL_ROWS = 2**31


class EpisodeLayout(StepLayout):
    """One item for each episode that the environment has ended."""

    num_keep_alive_refs = _ALL_ROWS
    steps_per_item = _ALL_ROWS

    def create_items(self, mask: Mask | None) -> None:
        pass

    def create_last_items(self, mask: Mask, *, complete: bool) -> None:
        if complete:
            self.writer.create("episode", lambda: self.selection(slice(None), slice(1, None)), mask)


class EpisodeRecorder(SingleRecorder):
    """Stores each episode of an environment as one item, when it has ended.

    >>> import reverb
    >>> server = reverb.Server([reverb.Table.queue("episodes", 100)])
    >>> client = server.localhost_client()
    >>> with reverb.recorders.EpisodeRecorder(client, "episodes") as recorder:
    ...     for length in (2, 4):
    ...         recorder.reset(0)  # what environment.reset() returns
    ...         for step in range(1, length + 1):  # an action, and what environment.step(action) returns
    ...             recorder.step(-step, step, 1.0, step == length, False)
    >>> for batch in client.sample_batches("episodes", 2, num_batches=1, pad=True):
    ...     for name in ("observation", "action", "mask"):
    ...         print(name, batch.data[name].tolist())
    observation [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]
    action [[-1, -2, 0, 0], [-1, -2, -3, -4]]
    mask [[True, True, False, False], [True, True, True, True]]
    >>> server.stop()

    An item has the fields of SequenceRecorder: all steps, and one more observation. Episodes differ in length, so
    batches need pad=True. Episodes that the environment has not ended are not stored.

    An episode stays in the memory of this process until it ends: compressed, and if priority= is a function, also as
    plain arrays. Then it is sent as one item, which must not be larger than the server accepts (1 GiB by default). If
    the environment does not limit the length of its episodes, let gymnasium.make(..., max_episode_steps=1000) do it, or
    use a SequenceRecorder.
    """

    def __init__(
        self,
        client: Client,
        table: Tables,
        *,
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
            discount: of one step (gamma), if the stored discount is to contain it.
            priority: a number, or a function of the item: a dict of NumPy arrays.
            validate_items: check every item against the signature of its table when it is created.
            max_in_flight_items: how many items may be on their way to each table before step() waits. None: 2.
            timeout: seconds to wait for the server: here, for the signatures of its tables; in step(), for a table that
                accepts no items; at the end of a `with` block, for all items. None: no limit.
        """
        layout = EpisodeLayout(discount)
        super().__init__(client, layout, table, priority, Settings(validate_items, max_in_flight_items, timeout))


class VectorEpisodeRecorder(VectorRecorder):
    """Stores each episode of each environment of a vector environment as one item, when it has ended.

    Items are those of EpisodeRecorder.
    """

    def __init__(
        self,
        client: Client,
        table: Tables,
        *,
        env: Any = None,
        num_envs: int | None = None,
        autoreset: Any = None,
        discount: float = 1.0,
        priority: Priority = 1.0,
        validate_items: bool = True,
        max_in_flight_items: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Creates a recorder.

        `env`, `num_envs` and `autoreset` are those of VectorTransitionRecorder, the others those of EpisodeRecorder.
        """
        layout = EpisodeLayout(discount)
        settings = Settings(validate_items, max_in_flight_items, timeout)
        super().__init__(client, layout, table, priority, env, num_envs, autoreset, settings)
