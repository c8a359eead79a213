"""Writes steps, and makes items of any choice of them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from reverb import _core, errors

if TYPE_CHECKING:
    from reverb.client import Client

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]

TrajectoryColumn = _core.TrajectoryColumn


class TrajectoryWriter(_core.TrajectoryWriter):
    """Takes steps one by one, and makes items of any choice of their values.

    Made by Client.trajectory_writer(). Every leaf of the steps is a column. Steps are kept, column by column, in
    compressed chunks that all items share; `history` has the columns, and indexing one chooses what goes into an item:

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

    Leaving a `with` block waits until all items are in their tables, also after an exception, unless that is a
    ReverbError or KeyboardInterrupt. A writer that is dropped gives items a second for that, and logs how many it had
    to discard. One thread at a time may use a writer; others wait for their turn. close() may be called from anywhere.
    """

    def __init__(
        self,
        client: Client,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        timeout: float | None = None,
    ) -> None:
        """As Client.trajectory_writer()."""
        super().__init__(client, num_keep_alive_refs, validate_items=validate_items, timeout=timeout)

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Waits until at most `block_until_num_items` items are not in their table yet.

        Args:
            block_until_num_items: how many may be left; those may wait for their data to be complete.
            timeout_ms: how long to wait; 0 looks once, None (or less than 0) waits for ever.

        Raises:
            DeadlineExceededError: after `timeout_ms`. Sending goes on.
        """
        self._flush(block_until_num_items, None if timeout_ms is not None and timeout_ms < 0 else timeout_ms)

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Waits until all items are in their tables, and begins a new episode.

        Args:
            clear_buffers: forget all steps: no item reaches back over the end. Without, `history` goes on.
            timeout_ms: how long to wait; 0 looks once, None waits for ever.

        Raises:
            DeadlineExceededError: after `timeout_ms`. The episode has ended all the same, and sending goes on.
        """
        self._end_episode(clear_buffers, timeout_ms)

    def close(self) -> int:
        """Discards the items that are not confirmed, and returns their number.

        flush() before waits for them. Calls that write raise RuntimeError afterwards; `history` can be read. May be
        called from any thread; another one that waits in flush() or end_episode() returns. Idempotent.
        """
        return self._close()

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None) -> None:
        """How one column is cut into chunks, and how much of it is kept.

        For a column that has values, it applies from now on, and needs all its steps to be in chunks: RuntimeError
        otherwise; flush() first. For others, when the column first appears.

        Args:
            path: to the leaf, such as ('observation', 0).
            num_keep_alive_refs: how many of the newest steps items may refer to.
            max_chunk_length: steps in a chunk; None: found by trial.
        """
        self._configure(path, num_keep_alive_refs, max_chunk_length)

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_closed:
            return
        # After an error of ours, or Ctrl-C, there is no point in waiting.
        if exception_type is None or not issubclass(exception_type, (errors.ReverbError, KeyboardInterrupt)):
            self.flush()
