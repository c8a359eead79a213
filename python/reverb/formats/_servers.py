"""Tables of servers: reading their items and inserting others, with one client for one server or for several."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import itertools
import math
from typing import Any

from reverb import _core, _tree
from reverb import client as client_module
from reverb.formats import _tables
from reverb.formats._tables import Item, Layout, Table

_PAGE = 256  # items that are requested from a server at a time


def split(client: Any) -> list[Any]:
    """Returns a client of each server that the client uses, with the same options."""
    addresses = list(dict.fromkeys(address.strip() for address in client.server_address.split(",")))
    if addresses[0].startswith(("dns:", "file:")) or client._made_with["servers_may_change"]:
        addresses = [address for address, _, _ in client._server_reports(None)]
    elif len(addresses) == 1:
        return [client]
    options = {**client._made_with, "servers_may_change": False}
    return [client_module.Client(address, **options) for address in addresses]


def open_table(client: Any, table: str | None) -> Table:
    """Returns a table, with the items of all servers of the client. ValueError if one of them does not have it."""
    clients = split(client)
    name, found = table, []
    for each in clients:
        infos = {info["name"]: info for info in each._server_info(None)["tables"]}
        name = _tables.choose(name, infos, each.server_address)
        found.append(infos[name])
    assert name is not None
    for each, info in zip(clients, found, strict=True):
        if info["signature"] != found[0]["signature"]:
            raise ValueError(
                f"table {name!r} has another signature on {each.server_address} than on {clients[0].server_address}; "
                "export each server on its own"
            )
    # A server without items knows no structure. Structures that differ have no names in common: a flat list.
    structures = {info["structure"] for info in found if info["current_size"] > 0 or len(found) == 1}
    structure = structures.pop() if len(structures) == 1 else None
    items = itertools.chain.from_iterable(_items(each, name) for each in clients)
    return Table(name, sum(info["current_size"] for info in found), structure, found[0]["signature"], items)


def _items(client: Any, table: str) -> Iterator[Item]:
    cursor = 0
    while True:
        page, cursor = _core._inspect(client, table, cursor, _PAGE, None)
        yield from itertools.starmap(Item, page)
        if cursor == 0:
            return


def insert(client: Any, table: str, layout: Layout, items: Iterator[Item]) -> int:
    """Inserts items, each with rows of its own; several servers get one in turn. Returns the number of items."""
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(contextlib.closing(_ItemWriter(each, table, layout))) for each in split(client)]
        count = 0
        for item, writer in zip(items, itertools.cycle(writers), strict=False):
            writer.write(item, count)
            count += 1
    return count


class _ItemWriter:
    """Writes items to one server."""

    def __init__(self, client: Any, table: str, layout: Layout) -> None:
        self._client, self._table, self._nest = client, table, layout.nest()
        self._names = [f"c{i:05d}" for i in range(len(layout.columns))]
        self._writer: Any = None
        self._capacity = 0

    def write(self, item: Item, number: int) -> None:
        """Inserts an item. `number` is its position in the import, for errors."""
        lengths = [1 if squeezed else len(array) for array, squeezed in zip(item.columns, item.squeezed, strict=True)]
        steps = max(lengths)
        if min(lengths) == 0:
            raise ValueError(f"item {number} has a column without rows, which a table cannot hold")
        if math.isnan(item.priority):
            raise ValueError(f"item {number} has the priority nan; give it a number")
        if steps > self._capacity:
            self.close()
            self._capacity = 1 << (steps - 1).bit_length()
            self._writer = self._client.trajectory_writer(num_keep_alive_refs=self._capacity)
        # All columns end with the last step; shorter ones begin later.
        for step in range(steps):
            row = {}
            for name, array, squeezed, length in zip(self._names, item.columns, item.squeezed, lengths, strict=True):
                at = step - (steps - length)
                if at >= 0:
                    row[name] = array if squeezed else array[at]
            self._writer.append(row)
        history = self._writer.history
        columns = [
            history[name][-1] if squeezed else history[name][-length:]
            for name, squeezed, length in zip(self._names, item.squeezed, lengths, strict=True)
        ]
        trajectory = columns if self._nest is None else _tree.unflatten_as(self._nest, columns)
        self._writer.create_item(self._table, item.priority, trajectory)
        self._writer.end_episode()

    def close(self) -> None:
        """Sends what is left."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
