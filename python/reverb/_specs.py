"""What a signature promises about its leaves, and how signatures are kept and sent.

TensorSpec and BoundedTensorSpec are plain values. Wherever a spec is taken, anything that has a shape and a
dtype will do: `tf.TensorSpec`, `dm_env.specs.Array`, an array, a NumPy dtype (a scalar of it). Where specs
are handed out they are these classes, or TensorFlow's own when TensorFlow is already imported in the process.

A signature is a nest of specs: dicts (str keys), lists, tuples, namedtuples. It has two encodings:

* `encode_signature` / `decode_signature`: the one that servers keep, described in include/reverb/signature.h.
  It knows no bounds: a bounded spec is decoded as a plain one.
* `encode_structured_value` / `decode_structured_value`: TensorFlow's `StructuredValue` message, for programs
  that speak dm-reverb's protos. Bounds are kept.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
import itertools
import operator
import re
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from reverb import _tree
from reverb._compat.message import DecodeError, Field, Message, get_varint, put_varint

Shape = tuple[int | None, ...]

# --- Element types -------------------------------------------------------------------------------------

# Stands for bfloat16 where ml_dtypes, which gives NumPy the real one, is not installed.
_BFLOAT16_STAND_IN = np.dtype([("bfloat16", "<u2")])

# The numbers are TensorFlow's; they are on disk and on the wire.
_NUMBER_BY_NAME: Mapping[str, int] = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "object": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_NAME_BY_NUMBER = {number: name for name, number in _NUMBER_BY_NAME.items()}


def bfloat16_dtype() -> np.dtype[Any]:
    """NumPy's bfloat16 where ml_dtypes is installed, else a stand-in of the same size."""
    try:
        import ml_dtypes
    except ImportError:
        return _BFLOAT16_STAND_IN
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def dtype_number(dtype: np.dtype[Any]) -> int:
    """The number of a dtype on the wire. TypeError for one that cannot be stored."""
    if dtype == _BFLOAT16_STAND_IN:
        return _NUMBER_BY_NAME["bfloat16"]
    if dtype.kind in "OSU":
        return _NUMBER_BY_NAME["object"]
    try:
        return _NUMBER_BY_NAME[dtype.name]
    except KeyError:
        raise TypeError(f"dtype {dtype} is not supported; use one of {', '.join(_NUMBER_BY_NAME)}") from None


def dtype_from_number(number: int) -> np.dtype[Any]:
    """The reverse of dtype_number(). ValueError for a number that means nothing here."""
    name = _NAME_BY_NUMBER.get(number)
    if name is None:
        raise ValueError(f"dtype number {number} is not known")
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)


def as_dtype(value: Any) -> np.dtype[Any]:
    """The NumPy dtype that `value` means: also a dtype of TensorFlow or Torch.

    Strings of any kind become `object`, which is how they are handed out. TypeError for dtypes that cannot be
    stored.
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
    dtype_number(dtype)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def as_shape(value: Any) -> Shape | None:
    """A tuple of ints, None for each unknown dimension; None when not even their number is known."""
    if value is None:
        return None
    if hasattr(value, "as_list"):  # tf.TensorShape
        if value.rank is None:
            return None
        value = value.as_list()
    elif not isinstance(value, (Sequence, np.ndarray)):
        value = (value,)  # np.zeros(3) and np.zeros((3,)) are the same
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
        """`shape`: ints, or None for unknown ones; None alone for an unknown rank."""
        self._shape = as_shape(shape)
        self._dtype = as_dtype(dtype)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a spec must be a str or None, not {type(name).__name__}")
        self._name = name

    @property
    def shape(self) -> Shape | None:
        """The dimensions; None for each that is unknown, None instead when the rank is."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def name(self) -> str | None:
        return self._name

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """The TensorSpec of whatever as_spec() takes, without bounds."""
        made = as_spec(spec)
        return TensorSpec(made.shape, made.dtype, made.name if name is None else name)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a value, or what another spec promises, may be what this one promises."""
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
    """A TensorSpec with the least and the greatest value of each element, both included.

    The bounds are arrays of the same dtype whose shapes go with the spec's by NumPy's rules of broadcasting.
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
        return self._minimum

    @property
    def maximum(self) -> npt.NDArray[Any]:
        return self._maximum

    def _key(self) -> tuple[Any, ...]:
        bounds = tuple((bound.shape, bound.tobytes()) for bound in (self._minimum, self._maximum))
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
    # From the last dimension on; the bound may have fewer.
    return len(bound) <= len(shape) and all(
        theirs == 1 or ours is None or ours == theirs
        for ours, theirs in zip(reversed(shape), reversed(bound), strict=False)
    )


def shapes_are_compatible(first: Shape | None, second: Shape | None) -> bool:
    """An unknown rank goes with everything; else ranks are equal, and dimensions equal or unknown."""
    if first is None or second is None:
        return True
    return len(first) == len(second) and all(
        ours is None or theirs is None or ours == theirs for ours, theirs in zip(first, second, strict=True)
    )


def as_spec(value: Any) -> TensorSpec:
    """The spec that `value` is, or describes by having a shape and a dtype.

    ValueError when it has none; TypeError when the dtype cannot be stored.
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


# --- TensorFlow's specs, where it is imported ----------------------------------------------------------


def _tensorflow() -> Any | None:
    """The module if it is imported already, and completely."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "TensorSpec") and hasattr(module, "as_dtype") else None


def to_tensorflow(spec: TensorSpec, tensorflow: Any) -> Any:
    """The same spec as TensorFlow's class."""
    number = dtype_number(spec.dtype)
    name = {7: "string", 14: "bfloat16"}.get(number, spec.dtype.name)
    dtype = tensorflow.as_dtype(name)
    if isinstance(spec, BoundedTensorSpec):
        # Not among TensorFlow's public names, but signatures have always been made of it.
        module = sys.modules.get("tensorflow.python.framework.tensor_spec")
        bounded = getattr(module, "BoundedTensorSpec", None)
        if bounded is not None:
            return bounded(spec.shape, dtype, spec.minimum, spec.maximum, spec.name)
    return tensorflow.TensorSpec(spec.shape, dtype, spec.name)


def localize(signature: Any) -> Any:
    """The nest with specs of the kind that the process works with: TensorFlow's if it is imported."""
    tensorflow = _tensorflow()
    if tensorflow is None or signature is None:
        return signature
    return _tree.map_structure(
        lambda leaf: to_tensorflow(leaf, tensorflow) if isinstance(leaf, TensorSpec) else leaf, signature
    )


# --- Namedtuples ---------------------------------------------------------------------------------------

_new_namedtuple: Any = collections.namedtuple  # Any: the fields are not known before
_namedtuples: dict[tuple[str, tuple[str, ...]], type[Any]] = {}


def namedtuple_class(name: str, fields: Sequence[str]) -> type[Any]:
    """The namedtuple of that name and those fields; always the same class for the same ones.

    So what is decoded twice has one type, which caches keyed by structure rely on. Its instances can be
    pickled. What cannot be a name in Python is replaced as `collections.namedtuple(rename=True)` does it.
    """
    key = (name, tuple(fields))
    known = _namedtuples.get(key)
    if known is not None:
        return known
    safe = name if name.isidentifier() else re.sub(r"\W", "_", f"_{name}")
    try:
        made = _new_namedtuple(safe, key[1], rename=True)
    except ValueError:  # a keyword
        made = _new_namedtuple(f"{safe}_", key[1], rename=True)
    made.__reduce__ = lambda self: (_make_namedtuple, (*key, tuple(self)))
    made.__module__ = __name__
    return _namedtuples.setdefault(key, made)


def _make_namedtuple(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return namedtuple_class(name, fields)(*values)


def _keyed_children(node: Any) -> tuple[str | None, list[tuple[str, Any]]]:
    """The type name, None for mappings, and the named children. REQUIRES: _is_keyed(node)."""
    pairs = list(_tree.children(node))
    for key, _ in pairs:
        if not isinstance(key, str):
            raise TypeError(f"the keys of a dict must be str, {key!r} is of type {type(key).__name__}")
    return (None if isinstance(node, Mapping) else type(node).__name__), pairs


def _is_keyed(node: Any) -> bool:
    return isinstance(node, Mapping) or _tree.is_namedtuple(node) or _tree.is_attrs(node)


def is_empty(signature: Any) -> bool:
    """Whether it means "no signature": None or an empty container."""
    if signature is None:
        return True
    return _tree.is_nested(signature) and not any(True for _ in _tree.children(signature))


# --- The native encoding -------------------------------------------------------------------------------

# As include/reverb/signature.h has them.
_VERSION = 1
_NONE, _LEAF, _LIST, _TUPLE, _DICT, _NAMEDTUPLE = range(6)
_MAX_DEPTH = 64
_MAX_NODES = 1 << 20
_MAX_NAME_LENGTH = 1024
_MAX_RANK = 64


def encode_signature(signature: Any) -> bytes | None:
    """The bytes that a server keeps for a nest of specs; None when it is empty, which means none.

    ValueError for a leaf that is no spec and for a nest beyond the limits; TypeError for keys that are no str
    and for dtypes that cannot be stored.
    """
    if is_empty(signature):
        return None
    out = bytearray([_VERSION])
    _encode_node(out, signature, 1, itertools.count(1))
    return bytes(out)


def _put_name(out: bytearray, name: str) -> None:
    encoded = name.encode()
    if len(encoded) > _MAX_NAME_LENGTH:
        raise ValueError(
            f"signature: the name {name[:64] + '...'!r} has {len(encoded)} bytes, at most {_MAX_NAME_LENGTH} "
            "are allowed; use a shorter one"
        )
    put_varint(out, len(encoded))
    out += encoded


def _encode_node(out: bytearray, node: Any, depth: int, nodes: itertools.count[int]) -> None:
    if depth > _MAX_DEPTH or next(nodes) > _MAX_NODES:
        raise ValueError(f"signature: more than {_MAX_DEPTH} levels or {_MAX_NODES} nodes; flatten the structure")
    if not _tree.is_nested(node):
        _encode_leaf(out, as_spec(node))
    elif _is_keyed(node):
        type_name, pairs = _keyed_children(node)
        out.append(_DICT if type_name is None else _NAMEDTUPLE)
        if type_name is not None:
            _put_name(out, type_name)
        put_varint(out, len(pairs))
        for key, child in pairs:
            _put_name(out, key)
            _encode_node(out, child, depth + 1, nodes)
    else:
        values = [child for _, child in _tree.children(node)]
        out.append(_TUPLE if isinstance(node, tuple) else _LIST)
        put_varint(out, len(values))
        for child in values:
            _encode_node(out, child, depth + 1, nodes)


def _encode_leaf(out: bytearray, spec: TensorSpec) -> None:
    out.append(_LEAF)
    out.append(dtype_number(spec.dtype))
    _put_name(out, spec.name or "")
    if spec.shape is None:
        put_varint(out, 0)
        return
    if len(spec.shape) > _MAX_RANK:
        raise ValueError(f"signature: a spec has {len(spec.shape)} dimensions, at most {_MAX_RANK} are allowed")
    put_varint(out, len(spec.shape) + 1)
    for dim in spec.shape:
        put_varint(out, 0 if dim is None else dim + 1)


def decode_signature(data: bytes | None) -> Any:
    """The nest of specs that encode_signature() gave the bytes for; None for none.

    Namedtuples come back as the class that namedtuple_class() has for their name and fields. DecodeError when
    the bytes are no signature.
    """
    return localize(_Decoder(bytes(data)).decode()) if data else None


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._nodes = 0

    def decode(self) -> Any:
        version = self._byte()
        if version != _VERSION:
            raise DecodeError(f"encoded signature: version {version}, this package reads version {_VERSION}")
        root = self._node(1)
        if self._position != len(self._data):
            raise self._damaged(f"{len(self._data) - self._position} bytes follow its end")
        return root

    def _damaged(self, why: str) -> DecodeError:
        return DecodeError(f"encoded signature, near byte {self._position}: {why}")

    def _byte(self) -> int:
        if self._position >= len(self._data):
            raise self._damaged("it is cut short")
        self._position += 1
        return self._data[self._position - 1]

    def _varint(self) -> int:
        value, self._position = get_varint(self._data, self._position)
        return value

    def _name(self) -> str:
        length = self._varint()
        if length > _MAX_NAME_LENGTH or length > len(self._data) - self._position:
            raise self._damaged(f"a name of {length} bytes is too long or cut short")
        start, self._position = self._position, self._position + length
        return self._data[start : self._position].decode("utf-8", "replace")

    def _count(self, bytes_each: int) -> int:
        count = self._varint()
        if count * bytes_each > len(self._data) - self._position:
            raise self._damaged(f"{count} children are claimed, but too few bytes are left")
        return count

    def _node(self, depth: int) -> Any:
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            raise self._damaged(f"more than {_MAX_DEPTH} levels or {_MAX_NODES} nodes")
        kind = self._byte()
        if kind == _NONE:
            return None
        if kind == _LEAF:
            return self._leaf()
        if kind == _LIST:
            return [self._node(depth + 1) for _ in range(self._count(1))]
        if kind == _TUPLE:
            return tuple(self._node(depth + 1) for _ in range(self._count(1)))
        if kind == _DICT:
            return dict(self._field(depth) for _ in range(self._count(2)))
        if kind == _NAMEDTUPLE:
            name = self._name()
            fields = [self._field(depth) for _ in range(self._count(2))]
            return namedtuple_class(name, [key for key, _ in fields])(*(value for _, value in fields))
        raise self._damaged(f"a node has kind {kind}, which is not known")

    def _field(self, depth: int) -> tuple[str, Any]:
        key = self._name()
        return key, self._node(depth + 1)

    def _leaf(self) -> TensorSpec:
        number = self._byte()
        try:
            dtype = dtype_from_number(number)
        except ValueError as error:
            raise self._damaged(str(error)) from None
        name = self._name()
        rank = self._varint() - 1
        if rank < 0:
            return TensorSpec(None, dtype, name or None)
        if rank > _MAX_RANK:
            raise self._damaged(f"a spec has {rank} dimensions, at most {_MAX_RANK} are allowed")
        dims = [self._varint() for _ in range(rank)]
        return TensorSpec([None if dim == 0 else dim - 1 for dim in dims], dtype, name or None)


# --- TensorFlow's StructuredValue ----------------------------------------------------------------------


class _Dim(Message):
    PROTO_NAME = "Dim"
    FIELDS = (Field(1, "size", "int64"), Field(2, "name", "string"))


class TensorShapeProto(Message):
    """tensorflow.TensorShapeProto."""

    FIELDS = (Field(2, "dim", _Dim, repeated=True), Field(3, "unknown_rank", "bool"))


class TensorProto(Message):
    """The part of tensorflow.TensorProto that bounds of specs need."""

    FIELDS = (
        Field(1, "dtype", "enum"),
        Field(2, "tensor_shape", TensorShapeProto),
        Field(4, "tensor_content", "bytes"),
        Field(5, "float_val", "float", repeated=True),
        Field(6, "double_val", "double", repeated=True),
        Field(7, "int_val", "int32", repeated=True),
        Field(8, "string_val", "bytes", repeated=True),
        Field(9, "scomplex_val", "float", repeated=True),
        Field(10, "int64_val", "int64", repeated=True),
        Field(11, "bool_val", "bool", repeated=True),
        Field(12, "dcomplex_val", "double", repeated=True),
        Field(13, "half_val", "int32", repeated=True),
        Field(16, "uint32_val", "uint32", repeated=True),
        Field(17, "uint64_val", "uint64", repeated=True),
    )


class TensorSpecProto(Message):
    """tensorflow.TensorSpecProto."""

    FIELDS = (
        Field(1, "name", "string"),
        Field(2, "shape", TensorShapeProto),
        Field(3, "dtype", "enum"),
    )


class BoundedTensorSpecProto(Message):
    """tensorflow.BoundedTensorSpecProto."""

    FIELDS = (
        Field(1, "name", "string"),
        Field(2, "shape", TensorShapeProto),
        Field(3, "dtype", "enum"),
        Field(4, "minimum", TensorProto),
        Field(5, "maximum", TensorProto),
    )


class NoneValue(Message):
    """tensorflow.NoneValue."""


class ListValue(Message):
    """tensorflow.ListValue."""

    FIELDS = (Field(1, "values", "StructuredValue", repeated=True),)


class TupleValue(Message):
    """tensorflow.TupleValue."""

    FIELDS = (Field(1, "values", "StructuredValue", repeated=True),)


class DictValue(Message):
    """tensorflow.DictValue."""

    FIELDS = (Field(1, "fields", "StructuredValue", map=True),)


class PairValue(Message):
    """tensorflow.PairValue."""

    FIELDS = (Field(1, "key", "string"), Field(2, "value", "StructuredValue"))


class NamedTupleValue(Message):
    """tensorflow.NamedTupleValue."""

    FIELDS = (Field(1, "name", "string"), Field(2, "values", PairValue, repeated=True))


class StructuredValue(Message):
    """tensorflow.StructuredValue, as far as signatures and patterns use it."""

    FIELDS = (
        Field(1, "none_value", NoneValue, oneof="kind"),
        Field(11, "float64_value", "double", oneof="kind"),
        Field(12, "int64_value", "sint64", oneof="kind"),
        Field(13, "string_value", "string", oneof="kind"),
        Field(14, "bool_value", "bool", oneof="kind"),
        Field(31, "tensor_shape_value", TensorShapeProto, oneof="kind"),
        Field(32, "tensor_dtype_value", "enum", oneof="kind"),
        Field(33, "tensor_spec_value", TensorSpecProto, oneof="kind"),
        Field(35, "bounded_tensor_spec_value", BoundedTensorSpecProto, oneof="kind"),
        Field(51, "list_value", ListValue, oneof="kind"),
        Field(52, "tuple_value", TupleValue, oneof="kind"),
        Field(53, "dict_value", DictValue, oneof="kind"),
        Field(54, "named_tuple_value", NamedTupleValue, oneof="kind"),
    )


def put_structure(
    message: StructuredValue, node: Any, encode_leaf: Callable[[StructuredValue, Any], None], depth: int = 1
) -> None:
    """Fills an empty message with a nest; `encode_leaf` fills in those of the leaves."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"a structure has more than {_MAX_DEPTH} levels; flatten it")
    if not _tree.is_nested(node):
        encode_leaf(message, node)
    elif _is_keyed(node):
        type_name, pairs = _keyed_children(node)
        if type_name is None:
            message.dict_value.SetInParent()
            for key, child in pairs:
                put_structure(message.dict_value.fields[key], child, encode_leaf, depth + 1)
        else:
            message.named_tuple_value.name = type_name
            message.named_tuple_value.SetInParent()
            for key, child in pairs:
                pair = message.named_tuple_value.values.add(key=key)
                put_structure(pair.value, child, encode_leaf, depth + 1)
                pair.value.SetInParent()
    else:
        target = message.tuple_value if isinstance(node, tuple) else message.list_value
        target.SetInParent()
        for _, child in _tree.children(node):
            put_structure(target.values.add(), child, encode_leaf, depth + 1)


def structure_of(message: StructuredValue, decode_leaf: Callable[[StructuredValue], Any]) -> Any:
    """The nest that put_structure() filled the message with."""
    kind = message.WhichOneof("kind")
    if kind == "dict_value":
        fields = message.dict_value.fields
        return {key: structure_of(fields[key], decode_leaf) for key in sorted(fields)}
    if kind == "named_tuple_value":
        pairs = message.named_tuple_value.values
        made = namedtuple_class(message.named_tuple_value.name, [pair.key for pair in pairs])
        return made(*(structure_of(pair.value, decode_leaf) for pair in pairs))
    if kind == "tuple_value":
        return tuple(structure_of(value, decode_leaf) for value in message.tuple_value.values)
    if kind == "list_value":
        return [structure_of(value, decode_leaf) for value in message.list_value.values]
    return decode_leaf(message)


def _put_shape(message: Any, shape: Shape | None) -> None:
    message.SetInParent()
    if shape is None:
        message.unknown_rank = True
        return
    for dim in shape:
        message.dim.add(size=-1 if dim is None else dim)


def _shape_of(message: Any) -> Shape | None:
    return None if message.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in message.dim)


def _put_spec(message: StructuredValue, leaf: Any) -> None:
    spec = as_spec(leaf)
    bounded = isinstance(spec, BoundedTensorSpec)
    target = message.bounded_tensor_spec_value if bounded else message.tensor_spec_value
    target.SetInParent()
    target.name = spec.name or ""
    _put_shape(target.shape, spec.shape)
    target.dtype = dtype_number(spec.dtype)
    if isinstance(spec, BoundedTensorSpec):
        for bound, proto in ((spec.minimum, target.minimum), (spec.maximum, target.maximum)):
            proto.dtype = dtype_number(bound.dtype)
            _put_shape(proto.tensor_shape, bound.shape)
            if bound.dtype.kind == "O":
                proto.string_val.extend(
                    each.encode() if isinstance(each, str) else bytes(each) for each in bound.ravel().tolist()
                )
            else:
                proto.tensor_content = bound.tobytes()


_VALUES_FIELD: Mapping[str, str] = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "object": "string_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "float16": "half_val",
}  # others: int_val

_MAX_BOUND_ELEMENTS = 1 << 24


def _array_of(proto: TensorProto) -> npt.NDArray[Any]:
    dtype = dtype_from_number(proto.dtype)
    shape = _shape_of(proto.tensor_shape)
    if shape is None or None in shape:
        raise DecodeError("a bound of a spec has an unknown shape")
    known = tuple(dim for dim in shape if dim is not None)
    count = 1
    for dim in known:
        count *= dim
    if count > _MAX_BOUND_ELEMENTS:
        raise DecodeError(f"a bound of a spec has {count} elements, at most {_MAX_BOUND_ELEMENTS} are read")
    try:
        if proto.tensor_content and dtype.kind != "O":
            return np.frombuffer(proto.tensor_content, dtype).reshape(known)
        values: npt.NDArray[Any]
        listed = list(getattr(proto, _VALUES_FIELD.get(dtype.name, "int_val")))
        if dtype.kind == "c":
            values = np.array([complex(*pair) for pair in zip(listed[::2], listed[1::2], strict=True)], dtype)
        elif dtype.name == "float16":
            values = np.array(listed, np.uint16).view(np.float16)
        else:
            values = np.array(listed, dtype)
        if len(values) == 0:
            return np.zeros(known, dtype)
        # The last value stands for all that follow.
        return np.concatenate([values, np.repeat(values[-1:], max(0, count - len(values)))]).reshape(known)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"a bound of a spec is malformed: {error}") from None


def _spec_of(message: StructuredValue) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "none_value":
        return None
    try:
        if kind == "tensor_spec_value":
            spec = message.tensor_spec_value
            return TensorSpec(_shape_of(spec.shape), dtype_from_number(spec.dtype), spec.name or None)
        if kind == "bounded_tensor_spec_value":
            spec = message.bounded_tensor_spec_value
            return BoundedTensorSpec(
                _shape_of(spec.shape),
                dtype_from_number(spec.dtype),
                _array_of(spec.minimum),
                _array_of(spec.maximum),
                spec.name or None,
            )
    except ValueError as error:
        raise DecodeError(f"a spec is malformed: {error}") from None
    raise DecodeError(f"a signature has a node of kind {kind}, which is not known")


def signature_to_structured_value(signature: Any) -> StructuredValue:
    """The StructuredValue message of a nest of specs."""
    message = StructuredValue()
    put_structure(message, signature, _put_spec)
    return message


def signature_from_structured_value(message: StructuredValue) -> Any:
    """The nest of specs that a StructuredValue message describes."""
    return localize(structure_of(message, _spec_of))


def encode_structured_value(signature: Any) -> bytes | None:
    """The bytes of the StructuredValue of a nest of specs; None when it is empty, which means none."""
    return None if is_empty(signature) else signature_to_structured_value(signature).SerializeToString()


def decode_structured_value(data: bytes | None) -> Any:
    """The reverse of encode_structured_value()."""
    return signature_from_structured_value(StructuredValue.FromString(data)) if data else None
