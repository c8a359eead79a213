"""The two sides of row_tables.py behind one interface: a row table, and a Ray actor that holds a dict.

The Ray side is what its users write: an asyncio actor with a condition variable that claims wait for, rows in a dict,
and for each consumer the keys that it has not got, in order. Data of a call from 100 kB on goes through the object
store once, and the actor holds a reference with the number of the row; smaller data travels in the call and the
reply, as Ray itself does it. Readers fetch all references of a batch at once, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import os
import pathlib
import subprocess
import sys
from typing import Any

CONSUMERS = ("stage", "train")
GROUP = 8
BOUND = 1024  # rows of the bounded table
SHORT_ROWS = 50_000

# A table for each purpose: its rows at most, and the rows of a group.
TABLES = {"large": (1_000_000, GROUP), "single": (1_000_000, 0), "bounded": (BOUND, GROUP), "short": (1_000_000, GROUP)}

Columns = dict[str, list[Any]]


def resident_bytes(pid: int) -> int:
    """Private and shared memory of a process that is present."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/smaps_rollup has no Rss")


# --- A row table ---


class ReverbServer:
    """A server in a process of its own."""

    name = "reverb"

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).resolve()), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        self.address = self._child.stdout.readline().strip()
        self.pid = self._child.pid

    def daemons(self) -> list[int]:
        return []

    def fresh(self) -> ReverbServer:
        return ReverbServer()

    def close(self) -> None:
        self._child.communicate()  # the end of its input ends it


class ReverbRows:
    """A client's side of one table."""

    def __init__(self, address: str, table: str) -> None:
        import reverb

        self._rows = reverb.Client(address).rows(table)
        self._groups = TABLES[table][1] > 0

    def put(self, keys: list[str], columns: Columns, tags: list[dict[str, Any]]) -> None:
        self._rows.put(keys, columns, tags=tags, groups=[key[:-1] for key in keys] if self._groups else None)

    def add(self, keys: list[str], columns: Columns) -> None:
        self._rows.put(keys, columns, create=False)

    def claim(self, consumer: str, count: int, needs: Sequence[str]) -> tuple[list[str], dict[str, Any], Any]:
        """Returns keys, columns and tags; waits for so many rows. They are consumed."""
        batch = self._rows.claim(consumer, count, needs=needs)
        columns = {name: batch[name] for name in needs}
        batch.ack()
        return batch.keys, columns, batch.tags

    def clear(self) -> None:
        self._rows.delete(where="true")


def serve() -> None:
    import reverb

    server = reverb.Server(
        [
            reverb.RowTable(name, max_rows=most, group_size=group, consumers=list(CONSUMERS))
            for name, (most, group) in TABLES.items()
        ]
    )
    print(f"localhost:{server.port}", flush=True)
    sys.stdin.read()
    server.stop()


# --- A Ray actor ---

NAMESPACE = "row_tables"
MIN_STORED_BYTES = 100_000  # Ray's own threshold


def _make_actor() -> Any:
    import ray

    @ray.remote(num_cpus=0, max_concurrency=1000)
    class RowActor:
        """Rows in a dict, and a condition variable."""

        def __init__(self, max_rows: int) -> None:
            import asyncio

            self._max_rows = max_rows
            self._changed = asyncio.Condition()
            self._rows: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # tags, columns
            self._open: dict[str, dict[str, None]] = {name: {} for name in CONSUMERS}  # keys that it has not got

        def pid(self) -> int:
            import os

            return os.getpid()

        async def put(self, keys: list[str], columns: Any, tags: list[dict[str, Any]]) -> None:
            async with self._changed:
                if len(self._rows) + len(keys) > self._max_rows:
                    await self._changed.wait_for(lambda: len(self._rows) + len(keys) <= self._max_rows)
                for index, key in enumerate(keys):
                    self._rows[key] = (tags[index], self._values(columns, index))
                    for waiting in self._open.values():
                        waiting[key] = None
                self._changed.notify_all()

        async def add(self, keys: list[str], columns: Any) -> None:
            async with self._changed:
                for index, key in enumerate(keys):
                    if key in self._rows:
                        self._rows[key][1].update(self._values(columns, index))
                self._changed.notify_all()

        async def claim(self, consumer: str, count: int, needs: Sequence[str]) -> Any:
            async with self._changed:
                while True:
                    keys = self._find(consumer, count, needs)
                    if len(keys) == count:
                        break
                    await self._changed.wait()
                rows = []
                others = [waiting for name, waiting in self._open.items() if name != consumer]
                for key in keys:
                    tags, columns = self._rows[key]
                    rows.append((tags, [columns[name] for name in needs]))
                    del self._open[consumer][key]
                    if not any(key in waiting for waiting in others):
                        del self._rows[key]
                self._changed.notify_all()
                return keys, rows

        async def clear(self) -> None:
            self._rows.clear()
            for waiting in self._open.values():
                waiting.clear()

        @staticmethod
        def _values(columns: Any, index: int) -> dict[str, Any]:
            names, values = columns
            if isinstance(values, dict):
                return {name: values[name][index] for name in names}
            return dict.fromkeys(names, (values, index))  # a reference

        def _find(self, consumer: str, count: int, needs: Sequence[str]) -> list[str]:
            found: list[str] = []
            for key in self._open[consumer]:
                columns = self._rows[key][1]
                if all(name in columns for name in needs):
                    found.append(key)
                    if len(found) == count:
                        break
            return found

    return RowActor


class RayServer:
    """A cluster on this host with an actor for each table."""

    name = "ray"

    def __init__(self) -> None:
        import ray

        ray.init(
            num_cpus=8,
            include_dashboard=False,
            object_store_memory=3 << 30,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level="error",
        )
        self.address = ray.get_runtime_context().gcs_address
        kind = _make_actor()
        self._actors = {name: kind.options(name=name).remote(most) for name, (most, _) in TABLES.items()}
        self._kind = kind
        self.pid = ray.get(self._actors["short"].pid.remote())

    def daemons(self) -> list[int]:
        """Ray's own processes, which this one has started: the store, the scheduler and those of the actors."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, rest = path.read_text().rsplit(")", 1)
                if int(rest.split()[1]) == os.getpid() and ("raylet" in name or "gcs_server" in name):
                    found.append(int(path.parent.name))
        return found

    def fresh(self) -> RayServer:
        """The same cluster, with a new actor for short rows."""
        import ray

        ray.kill(self._actors["short"])
        most, _ = TABLES["short"]
        self._actors["short"] = self._kind.options(name="short").remote(most)
        self.pid = ray.get(self._actors["short"].pid.remote())
        return self

    def close(self) -> None:
        import ray

        ray.shutdown()


class RayRows:
    """A client's side of one actor."""

    def __init__(self, address: str, table: str) -> None:
        import ray

        if not ray.is_initialized():
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
        self._ray = ray
        self._actor = ray.get_actor(table)

    def _pack(self, columns: Columns) -> Any:
        size = sum(value.nbytes for values in columns.values() for value in values)
        return list(columns), self._ray.put(columns) if size >= MIN_STORED_BYTES else columns

    def put(self, keys: list[str], columns: Columns, tags: list[dict[str, Any]]) -> None:
        self._ray.get(self._actor.put.remote(keys, self._pack(columns), tags))

    def add(self, keys: list[str], columns: Columns) -> None:
        self._ray.get(self._actor.add.remote(keys, self._pack(columns)))

    def claim(self, consumer: str, count: int, needs: Sequence[str]) -> tuple[list[str], dict[str, Any], Any]:
        keys, rows = self._ray.get(self._actor.claim.remote(consumer, count, list(needs)))
        references = {value[0]: None for _, values in rows for value in values if isinstance(value, tuple)}
        stored = dict(zip(references, self._ray.get(list(references)), strict=True)) if references else {}
        columns = {
            name: [
                stored[values[i][0]][name][values[i][1]] if isinstance(values[i], tuple) else values[i]
                for _, values in rows
            ]
            for i, name in enumerate(needs)
        }
        return keys, columns, [tags for tags, _ in rows]

    def clear(self) -> None:
        self._ray.get(self._actor.clear.remote())


SERVERS = {"reverb": ReverbServer, "ray": RayServer}
ROWS = {"reverb": ReverbRows, "ray": RayRows}

if __name__ == "__main__":
    serve()
