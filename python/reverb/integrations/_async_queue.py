"""The queue of reverb.integrations.queue for coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from reverb import aio
from reverb.integrations._calls import result_of
from reverb.integrations.queue import Queue

__all__ = ["AsyncQueue"]


class AsyncQueue:
    """A queue between processes, with the interface of `asyncio.Queue`.

    `await put()` and `await get()` wait at the server, without a thread for each of them; cancelling a task ends its
    wait. The other methods are calls to the server that do not wait, and block the event loop for their duration, well
    below a millisecond on one host. Tasks may share a handle. It can be pickled, and shares items with each `Queue` of
    the same address and name. Arguments, the end of a queue and what happens to the items of a getter that dies are
    those of `Queue`.
    """

    def __init__(self, maxsize: int = 0, **options: Any) -> None:
        """The arguments are those of `Queue`."""
        self._open(Queue(maxsize, **options))

    def _open(self, queue: Queue) -> None:
        self._queue = queue
        self._table = queue._table
        self._rows: Any = None
        # Items whose get() was cancelled while they were acknowledged: the next get() returns them.
        self._left: deque[Any] = deque()
        # The items that each task has got and not finished, with `redeliver`; the oldest first.
        self._held: dict[Any, deque[Any]] = {}

    def __reduce__(self) -> Any:
        return _unpickle, (self._queue,)

    def _asynchronous(self) -> Any:
        if self._rows is None:
            self._rows = aio.Client(self._table.client).rows(self._table.name)
        return self._rows

    @property
    def maxsize(self) -> int:
        """The bound on the number of items; 0 or less: unbounded."""
        return self._queue.maxsize

    @property
    def address(self) -> str:
        """Where the server of the queue is, for `AsyncQueue(address=)` and `Queue(address=)` in other programs."""
        return self._queue.address

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._queue.name

    async def put(self, item: Any) -> None:
        """Appends an item. Waits while the queue is full. ShutDown if the queue is shut down."""
        await self._table.put(self._asynchronous(), item, None)

    async def get(self) -> Any:
        """Removes and returns the first item. Waits while the queue is empty. ShutDown if it is shut down and empty."""
        while True:
            if self._left:
                return self._left.popleft()
            item, batch = await self._table.claim(self._asynchronous(), None)
            if self._table.redeliver:
                self._held.setdefault(asyncio.current_task(), deque()).append(batch)
                return item
            acknowledged = asyncio.ensure_future(result_of(batch.ack()))
            try:
                outcome = await asyncio.shield(acknowledged)
            except asyncio.CancelledError:
                acknowledged.add_done_callback(partial(self._keep, item))
                raise
            # Otherwise the lease has ended, and another getter may have the item.
            if outcome.settled == 1:
                return item

    def _keep(self, item: Any, acknowledged: asyncio.Future[Any]) -> None:
        if not acknowledged.cancelled() and acknowledged.exception() is None and acknowledged.result().settled == 1:
            self._left.append(item)

    async def task_done(self) -> None:
        """With `redeliver`, marks the oldest item that this task has got as consumed. ValueError if it has none.

        RuntimeError if the lease has ended: the item may have been handed out again. Unlike that of `asyncio.Queue`, it
        is a coroutine.
        """
        if not self._table.redeliver:
            return
        task = asyncio.current_task()
        held = self._held.get(task)
        if not held:
            raise ValueError("task_done() called too many times")
        batch = held.popleft()
        if not held:
            del self._held[task]
        if (await result_of(batch.ack())).settled != 1:
            raise self._table.lease_ended()

    def put_nowait(self, item: Any) -> None:
        """Appends an item, or raises Full."""
        self._queue.put_nowait(item)

    def get_nowait(self) -> Any:
        """Removes and returns the first item, or raises Empty. With `redeliver`, use get()."""
        if self._table.redeliver:
            raise RuntimeError("get_nowait() cannot be combined with redeliver; use asyncio.wait_for(queue.get(), ...)")
        return self._left.popleft() if self._left else self._queue.get_nowait()

    def qsize(self) -> int:
        """The number of items that nobody has got, now."""
        return self._queue.qsize() + len(self._left)

    def empty(self) -> bool:
        """Returns whether there is no item, now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Returns whether there are `maxsize` items, now; those that getters have not finished count."""
        return self._queue.full()

    def shutdown(self, immediate: bool = False) -> None:
        """Ends the queue for all of its users; see `Queue.shutdown`."""
        self._queue.shutdown(immediate)

    def close(self) -> None:
        """Closes this handle; see `Queue.close`. Items that a cancelled get() had taken are appended again."""
        left, self._left = self._left, deque()
        if not self._table.is_closed and not self._table.is_shut_down:
            for item in left:
                self._queue.put(item, timeout=10)
        self._held.clear()
        self._queue.close()

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AsyncQueue({self.maxsize}, address={self.address!r}, name={self.name!r})"


def _unpickle(queue: Queue) -> AsyncQueue:
    made = AsyncQueue.__new__(AsyncQueue)
    made._open(queue)
    return made
