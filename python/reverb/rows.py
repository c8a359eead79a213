"""Row tables: rows under keys of your choice, whose columns arrive over time. docs/rows.md describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import operator
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from reverb import _core
from reverb.leases import LeaseOutcome

__all__ = ["Jagged", "PutResult", "Reservation", "RowBatch", "RowInfo", "RowTable", "Rows", "Staleness"]

TagValue = bool | int | float | str

# Rows has a method of the name `list`.
Keys = list[str]

_ACKNOWLEDGE, _RELEASE, _EXTEND = range(3)
_CLOSE, _ABORT, _REQUEUE = range(3)


class Staleness(NamedTuple):
    """How old rows may be.

    Args:
        max_lag: a row is stale when the version of the table exceeds its own by more than this.
        when_stale: "drop" stale rows, whole groups at a time; "keep" them readable, but do not hand them out; or let
            producers "wait", so that rows do not become stale.
        batch: rows that the trainer consumes for each version. Bounds reservations, and producers with "wait".
    """

    max_lag: int
    when_stale: Literal["drop", "keep", "wait"] = "drop"
    batch: int = 0


class RowTable:
    """The options of a row table, for `reverb.Server` and `Client.create_row_table`."""

    def __init__(
        self,
        name: str,
        *,
        max_rows: int = 100_000,
        group_size: int = 0,
        consumers: Sequence[str] = (),
        staleness: Staleness | None = None,
        order: Literal["fifo", "version", "ready"] = "fifo",
        max_running: int = 0,
        drop_consumed: bool = True,
    ) -> None:
        """ValueError for invalid values, TypeError for values of a wrong type.

        Args:
            name: not empty, and unique within a server.
            max_rows: new rows wait while there are so many.
            group_size: every row belongs to a group of so many rows; 0: there are no groups.
            consumers: the names of those that claim rows. Each gets each row once.
            staleness: what to do with old rows; None: rows do not become stale.
            order: claims get rows in the order of their creation ("fifo"), the oldest "version" first, or in the order
                in which they became "ready".
            max_running: bounds the rows that are reserved and not yet put; 0: unbounded.
            drop_consumed: drop rows that all consumers have acknowledged.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {name!r} of type {type(name).__name__}")
        if isinstance(consumers, str) or not all(isinstance(consumer, str) for consumer in consumers):
            raise TypeError(f"consumers must be a sequence of str, got {consumers!r}")
        if order not in ("fifo", "version", "ready"):
            raise ValueError(f'order must be "fifo", "version" or "ready", got {order!r}')
        if staleness is not None:
            staleness = Staleness(*staleness)
            if staleness.when_stale not in ("drop", "keep", "wait"):
                raise ValueError(f'when_stale must be "drop", "keep" or "wait", got {staleness.when_stale!r}')
        self._options: dict[str, Any] = {
            "name": name,
            "max_rows": operator.index(max_rows),
            "group_size": operator.index(group_size),
            "consumers": list(consumers),
            "staleness": None if staleness is None else tuple(staleness),
            "order": order,
            "max_running": operator.index(max_running),
            "drop_consumed": bool(drop_consumed),
        }
        _core.check_row_table(self._options)

    @property
    def name(self) -> str:
        """The name of the table."""
        return str(self._options["name"])

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._options.items())
        return f"RowTable({options})"


class PutResult(NamedTuple):
    """What became of a put. `aborted`: keys of rows that are stale or gone, so that their producer can stop."""

    stored: int
    aborted: list[str]
    version: int


class RowInfo(NamedTuple):
    """A row without its data. `leased_by` and `consumed_by` are names of consumers."""

    key: str
    group: str
    version: int
    is_open: bool
    tags: dict[str, TagValue]
    columns: list[str]
    is_requeued: bool
    is_stale: bool
    leased_by: list[str]
    consumed_by: list[str]


RowInfos = list[RowInfo]


class Jagged:
    """The values of one column for all rows of a batch: `values[offsets[i]:offsets[i + 1]]` are those of row i."""

    def __init__(self, values: np.ndarray, offsets: np.ndarray, is_scalar: bool = False) -> None:
        self.values = values
        self.offsets = offsets
        self._is_scalar = is_scalar

    @property
    def is_scalar(self) -> bool:
        """Whether each row has a single value without a dimension."""
        return self._is_scalar and len(self.values) == len(self)

    @property
    def lengths(self) -> np.ndarray:
        """The number of values of each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        """The value of a row, without a copy."""
        row = operator.index(row)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        value = self.values[self.offsets[row] : self.offsets[row + 1]]
        return value[0] if self._is_scalar and len(value) == 1 else value

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def padded(self, value: Any = 0, *, multiple_of: int = 1, side: Literal["left", "right"] = "right") -> np.ndarray:
        """Returns an array of the rows, all as long as the longest, rounded up to a multiple of `multiple_of`.

        Scalars become a vector.
        """
        if multiple_of < 1:
            raise ValueError(f"multiple_of ({multiple_of}) must be at least 1")
        if side not in ("left", "right"):
            raise ValueError(f'side must be "left" or "right", got {side!r}')
        if self.is_scalar:
            return self.values
        longest = int(self.lengths.max(initial=0))
        width = -(-longest // multiple_of) * multiple_of
        result = np.full((len(self), width, *self.values.shape[1:]), value, dtype=self.values.dtype)
        for row in range(len(self)):
            length = int(self.offsets[row + 1] - self.offsets[row])
            first = width - length if side == "left" else 0
            result[row, first : first + length] = self.values[self.offsets[row] : self.offsets[row + 1]]
        return result

    def __repr__(self) -> str:
        return (
            f"Jagged({len(self)} rows, {len(self.values)} values of {self.values.dtype}{list(self.values.shape[1:])})"
        )


class RowData:
    """Rows with data: `keys`, `tags`, `groups`, `versions`, the `version` of the table, and columns by name."""

    def __init__(self, native: _core.RowBatch, lease: float | None) -> None:
        self._native = native
        self._lease = lease
        self.keys: list[str] = native.keys
        self.tags: list[dict[str, TagValue]] = native.tags
        self.groups: list[str] = native.groups
        self.versions = np.asarray(native.versions, dtype=np.int64)
        self.version: int = native.version
        self.columns: list[str] = native.columns
        self.step: int | None = native.step  # of a claim with ranks
        self._cache: dict[str, Jagged] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> Jagged:
        """The values of a column. KeyError if it was not requested."""
        if column not in self.columns:
            raise KeyError(f"{column!r}: the batch has {self.columns}; name other columns in needs or select")
        found = self._cache.get(column)
        if found is None:
            found = self._cache[column] = Jagged(*self._native.column(column))
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, columns {self.columns})"


class RowBatch(RowData):
    """Rows with data: those of a claim, which are leased until `ack` or `release`, or those that were read by key.

    As a context manager, a batch is acknowledged at the end of the block, and released if an exception ends it.
    """

    def ack(
        self, keys: Iterable[str] = (), *, state: bytes | None = None, timeout: float | None = None
    ) -> LeaseOutcome:
        """Consumes the rows with these keys, or all: the consumer does not get them again.

        `state`: becomes the state of the table (`Rows.set_state`) together with the acknowledgement; not if the lease
        was lost.
        """
        return LeaseOutcome(*self._native.settle(_ACKNOWLEDGE, list(keys), None, state, timeout))

    def release(self, keys: Iterable[str] = (), *, timeout: float | None = None) -> LeaseOutcome:
        """Gives the rows with these keys back, or all: the consumer can claim them again."""
        return LeaseOutcome(*self._native.settle(_RELEASE, list(keys), None, None, timeout))

    def extend(self, seconds: float | None = None, *, timeout: float | None = None) -> LeaseOutcome:
        """Prolongs the lease: it ends in `seconds`, or the time of the claim, from now on."""
        lease = self._lease if seconds is None else seconds
        return LeaseOutcome(*self._native.settle(_EXTEND, [], lease, None, timeout))

    def __enter__(self) -> RowBatch:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.ack()
        else:
            self.release()


class Reservation:
    """Rows that may be generated: `Rows.put(reservation=)` uses them up. The end of the block gives the rest back."""

    def __init__(self, rows: Rows, ident: int, count: int, version: int) -> None:
        self._rows = rows
        self.id = ident
        self.count = count
        self.version = version  # of the table

    def cancel(self, *, timeout: float | None = None) -> bool:
        """Gives back what is left. Returns False if there was nothing."""
        return self._rows._native.cancel_reservation(self.id, timeout)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.cancel()

    def __len__(self) -> int:
        return self.count


def info_from_native(info: dict[str, Any]) -> dict[str, Any]:
    """Returns the public value: consumers by name, times in seconds."""
    result: dict[str, Any] = {}
    for name, value in info.items():
        if name == "consumers":
            result[name] = {each["name"]: {key: each[key] for key in each if key != "name"} for each in value}
        elif name == "longest_wait_nanos":
            result["longest_wait_seconds"] = value / 1e9
        else:
            result[name] = value
    return result


def _as_keys(keys: str | Iterable[str]) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys)


def _put_arguments(
    keys: Sequence[str],
    columns: Mapping[str, Sequence[Any]] | None,
    tags: Sequence[Mapping[str, TagValue]] | None,
    version: int | None,
    groups: Sequence[str | int] | None,
    overwrite: bool,
    append: bool,
    open: bool,
    create: bool,
    same_length_as: str | None,
    reservation: HasId | None,
) -> dict[str, Any]:
    """Checks the arguments of a put, and returns them for the native part."""
    keys = list(keys)
    values: list[Sequence[Any]] = []
    for name, column in (columns or {}).items():
        if len(column) != len(keys):
            raise ValueError(f"column {name!r} has {len(column)} values for {len(keys)} keys")
        values.append(column)
    for name, given in (("tags", tags), ("groups", groups)):
        if given is not None and len(given) != len(keys):
            raise ValueError(f"{name} has {len(given)} elements for {len(keys)} keys")
    return {
        "keys": keys,
        "columns": list(columns or {}),
        "values": values,
        "tags": None if tags is None else [dict(each) for each in tags],
        "groups": None if groups is None else [str(group) for group in groups],
        "version": version,
        "overwrite": overwrite,
        "append": append,
        "open": open,
        "create": create,
        "same_length_as": same_length_as or "",
        "reservation": 0 if reservation is None else reservation.id,
    }


def _claim_arguments(
    *, needs: Sequence[str], select: Sequence[str], where: str | None, **others: Any
) -> dict[str, Any]:
    return {"needs": list(needs), "select": list(select), "where": where or "", **others}


def _delete_arguments(keys: str | Iterable[str] | None, where: str | None) -> tuple[Keys, str]:
    if (keys is None) == (where is None):
        raise ValueError("give either keys or a condition (where)")
    if where is not None and not where.strip():
        raise ValueError('where is empty; to delete all rows, use where="true"')
    return [] if keys is None else _as_keys(keys), where or ""


class HasId(Protocol):
    """A reservation, of a client that waits or of an asynchronous one."""

    id: int


class Rows:
    """A row table of a server. Threads may share it. Calls that wait have a `timeout` in seconds; None: unlimited."""

    def __init__(self, client: _core.Client, table: str) -> None:
        self._native = _core.Rows(client, table)
        self._table = table

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._table

    def put(
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
        reservation: Reservation | None = None,
        timeout: float | None = None,
    ) -> PutResult:
        """Writes rows: new ones, or further columns and tags of rows that exist. All of a row is visible at once.

        New rows wait while the table is full; writes to rows that exist never wait.

        Args:
            keys: one for each row.
            columns: by name, a value for each row: an array of any shape, a number, bytes or a str.
            tags: for each row; those that exist are replaced.
            version: of the policy that produced the rows; None: that of the table.
            groups: for each new row of a table with groups.
            overwrite: replace columns that a row has; otherwise that is an error, and nothing is written.
            append: append the values to columns of open rows.
            open: new rows are open: they can be appended to, and are not handed out before `close`.
            create: False: unknown keys are reported as aborted, instead of becoming new rows.
            same_length_as: the name of a column whose length all columns of this write must have.
            reservation: counts new rows against it.
            timeout: seconds to wait for room.
        """
        arguments = _put_arguments(
            keys, columns, tags, version, groups, overwrite, append, open, create, same_length_as, reservation
        )
        return PutResult(*self._native.put(arguments, timeout))

    def claim(
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
        """Takes rows that are ready, under a lease. Waits until there are enough.

        Args:
            consumer: one of the consumers of the table, or "resume" for open rows that were requeued.
            count: rows, at most.
            needs: columns that a row must have; the batch has them.
            select: further columns, as far as a row has them.
            where: a condition, such as "reward > 0 and tokens.length < 4096".
            at_least: do not wait for more rows than these; None: `count`.
            max_tokens: bounds the sum of the lengths of `token_column`.
            token_column: one of `needs`.
            whole_groups: take complete groups only; None: in tables with groups.
            lease: seconds after which rows that were not acknowledged are handed out again.
            holder: who claims, for the reasons that others get; "": the name of the client.
            ranks: the batch is for so many ranks, each of which claims its part; 0: it is not divided.
            rank: of this caller.
            step: names the batch for all ranks; None: the next one of this rank.
            drop_last: take a multiple of `ranks` rows, so that all get equally many.
            equal_rows: the numbers of rows (of groups, with whole groups) differ by at most one; False: only the
                lengths of `token_column` are balanced.
            split_groups: rows of one group may go to several ranks.
            timeout: seconds; DeadlineExceededError afterwards names the reasons.
        """
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
        return RowBatch(self._native.claim(arguments, timeout), lease)

    def get(self, keys: str | Iterable[str], select: Sequence[str] = (), *, timeout: float | None = None) -> RowBatch:
        """Returns the rows that exist, in the order of the keys, with the selected columns. They are not leased."""
        return RowBatch(self._native.get(_as_keys(keys), list(select), timeout), None)

    def list(self, where: str | None = None, *, limit: int = 1000, timeout: float | None = None) -> RowInfos:
        """Returns rows for which the condition is true, without their data; open ones too."""
        return [RowInfo(*row) for row in self._native.list(where or "", limit, timeout)]

    def delete(
        self, keys: str | Iterable[str] | None = None, *, where: str | None = None, timeout: float | None = None
    ) -> int:
        """Deletes rows by key, or those for which the condition is true: whole groups. Returns how many."""
        return self._native.delete(*_delete_arguments(keys, where), timeout)

    def close(self, keys: str | Iterable[str], *, timeout: float | None = None) -> Keys:
        """Closes open rows, which can then be handed out. Returns the keys of rows that are gone."""
        return self._native.end(_as_keys(keys), _CLOSE, timeout)

    def abort(self, keys: str | Iterable[str], *, timeout: float | None = None) -> Keys:
        """Drops open rows. Returns the keys of rows that were gone."""
        return self._native.end(_as_keys(keys), _ABORT, timeout)

    def requeue(self, keys: str | Iterable[str], *, timeout: float | None = None) -> Keys:
        """Offers open rows to the consumer "resume". Returns the keys of rows that are gone."""
        return self._native.end(_as_keys(keys), _REQUEUE, timeout)

    def set_version(self, version: int, *, state: bytes | None = None, timeout: float | None = None) -> None:
        """Sets the version that the trainer has reached. It cannot decrease.

        `state`: becomes the state of the table (`set_state`) together with the version.
        """
        self._native.set_version(version, state, timeout)

    def set_state(self, state: bytes, *, timeout: float | None = None) -> None:
        """Keeps bytes with the table, such as the state of the trainer's data loader; at most 16 MiB.

        Checkpoints contain them, consistent with the rows. `RowBatch.ack` and `set_version` set them together with
        what they do. ValueError for larger ones.
        """
        self._native.set_state(state, timeout)

    def state(self, *, timeout: float | None = None) -> bytes:
        """Returns the bytes that were set last; empty if none were set."""
        return self._native.state(timeout)

    def reserve(
        self, count: int, *, version: int | None = None, lease: float = 600.0, timeout: float | None = None
    ) -> Reservation:
        """Waits until so many rows may be generated, and reserves them for `lease` seconds.

        RuntimeError if rows of this version are stale already; its `code` is "FAILED_PRECONDITION".
        """
        ident, reached = self._native.reserve(count, version, lease, timeout)
        return Reservation(self, ident, count, reached)

    def info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Returns counters, rows by state and by consumer, and why the first write, claim and reservation wait."""
        return info_from_native(self._native.info(timeout))
