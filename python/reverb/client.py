"""The client of a server: inserting, sampling, priorities, information."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import importlib
import logging
import math
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from reverb import _arguments, _core, _table_info, errors, rate_limiters, reverb_types
from reverb.replay_sample import ReplaySample, _Batch, _Data, _PaddedBatch, _Sample
from reverb.rows import Rows, RowTable
from reverb.security import ClientTls, _client_tls
from reverb.trajectory_writer import TrajectoryWriter
from reverb.vector_writer import VectorWriter

if TYPE_CHECKING:
    from reverb import leases, structured_writer
    from reverb.server import Table

__all__ = ["Client", "Writer"]

_log = logging.getLogger("reverb")
_DEFAULTS = {
    "in_process": True,
    "local": True,
    "name": "",
    "write_window_bytes": 64 * 2**20,
    "reconnect_timeout": None,
    "max_response_bytes": 2**30,
    "max_decoded_item_bytes": 4 * 2**30,
    "max_decoded_reply_bytes": 8 * 2**30,
    "keepalive_timeout": 20.0,
    "lost_updates": "drop",
    "lost_server_timeout": 10.0,
    "servers_may_change": False,
    "tls": None,
    "token": None,
    "plaintext_token": "warn",
}


class Writer(_core.Writer):
    """Takes whole steps, and creates items of the last n steps. TrajectoryWriter is more flexible.

    Created by Client.writer(). All steps of a writer have the same number of leaves, of the same dtypes and shapes.

    >>> import reverb
    >>> server = reverb.Server([reverb.Table.queue("queue", 100)])
    >>> client = server.localhost_client()
    >>> with client.writer(max_sequence_length=2) as writer:
    ...     writer.append([1, 2.0])
    ...     writer.append([3, 4.0])
    ...     writer.create_item(table="queue", num_timesteps=2, priority=1.0)
    >>> [step.data for step in next(client.sample("queue"))]
    [[array(1), array(2.)], [array(3), array(4.)]]
    >>> server.stop()
    """

    _is_made = False

    def __init__(self, *args: Any) -> None:
        """Takes the arguments of Client.writer()."""
        super().__init__(*args)
        self._is_made = True

    def flush(self, *, timeout: float | None = None) -> None:
        """Sends all items, and waits until they are in their tables. DeadlineExceededError after `timeout` seconds."""
        self._flush(timeout)

    def close(self, retry_on_unavailable: bool = True, *, timeout: float | None = None) -> int:
        """Sends all items, waits until they are in their tables, and closes the writer.

        Args:
            retry_on_unavailable: False gives up, without an error, if the server does not answer within ten seconds.
            timeout: seconds; DeadlineExceededError afterwards. The writer is closed nevertheless.

        Returns:
            the number of items that were not confirmed: 0, unless `retry_on_unavailable` is False. Errors state it.

        Raises:
            ValueError: if the writer is already closed.
        """
        if self._is_closed:
            raise ValueError("close() has already been called on this writer")
        if retry_on_unavailable:
            self._close(timeout)
            return 0
        try:
            self._close(10.0 if timeout is None else timeout)
        except (errors.DeadlineExceededError, RuntimeError) as error:
            _log.warning("a writer was closed with %d items that are not confirmed: %s", self._num_discarded, error)
        return self._num_discarded

    def __enter__(self) -> Writer:
        if self._is_closed:
            raise ValueError("a writer that is closed cannot be entered")
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_closed:
            self.flush()
            self.close()

    def __del__(self) -> None:
        try:
            if self._is_made and not self._is_closed:
                problem = ""
                try:
                    self.close(timeout=1.0)
                except (errors.DeadlineExceededError, RuntimeError, ValueError) as error:
                    problem = f"; {self._num_discarded} items are not confirmed and may be lost: {error}"
                _log.warning("a Writer was dropped without close(); use it in a `with` block%s", problem)
        except Exception as error:  # noqa: BLE001  # at the interpreter's exit, modules may be gone
            _log.debug("a writer that was dropped could not be closed: %s", error)


class _NotNative:
    """A method of dm-reverb's native client: reading it is an AttributeError that names what to use."""

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise AttributeError(f"Reverb has no native {self._name}(); use {self._instead}")


class Client(_core.Client):
    """A client of a server, or of several that act as one: each table is spread over all of them.

    Connects when needed. The server may be started later: calls wait for it. Calls that wait have a `timeout` in
    seconds, after which they raise DeadlineExceededError; Ctrl-C ends them with KeyboardInterrupt. A server in the same
    process is used without a socket, one on the same host through shared memory, and others over gRPC.

    Threads may share a client. It can be pickled; the pickle contains the address and the options. A process created by
    fork() may use the clients of its parent for servers on the same host; writers and iterators belong to the parent.
    """

    def __init__(
        self,
        server_address: str | Sequence[str],
        *,
        in_process: bool = True,
        local: bool = True,
        name: str = "",
        write_window_bytes: int | None = 64 * 2**20,
        reconnect_timeout: float | None = None,
        max_response_bytes: int = 2**30,
        max_decoded_item_bytes: int = 4 * 2**30,
        max_decoded_reply_bytes: int = 8 * 2**30,
        keepalive_timeout: float | None = 20.0,
        lost_updates: Literal["drop", "raise"] = "drop",
        lost_server_timeout: float = 10.0,
        servers_may_change: bool = False,
        tls: ClientTls | str | os.PathLike[str] | bool | None = None,
        token: str | None = None,
        plaintext_token: Literal["warn", "refuse", "allow"] = "warn",
    ) -> None:
        """ValueError for an invalid address and for numbers out of range.

        Args:
            server_address: "host:port", "unix:/path" for the local socket of a server, or several, as a sequence or
                separated by commas. "dns:///name:port": all servers with an address of that name. "file:///path":
                those that register in that folder (`Server(register=)`). Both are looked up every few seconds, and
                writers and iterators that exist use the servers that join. "ray://name": those that
                reverb.ray.start() started under that name.
            in_process: use a server of this process without a socket.
            local: use a server on the same host, of the same user, through shared memory; False: over gRPC. The
                environment variable REVERB_LOCAL=0 means False.
            name: the name of this client in `server_info()` and `reverb info`.
            write_window_bytes: unconfirmed data that each writer may have before it waits; None: unlimited.
            reconnect_timeout: seconds for which calls, writers and samples try to reach a server that is lost or not
                started yet; RuntimeError afterwards. None: they wait forever, or for the `timeout` of the call.
            max_response_bytes: the largest response, such as one large sample, that is accepted from a server.
            max_decoded_item_bytes: the largest item, when it is decoded, that is accepted from a server. Compressed data
                can become many times larger than the response.
            max_decoded_reply_bytes: the same for all items of a response; at least `max_decoded_item_bytes`, and 256 MiB,
                which is what a server puts into one response.
            keepalive_timeout: seconds, at least 1, for which a server may leave a gRPC connection unanswered, for
                example because its host or the network has failed. Then the connection is closed, which is logged:
                waiting calls, writers and samples reconnect, or fail after `reconnect_timeout`. None: never.
            lost_updates: of several servers, what to do with priorities and deletes for one that cannot be reached:
                "drop" and count them (`dropped_updates`), or "raise" RuntimeError.
            lost_server_timeout: seconds for which one of several servers may be unreachable before writers use
                another one.
            servers_may_change: the client is one of several servers even if there is one address now.
            tls: speak TLS over gRPC: a reverb.ClientTls, the path of the authority's certificate, or True for the
                authorities that the system trusts. None: as the environment variables REVERB_TLS_CA,
                REVERB_TLS_CERTIFICATE, REVERB_TLS_KEY, REVERB_TLS_SERVER_NAME and REVERB_TLS say; else plaintext.
            token: proves to the server who this client is (`reverb token new`). None: the environment variable
                REVERB_TOKEN, or the first line of the file REVERB_TOKEN_FILE. A pickle contains it.
            plaintext_token: what to do if the token would be sent to another machine without TLS: "warn", "refuse"
                with RuntimeError, or "allow".
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {name!r} of type {type(name).__name__}")
        if lost_updates not in ("drop", "raise"):
            raise ValueError(f'lost_updates must be "drop" or "raise", got {lost_updates!r}')
        if not lost_server_timeout > 0:
            raise ValueError(f"lost_server_timeout ({lost_server_timeout}) must be a number of seconds above 0")
        if plaintext_token not in ("warn", "refuse", "allow"):
            raise ValueError(f'plaintext_token must be "warn", "refuse" or "allow", got {plaintext_token!r}')
        if token is not None and not isinstance(token, str):
            raise TypeError(f"token must be a str, got one of type {type(token).__name__}")
        native_tls = _client_tls(tls)
        address = _join_addresses(server_address)
        self._ray_name: str | None = None
        self._ray_addresses: list[str] = []
        if address.startswith("ray://"):
            resolve = importlib.import_module("reverb.ray")._resolve
            self._ray_name, self._ray_addresses = resolve(address)
            address = ",".join(self._ray_addresses)
            servers_may_change = True  # reverb.ray.refresh() may replace them
        options: dict[str, Any] = {
            "in_process": in_process,
            "local": local,
            "name": name,
            "write_window_bytes": _arguments.as_bytes("write_window_bytes", write_window_bytes),
            "reconnect_timeout": reconnect_timeout,
            "max_response_bytes": _arguments.as_bytes("max_response_bytes", max_response_bytes),
            "max_decoded_item_bytes": _arguments.as_bytes("max_decoded_item_bytes", max_decoded_item_bytes),
            "max_decoded_reply_bytes": _arguments.as_bytes("max_decoded_reply_bytes", max_decoded_reply_bytes),
            "keepalive_timeout": keepalive_timeout,
            "lost_updates": lost_updates,
            "lost_server_timeout": float(lost_server_timeout),
            "servers_may_change": bool(servers_may_change),
            "tls": tls,
            "token": token,
            "plaintext_token": plaintext_token,
        }
        super().__init__(address, **{**options, "tls": native_tls, "token": token or ""})
        self._made_with = options
        self._signatures: dict[str, Any] | None = None

    def __reduce__(self) -> Any:
        # The servers may have moved: another process looks them up again.
        address = self.server_address if self._ray_name is None else f"ray://{self._ray_name}"
        return _rebuild, (type(self), address, self._made_with)

    def __repr__(self) -> str:
        return f"Client, server_address={self.server_address}"

    # Names that programs for dm-reverb read.
    @property
    def _client(self) -> _core.Client:
        return self

    @property
    def _server_address(self) -> str:
        return self.server_address

    NewSampler = _NotNative("Client.sample() or Client.sample_batches()")
    NewWriter = _NotNative("Client.writer()")
    NewTrajectoryWriter = _NotNative("Client.trajectory_writer()")
    NewStructuredWriter = _NotNative("Client.structured_writer()")
    MutatePriorities = _NotNative("Client.mutate_priorities()")

    # --- Writing ---

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        timeout: float | None = None,
    ) -> Writer:
        """Returns a writer of whole steps.

        Args:
            max_sequence_length: the maximum number of steps of an item.
            delta_encoded: ignored: differences between steps are stored if that is smaller.
            chunk_length: steps in a chunk; 10, or max_sequence_length if that is less, unless given.
            max_in_flight_items: items that may be unconfirmed before calls wait; None: unlimited.
            timeout: seconds to wait for the server, from which the writer fetches the signatures of tables.
        """
        if max_sequence_length < 1:
            raise ValueError(f"max_sequence_length ({max_sequence_length}) must be a positive integer")
        if chunk_length is not None and not 1 <= chunk_length <= max_sequence_length:
            raise ValueError(
                f"chunk_length ({chunk_length}) must be between 1 and max_sequence_length ({max_sequence_length})"
            )
        if max_in_flight_items is not None and max_in_flight_items < 1:
            raise ValueError(f"max_in_flight_items ({max_in_flight_items}) must be a positive integer, or None")
        return Writer(self, max_sequence_length, delta_encoded, chunk_length, max_in_flight_items, timeout)

    def trajectory_writer(
        self, num_keep_alive_refs: int, *, validate_items: bool = True, timeout: float | None = None
    ) -> TrajectoryWriter:
        """Returns a writer whose items consist of any values of the steps.

        Args:
            num_keep_alive_refs: how many of the newest steps items may refer to. Their data stays in memory.
            validate_items: check every item against the signature of its table when it is created. The writer fetches
                the signatures from the server first; False needs no server yet.
            timeout: seconds to wait for the server.
        """
        if num_keep_alive_refs < 1:
            raise ValueError(f"num_keep_alive_refs ({num_keep_alive_refs}) must be a positive integer")
        return TrajectoryWriter(self, num_keep_alive_refs, validate_items=validate_items, timeout=timeout)

    def vector_writer(
        self,
        num_envs: int,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        timeout: float | None = None,
    ) -> VectorWriter:
        """Returns a writer for vector environments: one call writes one step of each.

        >>> import numpy as np
        >>> import reverb
        >>> server = reverb.Server([reverb.Table.queue("queue", 100)])
        >>> client = server.localhost_client()
        >>> with client.vector_writer(num_envs=3, num_keep_alive_refs=2) as writer:
        ...     for step in range(3):
        ...         writer.append({"observation": np.array([0, 10, 20]) + step})
        ...         made = writer.create_items("queue", 1.0, writer.history["observation"][-2:])
        ...         print(made)
        ...         writer.end_episode(mask=np.array([step == 1, False, False]))
        [False False False]
        [ True  True  True]
        [False  True  True]
        >>> [sample.data[0].tolist() for sample in client.sample("queue", 5, emit_timesteps=False)]
        [[0, 1], [10, 11], [20, 21], [11, 12], [21, 22]]
        >>> server.stop()

        Args:
            num_envs: the number of environments, which is the first dimension of all values.
            num_keep_alive_refs: how many of the newest steps of an environment items may refer to.
            validate_items: check every item against the signature of its table when it is created. The writer fetches
                the signatures from the server first; False needs no server yet.
            timeout: seconds to wait for the server.
        """
        return VectorWriter(self, num_envs, num_keep_alive_refs, validate_items=validate_items, timeout=timeout)

    def structured_writer(self, configs: Sequence[structured_writer.Config]) -> _core.StructuredWriter:
        """Returns a writer that creates items by patterns and conditions; see `reverb.structured`.

        ValueError, naming the config and the reason, for invalid configs. Needs no server yet: flush() and
        end_episode() report a table that does not exist.
        """
        if not configs:
            raise ValueError("At least one config must be provided.")
        return _core.StructuredWriter(self, list(configs))

    # --- Sampling ---

    @overload
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
        pad: Literal[False] = False,
        all_or_nothing: bool = False,
        lease: None = None,
    ) -> _core.BatchIterator[_Batch[_Data]]: ...
    @overload
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
        lease: None = None,
    ) -> _core.BatchIterator[_PaddedBatch[_Data]]: ...
    @overload
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
        pad: Literal[False] = False,
        all_or_nothing: bool = False,
        lease: float,
    ) -> _core.BatchIterator[leases.LeasedSample]: ...
    @overload
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
        lease: float,
    ) -> _core.BatchIterator[leases.LeasedPaddedBatch]: ...
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
    ) -> Iterator[ReplaySample]:
        """Returns an iterator over batches of `batch_size` items each. Sends nothing before the first next().

        `close()` of the iterator ends its streams, and a next() that waits in another thread.

        A batch is a ReplaySample whose `info` has arrays of shape [B], and whose `data` has, for each column, one
        contiguous array [B, T, ...], or [B, ...] for columns without time. `data` has the structure of the table's
        signature. For a table without one, it has the structure in which the items were written, or is a flat list if
        the writers sent none, or different ones to a table with `layout="any"`. The arrays belong to the caller, who
        may write to them. Their memory is aligned to 64 bytes, and is reused for later batches once the last array over
        it is gone.

        Args:
            table: its name.
            batch_size: items in a batch.
            num_batches: the number of batches; None: unlimited.
            timeout: seconds that each next() may wait; DeadlineExceededError afterwards. The following next() continues
                to wait.
            exact: disables prefetching: every batch reflects all priorities that were set before it was requested.
            num_streams: parallel connections for samples. A single one keeps the order of the table.
            prefetch: batches that each stream prefetches, at most as many as `num_batches` needs. Nothing is prefetched
                inside one process, or from tables with `max_times_sampled` or `max_size=1`.
            pad: pad items that are shorter than the longest of their batch with zeros at the end. The batch then has
                `lengths`, with the structure of `data`: the number of rows of each item without padding.
            all_or_nothing: draw the items of a batch together, or none of them: next() waits until the table can
                provide them, and an iterator that ends takes no part of a batch with it.
            lease: seconds; the items are leased for this long, and count as sampled only when they are acknowledged.
                Batches have ack(), release() and extend() (reverb.leases). Each next() acknowledges the batch before
                it; close() releases the last one, and so does dropping both it and the iterator. The items of a batch
                are distinct and leased together, as with `all_or_nothing`, and nothing is prefetched.

        Raises:
            ValueError: for arguments out of range; from next(): if items differ in length (without `pad`), dtype or
                number of columns, or if the table can never provide so many together (`all_or_nothing`, `lease`). No item is
                removed from a table with `max_times_sampled` then.
            RuntimeError: from next(): if the table does not exist, or a server of this process has stopped.

        >>> import reverb
        >>> server = reverb.Server([reverb.Table.queue("queue", 10)])
        >>> client = server.localhost_client()
        >>> for step in range(4):
        ...     client.insert({"x": step}, priorities={"queue": 1.0})
        >>> [batch.data["x"].tolist() for batch in client.sample_batches("queue", 2, num_batches=2)]
        [[[0], [1]], [[2], [3]]]
        >>> server.stop()
        """
        return _core.BatchIterator(
            self, table, batch_size, num_batches, timeout, exact, num_streams, prefetch, pad, all_or_nothing, lease
        )

    def peek(self, table: str, n: int = 1, *, timeout: float | None = None) -> list[_Sample]:
        """Returns at most `n` items without sampling them: counters do not change, and the limiter does not apply.

        They are in the order of the table's memory, and their `probability` is 0. `data` has the structure of the
        table's signature or, without one, the structure in which the items were written; it is a list of one column
        for a single value without names.
        """
        if n < 1:
            raise ValueError(f"n ({n}) must be a positive integer")
        return _core._peek(self, table, n, timeout)

    def _signature_of(self, table: str, timeout: float | None, fresh: bool = False) -> Any:
        # Another client may have replaced the table since: `fresh` asks the server.
        if fresh or self._signatures is None or table not in self._signatures:
            self._fetch_info(timeout, any_server=True)
        known = self._signatures or {}
        if table not in known:
            raise ValueError(f'Could not find table "{table}". The server\'s tables: {", ".join(sorted(known))}.')
        return known[table]

    # --- The server ---

    def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Deletes all items of the table, and resets its counters and its rate limiter."""
        self._reset(table, timeout)

    def set_rate_limiter(
        self, table: str, rate_limiter: rate_limiters.RateLimiter, *, timeout: float | None = None
    ) -> None:
        """Replaces the numbers of the table's limiter while it runs; its counters stay."""
        self._set_rate_limiter(table, rate_limiters.native_limiter(rate_limiter), timeout)

    def create_table(self, table: Table, *, exist_ok: bool = False, timeout: float | None = None) -> None:
        """Adds a table with the settings of `table` to the server, which runs on.

        Writers and iterators that exist already can use it at once. Checkpoints contain it, and a server that loads one
        creates it again. The `table` itself does not show the server's table.

        Args:
            table: a reverb.Table, as for reverb.Server.
            exist_ok: a table of that name is no error if it has the same settings.
            timeout: seconds to wait for the server; None: unlimited.

        Raises:
            RuntimeError: if there is a table of that name; its `code` is "ALREADY_EXISTS".

        >>> import reverb
        >>> server = reverb.Server([reverb.Table.queue("queue", 10)])
        >>> client = server.localhost_client()
        >>> client.create_table(reverb.Table.queue("another", 10))
        >>> client.change_table("another", max_size=20, rate_limiter=reverb.rate_limiters.Queue(20))
        >>> client.server_info()["another"].max_size
        20
        >>> client.remove_table("another")
        >>> list(client.server_info())
        ['queue']
        >>> server.stop()
        """
        native = getattr(table, "internal_table", None)
        if not isinstance(native, _core.Table):
            raise TypeError(f"table must be a reverb.Table, got {table!r} of type {type(table).__name__}")
        self._create_table(native, bool(exist_ok), timeout)
        self._signatures = None

    def rows(self, table: str) -> Rows:
        """Returns a row table of the server, which need not exist yet. docs/rows.md describes row tables.

        >>> import reverb
        >>> server = reverb.Server([reverb.RowTable("rollouts", consumers=["train"])])
        >>> rows = server.localhost_client().rows("rollouts")
        >>> rows.put(["a", "b"], {"tokens": [[1, 2, 3], [4]]}, tags=[{"reward": 0.5}, {"reward": -1.0}])
        PutResult(stored=2, aborted=[], version=0)
        >>> with rows.claim("train", 1, needs=["tokens"], where="reward > 0") as batch:
        ...     print(batch.keys, batch["tokens"].padded(0, multiple_of=4))
        ['a'] [[1 2 3 0]]
        >>> server.stop()
        """
        return Rows(self, table)

    def create_row_table(self, table: RowTable, *, exist_ok: bool = False, timeout: float | None = None) -> None:
        """Adds a row table to the server; see `create_table`."""
        if not isinstance(table, RowTable):
            raise TypeError(f"table must be a reverb.RowTable, got {table!r} of type {type(table).__name__}")
        _core.create_row_table(self, table._options, bool(exist_ok), timeout)

    def remove_row_table(self, name: str, *, timeout: float | None = None) -> None:
        """Removes a row table and frees its rows. Calls that wait for it raise RuntimeError."""
        _core.remove_row_table(self, name, timeout)

    def remove_table(self, table: str, *, timeout: float | None = None) -> None:
        """Removes a table from the server and frees its items.

        Calls that wait for it raise RuntimeError, and so do later ones; their `code` is "NOT_FOUND".
        """
        self._remove_table(table, timeout)
        self._signatures = None

    def change_table(
        self,
        table: str,
        *,
        max_size: int | None = None,
        max_times_sampled: int | None = None,
        max_age: float | None = None,
        max_bytes: float | None = None,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        timeout: float | None = None,
    ) -> None:
        """Changes limits of a table while it is in use. Calls that no longer have to wait continue.

        Args:
            table: its name.
            max_size: the new maximum; None: unchanged, as for the others. Items beyond it are evicted by the remover.
            max_times_sampled: an item that was sampled so often already is removed with its next sample; 0: never.
            max_age: seconds, from the insert of each item; `math.inf` if items shall not age.
            max_bytes: the maximum size of the table's data; `math.inf` for no bound. Items beyond it are evicted.
            rate_limiter: its numbers replace those of the table's limiter, whose counters stay.
            timeout: seconds to wait for the server; None: unlimited.
        """
        if all(each is None for each in (max_size, max_times_sampled, max_age, max_bytes, rate_limiter)):
            raise ValueError("nothing to change: give max_size, max_times_sampled, max_age, max_bytes or rate_limiter")
        limiter = getattr(rate_limiter, "internal_limiter", None)
        if rate_limiter is not None and not isinstance(limiter, _core.RateLimiter):
            raise TypeError(
                f"rate_limiter must be one of reverb.rate_limiters, got {rate_limiter!r} of type "
                f"{type(rate_limiter).__name__}"
            )
        self._change_table(
            table,
            None if max_size is None else _arguments.as_int32("max_size", max_size),
            None if max_times_sampled is None else _arguments.as_int32("max_times_sampled", max_times_sampled),
            None if max_age is None else _arguments.as_max_age(max_age),
            0 if max_bytes == math.inf else _arguments.as_bytes("max_bytes", max_bytes),
            limiter,
            timeout,
        )

    def transports(self, *, timeout: float | None = None) -> list[str]:
        """Returns how each server is reached: "in-process", "local" (shared memory) or "gRPC". Contacts the servers."""
        return self._transports(timeout)

    def server_info(self, timeout: float | None = None) -> reverb_types.ServerInfo:
        """Returns the state of all tables: a dict by name, with the server's memory and waiting calls as attributes.

        `timeout`: seconds; None, 0 and negative numbers wait forever. DeadlineExceededError afterwards. Of several
        servers it is the sum; an error names the servers that do not answer. See `server_infos`.
        """
        if timeout is not None and math.isnan(timeout):
            raise ValueError(f"timeout ({timeout}) must be a number of seconds, or None for no limit")
        return self._fetch_info(timeout if timeout is not None and timeout > 0 else None)

    def _fetch_info(self, timeout: float | None, *, any_server: bool = False) -> reverb_types.ServerInfo:
        try:
            native = self._server_info(timeout, any_server)
        except errors.DeadlineExceededError as error:
            raise errors.DeadlineExceededError(
                f"ServerInfo call to {self.server_address} did not complete within {timeout} s: {error}"
            ) from None
        info = _table_info.server_info_from_native(native)
        self._signatures = {name: table.signature for name, table in info.items()}
        return info

    def server_infos(self, timeout: float | None = None) -> dict[str, reverb_types.ServerInfo | RuntimeError]:
        """Returns the state of each server by its address, or the error for one that does not answer.

        `timeout`: seconds; None: one of several servers may take `lost_server_timeout`.
        """
        return {
            address: RuntimeError(reason) if native is None else _table_info.server_info_from_native(native)
            for address, native, reason in self._server_reports(timeout)
        }

    def checkpoint(self, *, timeout: float | None = None) -> str:
        """Makes the server write a checkpoint, and returns its path; of several servers, theirs, joined by commas."""
        return self._checkpoint(timeout)


def _join_addresses(server_address: str | Sequence[str]) -> str:
    if isinstance(server_address, str):
        return server_address
    try:
        return ",".join(server_address)
    except TypeError:
        raise TypeError(
            'server_address must be a str such as "localhost:8000", or a sequence of them, got '
            f"{server_address!r} of type {type(server_address).__name__}"
        ) from None


def _rebuild(kind: type[Client], server_address: str, options: dict[str, Any]) -> Client:
    # Derived classes may accept only the address.
    return kind(server_address, **{name: value for name, value in options.items() if value != _DEFAULTS[name]})
