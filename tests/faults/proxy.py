"""A TCP proxy on loopback that disturbs connections on request: it cuts, delays, black-holes, throttles and flips bits.

    with Proxy(server_port) as proxy:
        client = reverb.Client(proxy.address, in_process=False, local=False)
        proxy.set(delay=0.05)
        proxy.cut()

Faults apply to both directions unless a method says otherwise. The proxy runs in a thread of its own; its methods may
be called from any thread and return when the change is in effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
import contextlib
import dataclasses
import random
import socket
import struct
import threading
from typing import Any

TO_SERVER = "to server"
TO_CLIENT = "to client"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclasses.dataclass(frozen=True)
class Flip:
    """A bit to flip in one direction of one connection: `offset` counts the bytes of that direction from 0."""

    direction: str
    offset: int
    bit: int = 0


@dataclasses.dataclass
class _Plan:
    """What happens to one connection, in addition to the faults of all."""

    flips: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)  # (direction, offset): the mask
    cut_after: dict[str, int] = dataclasses.field(default_factory=dict)  # direction: bytes


@dataclasses.dataclass
class _Faults:
    delay: float = 0.0
    bytes_per_second: float | None = None
    flip_probability: float = 0.0
    is_black_hole: bool = False
    refuses: bool = False


class _Cut(Exception):
    """Ends a connection because its plan says so."""


class Proxy:
    """Forwards connections to a port of this machine. Close it, or use it in a `with` block."""

    def __init__(self, server_port: int, *, seed: int = 1) -> None:
        self._server_port = server_port
        self._rng = random.Random(seed)
        self._faults = _Faults()
        self._plans: list[_Plan] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0  # accepted so far
        self.flipped = 0  # bits, so far
        self.forwarded = {TO_SERVER: 0, TO_CLIENT: 0}  # bytes, so far
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")
        self._thread.start()
        self._listener = self._run(self._listen())
        self.port: int = self._listener.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    # --- Faults ---

    def set(
        self,
        *,
        delay: float = 0.0,
        bytes_per_second: float | None = None,
        flip_probability: float = 0.0,
        black_hole: bool = False,
        refuse: bool = False,
    ) -> None:
        """Replaces the faults of all connections, present and future.

        Args:
            delay: seconds that pass before bytes are forwarded.
            bytes_per_second: the rate of each direction of each connection; None: unlimited.
            flip_probability: that a byte has one of its bits flipped.
            black_hole: nothing is forwarded, and connections stay open. What was held back is forwarded afterwards.
            refuse: new connections are closed at once.
        """
        faults = _Faults(delay, bytes_per_second, flip_probability, black_hole, refuse)
        self._call(lambda: setattr(self, "_faults", faults))

    def heal(self) -> None:
        """Ends all faults of set()."""
        self.set()

    def cut(self, *, reset: bool = False) -> int:
        """Closes all connections, with a TCP reset if `reset`, and returns their number."""

        def cut() -> int:
            for end in list(self._open):
                self._close(end, reset=reset)
            count = len(self._open) // 2
            self._open.clear()
            return count

        return self._call(cut)

    def plan_connection(self, *, flips: Iterable[Flip] = (), cut_after: dict[str, int] | None = None) -> None:
        """Plans the next connection that has no plan yet.

        Args:
            flips: bits of it to flip.
            cut_after: by direction, the number of bytes that are forwarded before both ends are closed.
        """
        plan = _Plan(cut_after=dict(cut_after or {}))
        for flip in flips:
            place = (flip.direction, flip.offset)
            plan.flips[place] = plan.flips.get(place, 0) ^ (1 << flip.bit)
        self._call(lambda: self._plans.append(plan))

    def retarget(self, server_port: int) -> None:
        """Forwards new connections to another port."""
        self._call(lambda: setattr(self, "_server_port", server_port))

    # --- Life ---

    def close(self) -> None:
        """Closes the listener and all connections. Idempotent."""
        if self._loop.is_closed():
            return
        self.cut()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- In the thread ---

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _call(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return function()

        return self._run(call())

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close(self, end: asyncio.StreamWriter, *, reset: bool = False) -> None:
        if reset:
            with contextlib.suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        end.transport.abort()  # drops what is buffered

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = {client}
        try:
            if self._faults.refuses:
                return
            plan = self._plans.pop(0) if self._plans else _Plan()
            self._open.add(client)
            await self._pass_gate()
            from_server, server = await asyncio.open_connection("127.0.0.1", self._server_port)
            ends.add(server)
            if client not in self._open:  # cut meanwhile
                return
            self._open.add(server)
            pumps = [
                asyncio.ensure_future(self._pump(reader, server, TO_SERVER, plan)),
                asyncio.ensure_future(self._pump(from_server, client, TO_CLIENT, plan)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, or the proxy is being closed
        finally:
            self._open -= ends
            for end in ends:
                self._close(end)
            self._tasks.discard(task)

    async def _pass_gate(self) -> None:
        while self._faults.is_black_hole:
            await asyncio.sleep(0.005)  # polls the state of the proxy

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str, plan: _Plan
    ) -> None:
        """Forwards one direction of one connection until one of its ends is closed."""
        offset = 0
        try:
            while data := await reader.read(1 << 16):
                await self._pass_gate()
                faults = self._faults
                if faults.delay:
                    await asyncio.sleep(faults.delay)  # the fault
                data = self._flip(data, offset, direction, plan)
                limit = plan.cut_after.get(direction)
                if limit is not None and offset + len(data) > limit:
                    data = data[: max(0, limit - offset)]
                offset += len(data)
                self.forwarded[direction] += len(data)
                await self._forward(writer, data, faults.bytes_per_second)
                if limit is not None and offset >= limit:
                    raise _Cut
        except (OSError, _Cut):
            pass  # ends the connection

    async def _forward(self, writer: asyncio.StreamWriter, data: bytes, rate: float | None) -> None:
        if rate is None:
            writer.write(data)
            await writer.drain()
            return
        step = max(1, int(rate / 20))
        for start in range(0, len(data), step):
            part = data[start : start + step]
            await self._pass_gate()
            writer.write(part)
            await writer.drain()
            current = self._faults.bytes_per_second  # lifted in the middle of a message
            if current is not None:
                await asyncio.sleep(len(part) / current)  # the fault

    def _flip(self, data: bytes, offset: int, direction: str, plan: _Plan) -> bytes:
        masks = {place - offset: mask for (way, place), mask in plan.flips.items() if way == direction}
        changes = {place: mask for place, mask in masks.items() if 0 <= place < len(data)}
        probability = self._faults.flip_probability
        if probability:
            place = self._gap(probability)
            while place < len(data):
                changes[place] = changes.get(place, 0) ^ (1 << self._rng.randrange(8))
                place += 1 + self._gap(probability)
        if not changes:
            return data
        changed = bytearray(data)
        for place, mask in changes.items():
            changed[place] ^= mask
            self.flipped += mask.bit_count()
        return bytes(changed)

    def _gap(self, probability: float) -> int:
        """Returns the number of bytes up to the next flip."""
        return int(self._rng.expovariate(probability))
