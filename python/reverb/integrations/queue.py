"""Queues between processes and machines, with the interface of `queue.Queue`.

    from reverb.integrations.queue import Queue

    queue = Queue(maxsize=100)  # starts a server in this process
    for _ in range(4):
        multiprocessing.get_context("spawn").Process(target=work, args=(queue,)).start()
    queue.put({"tokens": tokens, "prompt": 7})
    queue.shutdown()  # get() raises ShutDown once the queue is empty

`AsyncQueue` has the interface of `asyncio.Queue`: `await queue.put(item)`, `item = await queue.get()`.

A queue is a row table of a server. Handles of it can be pickled and passed to other processes. An object is sent as its
arrays and a short description of the rest: a nest of lists, tuples, dicts, numbers, strings, bytes, NumPy arrays and
PyTorch tensors is never pickled. Other objects are, and reading a pickle executes what its sender wrote into it: use
queues with pickles among trusted processes only, or pass allow_pickle=False. docs/integrations.md has the details.
"""

from __future__ import annotations

from collections import deque
import contextlib
import importlib
import os
import queue as _queue
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from reverb.client import Client
from reverb.errors import DeadlineExceededError
from reverb.integrations import _codec
from reverb.integrations._calls import result_of, run_now
from reverb.rows import RowBatch, Rows, RowTable
from reverb.server import Server

__all__ = ["AsyncQueue", "Empty", "Full", "Queue", "ShutDown"]

Empty = _queue.Empty
Full = _queue.Full

if TYPE_CHECKING:
    from reverb.integrations._async_queue import AsyncQueue as AsyncQueue

    class ShutDown(Exception):  # noqa: N818  # the name in the standard library
        """The queue was shut down, and a get() found it empty."""

elif hasattr(_queue, "ShutDown"):
    ShutDown = _queue.ShutDown
else:

    class ShutDown(Exception):  # noqa: N818
        """The queue was shut down, and a get() found it empty."""


_CONSUMER = "get"
_HEAD = "head"
# An open row, which nobody can claim. shutdown() closes it: then it is the last row of the queue, and wakes getters.
_END = "end"
_NOT_END = f"not has({_END})"
_UNBOUNDED = 2**28 - 1


def _array_name(number: int) -> str:
    return f"a{number}"


def _seconds(block: bool, timeout: float | None) -> float | None:
    """Returns the timeout of a call in the sense of row tables."""
    if not block:
        return 0.0
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return timeout


class _Table:
    """What queues of threads and of coroutines share: the table, the format of its rows, and what a handle has seen."""

    def __init__(
        self,
        maxsize: int,
        address: str | None,
        name: str,
        maxbytes: int | None,
        redeliver: bool,
        lease: float,
        allow_pickle: bool,
        host: str,
    ) -> None:
        if maxbytes is not None and address is not None:
            raise ValueError(
                "maxbytes bounds the server that a queue starts; the one at an address has its own max_bytes"
            )
        if not lease > 0:
            raise ValueError(f"lease ({lease}) must be a number of seconds above 0")
        self.maxsize = maxsize
        self.name = name
        self.redeliver = redeliver
        self.lease = lease
        self.allow_pickle = allow_pickle
        self.server: Server | None = None
        if address is None:
            self.server = Server([self.options()], host=host or "[::]", max_bytes=maxbytes)
            address = f"{'localhost' if host == 'localhost' else socket.gethostname()}:{self.server.port}"
        self.address = address
        self.client = Client(address if self.server is None else f"localhost:{self.server.port}")
        self.rows: Rows = self.client.rows(name)
        # Of the arrays that items had so far: get() requests so many with an item.
        self.num_arrays = 4
        self.is_shut_down = False
        self.is_closed = False

    def options(self) -> RowTable:
        bound = min(self.maxsize, _UNBOUNDED) if self.maxsize > 0 else _UNBOUNDED
        # Items are ready as soon as they are put, and the end when it is closed: "ready" is the order of the queue.
        return RowTable(self.name, max_rows=bound + 1, consumers=[_CONSUMER], order="ready")

    def create(self) -> None:
        """Creates the table unless it exists. RuntimeError if it has another size."""
        self.client.create_row_table(self.options(), exist_ok=True)
        try:
            self.rows.put([_END], {_HEAD: [b""]}, tags=[{_END: True}], open=True)
        except RuntimeError as error:  # another handle has put it
            if getattr(error, "code", None) not in ("ALREADY_EXISTS", "FAILED_PRECONDITION"):
                raise

    def check_open(self) -> None:
        if self.is_closed:
            raise ValueError(f"queue {self.name!r} is closed")

    def encode(self, item: Any) -> dict[str, list[Any]]:
        head, arrays = _codec.encode(item, allow_pickle=self.allow_pickle)
        columns: dict[str, list[Any]] = {_HEAD: [bytes([len(arrays)]) + head]}
        for number, array in enumerate(arrays):
            columns[_array_name(number)] = [array]
        return columns

    def columns(self) -> list[str]:
        """Returns the names of the columns to request with an item."""
        return [_array_name(number) for number in range(self.num_arrays)]

    def lease_ended(self) -> RuntimeError:
        return RuntimeError(
            f"queue {self.name!r}: the lease of {self.lease} s ended before task_done(); the item is handed out again. "
            "Pass a longer lease"
        )

    # --- The calls, for both kinds of clients ---

    async def put(self, rows: Any, item: Any, timeout: float | None) -> None:
        """Appends an item, within the time."""
        self.check_open()
        if self.is_shut_down:
            raise ShutDown(f"queue {self.name!r} is shut down")
        columns = self.encode(item)
        key = os.urandom(12).hex()
        with self.shut_down_if_removed():
            try:
                result = await result_of(rows.put([key], columns, timeout=timeout))
            except DeadlineExceededError as error:
                raise Full(str(error)) from None
            if result.version > 0:  # shut down, maybe while this call waited
                self.is_shut_down = True
                if await result_of(rows.delete(key)) == 1:
                    raise ShutDown(f"queue {self.name!r} is shut down")

    async def claim(self, rows: Any, timeout: float | None) -> tuple[Any, Any]:
        """Returns the first item and its batch, which is leased."""
        self.check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.shut_down_if_removed():
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    # After the end of the queue, only what was put at the last moment or came back is left.
                    batch = await result_of(
                        rows.claim(
                            _CONSUMER,
                            1,
                            needs=[_HEAD],
                            select=self.columns(),
                            where=_NOT_END if self.is_shut_down else None,
                            lease=self.lease,
                            timeout=0.0 if self.is_shut_down else left,
                        )
                    )
                except DeadlineExceededError as error:
                    if self.is_shut_down:
                        raise ShutDown(f"queue {self.name!r} is shut down") from None
                    raise Empty(str(error)) from None
                if batch.keys != [_END]:
                    break
                self.is_shut_down = True
                await result_of(batch.release())
            return await self.decode(rows, batch), batch

    async def decode(self, rows: Any, batch: Any) -> Any:
        """Returns the item of a batch, and requests the arrays that did not come with it."""
        head = batch[_HEAD][0]
        source = batch
        if head[0] > 0 and _array_name(head[0] - 1) not in batch:
            self.num_arrays = max(self.num_arrays, head[0])
            source = await result_of(rows.get(batch.keys, self.columns()))
        try:
            arrays = [np.asarray(source[_array_name(number)][0]) for number in range(head[0])]
            return _codec.decode(head[1:], arrays, allow_pickle=self.allow_pickle)
        except BaseException:
            await result_of(batch.ack())
            raise

    @contextlib.contextmanager
    def shut_down_if_removed(self) -> Any:
        """Turns the error of a table that an immediate shutdown has removed into ShutDown."""
        try:
            yield
        except RuntimeError as error:
            if getattr(error, "code", None) != "NOT_FOUND":
                raise
            self.is_shut_down = True
            raise ShutDown(f"queue {self.name!r} is shut down") from None

    def arguments(self) -> tuple[Any, ...]:
        """Returns the arguments of another handle of the same queue."""
        return (self.maxsize, self.address, self.name, None, self.redeliver, self.lease, self.allow_pickle, "localhost")


class Queue:
    """A queue between processes, with the interface of `queue.Queue`.

    put() and get() wait at the server, which wakes them: nothing polls. Threads may share a handle. A handle can be
    pickled, and a child created by fork() may use those of its parent.

    The item of a getter that dies is handed out again when its lease ends, unless it counts as consumed: without
    `redeliver`, as soon as get() returns; with it, when the thread that got it calls task_done().
    """

    def __init__(
        self,
        maxsize: int = 0,
        *,
        address: str | None = None,
        name: str = "queue",
        maxbytes: int | None = None,
        redeliver: bool = False,
        lease: float = 60.0,
        allow_pickle: bool = True,
        host: str = "localhost",
    ) -> None:
        """ValueError for arguments that contradict each other, RuntimeError if the queue exists with another maxsize.

        Args:
            maxsize: put() waits while there are so many items; 0: unbounded.
            address: of a server, "host:port"; the queue is created there unless it exists. None: starts a server in
                this process, which the queue owns.
            name: of the queue, unique within the server.
            maxbytes: put() waits while the items in the server take so many bytes; for a server that the queue starts.
            redeliver: hand out an item again unless task_done() follows its get() within `lease` seconds.
            lease: seconds after which the item of a getter that died is handed out again.
            allow_pickle: send and accept objects that are not nests of arrays, as pickles. Pickles from a sender that
                is not trusted are dangerous.
            host: what a server that the queue starts listens on: "localhost", or "" for all interfaces. In the latter
                case handles refer to this machine by its name, so that they work on others.
        """
        self._open(maxsize, address, name, maxbytes, redeliver, lease, allow_pickle, host)
        self._table.create()

    def _open(self, *arguments: Any) -> None:
        self._table = _Table(*arguments)
        # The items that each thread has got and not finished, with `redeliver`; the oldest first.
        self._held: dict[int, deque[RowBatch]] = {}
        self._mutex = threading.Lock()

    def __reduce__(self) -> Any:
        self._table.check_open()
        return _unpickle, (type(self), self._table.arguments())

    # --- The interface of queue.Queue ---

    @property
    def maxsize(self) -> int:
        """The bound on the number of items; 0 or less: unbounded."""
        return self._table.maxsize

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Appends an item. Full if there is no room within `timeout` seconds, or at once unless `block`."""
        run_now(self._table.put(self._table.rows, item, _seconds(block, timeout)))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Removes and returns the first item. Empty if there is none within `timeout` seconds, at once unless `block`.

        ShutDown if the queue is shut down and empty. ValueError if the item is a pickle and `allow_pickle` is False;
        the item is consumed nevertheless, so that it does not block the queue.
        """
        table = self._table
        seconds = _seconds(block, timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            item, batch = run_now(table.claim(table.rows, left))
            if table.redeliver:
                with self._mutex:
                    self._held.setdefault(threading.get_ident(), deque()).append(batch)
                return item
            # Otherwise the lease has ended, and another getter may have the item.
            if batch.ack().settled == 1:
                return item

    def put_nowait(self, item: Any) -> None:
        """Appends an item, or raises Full."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Removes and returns the first item, or raises Empty."""
        return self.get(block=False)

    def qsize(self) -> int:
        """The number of items that nobody has got, now."""
        return _qsize(self._table, self._info())

    def empty(self) -> bool:
        """Returns whether there is no item, now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Returns whether there are `maxsize` items, now; those that getters have not finished count."""
        table = self._table
        return 0 < table.maxsize <= int(self._info()["rows"]) - 1

    def _info(self) -> dict[str, Any]:
        self._table.check_open()
        with self._table.shut_down_if_removed():
            return self._table.rows.info()

    def task_done(self) -> None:
        """With `redeliver`, marks the oldest item that this thread has got as consumed. ValueError if it has none.

        RuntimeError if the lease has ended: the item may have been handed out again.
        """
        if not self._table.redeliver:
            return
        with self._mutex:
            held = self._held.get(threading.get_ident())
            if not held:
                raise ValueError("task_done() called too many times")
            batch = held.popleft()
            if not held:
                del self._held[threading.get_ident()]
        if batch.ack().settled != 1:
            raise self._table.lease_ended()

    def shutdown(self, immediate: bool = False) -> None:
        """Ends the queue for all of its users.

        put() raises ShutDown from now on, and get() once the queue is empty. A put() that waits for room ends when
        there is some. `immediate`: drops all items, so that every call ends at once.
        """
        table = self._table
        table.check_open()
        table.is_shut_down = True
        with contextlib.suppress(ShutDown), table.shut_down_if_removed():
            if immediate:
                table.client.remove_row_table(table.name)
                return
            table.rows.set_version(1)
            table.rows.close(_END)

    # --- Further methods ---

    @property
    def address(self) -> str:
        """Where the server of the queue is, for `Queue(address=)` in other programs."""
        return self._table.address

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._table.name

    def close(self) -> None:
        """Closes this handle; others stay usable. May be called twice.

        Items that were not finished with task_done() are handed out again. If this handle started the server, it stops
        it: other processes get errors then.
        """
        table = self._table
        if table.is_closed:
            return
        table.is_closed = True
        with self._mutex:
            held, self._held = self._held, {}
        for batches in held.values():
            for batch in batches:
                with contextlib.suppress(RuntimeError, DeadlineExceededError):
                    batch.release(timeout=10)
        if table.server is not None:
            table.server.stop()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Queue({self.maxsize}, address={self.address!r}, name={self.name!r})"


def _unpickle(kind: type[Queue], arguments: tuple[Any, ...]) -> Queue:
    made = kind.__new__(kind)
    made._open(*arguments)
    return made


def _qsize(table: _Table, info: dict[str, Any]) -> int:
    # The end is open before a shutdown, and can be claimed afterwards.
    return int(info["rows"] - 1 - info["consumers"][_CONSUMER]["leased"])


def __getattr__(name: str) -> Any:
    if name == "AsyncQueue":  # imports asyncio
        return importlib.import_module("reverb.integrations._async_queue").AsyncQueue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
