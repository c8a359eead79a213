"""A replay buffer with the interface of TorchRL's, whose data is in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import threading
from typing import Any, NoReturn

try:
    from tensordict import TensorDict, TensorDictBase
except ModuleNotFoundError as error:
    raise ImportError(
        "reverb.torch.ReplayBuffer needs tensordict, which is not installed: pip install tensordict", name="tensordict"
    ) from error

import numpy as np
import torch

from reverb import _priorities, item_selectors, rate_limiters
from reverb.client import Client
from reverb.server import Server, Table
from reverb.torch import _tensors

# Writers that are kept for later calls of extend(), one for each number of rows.
_MAX_WRITERS = 4


class ReplayBuffer:
    """The buffer of a TorchRL script, in a table: extend(), sample() and update_tensordict_priority().

        buffer = reverb.torch.ReplayBuffer.local(100_000, alpha=0.7, beta=0.5, batch_size=256)
        buffer = reverb.torch.ReplayBuffer("localhost:8000", "replay", beta=0.5, batch_size=256)  # shared with others

    takes the place of TensorDictPrioritizedReplayBuffer or TensorDictReplayBuffer. Each row of a TensorDict is an item.
    sample() returns a TensorDict with the entries of the rows, with "index", which holds the keys of the items as
    int64, and, given `beta`, with "priority_weight". The exponent alpha is that of the table's Prioritized sampler.
    Threads may share a buffer.

    Differences from TorchRL: weights are divided by the largest of the batch, not by that of the whole table. sample()
    waits while the table does not allow it, and extend() returns nothing, since keys are no positions. There are no
    storages, samplers and writers to exchange: the table and its server have those settings.
    """

    def __init__(
        self,
        client: Client | str,
        table: str,
        *,
        batch_size: int | None = None,
        beta: float | None = None,
        priority_key: Any = "td_error",
        weight_key: str = "priority_weight",
        eps: float = 1e-8,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Sends nothing yet.

        Args:
            client: a Client, or the address of a server.
            table: its name; all its items must be rows of such TensorDicts.
            batch_size: the default of sample().
            beta: exponent of the importance weights; None: samples have no weights.
            priority_key: the entry that update_tensordict_priority() reads; extend() takes priorities from it as well.
            weight_key: the entry for the weights; older versions of TorchRL read "_weight".
            eps: added to every priority.
            transform: a function of the sampled TensorDict, or a TorchRL transform; its inv() is applied by extend().
            prefetch: batches that are requested ahead. With 0 every batch reflects all updates of priorities.
            timeout: seconds that sample() and extend() may wait; DeadlineExceededError afterwards.
        """
        self._client = client if isinstance(client, Client) else Client(client)
        self._table = table
        self._batch_size = batch_size
        self._beta = beta
        self._priority_key = priority_key
        self._weight_key = weight_key
        self._eps = eps
        self._transforms: list[Any] = [] if transform is None else [transform]
        self._prefetch = prefetch
        self._timeout = timeout
        self._server: Server | None = None
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._max_priority = 1.0
        self._writers: dict[int, Any] = {}
        self._batches: Any = None
        self._largest_batch = 0  # that the iterator can provide

    @classmethod
    def local(cls, max_size: int, *, alpha: float | None = None, **options: Any) -> ReplayBuffer:
        """Returns a buffer of its own, with a server in this process that ends with it.

        Args:
            max_size: rows in the buffer; the oldest are removed.
            alpha: exponent of the priorities; None: rows are sampled uniformly.
            options: those of ReplayBuffer(). `timeout` is 10 s unless given.
        """
        sampler = item_selectors.Uniform() if alpha is None else item_selectors.Prioritized(alpha)
        table = Table("replay", sampler, item_selectors.Fifo(), max_size, rate_limiters.MinSize(1))
        server = Server([table])
        buffer = cls(server.localhost_client(), "replay", **{"timeout": 10.0, **options})
        buffer._server = server
        return buffer

    @property
    def batch_size(self) -> int | None:
        """The default number of rows of a sample."""
        return self._batch_size

    @property
    def client(self) -> Client:
        """The client; its server_address is for other processes, which may use the same table."""
        return self._client

    # --- Writing ---

    def extend(self, data: Any) -> None:
        """Writes each row of the TensorDict as an item, and waits until they are in the table.

        New rows get the largest priority so far, or the one at `priority_key`, as the maximum of its elements.
        """
        for transform in reversed(self._transforms):
            if hasattr(transform, "inv"):
                data = transform.inv(data)
        if not isinstance(data, TensorDictBase) or data.ndim < 1:
            raise TypeError(
                f"extend() takes a TensorDict with a batch dimension, got {_brief(data)}; add() takes a row"
            )
        if len(data) == 0:
            return
        priorities = data.get(self._priority_key, None)
        with self._lock:
            if priorities is None:
                each = np.full(len(data), self._max_priority)
            else:
                each = self._learn_priorities(_reduced(priorities))
            rows = _to_arrays(data.exclude("index", self._weight_key, self._priority_key), ())
            writer = self._writer(len(data))
            writer.append(rows)
            writer.create_items(self._table, each, _newest(writer.history))
            writer.flush(timeout_ms=None if self._timeout is None else round(self._timeout * 1000))

    def add(self, data: Any) -> None:
        """Writes one row."""
        if not isinstance(data, TensorDictBase):
            raise TypeError(f"add() takes a TensorDict, got {_brief(data)}")
        self.extend(data.unsqueeze(0))

    def update_tensordict_priority(self, data: Any) -> None:
        """Sets the priorities of sampled rows to those at `priority_key`: the maximum of the elements of each row."""
        priorities = data.get(self._priority_key, None)
        if priorities is None:
            raise KeyError(f"the TensorDict has no entry {self._priority_key!r}; set it to the new priorities")
        self.update_priority(data.get("index"), priorities)

    def update_priority(self, index: Any, priority: Any) -> None:
        """Sets priorities by index. Rows that have left the table are ignored."""
        index = torch.as_tensor(index).detach().cpu()
        priorities = _reduced(torch.as_tensor(priority).expand(index.shape) if _is_scalar(priority) else priority)
        keys = index.reshape(len(priorities), -1)[:, 0].contiguous().numpy().view(np.uint64)
        with self._lock:
            values = self._learn_priorities(priorities)
        self._client.update_priorities(self._table, keys, values)

    def empty(self) -> None:
        """Removes all rows."""
        self._client.reset(self._table)

    # --- Reading ---

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Any:
        """Returns a TensorDict of sampled rows; with `return_info`, also a dict with their index and weights."""
        size = self._batch_size if batch_size is None else batch_size
        if size is None:
            raise ValueError("sample() needs a batch_size, since the buffer was created without one")
        batch = self._batches_of(size).take(size)
        info: dict[str, Any] = {"index": torch.from_numpy(batch.info.key.view(np.int64))}
        if self._beta is not None:
            weights = _priorities.importance_weights(batch, self._beta)
            info[self._weight_key] = torch.from_numpy(weights.astype(np.float32))
        data = TensorDict({**_tensors.to_tensors(batch.data), **info}, batch_size=[size])
        for transform in self._transforms:
            data = transform(data)
        return (data, info) if return_info else data

    def __len__(self) -> int:
        return self._client.server_info()[self._table].current_size

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.sample()

    def append_transform(self, transform: Any) -> ReplayBuffer:
        """Adds a transform of sampled TensorDicts, the last to be applied."""
        self._transforms.append(transform)
        return self

    # --- The end ---

    def close(self) -> None:
        """Closes writers and streams, and stops the server of local()."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
            if self._batches is not None:
                self._batches.close()
        if self._server is not None:
            self._server.stop()

    def state_dict(self) -> NoReturn:
        """NotImplementedError: the data is in a server."""
        raise NotImplementedError(
            f"the rows of table {self._table!r} are in a server; save them with buffer.client.checkpoint(), and start "
            "the server from that checkpoint"
        )

    def load_state_dict(self, state_dict: Any) -> NoReturn:
        """NotImplementedError: the data is in a server."""
        del state_dict
        self.state_dict()

    def _learn_priorities(self, values: Any) -> Any:
        """Returns the priorities for the table, and remembers the largest."""
        priorities = values.numpy() + self._eps
        self._max_priority = max(self._max_priority, float(priorities.max(initial=0.0)))
        return priorities

    def _writer(self, num_rows: int) -> Any:
        writer = self._writers.pop(num_rows, None)
        if writer is None:
            if len(self._writers) == _MAX_WRITERS:
                self._writers.pop(next(iter(self._writers))).close()  # the one that was not used for the longest time
            writer = self._client.vector_writer(num_rows, num_keep_alive_refs=1, timeout=self._timeout)
        self._writers[num_rows] = writer
        return writer

    def _batches_of(self, size: int) -> Any:
        with self._lock:
            if self._batches is None or size > self._largest_batch:
                if self._batches is not None:
                    self._batches.close()
                self._batches = self._client.sample_batches(
                    self._table, size, exact=self._prefetch == 0, prefetch=self._prefetch, timeout=self._timeout
                )
                self._largest_batch = size
            return self._batches


def _reduced(priorities: Any) -> Any:
    """Returns the largest element of each row, as float64 on the host."""
    values = priorities.detach().to("cpu", torch.float64)
    return values.reshape(len(values), -1).amax(dim=1)


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.ndim == 0


def _to_arrays(data: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """Returns the entries as a nest of arrays."""
    arrays: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, TensorDictBase):
            arrays[key] = _to_arrays(value, (*path, key))
        elif isinstance(value, torch.Tensor):
            arrays[key] = _tensors.to_array(value)
        else:
            raise TypeError(f"entry {(*path, key)}: {_brief(value)} is not a tensor, and cannot be stored")
    return arrays


def _newest(history: Any) -> Any:
    """Returns the nest of columns with the newest value of each."""
    if isinstance(history, dict):
        return {key: _newest(child) for key, child in history.items()}
    return history[-1]


def _brief(value: Any) -> str:
    return f"a {type(value).__name__}"
