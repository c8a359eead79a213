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


def prefetch_to_device(iterator: Iterable[Any], size: int = 2, sharding: Any = None) -> Iterator[Any]:
    """Returns an iterator over the batches with JAX arrays on a device, or on several.

        for batch in reverb.jax.prefetch_to_device(client.sample_batches("replay", 256)):
            parameters, errors = update(parameters, batch.data)

    A background thread takes batches and starts their transfers, `size` of them ahead. On the CPU there is nothing to
    hide: next() takes a batch. Arrays of 256 KiB and more share its memory there, which is reused once they are gone.
    Smaller ones are copied, which costs less, and so are arrays that do not come from a batch, to whose memory others
    may write.

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
    transfer = _Transfer(sharding)
    if transfer.is_on_cpu:
        return _prefetch.Direct(iterator, transfer)
    return _prefetch.Prefetcher(iterator, transfer, size, name="rv-to-device")


class _Transfer:
    """Starts the transfer of a batch."""

    def __init__(self, sharding: Any) -> None:
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
        self._small_layout: list[Any] = []  # of the previous batch

    def __call__(self, batch: Any) -> Any:
        if bool(jax.config.jax_enable_x64) == self._x64:
            return _prefetch.map_data(batch, self._put)
        with jax.enable_x64(self._x64):
            return _prefetch.map_data(batch, self._put)

    def _put(self, nest: Any) -> Any:
        leaves, structure = jax.tree.flatten(nest, is_leaf=_is_info)
        if self._one is not None:
            shardings = [self._one] * len(leaves)
        else:
            shardings = jax.tree.leaves(jax.tree.map(_repeat, self._tree, nest))
        small = []
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, (np.ndarray, np.generic)):
                if leaf.dtype.hasobject:
                    continue
                array = leaves[place] = self._owned(np.asarray(leaf))
                if self._copy is not None and array.nbytes < _SMALL_BYTES:
                    small.append(place)
                else:
                    leaves[place] = self._put_array(array, shardings[place])
            elif isinstance(leaf, jax.Array):
                leaves[place] = jax.device_put(leaf, shardings[place])
        if small:
            self._put_small(leaves, small)
        return jax.tree.unflatten(structure, leaves)

    def _put_small(self, leaves: list[Any], places: list[int]) -> None:
        """Replaces the arrays at the places, in one call if the previous batch had the same: a layout is compiled."""
        arrays = [leaves[place] for place in places]
        layout = [(array.shape, array.dtype) for array in arrays]
        if layout == self._small_layout:
            moved = self._copy(arrays)
        else:
            moved = [self._put_array(array, self._one) for array in arrays]
            self._small_layout = layout
        for place, array in zip(places, moved, strict=True):
            leaves[place] = array

    def _put_array(self, array: Any, sharding: Any) -> Any:
        if self._is_local:
            # Several times as fast as device_put().
            return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        return jax.make_array_from_process_local_data(sharding, array)

    def _owned(self, array: Any) -> Any:
        """Returns the array, or a copy: JAX shares memory on the CPU, and relies on nobody writing to it."""
        return array if not self.is_on_cpu or _is_of_batch(array) else array.copy()


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


def _is_of_batch(array: Any) -> bool:
    """Returns whether the memory is that of a batch: the library does not write to it as long as there is an array."""
    while isinstance(array, np.ndarray):
        array = array.base
    return type(array).__module__ == _core.__name__
