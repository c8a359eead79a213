"""Transfers batches to a device while the previous ones are being used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import functools
from typing import Any

import numpy as np
import torch

from reverb import _core, _prefetch, _tree
from reverb.replay_sample import ReplaySample
from reverb.torch import _tensors

# Batches of sample_batches() with fewer bytes are sent by the caller's thread: the transfer takes some 20 us.
_SMALL_BYTES = 1 << 20
# Columns start at multiples of this many bytes in the buffer of a batch.
_ALIGNMENT = 256
# Page-locked buffers: one is filled while others are being sent, or wait for what the device does before.
_NUM_STAGING_BUFFERS = 3


def prefetch_to_device(iterable: Iterable[Any], device: Any, depth: int = 2) -> Iterator[Any]:
    """Returns an iterator over the batches with tensors on the device.

        for batch in reverb.torch.prefetch_to_device(client.sample_batches("replay", 256), "cuda"):
            loss = update(batch.data)

    On a CUDA device, background threads take batches ahead, copy each into one page-locked buffer and send it to the
    device in one transfer on a separate stream. next() makes the current stream wait for that transfer, not the caller.
    Batches of sample_batches() of less than 1 MiB are sent by next() itself: sample_batches() reads ahead already, and
    handing them over between threads would take longer than the transfer.
    The tensors of a batch share one allocation on the device. On other devices, next() takes a batch and copies it;
    on the CPU nothing is copied: tensors share the memory of arrays.

    Arrays and CPU tensors of any nest are transferred, in TensorDicts too. The `info` of a batch (any SampleInfo) stays
    on the host, where update_priorities() and importance_weights() need it. All else stays as it is.

    The iterator has close(), which dropping it calls as well, and which closes the iterator of `iterable`: batches
    that were taken ahead are dropped. Of a queue they are lost; use `num_batches` to take an exact number.

    Args:
        iterable: of batches: client.sample_batches(), a BatchDataset, a DataLoader, reverb.mix(), ...
        device: a torch.device or its name.
        depth: batches that are on the device, or on the way to it, before next() takes them.

    Raises:
        ValueError: if `depth` is not positive.
    """
    if depth < 1:
        raise ValueError(f"depth ({depth}) must be a positive integer")
    target = torch.device(device)
    if target.type != "cuda":
        return _prefetch.Direct(iterable, lambda batch: _prefetch.map_data(batch, functools.partial(_move, target)))
    transfer = CudaTransfer(target)

    def start_thread(source: Iterable[Any]) -> _prefetch.Prefetcher:
        return _prefetch.Prefetcher(source, transfer.start, depth, finish=transfer.finish, name="rv-to-device")

    if not isinstance(iterable, _core.BatchIterator):
        return start_thread(iterable)  # takes the next element when this one was copied: it may use the same memory
    return _prefetch.Adaptive(
        iterable,
        transfer.send,
        lambda: transfer.num_bytes >= _SMALL_BYTES,
        lambda source: start_thread(_prefetch.ahead(source)),
    )


def _move(device: Any, nest: Any) -> Any:
    return _map_tensors(nest, lambda tensor: tensor.to(device), device)


def _map_tensors(nest: Any, function: Callable[[Any], Any], device: Any) -> Any:
    """Returns the nest with function(tensor) for its arrays and tensors; `device` is where TensorDicts are then."""

    def leaf(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value if value.dtype.hasobject else function(_tensors.to_tensor(value))
        if isinstance(value, torch.Tensor):
            return function(value)
        if _tensors.is_tensordict(value):
            return value.apply(function, device=device)
        return value

    return _tensors.map_arrays(nest, leaf)


class Layout:
    """Where the tensors of a batch lie in one buffer of bytes."""

    def __init__(self, tensors: list[Any]) -> None:
        self._places = []
        offset = 0
        for tensor in tensors:
            strides = torch.empty(tensor.shape, device="meta").stride()  # of a contiguous tensor
            self._places.append((tensor.dtype, tensor.shape, strides, offset // tensor.element_size()))
            offset += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        self._dtypes = {place[0] for place in self._places}
        self.num_bytes = offset

    def views(self, buffer: Any) -> list[Any]:
        """Returns the tensors over their parts of the buffer."""
        typed = {dtype: buffer.view(dtype) for dtype in self._dtypes}
        return [typed[dtype].as_strided(shape, strides, offset) for dtype, shape, strides, offset in self._places]


class StagingBuffer:
    """A buffer for whole batches on the host, page-locked for devices that can read it directly."""

    def __init__(self, *, pin: bool) -> None:
        self._pin = pin
        self._layout = Layout([])
        self._key: list[Any] | None = None
        self._parts: list[Any] = []  # arrays, one for each leaf
        self.bytes: Any = None

    def fill(self, leaves: list[Any]) -> Layout:
        """Copies arrays and tensors into the buffer, which is allocated again only if dtypes or shapes changed."""
        key = [(leaf.dtype, leaf.shape) for leaf in leaves]
        if key != self._key:
            self._key = key
            self._layout = Layout([_tensors.to_tensor(leaf) if _is_array(leaf) else leaf for leaf in leaves])
            self.bytes = torch.empty(self._layout.num_bytes, dtype=torch.uint8, pin_memory=self._pin)
            self._parts = [
                _bytes_of(view).view(leaf.dtype).reshape(leaf.shape) if _is_array(leaf) else _bytes_of(view)
                for leaf, view in zip(leaves, self._layout.views(self.bytes), strict=True)
            ]
        # Not Tensor.copy_(), whose threads would take the cores from sampling.
        for part, leaf in zip(self._parts, leaves, strict=True):
            np.copyto(part, leaf if _is_array(leaf) else _bytes_of(leaf))
        return self._layout


def _is_array(leaf: Any) -> bool:
    return type(leaf) is np.ndarray


def _bytes_of(tensor: Any) -> Any:
    """Returns an array over the memory of the tensor, or over a contiguous copy."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


class CudaTransfer:
    """Sends batches to a CUDA device, one after the other, on a stream of its own."""

    def __init__(self, device: Any) -> None:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # Tests without a GPU use the CPU as the device.
        self._buffers = [StagingBuffer(pin=device.type == "cuda") for _ in range(_NUM_STAGING_BUFFERS)]
        self._sent = [torch.cuda.Event(blocking=True) for _ in self._buffers]
        self._next = 0
        self.num_bytes = 0  # of the last batch

    def start(self, batch: Any) -> tuple[Any, Any, Any]:
        """Starts the transfer of a batch. Returns it, its memory on the device, and the event of its arrival."""
        with torch.cuda.stream(self._stream):
            return self._start(batch, self._stream)

    def send(self, batch: Any) -> Any:
        """Returns the batch, whose transfer is the next work of the current stream: for small batches."""
        return self._start(batch, torch.cuda.current_stream(self._device))[0]

    def _start(self, batch: Any, stream: Any) -> tuple[Any, Any, Any]:
        leaves, rebuild = self._flatten(batch)
        number = self._next
        self._next = (number + 1) % len(self._buffers)
        buffer = self._buffers[number]
        self._sent[number].synchronize()  # the buffer's previous batch
        layout = buffer.fill(leaves)
        self.num_bytes = layout.num_bytes
        memory = torch.empty(layout.num_bytes, dtype=torch.uint8, device=self._device)
        memory.copy_(buffer.bytes, non_blocking=True)
        arrived = torch.cuda.Event(blocking=True)  # synchronize() does not spin
        arrived.record(stream)
        self._sent[number] = arrived
        return rebuild(layout.views(memory)), memory, arrived

    def _flatten(self, batch: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """Returns the arrays and tensors to send, and a function that makes a batch of those on the device."""
        if type(batch) is ReplaySample:
            # A batch of sample_batches(): arrays only, which needs less work.
            leaves = _tree.flatten(batch.data)
            if all(_is_array(leaf) and not leaf.dtype.hasobject for leaf in leaves):
                return leaves, lambda views: ReplaySample(batch.info, _tree.unflatten_as(batch.data, views))
        tensors: list[Any] = []

        def collect(tensor: Any) -> Any:
            if tensor.device.type == "cpu":
                tensors.append(tensor)
            return tensor

        collected = _prefetch.map_data(batch, lambda nest: _map_tensors(nest, collect, None))

        def rebuild(views: list[Any]) -> Any:
            remaining = iter(views)

            def place(tensor: Any) -> Any:
                return next(remaining) if tensor.device.type == "cpu" else tensor.to(self._device)

            return _prefetch.map_data(collected, lambda nest: _map_tensors(nest, place, self._device))

        return tensors, rebuild

    def finish(self, transfer: tuple[Any, Any, Any]) -> Any:
        """Makes the stream of the caller wait for the transfer, and returns the batch."""
        batch, memory, arrived = transfer
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(arrived)
        memory.record_stream(stream)  # freed memory is not reused before this stream is done with it
        return batch
