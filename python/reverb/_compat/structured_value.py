"""TensorFlow's StructuredValue, the message in which dm-reverb keeps signatures and the structure of patterns.

The native code encodes and decodes it (include/reverb/structured_value.h). The classes are for programs that look at
the message's attributes.
"""

from __future__ import annotations

from typing import Any

from reverb import _core, _signatures, _tree
from reverb._compat.message import Field, Message

# --- Messages ------------------------------------------------------------------------------------------


class Dim(Message):
    """tensorflow.TensorShapeProto.Dim."""

    FIELDS = (Field(1, "size", "int64"), Field(2, "name", "string"))


class TensorShapeProto(Message):
    """tensorflow.TensorShapeProto."""

    FIELDS = (Field(2, "dim", Dim, repeated=True), Field(3, "unknown_rank", "bool"))


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


# --- Nests ---------------------------------------------------------------------------------------------


def encode_structured_value(signature: Any) -> bytes | None:
    """Returns the bytes of the StructuredValue of a nest of specs; None for an empty nest, which means no signature."""
    return None if _signatures.is_empty(signature) else _core.encode_structured_value(signature)


def decode_structured_value(data: bytes | None) -> Any:
    """Returns the nest of specs that encode_structured_value() encoded; None for no bytes."""
    return _signatures.localize(_core.decode_structured_value(data)) if data else None


def put_structure(message: StructuredValue, nest: Any) -> None:
    """Sets an empty message to the structure of `nest`, with None at all leaves."""
    message.ParseFromString(_core.encode_structure(nest))


def structure_of(message: StructuredValue) -> Any:
    """Returns the nest that the message describes, with None at all leaves."""
    return _tree.map_structure(lambda _: None, _core.decode_structured_value(message.SerializeToString()))
