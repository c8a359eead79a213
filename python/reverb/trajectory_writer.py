"""Writes steps, and creates items from any of their values."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from reverb import _core, errors

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    from reverb.client import Client

    _History = TypeVar("_History", default=Any)
else:
    _History = Any

__all__ = ["ColumnHistory", "TrajectoryColumn", "TrajectoryWriter"]

ColumnHistory = _core.ColumnHistory
TrajectoryColumn = _core.TrajectoryColumn


class TrajectoryWriter(_core.TrajectoryWriter[_History]):
    """Takes steps one by one, and creates items from any of their values.

    Created by Client.trajectory_writer(). Every leaf of the steps is a column. Steps are stored, column by column, in
    compressed chunks that all items share; `history` has the columns, and indexing one selects values for an item:

    >>> import reverb
    >>> server = reverb.Server([reverb.Table.queue("queue", 100)])
    >>> with server.localhost_client().trajectory_writer(num_keep_alive_refs=3) as writer:
    ...     for step in range(5):
    ...         writer.append({"observation": step, "reward": 0.5 * step})
    ...         if writer.episode_steps >= 3:
    ...             writer.create_item(
    ...                 table="queue",
    ...                 priority=1.0,
    ...                 trajectory={
    ...                     "observations": writer.history["observation"][-3:],
    ...                     "reward": writer.history["reward"][-1],
    ...                 },
    ...             )
    ...     writer.end_episode()
    >>> for sample in server.localhost_client().sample("queue", 3, emit_timesteps=False):
    ...     print(sample.data)
    [array([0, 1, 2]), array(1.)]
    [array([1, 2, 3]), array(1.5)]
    [array([2, 3, 4]), array(2.)]
    >>> server.stop()

    Leaving a `with` block waits until all items are in their tables, also after an exception, except for ReverbError
    and KeyboardInterrupt. A writer that is dropped waits at most a second for that, and logs how many items it
    discarded. Calls from several threads are serialized. close() may be called from any thread.
    """

    def __init__(
        self,
        client: Client,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Takes the arguments of Client.trajectory_writer()."""
        super().__init__(client, num_keep_alive_refs, validate_items=validate_items, timeout=timeout)

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Waits until at most `block_until_num_items` items are not in their table yet.

        Args:
            block_until_num_items: how many items may be left, for example because their data is not complete.
            timeout_ms: how long to wait; 0 checks once, None (or a negative number) waits forever.

        Raises:
            DeadlineExceededError: after `timeout_ms`. Sending continues.
        """
        self._flush(block_until_num_items, None if timeout_ms is not None and timeout_ms < 0 else timeout_ms)

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Waits until all items are in their tables, and starts a new episode.

        Args:
            clear_buffers: discard all steps: later items cannot refer to them. False keeps `history`.
            timeout_ms: how long to wait; 0 checks once, None waits forever.

        Raises:
            DeadlineExceededError: after `timeout_ms`. The episode has ended nevertheless, and sending continues.
        """
        self._end_episode(clear_buffers, timeout_ms)

    def close(self) -> int:
        """Discards unconfirmed items, and returns their number; call flush() first to wait for them.

        Later calls that write raise RuntimeError; `history` can still be read. May be called from any thread; flush()
        and end_episode() in other threads return. Idempotent.
        """
        return self._close()

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None) -> None:
        """Sets the chunk length of one column, and how many of its steps are kept.

        For a column with values, all its steps must be in chunks (RuntimeError otherwise; call flush() first). For
        other columns, it applies once they appear.

        Args:
            path: to the leaf, such as ('observation', 0).
            num_keep_alive_refs: how many of the newest steps items may refer to.
            max_chunk_length: steps in a chunk; None: tuned automatically.
        """
        self._configure(path, num_keep_alive_refs, max_chunk_length)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_closed:
            return
        # After an error of reverb or Ctrl-C, waiting would be pointless.
        if exception_type is None or not issubclass(exception_type, (errors.ReverbError, KeyboardInterrupt)):
            self.flush()
