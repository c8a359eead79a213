"""Tests reverb._compat.message: messages without protobuf, compared with protobuf where it is installed."""

import copy
import pickle

from hypothesis import given
from hypothesis import strategies as st
import pytest

from reverb import reverb_types
from reverb import structured_writer as sw
from reverb._compat import structured_value, table_messages
from reverb._compat.message import DecodeError, Field, Message, fields_of, get_varint, put_varint


class Inner(Message):
    FIELDS = (Field(1, "number", "int32"),)


class Outer(Message):
    FIELDS = (
        Field(1, "flag", "bool"),
        Field(2, "inner", Inner),
        Field(3, "many", Inner, repeated=True),
        Field(4, "numbers", "int64", repeated=True),
        Field(5, "text", "string", oneof="choice"),
        Field(6, "chosen", Inner, oneof="choice"),
        Field(7, "table", Inner, map=True),
        Field(8, "real", "double"),
        Field(9, "signed", "sint64"),
    )


def test_defaults_and_assignment():
    message = Outer()
    assert (message.flag, message.text, message.real, list(message.numbers)) == (False, "", 0.0, [])
    message.flag = True
    message.real = 2
    assert message.SerializeToString() == b"\x08\x01\x41" + b"\0\0\0\0\0\0\0@"
    assert message == Outer(flag=True, real=2.0)
    assert message != Outer()
    with pytest.raises(AttributeError, match="colour"):
        message.colour = 1
    with pytest.raises(AttributeError, match="CopyFrom"):
        message.inner = Inner()
    with pytest.raises(TypeError):
        message.text = 5
    with pytest.raises(TypeError):
        hash(message)


def test_a_nested_message_is_present_once_it_is_written_to():
    message = Outer()
    assert message.inner.number == 0
    assert not message.HasField("inner")
    message.inner.number = 7
    assert message.HasField("inner")
    message.ClearField("inner")
    assert not message.HasField("inner")
    message.inner.SetInParent()
    assert message.HasField("inner")
    assert message.SerializeToString() == b"\x12\0"


def test_a_oneof_has_one_member():
    message = Outer(text="")
    assert message.WhichOneof("choice") == "text"
    message.chosen.number = 1
    assert message.WhichOneof("choice") == "chosen"
    assert message.text == ""
    message.text = "again"
    assert not message.HasField("chosen")
    assert message.HasField("choice")
    message.ClearField("choice")
    assert message.WhichOneof("choice") is None
    for bad in ("nothing", "flag"):
        with pytest.raises(ValueError, match="no oneof"):
            message.WhichOneof(bad)
        with pytest.raises(ValueError, match=r"no field|no presence"):
            message.HasField(bad)


def test_containers():
    message = Outer(many=[Inner(number=1)], numbers=(5, -6), table={"k": Inner(number=2)})
    added = message.many.add(number=3)
    added.number = 4
    assert [each.number for each in message.many] == [1, 4]
    source = Inner(number=9)
    message.many.append(source)
    source.number = 0
    assert message.many[-1].number == 9  # a copy
    assert message.table["new"].number == 0
    assert set(message.table) == {"k", "new"}
    del message.many[0]
    message.numbers[0] = 8
    assert message.numbers == [8, -6]
    with pytest.raises(TypeError):
        message.many.append(Outer())
    with pytest.raises(TypeError):
        message.numbers.append("8")
    with pytest.raises(ValueError, match="out of range"):
        Inner(number=1 << 31)
    with pytest.raises(TypeError, match="integer"):
        Inner(number=1.0)


messages = st.builds(
    Outer,
    flag=st.booleans(),
    inner=st.none() | st.builds(Inner, number=st.integers(-(1 << 31), (1 << 31) - 1)),
    many=st.lists(st.builds(Inner, number=st.integers(-5, 5)), max_size=3),
    numbers=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
    text=st.none() | st.text(max_size=3),
    table=st.dictionaries(st.text(max_size=2), st.builds(Inner, number=st.integers(0, 9)), max_size=3),
    real=st.floats(allow_nan=False),
    signed=st.integers(-(1 << 63), (1 << 63) - 1),
)


@given(messages, messages)
def test_round_trips(message, other):
    assert Outer.FromString(message.SerializeToString()) == message
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message
    other.CopyFrom(message)
    assert other == message
    assert other.SerializeToString() == message.SerializeToString()
    assert message.ByteSize() == len(message.SerializeToString())


@given(messages, messages)
def test_merging_is_concatenation_of_the_bytes(first, second):
    joined = Outer.FromString(first.SerializeToString() + second.SerializeToString())
    first.MergeFrom(second)
    assert first == joined


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    for kind in (Outer, sw.Config, structured_value.StructuredValue):
        try:
            message = kind.FromString(data)
        except DecodeError:
            continue
        assert kind.FromString(message.SerializeToString()) == message


def test_depth_is_bounded():
    data = b""
    for _ in range(300):
        length = bytearray()
        put_varint(length, len(data))
        data = b"\x0a" + bytes(length) + data  # values[0] of a list ...
        length = bytearray()
        put_varint(length, len(data))
        data = b"\x9a\x03" + bytes(length) + data  # ... in a value
    with pytest.raises(DecodeError, match="levels"):
        structured_value.StructuredValue.FromString(data)


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x08", b"\x12\x05ab", b"\x0b", b"\0\0", b"\xff" * 11], ids=lambda data: data.hex()
)
def test_damaged_bytes(data):
    with pytest.raises(DecodeError):
        Outer.FromString(data)


@given(st.integers(0, (1 << 64) - 1))
def test_varints(number):
    out = bytearray()
    put_varint(out, number)
    assert get_varint(bytes(out), 0) == (number, len(out))


def test_fields_that_are_not_known_are_skipped():
    data = Outer(flag=True).SerializeToString() + b"\xa0\x06\x05" + b"\xa5\x06abcd" + b"\xaa\x06\x01x"
    assert Outer.FromString(data) == Outer(flag=True)
    assert [number for number, _, _ in fields_of(data)] == [1, 100, 100, 101]


# --- The same messages in protobuf ---------------------------------------------------------------------

VALUE_CLASSES = {
    "deepmind.reverb.PatternNode": sw.PatternNode,
    "deepmind.reverb.Condition": sw.ConditionProto,
    "deepmind.reverb.Condition.ModuloEq": sw.ModuloEq,
    "deepmind.reverb.Priority": sw.Priority,
    "deepmind.reverb.Priority.ConstantPriorityFn": sw.ConstantPriorityFn,
    "deepmind.reverb.Priority.TDError": sw.TDError,
    "deepmind.reverb.StructuredWriterConfig": sw.Config,
    "deepmind.reverb.KeyDistributionOptions": reverb_types.KeyDistributionOptions,
    "deepmind.reverb.KeyDistributionOptions.Prioritized": reverb_types.Prioritized,
    "deepmind.reverb.KeyDistributionOptions.Heap": reverb_types.Heap,
    "deepmind.reverb.RateLimiterCallStats": reverb_types.RateLimiterCallStats,
    "deepmind.reverb.RateLimiterInfo": reverb_types.RateLimiterInfo,
    "deepmind.reverb.TableWorkerTime": reverb_types.TableWorkerTime,
    "deepmind.reverb.TableInfo": table_messages.TableInfoProto,
    "tensorflow.StructuredValue": structured_value.StructuredValue,
    "tensorflow.NoneValue": structured_value.NoneValue,
    "tensorflow.ListValue": structured_value.ListValue,
    "tensorflow.TupleValue": structured_value.TupleValue,
    "tensorflow.DictValue": structured_value.DictValue,
    "tensorflow.PairValue": structured_value.PairValue,
    "tensorflow.NamedTupleValue": structured_value.NamedTupleValue,
    "tensorflow.TensorSpecProto": structured_value.TensorSpecProto,
    "tensorflow.BoundedTensorSpecProto": structured_value.BoundedTensorSpecProto,
    "tensorflow.TensorShapeProto": structured_value.TensorShapeProto,
    "tensorflow.TensorShapeProto.Dim": structured_value.Dim,
    "tensorflow.TensorProto": structured_value.TensorProto,
}
KIND_NUMBERS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "enum": 14,
    "sint64": 18,
}


@pytest.mark.parametrize("full_name", VALUE_CLASSES)
def test_fields_are_those_of_the_proto_file(full_name):
    pytest.importorskip("google.protobuf")
    from reverb._compat import descriptors

    descriptor = descriptors.message_class(full_name).DESCRIPTOR
    ours = VALUE_CLASSES[full_name]
    assert descriptor.name == ours.PROTO_NAME
    theirs = {field.name: field for field in descriptor.fields}
    left_out = {"version_number"} if full_name == "tensorflow.TensorProto" else set()
    assert {field.name for field in ours.FIELDS} == set(theirs) - left_out
    for field in ours.FIELDS:
        other = theirs[field.name]
        assert field.number == other.number
        assert field.oneof == (other.containing_oneof.name if other.containing_oneof else None)
        if isinstance(field.kind, str) and field.kind in KIND_NUMBERS:
            assert KIND_NUMBERS[field.kind] == other.type
        elif field.map:
            assert other.message_type.GetOptions().map_entry
        else:
            name = field.kind if isinstance(field.kind, str) else field.kind.PROTO_NAME
            assert name == other.message_type.name


@given(
    st.lists(
        st.builds(
            sw.PatternNode,
            flat_source_index=st.integers(0, 9),
            start=st.none() | st.integers(-9, -1),
            stop=st.none() | st.integers(-9, 0),
            step=st.none() | st.integers(1, 3),
        ),
        max_size=3,
    ),
    st.lists(
        st.builds(
            sw.ConditionProto,
            step_index=st.just(True),
            ge=st.none() | st.integers(-9, 9),
            inverse=st.booleans(),
        ),
        max_size=2,
    ),
    st.text(max_size=3),
    st.floats(allow_nan=False),
)
def test_bytes_are_those_of_protobuf(nodes, conditions, table, priority):
    pytest.importorskip("google.protobuf")
    from reverb.cc import patterns_pb2

    ours = sw.Config(flat=nodes, conditions=conditions, table=table, priority=sw.constant_priority_fn(priority))
    structured_value.put_structure(ours.pattern_structure, {"b": [1], "a": ()})
    theirs = patterns_pb2.StructuredWriterConfig.FromString(ours.SerializeToString())
    assert theirs.SerializeToString(deterministic=True) == ours.SerializeToString()
    assert sw.Config.FromString(theirs.SerializeToString()) == ours
    assert ours == theirs
    assert [ours.flat[i] == node for i, node in enumerate(theirs.flat)] == [True] * len(nodes)
    copied = sw.Config()
    copied.CopyFrom(theirs)
    assert copied == ours
