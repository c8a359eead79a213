"""Arrays as tensors that share their memory, alone and in nests."""

from __future__ import annotations

from collections.abc import Callable
import sys
from typing import Any

import numpy as np
import torch

from reverb import _tree
from reverb.replay_sample import ReplaySample, SampleInfo


def to_tensor(array: Any) -> Any:
    """Returns a tensor over the memory of the array, which it keeps alive. TypeError for dtypes that PyTorch lacks."""
    try:
        return torch.from_numpy(array)
    except TypeError:
        # bfloat16 and the small floats of ml_dtypes, which from_numpy() does not know.
        dtype = getattr(torch, array.dtype.name, None)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"PyTorch has no dtype for the values, which are {array.dtype}") from None
        return torch.from_numpy(array.view(f"u{array.dtype.itemsize}")).view(dtype)


def map_arrays(nest: Any, function: Callable[[Any], Any]) -> Any:
    """Returns the nest with function(leaf) for each leaf. A TensorDict is a leaf; the info of batches is kept."""
    kind = type(nest)
    if kind is np.ndarray or kind is torch.Tensor:
        return function(nest)
    if kind is dict:
        return {key: map_arrays(child, function) for key, child in nest.items()}
    if kind is SampleInfo:
        return nest
    if _tree.is_nested(nest) and not is_tensordict(nest):
        children = [map_arrays(child, function) for _, child in _tree.children(nest)]
        return _tree._rebuilt(nest, children)
    return function(nest)


def is_tensordict(value: Any) -> bool:
    """Returns whether it is a TensorDict or a tensorclass, without importing tensordict."""
    tensordict = sys.modules.get("tensordict")
    return tensordict is not None and bool(tensordict.is_tensor_collection(value))


def to_tensors(data: Any) -> Any:
    """Returns the nest with tensors in place of arrays. TypeError names the column that cannot be one."""
    try:
        return map_arrays(data, to_tensor)
    except TypeError:
        for path, leaf in _tree.flatten_with_path(data):
            try:
                to_tensor(leaf)
            except TypeError as error:
                raise TypeError(
                    f"column {path}: {error}; store numbers in it, or read it with client.sample_batches()"
                ) from None
        raise


def info_to_tensors(info: SampleInfo) -> SampleInfo:
    """Returns the info of a batch as tensors over the same memory; keys are torch.uint64."""
    return SampleInfo(*map(torch.from_numpy, info))


def to_tensordict(batch: ReplaySample) -> Any:
    """Returns a TensorDict with the entries "info", "data" and, for padded batches, "lengths"."""
    parts: dict[str, Any] = {"info": dict(zip(SampleInfo._fields, batch.info, strict=True)), "data": batch.data}
    lengths = getattr(batch, "lengths", None)
    if lengths is not None:
        parts["lengths"] = lengths
    from tensordict import TensorDict

    return TensorDict(_as_dicts(to_tensors(parts)), batch_size=[len(batch.info.key)])


def _as_dicts(nest: Any) -> Any:
    """Returns the nest with dicts in place of all containers; the children of lists are "0", "1", ..."""
    if not _tree.is_nested(nest):
        return nest
    return {str(key): _as_dicts(child) for key, child in _tree.children(nest)}


def to_array(tensor: Any) -> Any:
    """Returns an array with the values of the tensor, over its memory if that is on the host."""
    tensor = tensor.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:  # bfloat16 and the small floats, which numpy() does not know
        import ml_dtypes

        name = str(tensor.dtype).removeprefix("torch.")
        integers = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        return tensor.contiguous().view(integers).numpy().view(getattr(ml_dtypes, name))
