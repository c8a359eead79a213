"""The client for asyncio. docs/asyncio.md describes it.

Operations on row tables and samples occupy no thread while they wait: the library's threads put what is done into a
queue, and the event loop is woken. Cancelling a task cancels the operation at the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
import concurrent.futures
import functools
import itertools
import os
from types import TracebackType
from typing import Any, Protocol
import weakref

from reverb import _core, errors, reverb_types
from reverb.client import Client as _SyncClient
from reverb.leases import LeaseOutcome
from reverb.rows import (
    _ABORT,
    _ACKNOWLEDGE,
    _CLOSE,
    _EXTEND,
    _RELEASE,
    _REQUEUE,
    HasId,
    Keys,
    PutResult,
    RowData,
    RowInfo,
    RowInfos,
    RowTable,
    TagValue,
    _as_keys,
    _claim_arguments,
    _delete_arguments,
    _put_arguments,
    info_from_native,
)

__all__ = ["Client", "Reservation", "RowBatch", "Rows"]

_Start = Callable[[_core.Completions, int], _core.StartedCall]


class _Operations:
    """The operations of one event loop that are in progress."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._native = _core.Completions()
        self._numbers = itertools.count(1)
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._calls: dict[int, _core.StartedCall] = {}
        loop.add_reader(self._native.fileno(), self._deliver)

    def _deliver(self) -> None:
        for number, result, error in self._native.take():
            future = self._futures.get(number)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    async def run(self, start: _Start) -> Any:
        """Starts an operation and waits for its result. Ends it, or gives its result back, if the task is cancelled."""
        number = next(self._numbers)
        future = self._futures[number] = asyncio.get_running_loop().create_future()
        try:
            call = self._calls[number] = start(self._native, number)
            try:
                return await future
            except BaseException:
                call.cancel()
                raise
        finally:
            del self._futures[number]
            self._calls.pop(number, None)

    async def ready(self, iterator: _Iterator) -> None:
        """Waits until the iterator has a sample or has ended."""
        while True:
            number = next(self._numbers)
            future = self._futures[number] = asyncio.get_running_loop().create_future()
            try:
                if iterator.prepare(self._native, number) is True:
                    return
                await future
            finally:
                del self._futures[number]

    def __del__(self) -> None:
        # The loop was closed with operations in progress.
        for call in self._calls.values():
            call.cancel()


# Weak: the loop owns its operations, as the reader of a descriptor. When it is closed, they are dropped together.
_operations: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Operations]] = (
    weakref.WeakKeyDictionary()
)


def _operations_of(loop: asyncio.AbstractEventLoop) -> _Operations:
    found = _operations.get(loop)
    operations = None if found is None else found()
    if operations is None:
        operations = _Operations(loop)
        _operations[loop] = weakref.ref(operations)
    return operations


def _run(start: _Start) -> Any:
    """Returns an awaitable of the operation, in the running event loop."""
    return _operations_of(asyncio.get_running_loop()).run(start)


# --- Calls that a thread waits for ---

# Calls that a server answers at once, except for inserts, which may wait for their table.
_MAX_THREADS = 8
_threads: tuple[int, concurrent.futures.ThreadPoolExecutor] | None = None


async def _offload(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Runs a call that may block, on one of a few threads."""
    global _threads  # noqa: PLW0603
    if _threads is None or _threads[0] != os.getpid():  # a child created by fork() has none of its parent's threads
        _threads = (os.getpid(), concurrent.futures.ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="reverb-aio"))
    bound = functools.partial(call, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_threads[1], bound)


class _Iterator(Protocol):
    """An iterator over samples, or over batches of them."""

    def __next__(self) -> Any: ...
    def close(self) -> None: ...
    def begin_async(self) -> bool: ...
    def prepare(self, to: _core.Completions, number: int) -> Any: ...


_END = object()


async def _iterate(iterator: _Iterator, timeout: float | None, is_leased: bool) -> AsyncIterator[Any]:
    """Passes on what an iterator returns. Closes it at the end, which cancels what waits at the server."""
    operations = _operations_of(asyncio.get_running_loop())
    take = functools.partial(next, iterator, _END)
    try:
        if not await _offload(iterator.begin_async):  # several servers
            while (sample := await _offload(take)) is not _END:
                yield sample
            return
        is_first = True
        while True:
            has_expired = False
            try:
                await asyncio.wait_for(operations.ready(iterator), timeout)
            except asyncio.TimeoutError:
                has_expired = True
            # The first one asks the server for the structure of items, a lease is acknowledged, and the reason of a
            # timeout is asked for: on another thread.
            blocks = is_first or is_leased or has_expired
            try:
                sample = await _offload(take) if blocks else take()
            except errors.DeadlineExceededError:
                if has_expired:
                    raise
                continue
            if sample is _END:
                return
            is_first = False
            yield sample
    finally:
        if is_leased:  # waits for the server
            await asyncio.shield(_offload(iterator.close))
        else:
            iterator.close()


class RowBatch(RowData):
    """Rows with data: those of a claim, which are leased until `ack` or `release`, or those that were read by key.

    In `async with`, a batch is acknowledged at the end of the block, and released if an exception ends it.
    """

    def __init__(self, rows: Rows, native: _core.RowBatch, lease: float | None) -> None:
        super().__init__(native, lease)
        self._rows = rows
        self._is_settled = False

    async def _settle(
        self,
        settlement: int,
        keys: Iterable[str],
        lease: float | None,
        timeout: float | None,
        state: bytes | None = None,
    ) -> LeaseOutcome:
        keys = list(keys)
        if settlement != _EXTEND and not keys:
            self._is_settled = True
        native = self._rows._native
        return LeaseOutcome(
            *await _run(
                lambda to, number: native.settle(to, number, self._native, settlement, keys, lease, state, timeout)
            )
        )

    async def ack(
        self, keys: Iterable[str] = (), *, state: bytes | None = None, timeout: float | None = None
    ) -> LeaseOutcome:
        """Consumes the rows with these keys, or all: the consumer does not get them again.

        `state`: becomes the state of the table together with the acknowledgement; see `reverb.RowBatch.ack`.
        """
        return await self._settle(_ACKNOWLEDGE, keys, None, timeout, state)

    async def release(self, keys: Iterable[str] = (), *, timeout: float | None = None) -> LeaseOutcome:
        """Gives the rows with these keys back, or all: the consumer can claim them again."""
        return await self._settle(_RELEASE, keys, None, timeout)

    async def extend(self, seconds: float | None = None, *, timeout: float | None = None) -> LeaseOutcome:
        """Prolongs the lease: it ends in `seconds`, or the time of the claim, from now on."""
        return await self._settle(_EXTEND, (), self._lease if seconds is None else seconds, timeout)

    async def __aenter__(self) -> RowBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_settled:
            return
        if kind is None:
            await self.ack()
        else:
            await self.release()


class Reservation:
    """Rows that may be generated: `Rows.put(reservation=)` uses them up. The end of the block gives the rest back."""

    def __init__(self, rows: Rows, ident: int, count: int, version: int) -> None:
        self._rows = rows
        self.id = ident
        self.count = count
        self.version = version  # of the table

    async def cancel(self, *, timeout: float | None = None) -> bool:
        """Gives back what is left. Returns False if there was nothing."""
        native = self._rows._native
        return bool(await _run(lambda to, number: native.cancel_reservation(to, number, self.id, timeout)))

    async def __aenter__(self) -> Reservation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    def __len__(self) -> int:
        return self.count


class Rows:
    """A row table of a server. The methods are those of `reverb.Rows`, to be awaited; tasks may share it."""

    def __init__(self, client: _core.Client, table: str) -> None:
        self._native = _core.AsyncRows(client, table)
        self._table = table

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._table

    async def put(
        self,
        keys: Sequence[str],
        columns: Mapping[str, Sequence[Any]] | None = None,
        *,
        tags: Sequence[Mapping[str, TagValue]] | None = None,
        version: int | None = None,
        groups: Sequence[str | int] | None = None,
        overwrite: bool = False,
        append: bool = False,
        open: bool = False,
        create: bool = True,
        same_length_as: str | None = None,
        reservation: HasId | None = None,
        timeout: float | None = None,
    ) -> PutResult:
        """Writes rows; see `reverb.Rows.put`. The values are copied before it waits."""
        arguments = _put_arguments(
            keys, columns, tags, version, groups, overwrite, append, open, create, same_length_as, reservation
        )
        return PutResult(*await _run(lambda to, number: self._native.put(to, number, arguments, timeout)))

    async def claim(
        self,
        consumer: str,
        count: int,
        *,
        needs: Sequence[str] = (),
        select: Sequence[str] = (),
        where: str | None = None,
        at_least: int | None = None,
        max_tokens: int | None = None,
        token_column: str = "tokens",
        whole_groups: bool | None = None,
        lease: float = 60.0,
        holder: str = "",
        ranks: int = 0,
        rank: int = 0,
        step: int | None = None,
        drop_last: bool = False,
        equal_rows: bool = True,
        split_groups: bool = False,
        timeout: float | None = None,
    ) -> RowBatch:
        """Takes rows that are ready, under a lease; see `reverb.Rows.claim`."""
        arguments = _claim_arguments(
            consumer=consumer,
            count=count,
            at_least=at_least,
            needs=needs,
            select=select,
            where=where,
            max_tokens=max_tokens,
            token_column=token_column,
            whole_groups=whole_groups,
            lease=lease,
            holder=holder,
            ranks=ranks,
            rank=rank,
            step=step,
            drop_last=drop_last,
            equal_rows=equal_rows,
            split_groups=split_groups,
        )
        native = await _run(lambda to, number: self._native.claim(to, number, arguments, timeout))
        return RowBatch(self, native, lease)

    async def batches(self, consumer: str, count: int, **arguments: Any) -> AsyncIterator[RowBatch]:
        """Claims one batch after the other, with the arguments of `claim`.

        A batch is acknowledged when the next one is asked for, unless the body has settled it. It is released if the
        iteration ends before: by an exception thrown into the iterator, by `aclose()`, or when it is dropped.

        >>> async def train(rows):
        ...     async with contextlib.aclosing(rows.batches("train", 64, needs=["tokens"])) as batches:
        ...         async for batch in batches:
        ...             ...
        """
        while True:
            async with await self.claim(consumer, count, **arguments) as batch:
                yield batch

    async def get(
        self, keys: str | Iterable[str], select: Sequence[str] = (), *, timeout: float | None = None
    ) -> RowBatch:
        """Returns the rows that exist, in the order of the keys, with the selected columns. They are not leased."""
        names, columns = _as_keys(keys), list(select)
        native = await _run(lambda to, number: self._native.get(to, number, names, columns, timeout))
        return RowBatch(self, native, None)

    async def list(self, where: str | None = None, *, limit: int = 1000, timeout: float | None = None) -> RowInfos:
        """Returns rows for which the condition is true, without their data; open ones too."""
        rows = await _run(lambda to, number: self._native.list(to, number, where or "", limit, timeout))
        return [RowInfo(*row) for row in rows]

    async def delete(
        self, keys: str | Iterable[str] | None = None, *, where: str | None = None, timeout: float | None = None
    ) -> int:
        """Deletes rows by key, or those for which the condition is true: whole groups. Returns how many."""
        names, condition = _delete_arguments(keys, where)
        return int(await _run(lambda to, number: self._native.delete(to, number, names, condition, timeout)))

    async def _end(self, keys: str | Iterable[str], ending: int, timeout: float | None) -> Keys:
        names = _as_keys(keys)
        gone: Keys = await _run(lambda to, number: self._native.end(to, number, names, ending, timeout))
        return gone

    async def close(self, keys: str | Iterable[str], *, timeout: float | None = None) -> Keys:
        """Closes open rows, which can then be handed out. Returns the keys of rows that are gone."""
        return await self._end(keys, _CLOSE, timeout)

    async def abort(self, keys: str | Iterable[str], *, timeout: float | None = None) -> Keys:
        """Drops open rows. Returns the keys of rows that were gone."""
        return await self._end(keys, _ABORT, timeout)

    async def requeue(self, keys: str | Iterable[str], *, timeout: float | None = None) -> Keys:
        """Offers open rows to the consumer "resume". Returns the keys of rows that are gone."""
        return await self._end(keys, _REQUEUE, timeout)

    async def set_version(self, version: int, *, state: bytes | None = None, timeout: float | None = None) -> None:
        """Sets the version that the trainer has reached, and the state of the table if one is given."""
        await _run(lambda to, number: self._native.set_version(to, number, version, state, timeout))

    async def set_state(self, state: bytes, *, timeout: float | None = None) -> None:
        """Keeps bytes with the table; see `reverb.Rows.set_state`."""
        await _run(lambda to, number: self._native.set_state(to, number, state, timeout))

    async def state(self, *, timeout: float | None = None) -> bytes:
        """Returns the bytes that were set last; empty if none were set."""
        return bytes(await _run(lambda to, number: self._native.state(to, number, timeout)))

    async def reserve(
        self, count: int, *, version: int | None = None, lease: float = 600.0, timeout: float | None = None
    ) -> Reservation:
        """Waits until so many rows may be generated, and reserves them for `lease` seconds."""
        ident, reached = await _run(lambda to, number: self._native.reserve(to, number, count, version, lease, timeout))
        return Reservation(self, ident, count, reached)

    async def info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Returns counters, rows by state and by consumer, and why the first write, claim and reservation wait."""
        return info_from_native(await _run(lambda to, number: self._native.info(to, number, timeout)))


class Client:
    """A client of a server for asyncio, with the arguments of `reverb.Client`, or over a client that exists.

    Tasks of any event loop may use it. It has no connection of its own besides that of the client.
    """

    def __init__(self, server_address: str | Sequence[str] | _SyncClient, **options: Any) -> None:
        """See `reverb.Client`. ValueError if options are given for a client that exists."""
        if isinstance(server_address, _SyncClient):
            if options:
                raise ValueError(f"a client that exists has its options: {sorted(options)} cannot be given")
            self._client = server_address
        else:
            self._client = _SyncClient(server_address, **options)

    @property
    def client(self) -> _SyncClient:
        """The client that blocks, over the same connections: for writers, which do not wait unless they must."""
        return self._client

    def __repr__(self) -> str:
        return f"reverb.aio.Client({self._client!r})"

    def rows(self, table: str) -> Rows:
        """Returns a row table of the server, which need not exist yet."""
        return Rows(self._client, table)

    async def create_row_table(self, table: RowTable, *, exist_ok: bool = False, timeout: float | None = None) -> None:
        """Creates a row table; see `reverb.Client.create_row_table`."""
        await _offload(self._client.create_row_table, table, exist_ok=exist_ok, timeout=timeout)

    async def remove_row_table(self, name: str, *, timeout: float | None = None) -> None:
        """Removes a row table."""
        await _offload(self._client.remove_row_table, name, timeout=timeout)

    # --- Tables of items ---

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        exact: bool = False,
        timeout: float | None = None,
        names: bool = False,
        all_or_nothing: bool = False,
        lease: float | None = None,
    ) -> AsyncIterator[Any]:
        """Returns an asynchronous iterator over samples; see `reverb.Client.sample`.

        Cancelling the task that waits for it, or `aclose()`, ends the request at the server.
        """
        iterator = self._client.sample(
            table,
            num_samples,
            emit_timesteps=emit_timesteps,
            unpack_as_table_signature=unpack_as_table_signature,
            exact=exact,
            timeout=timeout,
            names=names,
            all_or_nothing=all_or_nothing,
            lease=lease,
        )
        return _iterate(iterator, timeout, lease is not None)

    def sample_batches(
        self,
        table: str,
        batch_size: int,
        *,
        num_batches: int | None = None,
        timeout: float | None = None,
        exact: bool = False,
        num_streams: int = 1,
        prefetch: int = 2,
        pad: bool = False,
        all_or_nothing: bool = False,
        lease: float | None = None,
    ) -> AsyncIterator[Any]:
        """Returns an asynchronous iterator over batches; see `reverb.Client.sample_batches`, and `sample`."""
        iterator = _core.BatchIterator[Any](
            self._client,
            table,
            batch_size,
            num_batches,
            timeout,
            exact,
            num_streams,
            prefetch,
            pad,
            all_or_nothing,
            lease,
        )
        return _iterate(iterator, timeout, lease is not None)

    async def insert(self, data: Any, priorities: Mapping[str, float], *, timeout: float | None = None) -> None:
        """Inserts an item of one step; see `reverb.Client.insert`. One that waits for its table occupies a thread."""
        await _offload(self._client.insert, data, priorities, timeout=timeout)

    async def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Changes priorities and deletes items, by key; see `reverb.Client.mutate_priorities`."""
        await _offload(self._client.mutate_priorities, table, updates, deletes, timeout=timeout)

    async def update_priorities(
        self, table: str, keys: Iterable[int], priorities: Iterable[float], *, timeout: float | None = None
    ) -> None:
        """Changes priorities of items; see `reverb.Client.update_priorities`."""
        await _offload(self._client.update_priorities, table, keys, priorities, timeout=timeout)

    async def server_info(self, timeout: float | None = None) -> reverb_types.ServerInfo:
        """Returns the tables of the server, by name; see `reverb.Client.server_info`."""
        info: reverb_types.ServerInfo = await _offload(self._client.server_info, timeout)
        return info

    async def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Removes all items of a table."""
        await _offload(self._client.reset, table, timeout=timeout)

    async def checkpoint(self, *, timeout: float | None = None) -> str:
        """Writes a checkpoint, and returns its path; see `reverb.Client.checkpoint`."""
        return str(await _offload(self._client.checkpoint, timeout=timeout))
