"""Transfers batches to a device while the previous ones are being used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import functools
from typing import Any

import numpy as np
import torch

from reverb import _prefetch
from reverb.torch import _tensors

# Columns start at multiples of this many bytes in the buffer of a batch.
_ALIGNMENT = 256
# Page-locked buffers: one is filled while the other is being sent.
_NUM_STAGING_BUFFERS = 2


def prefetch_to_device(iterable: Iterable[Any], device: Any, depth: int = 2) -> Iterator[Any]:
    """Returns an iterator over the batches with tensors on the device.

        for batch in reverb.torch.prefetch_to_device(client.sample_batches("replay", 256), "cuda"):
            loss = update(batch.data)

    On a CUDA device, background threads take batches ahead, copy each into one page-locked buffer and send it to the
    device in one transfer on a separate stream. next() makes the current stream wait for that transfer, not the caller.
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
    # Sampling and transferring have a thread each, so that one does not wait for the other.
    sampled = _prefetch.Prefetcher(iterable, _prefetch.keep, 1, name="rv-sample")
    return _prefetch.Prefetcher(sampled, transfer.start, depth, finish=transfer.finish, name="rv-to-device")


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
        self.key = [(tensor.dtype, tensor.shape) for tensor in tensors]
        self._places = []
        offset = 0
        for tensor in tensors:
            num_bytes = tensor.numel() * tensor.element_size()
            self._places.append((offset, offset + num_bytes, tensor.dtype, tensor.shape))
            offset += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        self.num_bytes = offset

    def views(self, buffer: Any) -> list[Any]:
        """Returns the tensors over their parts of the buffer."""
        return [buffer[begin:end].view(dtype).view(shape) for begin, end, dtype, shape in self._places]


class StagingBuffer:
    """A buffer for whole batches on the host, page-locked for devices that can read it directly."""

    def __init__(self, *, pin: bool) -> None:
        self._pin = pin
        self._layout: Layout | None = None
        self._parts: list[Any] = []  # arrays of bytes, one for each tensor
        self.bytes: Any = None

    def fill(self, tensors: list[Any]) -> Layout:
        """Copies the tensors into the buffer, which is allocated again only if their dtypes or shapes changed."""
        layout = self._layout
        if layout is None or layout.key != [(tensor.dtype, tensor.shape) for tensor in tensors]:
            self._layout = layout = Layout(tensors)
            self.bytes = torch.empty(layout.num_bytes, dtype=torch.uint8, pin_memory=self._pin)
            self._parts = [_bytes_of(view) for view in layout.views(self.bytes)]
        # Not Tensor.copy_(), whose threads would take the cores from sampling.
        for part, tensor in zip(self._parts, tensors, strict=True):
            np.copyto(part, _bytes_of(tensor))
        return layout


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

    def start(self, batch: Any) -> tuple[Any, Any, Any]:
        """Starts the transfer of a batch. Returns it, its memory on the device, and the event of its arrival."""
        tensors: list[Any] = []

        def collect(tensor: Any) -> Any:
            if tensor.device.type == "cpu":
                tensors.append(tensor)
            return tensor

        batch = _prefetch.map_data(batch, lambda nest: _map_tensors(nest, collect, None))
        number = self._next
        self._next = (number + 1) % len(self._buffers)
        buffer = self._buffers[number]
        self._sent[number].synchronize()  # the buffer's previous batch
        layout = buffer.fill(tensors)
        with torch.cuda.stream(self._stream):
            memory = torch.empty(layout.num_bytes, dtype=torch.uint8, device=self._device)
            memory.copy_(buffer.bytes, non_blocking=True)
            arrived = torch.cuda.Event(blocking=True)  # synchronize() does not spin
            arrived.record(self._stream)
        self._sent[number] = arrived
        views = iter(layout.views(memory))

        def place(tensor: Any) -> Any:
            return next(views) if tensor.device.type == "cpu" else tensor.to(self._device)

        return _prefetch.map_data(batch, lambda nest: _map_tensors(nest, place, self._device)), memory, arrived

    def finish(self, transfer: tuple[Any, Any, Any]) -> Any:
        """Makes the stream of the caller wait for the transfer, and returns the batch."""
        batch, memory, arrived = transfer
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(arrived)
        memory.record_stream(stream)  # freed memory is not reused before this stream is done with it
        return batch
