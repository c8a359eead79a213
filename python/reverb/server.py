"""Tables and servers."""

from __future__ import annotations

import abc
import collections
from collections.abc import Iterable, Sequence
import dataclasses
import logging
import operator
import os
from types import TracebackType
from typing import Any, Literal

from reverb import (
    _arguments,
    _core,
    _progress,
    _signatures,
    _table_info,
    checkpointers,
    item_selectors,
    rate_limiters,
    reverb_types,
)
from reverb.client import Client
from reverb.rows import RowTable
from reverb.security import ServerTls, _server_tls
from reverb.storage import Storage, _storage

__all__ = ["Server", "Table", "TableExtensionBase"]


class TableExtensionBase(metaclass=abc.ABCMeta):
    """Base of the `extensions` of a Table."""

    @abc.abstractmethod
    def build_internal_extensions(self, table_name: str) -> Sequence[Any]:
        """Returns the native extensions of the table of that name."""


class Table:
    """A named collection of items, with selectors for sampling and eviction, and a rate limiter.

    A Table is passed to a Server, and from then on shows the server's table, without using the network.

    >>> import reverb
    >>> table = reverb.Table(
    ...     name="replay",
    ...     sampler=reverb.selectors.Uniform(),
    ...     remover=reverb.selectors.Fifo(),
    ...     max_size=1000,
    ...     rate_limiter=reverb.rate_limiters.MinSize(1),
    ... )
    >>> table.info.current_size
    0
    """

    def __init__(
        self,
        name: str,
        sampler: reverb_types.SelectorType,
        remover: reverb_types.SelectorType,
        max_size: int,
        rate_limiter: rate_limiters.RateLimiter,
        max_times_sampled: int = 0,
        extensions: Sequence[TableExtensionBase] = (),
        signature: reverb_types.SpecNest | None = None,
        *,
        layout: Literal["first", "any"] = "first",
        max_age: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """ValueError for invalid values, TypeError for values of a wrong type.

        Args:
            name: not empty, and unique within a server.
            sampler: selects items to sample; see `reverb.selectors`.
            remover: selects items to evict when there are more than `max_size`.
            max_size: the maximum number of items, at most 2**31 - 2.
            rate_limiter: decides when calls have to wait; see `reverb.rate_limiters`.
            max_times_sampled: an item is removed after so many samples; less than 1: never.
            extensions: objects derived from TableExtensionBase.
            signature: a nest of specs (`reverb.TensorSpec`, `tf.TensorSpec`, or anything with a shape and a dtype).
                Writers check items against it, and samples can have its structure.
            layout: for a table without a signature. "first": items must have the layout of the first one: its names,
                its nest and the dtypes of its columns. The server refuses others: flush() and end_episode() of their
                writer raise ValueError. Lengths and shapes may differ. reset() lets the next item set the layout.
                "any": all items are accepted; a batch of items with different columns or dtypes raises ValueError.
            max_age: seconds after which an item is removed, however often it was sampled; None: never. The time of the
                insert counts; later changes of the priority do not renew it.
            max_bytes: the maximum size of the data of the items, of which chunks that they share count once; None: no
                bound but that of the server. As with `max_size`, the remover evicts items to make room for new ones. A
                larger item is refused: IndexError.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {name!r} of type {type(name).__name__}")
        if not name:
            raise ValueError("name must be nonempty: clients refer to a table by it")
        size = _arguments.as_int32("max_size", max_size)
        if size <= 0:
            raise ValueError(f"max_size ({size}) must be a positive integer")
        native_extensions: list[Any] = []
        for extension in extensions:
            native_extensions.extend(extension.build_internal_extensions(name))
        if native_extensions:
            raise NotImplementedError("extensions cannot be added to tables from Python in this version")
        native_limiter = rate_limiters.native_limiter(rate_limiter)
        _check_selector("sampler", sampler)
        _check_selector("remover", remover)
        if not isinstance(layout, str) or layout not in ("first", "any"):
            raise ValueError(f"layout ({layout!r}) must be 'first' or 'any'")
        self._sampler = sampler
        self._remover = remover
        self._rate_limiter = rate_limiter
        self._extensions = extensions
        self._signature = signature
        self.internal_table = _core.Table(
            name=name,
            sampler=sampler,
            remover=remover,
            max_size=size,
            max_times_sampled=_arguments.as_int32("max_times_sampled", max_times_sampled),
            rate_limiter=native_limiter,
            signature=_signatures.encode_signature(signature),
            layout=layout,
            max_age_nanos=_arguments.as_max_age(max_age),
            max_bytes=_arguments.as_bytes("max_bytes", max_bytes) or 0,
        )

    @classmethod
    def queue(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[TableExtensionBase] = (),
        signature: reverb_types.SpecNest | None = None,
        *,
        layout: Literal["first", "any"] = "first",
        max_age: float | None = None,
    ) -> Table:
        """Returns a table whose items are sampled once, in the order of insertion; inserts wait while it is full."""
        return cls(
            name=name,
            sampler=item_selectors.Fifo(),
            remover=item_selectors.Fifo(),
            max_size=max_size,
            max_times_sampled=1,
            rate_limiter=rate_limiters.Queue(max_size),
            extensions=extensions,
            signature=signature,
            layout=layout,
            max_age=max_age,
        )

    @classmethod
    def stack(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[TableExtensionBase] = (),
        signature: reverb_types.SpecNest | None = None,
        *,
        layout: Literal["first", "any"] = "first",
        max_age: float | None = None,
    ) -> Table:
        """Returns a table whose items are sampled once, the newest first; inserts wait while it is full."""
        return cls(
            name=name,
            sampler=item_selectors.Lifo(),
            remover=item_selectors.Lifo(),
            max_size=max_size,
            max_times_sampled=1,
            rate_limiter=rate_limiters.Stack(max_size),
            extensions=extensions,
            signature=signature,
            layout=layout,
            max_age=max_age,
        )

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self.internal_table.name()

    @property
    def info(self) -> reverb_types.TableInfo:
        """A snapshot of the table's settings, content and counters."""
        return _table_info.from_native(self.internal_table.info())

    def can_sample(self, num_samples: int) -> bool:
        """Returns whether the rate limiter would admit so many samples now. ValueError for less than one."""
        return self.internal_table.can_sample(_arguments.as_int32("num_samples", num_samples))

    def can_insert(self, num_inserts: int) -> bool:
        """Returns whether the rate limiter would admit so many inserts now. ValueError for less than one."""
        return self.internal_table.can_insert(_arguments.as_int32("num_inserts", num_inserts))

    def set_rate_limiter(self, rate_limiter: rate_limiters.RateLimiter) -> None:
        """Replaces the limiter's numbers while the table is in use; its counters stay."""
        self.internal_table.set_rate_limiter(rate_limiters.native_limiter(rate_limiter))
        self._rate_limiter = rate_limiter

    def replace(
        self,
        name: str | None = None,
        sampler: reverb_types.SelectorType | None = None,
        remover: reverb_types.SelectorType | None = None,
        max_size: int | None = None,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        max_times_sampled: int | None = None,
        extensions: Sequence[TableExtensionBase] | None = None,
        signature: reverb_types.SpecNest | None = None,
        *,
        layout: Literal["first", "any"] | None = None,
        max_age: float | None = None,
        max_bytes: int | None = None,
    ) -> Table:
        """Returns a new, empty table like this one, except for the arguments that are given."""
        info = self.info
        limiter = info.rate_limiter_info
        return Table(
            name=info.name if name is None else name,
            sampler=sampler or self._sampler,
            remover=remover or self._remover,
            max_size=info.max_size if max_size is None else max_size,
            rate_limiter=rate_limiter
            or rate_limiters.RateLimiter(
                samples_per_insert=limiter.samples_per_insert,
                min_size_to_sample=limiter.min_size_to_sample,
                min_diff=limiter.min_diff,
                max_diff=limiter.max_diff,
            ),
            max_times_sampled=info.max_times_sampled if max_times_sampled is None else max_times_sampled,
            extensions=self._extensions if extensions is None else extensions,
            signature=self._signature if signature is None else signature,
            layout=info.layout if layout is None else layout,
            max_age=info.max_age if max_age is None else max_age,
            max_bytes=info.max_bytes if max_bytes is None else max_bytes,
        )

    def __reduce__(self) -> Any:
        """The pickle contains the settings: the copy is a new, empty table."""
        info = self.info
        limiter = info.rate_limiter_info
        return _rebuild_table, (
            {
                "name": info.name,
                "sampler": self._sampler,
                "remover": self._remover,
                "max_size": info.max_size,
                "max_times_sampled": info.max_times_sampled,
                "signature": self._signature,
                "layout": info.layout,
                "max_age": info.max_age,
                "max_bytes": info.max_bytes,
            },
            (limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff),
        )

    def __repr__(self) -> str:
        return repr(self.internal_table)


def _names(argument: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{argument} must be a sequence of str, such as ['replay.example.org'], got {names!r}")
    return list(names)


class Server:
    """Serves tables to this process and to others.

    It listens until stop(), or until it is garbage-collected; `with` stops it at the end.

    >>> import reverb
    >>> with reverb.Server([reverb.Table.queue("queue", 10)]) as server:
    ...     client = server.localhost_client()
    ...     client.insert([1.0, 2.0], priorities={"queue": 1.0})
    ...     next(client.sample("queue"))[0].data
    [array(1.), array(2.)]
    """

    def __init__(
        self,
        tables: Sequence[Table | RowTable] | None = None,
        port: int | None = None,
        checkpointer: checkpointers.CheckpointerBase | None = None,
        *,
        host: str = "[::]",
        max_bytes: int | None = None,
        memory_limit: int | None = None,
        when_full: Literal["wait", "evict"] = "wait",
        local: bool | Literal["any user"] = True,
        local_path: str | os.PathLike[str] | None = None,
        keepalive_timeout: float | None = 20.0,
        shard: int | None = None,
        register: str | None = None,
        advertised_address: str | None = None,
        tls: ServerTls | None = None,
        tokens_file: str | os.PathLike[str] | None = None,
        trust_same_user: bool = False,
        strict: bool = False,
        admin: str | None = None,
        admin_hosts: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        """ValueError without tables, for duplicate names, and if the port is taken.

        Loads the checkpointer's latest checkpoint first, see `loaded_checkpoint`. Saved settings replace those of the
        tables, unless the checkpointer specifies otherwise; each difference is logged. ValueError if the checkpoint has
        a table that is not among `tables` and that no client had created, RuntimeError if it is damaged.

        Args:
            tables: the tables to serve, of items and of rows. A Table belongs to one server.
            port: the port to listen on; None for any free port, see `port`.
            checkpointer: where checkpoints are saved and loaded from; None: a new temporary directory.
            host: the address to listen on; all interfaces by default. "localhost" serves this machine only.
            max_bytes: the maximum size of the stored data of all tables: of the chunks that items refer to, each
                counted once; None: unlimited.
            memory_limit: the maximum of all memory of the server: stored data, data in transit, waiting items, replies
                and the index of its tables; at least 16 MiB. None: 80 % of the memory of the machine, or of the
                process's control group. Other memory of this process is not counted: set it if a learner or actors
                in the process need much.
            when_full: what an insert does that would exceed `max_bytes` or `memory_limit`: "wait" until items are
                removed, or "evict" items of its table.
            local: serve processes of the same host and user through shared memory; they find the server by its port.
                False: over gRPC only. "any user": processes of other users too, which needs `local_path`. The
                environment variable REVERB_LOCAL=0 means False.
            local_path: the path of the local socket, for clients that connect to f"unix:{local_path}".
            keepalive_timeout: seconds, at least 1, for which a client may leave a gRPC connection unanswered, for
                example because its host or the network has failed, before the server closes it. None: never.
            shard: identifies this server among several that clients use as one: 1 to 65535; None: that of the
                checkpoint, or else a random one.
            register: "file:///path": a folder in which clients of that address find the server.
            advertised_address: the "host:port" that clients find there; None: the name of this machine and the port.
            tls: speak TLS over gRPC and the admin port: reverb.ServerTls(certificate=…, key=…); None: plaintext.
            tokens_file: clients need a token of this file (`reverb token new`, reverb.security.add_token()), except those
                of this process; None: everybody who reaches the server has all rights.
            trust_same_user: processes of this host and user have all rights without a token.
            strict: RuntimeError if other machines could use or overhear the server: listen on "localhost", or give it
                tokens (or `client_ca`) and TLS.
            admin: "host:port" of the admin port, with a page, metrics and health checks over HTTP, such as
                "127.0.0.1:8001"; port 0 for any that is free, see `admin_address`. None: there is none.
            admin_hosts: names by which browsers and scrapers reach the admin port, besides localhost, the host of
                `admin` and IP addresses; requests for other names are refused.
            storage: keep part of the data on disk: reverb.Storage(path); None: all data is in memory.
        """
        if local not in (True, False, "any user"):
            raise ValueError(f'local must be True, False or "any user", got {local!r}')
        if when_full not in ("wait", "evict"):
            raise ValueError(f'when_full must be "wait" or "evict", got {when_full!r}')
        if not tables:
            raise ValueError("At least one table must be provided")
        if not isinstance(tables, Iterable) or not all(isinstance(table, (Table, RowTable)) for table in tables):
            raise TypeError(
                f"tables must be a sequence of reverb.Table or reverb.RowTable, such as [table], got {tables!r} of "
                f"type {type(tables).__name__}"
            )
        names = collections.Counter(table.name for table in tables)
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise ValueError(f"Multiple items in tables have the same name: {', '.join(twice)}")
        self._checkpointer = checkpointers.default_checkpointer() if checkpointer is None else checkpointer
        self._tables = tuple(table for table in tables if isinstance(table, Table))
        with _progress.Progress("loading a checkpoint") as progress:
            self._server = _core.Server(
                tables=[table.internal_table for table in self._tables],
                port=None if port is None else operator.index(port),
                host=host,
                checkpoint=_checkpoint_options(self._checkpointer),
                max_bytes=_arguments.as_bytes("max_bytes", max_bytes),
                memory_limit=_arguments.as_bytes("memory_limit", memory_limit),
                evict_when_full=when_full == "evict",
                local="off" if local is False else "any user" if local == "any user" else "same user",
                local_path="" if local_path is None else os.path.abspath(local_path),
                keepalive_timeout=keepalive_timeout,
                shard=None if shard is None else _arguments.as_int32("shard", shard),
                register_at=register or "",
                advertised_address=advertised_address or "",
                row_tables=[table._options for table in tables if isinstance(table, RowTable)],
                tls=_server_tls(tls),
                tokens_file="" if tokens_file is None else os.path.abspath(tokens_file),
                trust_same_user=bool(trust_same_user),
                strict=bool(strict),
                admin=admin or "",
                admin_hosts=_names("admin_hosts", admin_hosts),
                storage=_storage(storage),
                progress=progress,
            )

    @property
    def loaded_checkpoint(self) -> str | None:
        """The checkpoint that the tables were loaded from; None if they started empty."""
        return self._server.loaded_checkpoint

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    @property
    def shard(self) -> int:
        """Identifies the server among several that clients use as one: the upper 16 bits of the keys of its items."""
        return self._server.shard

    @property
    def local_path(self) -> str | None:
        """The socket that clients on this host use; None if there is none."""
        return self._server.local_path or None

    @property
    def admin_address(self) -> str | None:
        """The "host:port" of the admin port; None if there is none."""
        return self._server.admin_address or None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that were passed to the constructor, in that order."""
        return self._tables

    def reload(self) -> None:
        """Reads certificates and tokens again now, instead of within seconds after they changed.

        ValueError names the file that is damaged; what was read before stays in use.
        """
        self._server.Reload()

    def stop(self) -> None:
        """Stops listening, and ends all calls with an error. Idempotent."""
        self._server.Stop()

    def wait(self, *, timeout: float | None = None) -> None:
        """Waits until the server is stopped.

        Ctrl-C stops it and raises KeyboardInterrupt. DeadlineExceededError if it still runs after `timeout` seconds.
        """
        try:
            stopped = self._server.Wait(timeout)
        except KeyboardInterrupt:
            self._server.Stop()
            raise
        if not stopped:
            from reverb.errors import DeadlineExceededError

            raise DeadlineExceededError(f"the server still runs after {timeout} s")

    def localhost_client(self) -> Client:
        """Returns a client for this server, which needs no socket in the same process."""
        return Client(f"localhost:{self.port}")

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        options: Any = self._checkpointer.internal_checkpointer()
        where = f"Checkpointer(root_dir={getattr(options, 'path', '')}, group={getattr(options, 'group', '')})"
        tables = ", ".join(repr(table) for table in self._tables)
        return f"Server(port={self.port}, reverb_service=ReverbServiceAsync(tables=[{tables}], checkpointer={where}))"


def _rebuild_table(arguments: dict[str, Any], limiter: tuple[float, int, float, float]) -> Table:
    return Table(rate_limiter=rate_limiters.RateLimiter(*limiter), **arguments)


def _check_selector(name: str, selector: object) -> None:
    if isinstance(selector, _core.ItemSelector):
        return
    problem = f"{name} must be one of reverb.selectors, got {selector!r} of type {type(selector).__name__}"
    for known in item_selectors.__all__:
        candidate = getattr(item_selectors, known)
        arguments = "priority_exponent=0.6" if candidate is item_selectors.Prioritized else ""
        if selector is candidate or (isinstance(selector, str) and _letters(selector) == _letters(known)):
            raise TypeError(f"{problem}; use reverb.selectors.{known}({arguments})")
    raise TypeError(f"{problem}; use reverb.selectors.Uniform(), Fifo() or another of them")


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _checkpoint_options(checkpointer: checkpointers.CheckpointerBase) -> _core.CheckpointOptions | None:
    options = checkpointer.internal_checkpointer()
    if not isinstance(options, checkpointers.CheckpointerOptions):
        raise TypeError(
            f"{type(checkpointer).__name__}.internal_checkpointer() must give CheckpointerOptions, such as those of "
            f"a DefaultCheckpointer; it gave {type(options).__name__}"
        )
    if options.group:
        logging.getLogger("reverb").warning(
            "groups of checkpoints are not supported: with group=%r nothing is loaded, and saving fails", options.group
        )
        return None
    return _core.CheckpointOptions(
        os.path.abspath(options.path),
        fallback_path=(
            None if options.fallback_checkpoint_path is None else os.path.abspath(options.fallback_checkpoint_path)
        ),
        interval=options.interval,
        on_stop=options.on_stop,
        keep_latest=options.keep_latest,
        load_latest=options.load_latest,
        **dataclasses.asdict(options.restore),
    )
