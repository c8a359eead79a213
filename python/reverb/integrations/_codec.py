"""Python objects as a short description and arrays, which become the columns of a row.

A nest of lists, tuples, dicts, numbers, strings, bytes, NumPy arrays and PyTorch tensors is described in JSON. Any
other object is pickled, without the arrays in it: those travel as columns as well.
"""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

import numpy as np

__all__ = ["MAX_ARRAYS", "decode", "encode"]

# Arrays that get a column of their own. The bytes of all others are joined in one more, since the number of columns
# that a table can have is bounded.
MAX_ARRAYS = 63

_JSON, _PICKLE = b"J", b"P"
_ALIGNMENT = 64
_PLAIN = (type(None), bool, int, float, str)


class _NotDescribedError(Exception):
    """The object is not such a nest."""


class _Arrays:
    """Collects the arrays of an object. add() returns how the description refers to the array."""

    def __init__(self) -> None:
        self.own: list[np.ndarray] = []
        self._joined: list[bytes] = []
        self._size = 0

    def add(self, array: np.ndarray) -> list[Any]:
        if len(self.own) < MAX_ARRAYS:
            self.own.append(array)
            return [len(self.own) - 1]
        content = np.ascontiguousarray(array).tobytes()
        reference = [self._size, str(array.dtype), list(array.shape)]
        padding = -len(content) % _ALIGNMENT
        self._joined.append(content + bytes(padding))
        self._size += len(content) + padding
        return reference

    def all(self) -> list[np.ndarray]:
        if not self._joined:
            return self.own
        return [*self.own, np.frombuffer(b"".join(self._joined), np.uint8)]


def _find(reference: list[Any], arrays: list[np.ndarray]) -> Any:
    if len(reference) == 1:
        return arrays[reference[0]]
    offset, dtype, shape = reference
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(arrays[MAX_ARRAYS], np.dtype(dtype), count, offset).reshape(shape)


def _is_plain_array(array: np.ndarray) -> bool:
    # The names of other dtypes, such as bfloat16, are known only where ml_dtypes is imported.
    return (
        type(array) is np.ndarray and array.dtype.kind in "biuf" and array.dtype.isnative and array.dtype.itemsize <= 8
    )


def _describe_tensor(tensor: Any, arrays: _Arrays) -> list[Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_nested or tensor.layout is not sys.modules["torch"].strided or tensor.is_quantized:
        raise _NotDescribedError
    host = tensor.detach().cpu()
    try:
        return ["tensor", name, *arrays.add(host.numpy())]
    except TypeError:  # NumPy has no such dtype: sends the bits
        torch = sys.modules["torch"]
        integers = {1: torch.uint8, 2: torch.int16}.get(host.element_size())
        if integers is None:
            raise _NotDescribedError from None
        return ["tensor", name, *arrays.add(host.contiguous().view(integers).numpy())]


def _describe(value: Any, arrays: _Arrays) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return ["list", [_describe(child, arrays) for child in value]]
    if kind is tuple:
        return ["tuple", [_describe(child, arrays) for child in value]]
    if kind is dict:
        return ["dict", [[_describe(key, arrays), _describe(child, arrays)] for key, child in value.items()]]
    if kind is np.ndarray and _is_plain_array(value):
        return ["array", *arrays.add(value)]
    if kind is bytes:
        return ["bytes", *arrays.add(np.frombuffer(value, np.uint8))]
    if isinstance(value, np.generic) and _is_plain_array(np.asarray(value)):
        return ["scalar", *arrays.add(np.asarray(value))]
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor:
        return _describe_tensor(value, arrays)
    raise _NotDescribedError


def _rebuild(node: Any, arrays: list[np.ndarray]) -> Any:
    if type(node) is not list:
        return node
    kind, *rest = node
    if kind == "list":
        return [_rebuild(child, arrays) for child in rest[0]]
    if kind == "tuple":
        return tuple(_rebuild(child, arrays) for child in rest[0])
    if kind == "dict":
        return {_rebuild(key, arrays): _rebuild(child, arrays) for key, child in rest[0]}
    if kind == "array":
        return _find(rest, arrays)
    if kind == "bytes":
        return _find(rest, arrays).tobytes()
    if kind == "scalar":
        return _find(rest, arrays)[()]
    if kind == "tensor":
        import torch

        dtype = getattr(torch, rest[0], None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"PyTorch {torch.__version__} has no dtype {rest[0]!r}")
        tensor = torch.from_numpy(np.asarray(_find(rest[1:], arrays)))
        return tensor if tensor.dtype == dtype else tensor.view(dtype)
    raise ValueError(f"the description of an object has the unknown kind {kind!r}; it is of a newer version")


def encode(value: Any, *, allow_pickle: bool) -> tuple[bytes, list[np.ndarray]]:
    """Returns the description of an object and its arrays.

    TypeError if the object must be pickled and that is not allowed, and what pickle raises if it cannot be.
    """
    arrays = _Arrays()
    try:
        # Lone surrogates are escaped, and NaN is a number here.
        return _JSON + json.dumps(_describe(value, arrays), separators=(",", ":")).encode(), arrays.all()
    except (_NotDescribedError, RecursionError):  # the latter: an object that contains itself
        pass
    if not allow_pickle:
        raise TypeError(
            f"an object of type {type(value).__name__} that is not a nest of lists, tuples, dicts, numbers, strings, "
            "bytes and arrays must be pickled, which allow_pickle=False excludes"
        )
    arrays = _Arrays()
    references: list[list[Any]] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        references.append(arrays.add(np.asarray(buffer.raw())))

    pickled = pickle.dumps(value, protocol=5, buffer_callback=keep)
    header = json.dumps(references, separators=(",", ":")).encode()
    return _PICKLE + len(header).to_bytes(4, "little") + header + pickled, arrays.all()


def decode(description: bytes, arrays: list[np.ndarray], *, allow_pickle: bool) -> Any:
    """Returns the object. ValueError if it is pickled and that is not allowed, or if the description is damaged."""
    kind, rest = description[:1], description[1:]
    if kind == _JSON:
        return _rebuild(json.loads(rest), arrays)
    if kind != _PICKLE:
        raise ValueError(f"the row is not an object of a queue: its description begins with {kind!r}")
    if not allow_pickle:
        raise ValueError("the object is pickled, which allow_pickle=False excludes; put nests of arrays only")
    size = int.from_bytes(rest[:4], "little")
    references = json.loads(rest[4 : 4 + size])
    return pickle.loads(rest[4 + size :], buffers=[_find(reference, arrays) for reference in references])
