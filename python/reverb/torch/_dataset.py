"""Batches for PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch.utils.data

from reverb import _core
from reverb.client import Client
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.torch import _tensors


class PaddedBatch(NamedTuple):
    """A batch of items of different lengths, padded with zeros at the end.

    `lengths` has the structure of `data`: for each column, the number of rows of each item without padding. It is a
    field, since a DataLoader keeps only fields.
    """

    info: SampleInfo
    data: Any
    lengths: Any


class BatchDataset(torch.utils.data.IterableDataset):  # type: ignore[misc, unused-ignore]
    """An IterableDataset whose elements are batches of a table, as tensors over the memory of sample_batches().

        dataset = reverb.torch.BatchDataset("localhost:8000", "replay", batch_size=256)
        for batch in dataset:  # or DataLoader(dataset, batch_size=None, num_workers=2)
            loss = update(batch.data)

    An element is a ReplaySample: `data` has the structure of the table with a tensor [B, T, ...] or [B, ...] for each
    column, and `info` has tensors [B] (keys are torch.uint64). With `pad`, it is a PaddedBatch. Nothing is copied:
    tensors own the memory, which is reused for later batches once the last tensor over it is gone.

    Each iteration, each worker of a DataLoader and each rank of torch.distributed has a stream of its own, from which
    it gets other samples than the others; an item of a queue reaches one of them. Pass `batch_size=None` to the
    DataLoader, since the elements are batches already. Workers may be started with "fork" if the server is on the same
    host, or if this process has neither created a Server nor used a Client yet; otherwise the first batch raises
    RuntimeError, which says so: start them with "spawn" or "forkserver".

    A table is not a file to be read from a position, so state_dict() is not available: after a restart, an iteration
    starts with the table of that moment. Take a checkpoint of the server to keep the table.
    """

    def __init__(
        self,
        client: Client | str | Sequence[str],
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
        tensordict: bool = False,
    ) -> None:
        """ValueError for arguments out of range.

        Args:
            client: a Client, or the address of a server, or several, as for Client.
            table: its name.
            batch_size: items in a batch.
            num_batches: the number of batches of an iteration, which the workers of a DataLoader share; each rank of
                torch.distributed gets as many. None: unlimited.
            timeout: as for Client.sample_batches(), like the following ones.
            exact: disables prefetching.
            num_streams: parallel connections for samples of each iteration.
            prefetch: batches that each stream prefetches.
            pad: pad items of different lengths; elements are PaddedBatches.
            all_or_nothing: draw the items of a batch together, or none of them.
            tensordict: elements are TensorDicts of batch size [B] with the entries "info", "data" and, with `pad`,
                "lengths"; children of lists are "0", "1", ... Needs the package tensordict.
        """
        super().__init__()
        if not isinstance(client, (_core.Client, str, Sequence)):
            raise TypeError(f"client must be a Client or an address, got {client!r} of type {type(client).__name__}")
        if tensordict:
            _require_tensordict()
        self._client = client
        self._table = table
        self._batch_size = batch_size
        self._num_batches = num_batches
        self._options: dict[str, Any] = {
            "timeout": timeout,
            "exact": exact,
            "num_streams": num_streams,
            "prefetch": prefetch,
            "pad": pad,
            "all_or_nothing": all_or_nothing,
        }
        self._tensordict = tensordict
        if isinstance(client, Client):
            self._open(client, num_batches).close()  # checks the arguments, sends nothing

    def __iter__(self) -> Iterator[Any]:
        num_batches = self._num_batches
        worker = torch.utils.data.get_worker_info()
        if worker is not None and num_batches is not None:
            num_batches = num_batches // worker.num_workers + (worker.id < num_batches % worker.num_workers)
            if num_batches == 0:
                return iter(())
        client = self._client if isinstance(self._client, Client) else Client(self._client)
        return _Batches(self._open(client, num_batches), bool(self._options["pad"]), self._tensordict)

    def __len__(self) -> int:
        if self._num_batches is None:
            raise TypeError("a BatchDataset without num_batches has no length")
        return self._num_batches

    def state_dict(self) -> NoReturn:
        """NotImplementedError: an iteration cannot be resumed."""
        raise NotImplementedError(
            f"a BatchDataset has no state to resume from: table {self._table!r} changes while it is sampled. Leave "
            "the dataset out of the state, and take a checkpoint of the server (Client.checkpoint) to keep the table"
        )

    def load_state_dict(self, state_dict: Any) -> NoReturn:
        """NotImplementedError: an iteration cannot be resumed."""
        del state_dict
        self.state_dict()

    def _open(self, client: Client, num_batches: int | None) -> Any:
        return client.sample_batches(self._table, self._batch_size, num_batches=num_batches, **self._options)


class _Batches(Iterator[Any]):
    """Batches as tensors. Not a generator: after an error, such as a timeout, next() goes on."""

    def __init__(self, batches: Any, is_padded: bool, as_tensordict: bool) -> None:
        self._batches = batches
        self._convert = _tensors.to_tensordict if as_tensordict else _padded if is_padded else _plain

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        return self._convert(next(self._batches))

    def close(self) -> None:
        """Ends the stream, and the wait of another thread."""
        self._batches.close()


def _plain(batch: ReplaySample) -> ReplaySample:
    return ReplaySample(_tensors.info_to_tensors(batch.info), _tensors.to_tensors(batch.data))


def _padded(batch: Any) -> PaddedBatch:
    return PaddedBatch(
        _tensors.info_to_tensors(batch.info), _tensors.to_tensors(batch.data), _tensors.to_tensors(batch.lengths)
    )


def _require_tensordict() -> None:
    try:
        import tensordict  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "tensordict=True needs the package tensordict: pip install tensordict", name="tensordict"
        ) from error
