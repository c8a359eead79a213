"""Batches as a dataset of Grain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import grain
except ModuleNotFoundError as error:
    raise ImportError(
        "reverb.jax.BatchIterDataset needs Grain, which is not installed: pip install grain", name="grain"
    ) from error

from reverb.client import Client


class BatchIterDataset(grain.IterDataset):  # type: ignore[misc, unused-ignore]
    """A Grain dataset whose elements are batches of a table: ReplaySamples of NumPy arrays, as of sample_batches().

        dataset = reverb.jax.BatchIterDataset("localhost:8000", "replay", batch_size=256).map(augment)
        for batch in reverb.jax.prefetch_to_device(dataset):
            parameters = update(parameters, batch.data)

    Each iteration, and each worker process of mp_prefetch(), has a stream of its own, from which it gets other samples
    than the others; an item of a queue reaches one of them. Workers share `num_batches`.

    A table is not a file to be read from a position: set_state() refuses a state in the middle of an iteration, which
    therefore cannot be resumed from a checkpoint. Take a checkpoint of the server to keep the table.
    """

    def __init__(
        self,
        client: Client | str | Sequence[str],
        table: str,
        batch_size: int,
        *,
        num_batches: int | None = None,
        **options: Any,
    ) -> None:
        """Takes a Client, or the address of a server, and the arguments of Client.sample_batches()."""
        super().__init__()
        self._client = client
        self._table = table
        self._batch_size = batch_size
        self._num_batches = num_batches
        self._options = options
        self._slice = (0, 1)  # of worker processes: which one, of how many
        if isinstance(client, Client):
            self._open(client, num_batches).close()  # checks the arguments, sends nothing

    def __iter__(self) -> Any:
        num_batches = self._num_batches
        if num_batches is not None:
            number, count = self._slice
            num_batches = num_batches // count + (number < num_batches % count)
        client = self._client if isinstance(self._client, Client) else Client(self._client)
        return _BatchIterator(self._table, None if num_batches == 0 else self._open(client, num_batches))

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Makes this the dataset of one of several workers; Grain calls it."""
        del sequential_slice
        self._slice = (sl.start or 0, sl.step or 1)

    def __str__(self) -> str:
        return f"BatchIterDataset(table={self._table!r}, batch_size={self._batch_size})"

    def _open(self, client: Client, num_batches: int | None) -> Any:
        return client.sample_batches(self._table, self._batch_size, num_batches=num_batches, **self._options)


class _BatchIterator(grain.DatasetIterator):  # type: ignore[misc, unused-ignore]
    def __init__(self, table: str, batches: Any) -> None:
        super().__init__()
        self._table = table
        self._batches = batches
        self._num_taken = 0

    def __next__(self) -> Any:
        if self._batches is None:
            raise StopIteration
        batch = next(self._batches)
        self._num_taken += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        return {"num_taken": self._num_taken}

    def set_state(self, state: dict[str, Any]) -> None:
        if state["num_taken"] != self._num_taken:
            raise NotImplementedError(
                f"an iteration over table {self._table!r} cannot be resumed after {state['num_taken']} batches, since "
                "the table changes while it is sampled. Start a new iteration, without this iterator in the "
                "checkpoint, and take a checkpoint of the server (Client.checkpoint) to keep the table"
            )

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
        super().close()
