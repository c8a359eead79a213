"""TFClient: a client whose calls are TensorFlow operations."""

from __future__ import annotations

from typing import Any

from reverb._tensorflow import loading
from reverb.client import Client
from reverb.replay_sample import ReplaySample

__all__ = ["TFClient"]


class TFClient:
    """A client for `tf.function`: its calls take and return tensors, in eager mode and inside graphs.

    The errors are TensorFlow's: NotFoundError for a table that does not exist, InvalidArgumentError for arguments and
    data that do not fit. Use reverb.Client outside of graphs.
    """

    def __init__(self, server_address: str, shared_name: str | None = None, name: str = "reverb") -> None:
        """ImportError without TensorFlow. Connects when needed, and waits for a server that is not started yet.

        Args:
            server_address: "host:port".
            shared_name: accepted and not used: all operations of a TFClient share its connection.
            name: accepted and not used.
        """
        del shared_name, name
        self._tf = loading.tensorflow("TFClient")
        self._server_address = server_address
        self._client = Client(server_address)

    def __reduce__(self) -> Any:
        return type(self), (self._server_address,)

    @property
    def server_address(self) -> str:
        """The address of the server."""
        return self._server_address

    @loading.unconverted
    def sample(self, table: Any, data_dtypes: Any, name: str | None = None) -> ReplaySample:
        """Returns the first step of one sampled item. Waits until the table has one.

        Args:
            table: its name, as a str or a scalar tensor.
            data_dtypes: a nest of tf.DTypes, one for each column; `data` of the result has its structure.
            name: of the operation; not used.

        Raises:
            tf.errors.NotFoundError: if there is no such table.
            tf.errors.InvalidArgumentError: if the item has another number of columns, or other dtypes.
        """
        from reverb._tensorflow import operations

        del name
        return operations.sample(self._tf, self._server_address, table, data_dtypes)

    @loading.unconverted
    def insert(self, data: Any, tables: Any, priorities: Any, name: str | None = None) -> Any:
        """Inserts one step, as an item of one step in each table, and waits until it is there.

        Args:
            data: a nest of tensors.
            tables: a tensor of strings, of rank 1.
            priorities: a tensor of float64, of rank 1, one for each table.
            name: of the operation; not used.

        Raises:
            ValueError: for tensors of another dtype or rank.
            tf.errors.InvalidArgumentError: if there is no such table, or if the data does not fit its signature.
        """
        from reverb._tensorflow import operations

        del name
        tf = self._tf
        if tables.dtype != tf.string or tables.shape.rank != 1:
            raise ValueError(f"tables must be a string tensor of rank 1, got {tables.dtype.name} {tables.shape}")
        if priorities.dtype != tf.float64 or priorities.shape.rank != 1:
            raise ValueError(
                f"priorities must be a float64 tensor of rank 1, got {priorities.dtype.name} {priorities.shape}"
            )
        if not tables.shape.is_compatible_with(priorities.shape):
            raise ValueError(
                f"tables and priorities must have the same shape, got {tables.shape} and {priorities.shape}"
            )
        return operations.insert(tf, self._client, data, tables, priorities)

    @loading.unconverted
    def update_priorities(self, table: Any, keys: Any, priorities: Any, name: str | None = None) -> Any:
        """Sets the priorities of items. Items that no longer exist are ignored.

        Args:
            table: its name, as a str or a scalar tensor.
            keys: a tensor of uint64, of rank 1.
            priorities: a tensor of float64, one for each key.
            name: of the operation; not used.

        Raises:
            tf.errors.NotFoundError: if there is no such table.
            tf.errors.InvalidArgumentError: for keys and priorities of different shapes, and for priorities that are
                not allowed.
        """
        from reverb._tensorflow import operations

        del name
        return operations.update_priorities(self._tf, self._client, table, keys, priorities)
