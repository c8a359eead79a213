"""TensorSpec and BoundedTensorSpec, the leaves of signatures, and what is accepted as one.

Specs are plain values. Anything that has a shape and a dtype is accepted as a spec: `tf.TensorSpec`,
`dm_env.specs.Array`, an array, a NumPy dtype (a scalar of it).
"""

from __future__ import annotations

from collections.abc import Sequence
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int | None, ...]

# --- Dtypes and shapes ---------------------------------------------------------------------------------

# Stands for bfloat16 where ml_dtypes, which provides NumPy's bfloat16, is not installed.
_BFLOAT16_STAND_IN = np.dtype([("bfloat16", "<u2")])

_DTYPES = (
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "object",
    "complex64",
    "int64",
    "bool",
    "bfloat16",
    "uint16",
    "complex128",
    "float16",
    "uint32",
    "uint64",
)


def bfloat16_dtype() -> np.dtype[Any]:
    """Returns NumPy's bfloat16 if ml_dtypes is installed, else a stand-in of the same size."""
    try:
        import ml_dtypes
    except ImportError:
        return _BFLOAT16_STAND_IN
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def as_dtype(value: Any) -> np.dtype[Any]:
    """Returns the NumPy dtype of `value`, which may also be a dtype of TensorFlow or Torch.

    Strings of any kind become `object`, the dtype of strings in samples. TypeError for dtypes that cannot be stored.
    """
    if hasattr(value, "as_numpy_dtype"):  # tf.DType
        value = value.as_numpy_dtype
    elif type(value).__module__ == "torch":
        value = str(value).removeprefix("torch.")
    if value is None:
        raise TypeError("a dtype is needed, not None")
    dtype = bfloat16_dtype() if isinstance(value, str) and value == "bfloat16" else np.dtype(value)
    if dtype.kind in "SU":
        dtype = np.dtype(object)
    if dtype.name not in _DTYPES and dtype != _BFLOAT16_STAND_IN:
        raise TypeError(f"dtype {dtype} is not supported; use one of {', '.join(_DTYPES)}")
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def as_shape(value: Any) -> Shape | None:
    """Returns a tuple of ints, None for each unknown dimension; None if the rank is unknown."""
    if value is None:
        return None
    if hasattr(value, "as_list"):  # tf.TensorShape
        if value.rank is None:
            return None
        value = value.as_list()
    elif not isinstance(value, (Sequence, np.ndarray)):
        value = (value,)  # as in np.zeros(3)
    return tuple(_as_dimension(dim) for dim in value)


def _as_dimension(dim: Any) -> int | None:
    if dim is None:
        return None
    if hasattr(dim, "value") and not isinstance(dim, np.generic):  # tf.compat.v1.Dimension
        return _as_dimension(dim.value)
    number = operator.index(dim)
    if number == -1:
        return None
    if number < 0:
        raise ValueError(f"a dimension is {number}, it must be >= 0, or None when it is unknown")
    return number


# --- Specs ---------------------------------------------------------------------------------------------


class TensorSpec:
    """Shape, dtype and name of an array; an immutable value.

    >>> TensorSpec((None, 84, 84), np.uint8, "pixels")
    TensorSpec(shape=(None, 84, 84), dtype=uint8, name='pixels')
    """

    __slots__ = ("_dtype", "_name", "_shape")

    def __init__(self, shape: Any, dtype: Any = np.float32, name: str | None = None) -> None:
        """`shape` has an int or None (unknown) for each dimension; None instead of a shape means an unknown rank."""
        self._shape = as_shape(shape)
        self._dtype = as_dtype(dtype)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a spec must be a str or None, not {type(name).__name__}")
        self._name = name

    @property
    def shape(self) -> Shape | None:
        """The dimensions, None for each unknown one; None if the rank is unknown."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """A name for messages and tools; None if it has none."""
        return self._name

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """Returns a TensorSpec without bounds for anything that as_spec() accepts."""
        made = as_spec(spec)
        return TensorSpec(made.shape, made.dtype, made.name if name is None else name)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Returns whether a value, or the values of another spec, may match this spec."""
        try:
            other = as_spec(spec_or_value)
        except (TypeError, ValueError):
            try:
                other = as_spec(np.asarray(spec_or_value))
            except (TypeError, ValueError):
                return False
        return self._dtype == other._dtype and shapes_are_compatible(self._shape, other._shape)

    def _key(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._name

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self._shape, self._dtype, self._name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self._shape}, dtype={self._dtype.name}, name={self._name!r})"

    def __reduce__(self) -> Any:
        return type(self), (self._shape, self._dtype, self._name)


class BoundedTensorSpec(TensorSpec):
    """A TensorSpec with the lowest and the highest value of each element, both included.

    The bounds are arrays of the same dtype that broadcast to the spec's shape by NumPy's rules. Tables keep and report
    them, but do not enforce them.
    """

    __slots__ = ("_maximum", "_minimum")

    def __init__(self, shape: Any, dtype: Any, minimum: Any, maximum: Any, name: str | None = None) -> None:
        super().__init__(shape, dtype, name)
        self._minimum = self._as_bound("minimum", minimum)
        self._maximum = self._as_bound("maximum", maximum)

    def _as_bound(self, what: str, value: Any) -> npt.NDArray[Any]:
        if hasattr(value, "numpy"):
            value = value.numpy()
        bound: npt.NDArray[Any] = np.array(value, dtype=self._dtype)
        if not _can_be_broadcast(bound.shape, self._shape):
            raise ValueError(f"{what} has shape {bound.shape}, which does not fit shape {self._shape}")
        bound.setflags(write=False)
        return bound

    @property
    def minimum(self) -> npt.NDArray[Any]:
        """The lowest values, which can be broadcast to the shape."""
        return self._minimum

    @property
    def maximum(self) -> npt.NDArray[Any]:
        """The highest values, which can be broadcast to the shape."""
        return self._maximum

    def _key(self) -> tuple[Any, ...]:
        bounds = tuple(
            (bound.shape, bound.tolist() if bound.dtype.kind == "O" else bound.tobytes())
            for bound in (self._minimum, self._maximum)
        )
        return (*super()._key(), *bounds)

    __hash__ = TensorSpec.__hash__

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self._shape}, dtype={self._dtype.name}, name={self._name!r}, "
            f"minimum={self._minimum!r}, maximum={self._maximum!r})"
        )

    def __reduce__(self) -> Any:
        return type(self), (self._shape, self._dtype, self._minimum, self._maximum, self._name)


def _can_be_broadcast(bound: tuple[int, ...], shape: Shape | None) -> bool:
    if shape is None:
        return True
    # Compares from the last dimension on; the bound may have fewer.
    return len(bound) <= len(shape) and all(
        theirs == 1 or ours is None or ours == theirs
        for ours, theirs in zip(reversed(shape), reversed(bound), strict=False)
    )


def shapes_are_compatible(first: Shape | None, second: Shape | None) -> bool:
    """Returns whether a rank is unknown, or the ranks are equal and all dimensions equal or unknown."""
    if first is None or second is None:
        return True
    return len(first) == len(second) and all(
        ours is None or theirs is None or ours == theirs for ours, theirs in zip(first, second, strict=True)
    )


def as_spec(value: Any) -> TensorSpec:
    """Returns `value` as a spec: itself, or a spec of its shape and dtype.

    ValueError if it has no shape or dtype; TypeError if the dtype cannot be stored.
    """
    if isinstance(value, TensorSpec):
        return value
    if isinstance(value, np.dtype):
        return TensorSpec(value.shape, value.base)
    if isinstance(value, type) and issubclass(value, np.generic):
        return TensorSpec((), value)
    if isinstance(value, type) or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ValueError(
            f"unsupported signature spec {value!r} of type {type(value).__name__}: it must be a TensorSpec, "
            "or have a shape and a dtype"
        )
    name = getattr(value, "name", None)
    if not isinstance(name, str):
        name = None
    if not isinstance(value, (np.ndarray, np.generic)) and not callable(getattr(value, "minimum", len)):
        minimum, maximum = value.minimum, getattr(value, "maximum", None)
        if maximum is not None:
            return BoundedTensorSpec(value.shape, value.dtype, minimum, maximum, name)
    return TensorSpec(value.shape, value.dtype, name)
