"""Transfers batches to devices while the previous ones are being used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from reverb import _core, _prefetch
from reverb.replay_sample import SampleInfo

# Copying an array of fewer bytes costs less than creating a JAX array over its memory from Python.
_SMALL_BYTES = 256 * 1024
# Batches of sample_batches() with fewer bytes are sent by the caller's thread.
_LARGE_BATCH_BYTES = 1 << 20


def prefetch_to_device(iterator: Iterable[Any], size: int = 2, sharding: Any = None) -> Iterator[Any]:
    """Returns an iterator over the batches with JAX arrays on a device, or on several.

        for batch in reverb.jax.prefetch_to_device(client.sample_batches("replay", 256)):
            parameters, errors = update(parameters, batch.data)

    Background threads take batches and start their transfers, `size` of them ahead. Batches of sample_batches() of less
    than 1 MiB are sent by next() itself: sample_batches() reads ahead already, and handing them over between threads
    would take longer than the transfer. On the CPU there is nothing to hide: next() takes a batch. Arrays of 256 KiB
    and more share its memory there, which is reused once they are gone. Smaller ones are copied, which costs less, and
    so are, for any device, arrays that do not come from a batch, to whose memory others may write.

    Arrays of any pytree are transferred. The `info` of a batch (any SampleInfo) stays in NumPy on the host, where
    update_priorities() and importance_weights() need it: without jax_enable_x64, JAX would truncate the keys. Columns
    of 64 bits become 32 bits then, as with jnp.asarray(). Arrays of strings stay as they are.

    The iterator has close(), which dropping it calls as well, and which closes `iterator`: batches that were taken
    ahead are dropped. Of a queue they are lost; use `num_batches` to take an exact number.

    Args:
        iterator: client.sample_batches(), or any other iterable of batches: reverb.mix(), a Grain dataset, ...
        size: batches that are on the device, or on the way to it, before next() takes them.
        sharding: a device, a Sharding such as NamedSharding(mesh, PartitionSpec("data")), or a tree of them that is a
            prefix of the data; None: the default device. If a sharding spans several processes, the batch is the part
            of this process.

    Raises:
        ValueError: if `size` is not positive; from next(): if a batch cannot be divided as `sharding` says.
    """
    if size < 1:
        raise ValueError(f"size ({size}) must be a positive integer")
    transfer = _Transfer(iterator, sharding)
    if transfer.is_on_cpu:
        return _prefetch.Direct(iterator, transfer)

    def start_thread(source: Iterable[Any]) -> _prefetch.Prefetcher:
        return _prefetch.Prefetcher(source, transfer, size, name="rv-to-device")

    if not isinstance(iterator, _core.BatchIterator):
        return start_thread(iterator)  # takes the next element when this one was copied: it may use the same memory
    return _prefetch.Adaptive(
        iterator,
        transfer,
        lambda: transfer.num_bytes >= _LARGE_BATCH_BYTES,
        lambda source: start_thread(_prefetch.ahead(source)),
    )


class _Transfer:
    """Starts the transfer of a batch."""

    def __init__(self, source: Any, sharding: Any) -> None:
        # Of sample_batches(): the data has arrays only, and nobody writes to them.
        self._is_of_batches = isinstance(source, _core.BatchIterator)
        # The settings of `with jax.default_device(...)` and `jax.enable_x64(...)` belong to the caller's thread.
        self._x64 = bool(jax.config.jax_enable_x64)
        if sharding is None:
            sharding = jax.config.jax_default_device or jax.local_devices()[0]
            if isinstance(sharding, str):
                sharding = jax.local_devices(backend=sharding)[0]
        shardings = jax.tree.map(_as_sharding, sharding)
        self._one = shardings if isinstance(shardings, jax.sharding.Sharding) else None
        self._tree = shardings
        self._is_local = all(each.is_fully_addressable for each in jax.tree.leaves(shardings))
        devices = {device for each in jax.tree.leaves(shardings) for device in each.device_set}
        self.is_on_cpu = any(device.platform == "cpu" for device in devices)
        # Creates small arrays for a single device, all in one call.
        is_single = self._one is not None and len(devices) == 1
        self._copy: Any = jax.jit(lambda arrays: arrays, out_shardings=self._one) if is_single else None
        # The leaves of the previous batch, if all were arrays, and the places of small and other ones.
        self._layout: list[Any] = []
        self._small: list[int] = []
        self._large: list[int] = []
        self.num_bytes = 0  # of the last batch

    def __call__(self, batch: Any) -> Any:
        if bool(jax.config.jax_enable_x64) == self._x64:
            return _prefetch.map_data(batch, self._put)
        with jax.enable_x64(self._x64):
            return _prefetch.map_data(batch, self._put)

    def _put(self, nest: Any) -> Any:
        leaves, structure = jax.tree.flatten(nest, is_leaf=None if self._is_of_batches else _is_info)
        shardings = self._tree_of(nest, leaves)
        self.num_bytes = sum(leaf.nbytes for leaf in leaves if type(leaf) is np.ndarray)
        layout = [(leaf.shape, leaf.dtype) if type(leaf) is np.ndarray else None for leaf in leaves]
        if not self._is_of_batches:
            leaves = [self._owned(leaf) for leaf in leaves]
        if self._layout and layout == self._layout:
            # Seen before: the small ones in one call. Not at the first sight, since a layout is compiled.
            moved = self._copy([leaves[place] for place in self._small])
            for place, array in zip(self._small, moved, strict=True):
                leaves[place] = array
            for place in self._large:
                leaves[place] = self._put_array(leaves[place], shardings[place])
        else:
            self._learn(layout, leaves)
            leaves = [self._put_leaf(leaf, sharding) for leaf, sharding in zip(leaves, shardings, strict=True)]
        return jax.tree.unflatten(structure, leaves)

    def _learn(self, layout: list[Any], leaves: list[Any]) -> None:
        """Remembers the layout of a batch, if small arrays of the next one may be created in one call."""
        self._layout = []
        if self._copy is None or not all(_is_numeric(leaf) for leaf in leaves):
            return
        self._small = [place for place, leaf in enumerate(leaves) if leaf.nbytes < _SMALL_BYTES]
        self._large = [place for place, leaf in enumerate(leaves) if leaf.nbytes >= _SMALL_BYTES]
        if self._small:
            self._layout = layout

    def _tree_of(self, nest: Any, leaves: list[Any]) -> list[Any]:
        """Returns the sharding of each leaf."""
        if self._one is not None:
            return [self._one] * len(leaves)
        return jax.tree.leaves(jax.tree.map(_repeat, self._tree, nest))  # type: ignore[no-any-return, unused-ignore]

    def _put_leaf(self, leaf: Any, sharding: Any) -> Any:
        if _is_numeric(leaf) or isinstance(leaf, np.generic):
            return self._put_array(np.asarray(leaf), sharding)
        return jax.device_put(leaf, sharding) if isinstance(leaf, jax.Array) else leaf

    def _put_array(self, array: Any, sharding: Any) -> Any:
        if self._is_local:
            # Several times as fast as device_put().
            return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        return jax.make_array_from_process_local_data(sharding, array)

    def _owned(self, leaf: Any) -> Any:
        """Returns the leaf, or a copy: JAX shares memory on the CPU, and reads it later for other devices."""
        if not isinstance(leaf, np.ndarray) or _is_of_batch(leaf):
            return leaf
        return leaf.copy()


def _as_sharding(target: Any) -> Any:
    if isinstance(target, jax.sharding.Sharding):
        return target
    if isinstance(target, jax.Device):
        return jax.sharding.SingleDeviceSharding(target)
    raise TypeError(f"sharding must be a device or a Sharding, or a tree of them, got {target!r}")


def _repeat(sharding: Any, nest: Any) -> Any:
    """Returns the nest with the sharding in place of each leaf."""
    return jax.tree.map(lambda _: sharding, nest, is_leaf=_is_info)


def _is_info(value: Any) -> bool:
    return isinstance(value, SampleInfo)


def _is_numeric(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject


def _is_of_batch(array: Any) -> bool:
    """Returns whether the memory is that of a batch: the library does not write to it as long as there is an array."""
    while isinstance(array, np.ndarray):
        array = array.base
    return type(array).__module__ == _core.__name__
