"""Samples under keys, as verl's recipes store them: `kv_batch_put`, `kv_batch_get`, `kv_list` and `kv_clear`.

    from reverb.integrations import kv

    kv.init("head-node:8000")  # or the environment variable REVERB_KV_ADDRESS
    kv.kv_batch_put(keys=["7_0", "7_1"], partition_id="train", fields=tensordict, tags=[{"step": 3}, {"step": 3}])
    data = kv.kv_batch_get(keys=["7_0", "7_1"], partition_id="train", select_fields=["input_ids"])
    kv.kv_list("train")  # {"train": {"7_0": {"step": 3}, "7_1": {"step": 3}}}
    kv.kv_clear(keys=["7_0", "7_1"], partition_id="train")

A partition is a row table, which the first put creates. `KVStore` has the same methods for one server. Strings and
values of JSON are stored as such; other objects are pickled, so accept them from trusted processes only, or create the
store with allow_pickle=False. docs/integrations.md describes the details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import importlib
import importlib.util
import os
import threading
from typing import Any

from reverb.client import Client
from reverb.integrations import _fields
from reverb.integrations._calls import result_of, run_now
from reverb.rows import RowTable
from reverb.server import Server

__all__ = [
    "KVBatchMeta",
    "KVStore",
    "async_kv_batch_get",
    "async_kv_batch_put",
    "async_kv_clear",
    "async_kv_list",
    "close",
    "init",
    "kv_batch_get",
    "kv_batch_put",
    "kv_clear",
    "kv_list",
]

_MAX_ROWS = 2**28
# A row for each partition.
_PARTITIONS = "kv.partitions"
_ADDRESS_VARIABLE = "REVERB_KV_ADDRESS"


@dataclasses.dataclass
class KVBatchMeta:
    """What a put has written."""

    keys: list[str] = dataclasses.field(default_factory=list)
    tags: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    partition_id: str | None = None
    fields: list[str] | None = None
    extra_info: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


def _table(name: str) -> RowTable:
    return RowTable(name, max_rows=_MAX_ROWS, drop_consumed=False)


def _as_list(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _is_missing(error: RuntimeError) -> bool:
    return getattr(error, "code", None) == "NOT_FOUND"


class KVStore:
    """Samples under keys in partitions of a server. Threads may share it; it can be pickled."""

    def __init__(self, address: str | None = None, *, allow_pickle: bool = True) -> None:
        """Does not connect yet.

        Args:
            address: of a server, "host:port". None: starts one in this process, which close() stops; see `address`.
            allow_pickle: read objects that are pickled; False: ValueError.
        """
        self._server = Server([_table(_PARTITIONS)]) if address is None else None
        self.address: str = f"localhost:{self._server.port}" if self._server is not None else str(address)
        self._allow_pickle = allow_pickle
        self._client: Client | None = Client(self.address)

    def __reduce__(self) -> Any:
        return _unpickle, (self.address, self._allow_pickle)

    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("the store is closed")
        return self._client

    def kv_batch_put(
        self,
        keys: Sequence[str],
        partition_id: str,
        fields: Any = None,
        tags: Sequence[Mapping[str, Any]] | None = None,
    ) -> KVBatchMeta:
        """Writes fields and tags of samples; see the function of this name."""
        client = self._connected()
        return run_now(_put(client, client, keys, partition_id, fields, tags))

    def kv_batch_get(
        self, keys: str | Sequence[str], partition_id: str, select_fields: str | Sequence[str] | None = None
    ) -> Any:
        """Returns fields of samples; see the function of this name."""
        return run_now(_get(self._connected(), keys, partition_id, select_fields, self._allow_pickle))

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """Returns the tags of all samples by partition and key; see the function of this name."""
        return run_now(_list(self._connected(), partition_id))

    def kv_clear(self, keys: str | Sequence[str], partition_id: str) -> None:
        """Deletes samples; see the function of this name."""
        run_now(_clear(self._connected(), keys, partition_id))

    async def async_kv_batch_put(
        self,
        keys: Sequence[str],
        partition_id: str,
        fields: Any = None,
        tags: Sequence[Mapping[str, Any]] | None = None,
    ) -> KVBatchMeta:
        """As kv_batch_put(), without blocking the event loop while it waits."""
        return await _put(self._connected(), self._asynchronous(), keys, partition_id, fields, tags)

    async def async_kv_batch_get(
        self, keys: str | Sequence[str], partition_id: str, select_fields: str | Sequence[str] | None = None
    ) -> Any:
        """As kv_batch_get(), without blocking the event loop while it waits."""
        return await _get(self._asynchronous(), keys, partition_id, select_fields, self._allow_pickle)

    async def async_kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """As kv_list(), without blocking the event loop while it waits."""
        return await _list(self._asynchronous(), partition_id)

    async def async_kv_clear(self, keys: str | Sequence[str], partition_id: str) -> None:
        """As kv_clear(), without blocking the event loop while it waits."""
        await _clear(self._asynchronous(), keys, partition_id)

    def _asynchronous(self) -> Any:
        return importlib.import_module("reverb.aio").Client(self._connected())

    def close(self) -> None:
        """Ends the use of this store. The server goes on, unless this store has started it. May be called twice."""
        self._client = None
        server, self._server = self._server, None
        if server is not None:
            server.stop()


def _unpickle(address: str, allow_pickle: bool) -> KVStore:
    return KVStore(address, allow_pickle=allow_pickle)


# --- The calls, for both kinds of clients ---


async def _put(
    creator: Client,
    client: Any,
    keys: Sequence[str],
    partition_id: str,
    fields: Any,
    tags: Sequence[Mapping[str, Any]] | None,
) -> KVBatchMeta:
    names = _as_list(keys)
    if fields is None and tags is None:
        raise ValueError("kv_batch_put() needs fields or tags")
    if tags is not None and len(tags) != len(names):
        raise ValueError(f"tags has {len(tags)} elements for {len(names)} keys")
    columns = {} if fields is None else _fields.to_columns(fields, len(names), objects=True)
    copies = None if tags is None else [dict(each) for each in tags]
    rows = client.rows(partition_id)
    try:
        result = await result_of(rows.put(names, columns, tags=copies, overwrite=True))
    except RuntimeError as error:
        if not _is_missing(error):
            raise
        for name in (_PARTITIONS, partition_id):
            creator.create_row_table(_table(name), exist_ok=True)  # once for each partition
        await result_of(client.rows(_PARTITIONS).put([partition_id], {}))
        result = await result_of(rows.put(names, columns, tags=copies, overwrite=True))
    if result.aborted:
        raise RuntimeError(
            f"partition {partition_id!r} refused {len(result.aborted)} of {len(names)} samples: it was created with "
            "groups or versions, which kv_batch_put() does not name; use reverb.Rows"
        )
    return KVBatchMeta(names, [{} for _ in names] if copies is None else copies, partition_id, list(columns) or None)


async def _get(
    client: Any,
    keys: str | Sequence[str],
    partition_id: str,
    select_fields: str | Sequence[str] | None,
    allow_pickle: bool,
) -> Any:
    names = _as_list(keys)
    rows = client.rows(partition_id)
    try:
        if select_fields is None:
            # Those of the first sample.
            found = await result_of(rows.list(_condition(names[0]), limit=1)) if names else []
            fields = found[0].columns if found else []
        else:
            fields = _as_list(select_fields)
        batch = await result_of(rows.get(names, fields))
        await _fields.check_complete(rows, partition_id, names, batch, fields)
    except RuntimeError as error:
        if not _is_missing(error):
            raise
        raise KeyError(f'there is no partition "{partition_id}"; kv_batch_put() creates partitions') from None
    if importlib.util.find_spec("tensordict") is None:
        return _fields.to_dict(batch, fields, allow_pickle=allow_pickle)
    return _fields.to_tensordict(batch, fields, allow_pickle=allow_pickle)


async def _list(client: Any, partition_id: str | None) -> dict[str, dict[str, dict[str, Any]]]:
    try:
        if partition_id is not None:
            names = [partition_id]
        else:
            names = [row.key for row in await result_of(client.rows(_PARTITIONS).list(limit=_MAX_ROWS))]
        return {
            name: {row.key: row.tags for row in await result_of(client.rows(name).list(limit=_MAX_ROWS))}
            for name in names
        }
    except RuntimeError as error:
        if not _is_missing(error):
            raise
        return {}


async def _clear(client: Any, keys: str | Sequence[str], partition_id: str) -> None:
    names = _as_list(keys)
    try:
        if names:
            await result_of(client.rows(partition_id).delete(names))
    except RuntimeError as error:
        if not _is_missing(error):
            raise


def _condition(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"key == '{escaped}'"


# --- The functions use one store of the process ---

_mutex = threading.Lock()
_default: KVStore | None = None


def init(address: str | None = None, *, allow_pickle: bool = True) -> str:
    """Sets the server of this process, and returns its address, which other processes pass to this function.

    Args:
        address: "host:port". None: that of the environment variable REVERB_KV_ADDRESS, or else a server that is started
            in this process.
        allow_pickle: read objects that are pickled; False: ValueError.
    """
    global _default
    made = KVStore(address or os.environ.get(_ADDRESS_VARIABLE) or None, allow_pickle=allow_pickle)
    with _mutex:
        before, _default = _default, made
    if before is not None:
        before.close()
    return made.address


def close() -> None:
    """Ends the use of the server. The server goes on, unless init() has started it. May be called twice."""
    global _default
    with _mutex:
        before, _default = _default, None
    if before is not None:
        before.close()


def _store() -> KVStore:
    global _default
    with _mutex:
        if _default is None:
            address = os.environ.get(_ADDRESS_VARIABLE)
            if not address:
                raise RuntimeError(f"call init() first, or set the environment variable {_ADDRESS_VARIABLE}")
            _default = KVStore(address)
        return _default


def kv_batch_put(
    keys: Sequence[str],
    partition_id: str,
    fields: Any = None,
    tags: Sequence[Mapping[str, Any]] | None = None,
) -> KVBatchMeta:
    """Writes fields and tags of samples, new ones or such that exist. All of a call is visible at once for each sample.

    ValueError without fields and tags, or if their number differs from that of the keys.

    Args:
        keys: of the samples.
        partition_id: created if it does not exist.
        fields: a TensorDict, or a dict of tensors, arrays and lists, with a value for each key. Fields that a sample
            has are replaced.
        tags: for each sample: numbers, truth values and strings. Those that a sample has are replaced.
    """
    return _store().kv_batch_put(keys, partition_id, fields, tags)


def kv_batch_get(keys: str | Sequence[str], partition_id: str, select_fields: str | Sequence[str] | None = None) -> Any:
    """Returns fields of samples, in the order of the keys. KeyError names samples that do not exist or lack a field.

    The result is a TensorDict: values of equal length are stacked, others are jagged nested tensors, and strings and
    objects are a NonTensorStack. Where tensordict is not installed, it is a dict of arrays and lists.

    Args:
        keys: one, or several.
        partition_id: of the samples.
        select_fields: one, or several; None: all that the first sample has.
    """
    return _store().kv_batch_get(keys, partition_id, select_fields)


def kv_list(partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns {partition: {key: tags}} of one partition or, for None, of all that kv_batch_put() has created."""
    return _store().kv_list(partition_id)


def kv_clear(keys: str | Sequence[str], partition_id: str) -> None:
    """Deletes samples. Those that do not exist are ignored."""
    _store().kv_clear(keys, partition_id)


async def async_kv_batch_put(
    keys: Sequence[str],
    partition_id: str,
    fields: Any = None,
    tags: Sequence[Mapping[str, Any]] | None = None,
) -> KVBatchMeta:
    """As kv_batch_put(), without blocking the event loop while it waits."""
    return await _store().async_kv_batch_put(keys, partition_id, fields, tags)


async def async_kv_batch_get(
    keys: str | Sequence[str], partition_id: str, select_fields: str | Sequence[str] | None = None
) -> Any:
    """As kv_batch_get(), without blocking the event loop while it waits."""
    return await _store().async_kv_batch_get(keys, partition_id, select_fields)


async def async_kv_list(partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """As kv_list(), without blocking the event loop while it waits."""
    return await _store().async_kv_list(partition_id)


async def async_kv_clear(keys: str | Sequence[str], partition_id: str) -> None:
    """As kv_clear(), without blocking the event loop while it waits."""
    await _store().async_kv_clear(keys, partition_id)
