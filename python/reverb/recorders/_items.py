"""Writes the rows of episodes, and items that refer to them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
import dataclasses
import functools
import logging
import math
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from reverb import _tree, errors
from reverb.recorders._rows import Mask
from reverb.vector_writer import VectorWriter

if TYPE_CHECKING:
    from reverb.client import Client

Item = dict[str, Any]
# A number, or a function of an item that returns one.
Priority: TypeAlias = float | Callable[[Item], float]
Tables: TypeAlias = str | Mapping[str, Priority]
# Rows relative to the newest row of an episode, which is -1, or a slice that starts at the first row of an episode.
Index: TypeAlias = int | slice | list[int]
# Which rows of which column form a field of an item. A function returns the rows for the path of a leaf.
Selection: TypeAlias = Mapping[str, tuple[str, Index | Callable[[_tree.Path], Index]]]

_MAX_CACHED_TRAJECTORIES = 256

# More items than a writer can have.
_ANY_NUMBER = 2**62

_log = logging.getLogger("reverb")

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Seconds. Long enough for a learner that starts, saves or evaluates; a program that waits for itself gets an error.
DEFAULT_TIMEOUT = 600.0


def contiguous(rows: list[int]) -> Index:
    """Returns the rows, all negative, as a slice if that is possible."""
    if rows != list(range(rows[0], rows[0] + len(rows))):
        return rows
    return slice(rows[0], None if rows[-1] == -1 else rows[-1] + 1)


def check_priority(table: str, priority: Any) -> Priority:
    """Returns the priority; TypeError or ValueError for one that cannot be used."""
    if callable(priority):
        return priority  # type: ignore[no-any-return]
    try:
        number = float(priority)
    except (TypeError, ValueError):
        raise TypeError(
            f"the priority of table {table!r} must be a number or a function of an item, not {priority!r}"
        ) from None
    if not math.isfinite(number):
        raise ValueError(f"the priority of table {table!r} must be finite, not {number}")
    return number


def check_tables(table: Any, priority: Any) -> dict[str, Priority]:
    """Returns the priority of each table, from the arguments `table` and `priority` of a recorder."""
    if isinstance(table, str):
        return {table: check_priority(table, priority)}
    if not isinstance(table, Mapping):
        raise TypeError(f"table must be a name, or a dict with the priority for each table, not {table!r}")
    if not table:
        raise ValueError("table is an empty dict; give at least one table")
    if isinstance(priority, (int, float)) and priority == 1.0:
        return {name: check_priority(name, each) for name, each in table.items()}
    raise ValueError("with a dict of tables, the dict has the priorities; leave priority= out")


def describe_tables(names: Iterable[str]) -> str:
    """Returns a subject for messages about what one of these tables does."""
    quoted = [repr(name) for name in names]
    return f"table {quoted[0]}" if len(quoted) == 1 else f"one of the tables {', '.join(quoted)}"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The arguments that all recorders have; TransitionRecorder documents them."""

    validate_items: bool
    max_in_flight_items: int | None
    timeout: float | None


def _noting_errors(method: _Method) -> _Method:
    """Makes a method of ItemWriter note that it has raised an exception."""

    @functools.wraps(method)
    def call(self: ItemWriter, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except Exception:
            self._has_raised = True
            raise

    return call  # type: ignore[return-value]


def milliseconds(timeout: float | None) -> int | None:
    """Returns the timeout, which is in seconds, for a writer. ValueError if it is negative."""
    if timeout is None or timeout > 3e10:  # infinity, and anything beyond a thousand years, means no limit
        return None
    if not timeout >= 0:
        raise ValueError(f"timeout must not be negative, got {timeout}")
    return math.ceil(1000 * timeout)


class ItemWriter:
    """Writes rows of `num_envs` environments, and items of them to one or more tables.

    Masks select environments; None selects all. Keeps a copy of the rows only for priorities that are functions.
    """

    def __init__(
        self,
        client: Client,
        tables: dict[str, Priority],
        num_envs: int,
        num_keep_alive_refs: int,
        settings: Settings,
    ) -> None:
        self._make_writer = functools.partial(
            VectorWriter,
            client,
            num_envs,
            num_keep_alive_refs,
            validate_items=settings.validate_items,
            timeout=settings.timeout,
            room_timeout=settings.timeout,
        )
        self._tables = tables
        self.num_envs = num_envs
        self.num_items = 0
        self._num_keep_alive_refs = num_keep_alive_refs
        self._timeout = settings.timeout
        self._connect()

    def _connect(self) -> None:
        self._writer: VectorWriter = self._make_writer()
        self._has_raised = False
        self._trajectories: dict[Any, Any] = {}
        self._rows: list[collections.deque[dict[str, Any]]] | None = None
        if any(callable(priority) for priority in self._tables.values()):
            self._rows = [collections.deque(maxlen=self._num_keep_alive_refs) for _ in range(self.num_envs)]

    def is_broken(self) -> bool:
        """Returns whether a call has raised an error that every later call would raise, too.

        The reason is an item that the server rejected, or a connection that was given up.
        """
        if not self._has_raised:
            return False
        try:
            self._writer.flush(_ANY_NUMBER, 0)
        except Exception:  # noqa: BLE001 (a call has raised it before)
            return True
        self._has_raised = False
        return False

    def reconnect(self) -> None:
        """Starts anew, without the rows so far. Logs how many items were not confirmed."""
        lost = self._writer.close()
        self._connect()
        _log.warning(
            "the recorder continues with a new connection after an error of %s; besides the item of the error, %d "
            "items were not confirmed and may be lost",
            describe_tables(self._tables),
            lost,
        )

    @_noting_errors
    def append(self, row: dict[str, Any], mask: Mask | None = None) -> None:
        """Adds a row to each environment of the mask. `row` has a nest of arrays [num_envs, ...] for each column."""
        self._writer.append(row, mask)
        if self._rows is not None:
            for i in self._selected(mask):
                one = {
                    name: _tree.map_structure(lambda leaf, i=i: None if leaf is None else np.array(leaf[i]), value)
                    for name, value in row.items()
                }
                self._rows[i].append(one)

    @_noting_errors
    def create(self, key: Any, selection: Callable[[], Selection], mask: Mask | None = None) -> None:
        """Creates an item in each environment of the mask. `key` identifies the selection, which is cached."""
        trajectory = self._trajectories.get(key)
        if trajectory is None:
            if len(self._trajectories) >= _MAX_CACHED_TRAJECTORIES:
                self._trajectories.clear()
            trajectory = self._trajectories[key] = self._trajectory(selection())
        for table, priority in self._tables.items():
            priorities = self._priorities(table, priority, selection(), mask) if callable(priority) else priority
            try:
                self._writer.create_items(table, priorities, trajectory, mask)
            except errors.DeadlineExceededError as error:
                raise errors.DeadlineExceededError(
                    f"table {table!r} has not accepted items for {self._timeout:g} s, and write_window_bytes of the "
                    "client are on their way. The episode lacks an item now: continue with reset(). Let another thread "
                    f"or process sample from the table. {error}"
                ) from error
        self.num_items += self.num_envs if mask is None else int(np.count_nonzero(mask))

    @_noting_errors
    def end_episode(self, mask: Mask | None = None) -> None:
        """Ends the episodes of the environments of the mask: later items cannot refer to their rows."""
        self._writer.end_episode(mask)
        if self._rows is not None:
            for i in self._selected(mask):
                self._rows[i].clear()

    @_noting_errors
    def flush(self, block_until_num_items: int, timeout_ms: int | None) -> None:
        """Waits until at most `block_until_num_items` items are not in their tables yet."""
        self._writer.flush(block_until_num_items, timeout_ms)

    def close(self) -> int:
        """Discards unconfirmed items, and returns their number."""
        return self._writer.close()

    def _selected(self, mask: Mask | None) -> Any:
        return range(self.num_envs) if mask is None else np.flatnonzero(mask)

    def _trajectory(self, selection: Selection) -> Item:
        history = self._writer.history

        def choose(column: str, index: Any) -> Any:
            return _tree.map_structure_with_path(
                lambda path, leaf: leaf[index(path) if callable(index) else index], history[column]
            )

        return {name: choose(column, index) for name, (column, index) in selection.items()}

    def _priorities(
        self, table: str, function: Callable[[Item], float], selection: Selection, mask: Mask | None
    ) -> npt.NDArray[np.float64]:
        priorities = np.zeros(self.num_envs)
        for i in self._selected(mask):
            value = function(self._item(i, selection))
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise TypeError(
                    f"the priority function of table {table!r} must return a number, it returned {value!r}"
                ) from None
            if not math.isfinite(number):
                raise ValueError(
                    f"the priority function of table {table!r} must return a finite number, it returned {number}"
                )
            priorities[i] = number
        return priorities

    def _item(self, env: int, selection: Selection) -> Item:
        assert self._rows is not None
        rows = list(self._rows[env])

        def choose(column: str, index: Any) -> Any:
            columns = [row.get(column) for row in rows]
            leaves = [None if each is None else _tree.flatten(each) for each in columns]

            def values(leaf: int, path: _tree.Path) -> Any:
                where = index(path) if callable(index) else index
                if isinstance(where, int):
                    return leaves[where][leaf]  # type: ignore[index]
                chosen = leaves[where] if isinstance(where, slice) else [leaves[i] for i in where]
                return np.stack([each[leaf] for each in chosen])  # type: ignore[index]

            like = columns[0]
            flat = [values(i, path) for i, (path, _) in enumerate(_tree.flatten_with_path(like))]
            return _tree.unflatten_as(like, flat)

        return {name: choose(column, index) for name, (column, index) in selection.items()}
