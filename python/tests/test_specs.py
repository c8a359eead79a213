"""Tests specs and signatures: values, what counts as a spec, both encodings."""

import collections
import importlib.util
import pickle
import subprocess
import sys
import textwrap
import types
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

import reverb
from reverb import _signatures, _specs, _tree
from reverb._compat import structured_value
from reverb._specs import BoundedTensorSpec, TensorSpec
from reverb.errors import DecodeError


class Transition(NamedTuple):
    observation: Any
    action: Any


NUMERIC = [
    *("float16", "float32", "float64", "bool", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]


def test_values():
    spec = TensorSpec((None, 3), np.int16, "x")
    assert (spec.shape, spec.dtype, spec.name) == ((None, 3), np.dtype("int16"), "x")
    assert spec == TensorSpec([None, np.int64(3)], "int16", name="x")
    assert len({spec, TensorSpec((None, 3), np.int16, "x"), TensorSpec((None, 3), np.int16)}) == 2
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert repr(spec) == "TensorSpec(shape=(None, 3), dtype=int16, name='x')"
    assert TensorSpec(None).shape is None
    assert TensorSpec(None).dtype == np.float32
    assert TensorSpec(7).shape == (7,)
    assert TensorSpec((-1,)).shape == (None,)
    with pytest.raises(AttributeError):
        spec.shape = ()


def test_bounds():
    spec = BoundedTensorSpec((2, 3), np.float32, 0, [1, 2, 3], name="b")
    assert spec.minimum.dtype == np.float32
    np.testing.assert_array_equal(spec.maximum, [1, 2, 3])
    assert spec == BoundedTensorSpec((2, 3), np.float32, 0.0, np.array([1, 2, 3]), "b")
    assert spec != BoundedTensorSpec((2, 3), np.float32, 0, [1, 2, 4], "b")
    assert spec != TensorSpec((2, 3), np.float32, "b")
    assert TensorSpec((2, 3), np.float32, "b") != spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert TensorSpec.from_spec(spec) == TensorSpec((2, 3), np.float32, "b")
    with pytest.raises(ValueError, match="maximum has shape"):
        BoundedTensorSpec((2,), np.float32, 0, [1, 2, 3])
    with pytest.raises(ValueError, match="minimum"):
        BoundedTensorSpec((), np.float32, [0], 1)
    with pytest.raises(ValueError, match="read-only"):
        spec.minimum[...] = 1


@pytest.mark.parametrize("text", [str, bytes, object, "S5", "U2"])
def test_strings_are_of_dtype_object(text):
    assert TensorSpec((), text).dtype == np.dtype(object)


def test_dtypes_that_cannot_be_stored():
    for dtype in ("datetime64[s]", np.longdouble, np.dtype("V3"), np.dtype([("a", "f4")])):
        with pytest.raises(TypeError, match="not supported"):
            TensorSpec((), dtype)
    with pytest.raises(TypeError):
        TensorSpec((), None)


def test_foreign_byte_order_is_the_same_dtype():
    assert TensorSpec((), ">i4") == TensorSpec((), "<i4")


class LikeTensorFlowShape:
    def __init__(self, dims):
        self.rank = None if dims is None else len(dims)
        self._dims = dims

    def as_list(self):
        return list(self._dims)


def test_what_counts_as_a_spec():
    assert _specs.as_spec(np.zeros((2, 3), np.uint8)) == TensorSpec((2, 3), np.uint8)
    assert _specs.as_spec(np.int32(7)) == TensorSpec((), np.int32)
    assert _specs.as_spec(np.dtype("f4")) == TensorSpec((), np.float32)
    assert _specs.as_spec(np.dtype(("f4", (5,)))) == TensorSpec((5,), np.float32)
    assert _specs.as_spec(np.uint8) == TensorSpec((), np.uint8)
    dtype = types.SimpleNamespace(as_numpy_dtype=np.float16)
    foreign = types.SimpleNamespace(shape=LikeTensorFlowShape([None, 4]), dtype=dtype, name="t")
    assert _specs.as_spec(foreign) == TensorSpec((None, 4), np.float16, "t")
    foreign = types.SimpleNamespace(shape=LikeTensorFlowShape(None), dtype=dtype)
    assert _specs.as_spec(foreign) == TensorSpec(None, np.float16)
    foreign = types.SimpleNamespace(shape=(2,), dtype=np.int32, name=None, minimum=0, maximum=[4, 5])
    assert _specs.as_spec(foreign) == BoundedTensorSpec((2,), np.int32, 0, [4, 5])
    for bad in (None, 3, 2.0, "float32", int, [1], object()):
        with pytest.raises(ValueError, match="unsupported signature spec"):
            _specs.as_spec(bad)


def test_dm_env_specs():
    specs = pytest.importorskip("dm_env.specs")
    assert _specs.as_spec(specs.Array((3,), np.float32, "obs")) == TensorSpec((3,), np.float32, "obs")
    discrete = specs.DiscreteArray(4, name="action")
    assert _specs.as_spec(discrete) == BoundedTensorSpec((), np.int32, 0, 3, "action")


def test_compatibility():
    spec = TensorSpec((None, 3), np.float32)
    assert spec.is_compatible_with(np.zeros((5, 3), np.float32))
    assert spec.is_compatible_with(TensorSpec(None, np.float32, "other name"))
    assert not spec.is_compatible_with(np.zeros((5, 3)))
    assert not spec.is_compatible_with(np.zeros((5, 4), np.float32))
    assert not spec.is_compatible_with(np.zeros(3, np.float32))
    assert not spec.is_compatible_with(object())
    assert TensorSpec((2,), np.int64).is_compatible_with([1, 2])


# --- Signatures ----------------------------------------------------------------------------------------

shapes = st.none() | st.lists(st.none() | st.integers(0, 1 << 40), max_size=4).map(tuple)
specs = st.builds(
    TensorSpec,
    shapes,
    st.sampled_from([*NUMERIC, "object"]),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def signatures(leaves=specs):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=3),
            st.tuples(inner, inner).map(lambda pair: Transition(*pair)),
        ),
        max_leaves=8,
    )


@given(signatures())
def test_native_round_trip(signature):
    data = _signatures.encode_signature(signature)
    if _signatures.is_empty(signature):
        assert data is None
        return
    decoded = _signatures.decode_signature(data)
    assert decoded == signature
    assert _signatures.encode_signature(decoded) == data
    assert _tree.flatten_with_path(decoded) == _tree.flatten_with_path(signature)


@given(signatures())
def test_structured_value_round_trip(signature):
    data = structured_value.encode_structured_value(signature)
    if not _signatures.is_empty(signature):
        assert structured_value.decode_structured_value(data) == signature


@pytest.mark.parametrize("empty", [None, {}, [], (), collections.OrderedDict()], ids=repr)
def test_an_empty_nest_is_no_signature(empty):
    assert _signatures.encode_signature(empty) is None
    assert structured_value.encode_structured_value(empty) is None
    assert _signatures.decode_signature(None) is None
    assert _signatures.decode_signature(b"") is None
    assert structured_value.decode_structured_value(b"") is None


def test_the_native_bytes():
    # As src/tensor/signature.cc writes them.
    signature = {
        "b": (TensorSpec((None, 84), np.uint8, "p"),),
        "a": [TensorSpec(None, object)],
        "n": Transition(TensorSpec((), np.float32), TensorSpec((300,), bool)),
    }
    expected = (
        b"\x01\x04\x03"
        b"\x01a\x02\x01\x01\x07\x00\x00"
        b"\x01b\x03\x01\x01\x04\x01p\x03\x00\x55"
        b"\x01n\x05\x0aTransition\x02\x0bobservation\x01\x01\x00\x01\x06action\x01\x0a\x00\x02\xad\x02"
    )
    assert _signatures.encode_signature(signature) == expected


@pytest.mark.parametrize(
    ("encode", "decode"),
    [
        (_signatures.encode_signature, _signatures.decode_signature),
        (structured_value.encode_structured_value, structured_value.decode_structured_value),
    ],
    ids=["native", "structured_value"],
)
def test_bounds_are_kept_by_both_encodings(encode, decode):
    signature = {"x": BoundedTensorSpec((2,), np.int64, -5, [5, 6], "b"), "y": TensorSpec((), np.int8)}
    assert decode(encode(signature)) == signature
    empty = BoundedTensorSpec((0, 3), np.float32, np.zeros((0, 3)), np.nan)
    assert decode(encode([empty])) == [empty]


def test_a_table_keeps_bounds():
    signature = {"x": BoundedTensorSpec((2,), np.float32, 0, [1, 2])}
    assert reverb.Table.queue("queue", 1, signature=signature).info.signature == signature


@pytest.mark.parametrize("dtype", [*NUMERIC, "object"])
def test_bounds_of_every_dtype(dtype):
    low, high = (b"a", b"z") if dtype == "object" else (0, 1)
    spec = BoundedTensorSpec((3,), dtype, low, [high] * 3)
    assert structured_value.decode_structured_value(structured_value.encode_structured_value([spec])) == [spec]
    assert _signatures.decode_signature(_signatures.encode_signature([spec])) == [spec]


def test_bounds_written_as_lists_of_values():
    message = structured_value.StructuredValue.FromString(
        structured_value.encode_structured_value(BoundedTensorSpec((4,), np.float32, 0, 1))
    )
    maximum = message.bounded_tensor_spec_value.maximum
    maximum.ClearField("tensor_content")
    maximum.tensor_shape.dim.add(size=4)
    maximum.float_val.extend([1, 2])  # the last value is repeated
    spec = structured_value.decode_structured_value(message.SerializeToString())
    np.testing.assert_array_equal(spec.maximum, [1, 2, 2, 2])


def test_namedtuples_come_back_as_one_class():
    signature = Transition(TensorSpec(()), [TensorSpec(())])
    first, second = (_signatures.decode_signature(_signatures.encode_signature(signature)) for _ in range(2))
    assert type(first) is type(second) is not Transition
    assert type(first).__name__ == "Transition"
    assert first._fields == Transition._fields
    through_proto = structured_value.decode_structured_value(structured_value.encode_structured_value(signature))
    assert type(through_proto) is type(first)
    assert pickle.loads(pickle.dumps(first)) == first
    assert type(pickle.loads(pickle.dumps(first))) is type(first)


@pytest.mark.parametrize(
    ("name", "fields"), [("class", ("a",)), ("no name", ("def", "_x")), ("", ()), ("N", ("a", "a"))]
)
def test_names_that_python_cannot_have(name, fields):
    made = _signatures.namedtuple_class(name, fields)
    assert len(made(*fields)) == len(fields)
    assert _signatures.namedtuple_class(name, fields) is made


def test_attrs_and_other_containers():
    attr = pytest.importorskip("attr")
    step = attr.make_class("Step", ["left", "right"])(TensorSpec(()), TensorSpec((1,)))
    decoded = _signatures.decode_signature(_signatures.encode_signature({"s": step, "q": collections.deque([TensorSpec(())])}))
    assert decoded["s"]._asdict() == {"left": TensorSpec(()), "right": TensorSpec((1,))}
    assert decoded["q"] == [TensorSpec(())]


def test_what_is_no_signature():
    for bad in ({"a": None}, [3], {"a": {"b": "text"}}):
        for encode in (_signatures.encode_signature, structured_value.encode_structured_value):
            with pytest.raises(ValueError, match="unsupported signature spec"):
                encode(bad)
    for encode in (_signatures.encode_signature, structured_value.encode_structured_value):
        with pytest.raises(TypeError, match="must be str"):
            encode({1: TensorSpec(())})
    deep = TensorSpec(())
    for _ in range(70):
        deep = [deep]
    with pytest.raises(ValueError, match="levels"):
        _signatures.encode_signature(deep)
    with pytest.raises(ValueError, match="bytes, at most"):
        _signatures.encode_signature({"x" * 2000: TensorSpec(())})
    with pytest.raises(ValueError, match="dimensions"):
        _signatures.encode_signature(TensorSpec((1,) * 65))


def check_decoded_or_refused(decode, data):
    try:
        decoded = decode(data)
    except DecodeError:
        return
    for leaf in _tree.flatten(decoded):
        assert leaf is None or isinstance(leaf, TensorSpec)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(data):
    check_decoded_or_refused(_signatures.decode_signature, b"\x01" + data)
    check_decoded_or_refused(structured_value.decode_structured_value, data)


@given(signatures(), st.integers(0), st.integers(0, 255))
def test_a_changed_byte_is_decoded_or_refused(signature, position, byte):
    for encode, decode in (
        (_signatures.encode_signature, _signatures.decode_signature),
        (structured_value.encode_structured_value, structured_value.decode_structured_value),
    ):
        data = bytearray(encode(signature) or b"\x01")
        data[position % len(data)] = byte
        check_decoded_or_refused(decode, bytes(data))


@given(signatures(), st.data())
def test_damaged_signatures(signature, data):
    encoded = _signatures.encode_signature(signature)
    if encoded is None:
        return
    cut = data.draw(st.integers(0, len(encoded) - 1))
    if cut > 0:
        with pytest.raises(DecodeError):
            _signatures.decode_signature(encoded[:cut])
    with pytest.raises(DecodeError, match="follow its end"):
        _signatures.decode_signature(encoded + b"\0")
    with pytest.raises(DecodeError, match="version"):
        _signatures.decode_signature(b"\x09" + encoded[1:])


def test_bfloat16(monkeypatch):
    spec = TensorSpec((2,), "bfloat16")
    assert _signatures.decode_signature(_signatures.encode_signature([spec])) == [spec]
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    without = TensorSpec((2,), "bfloat16")
    assert without.dtype.itemsize == 2
    assert _signatures.decode_signature(_signatures.encode_signature([without])) == [without]
    assert _signatures.encode_signature([without]) == _signatures.encode_signature([spec])


# --- TensorFlow ----------------------------------------------------------------------------------------


def test_specs_are_tensorflows_where_it_is_imported(monkeypatch):
    made = types.SimpleNamespace(
        TensorSpec=lambda shape, dtype, name: ("tf", shape, dtype, name), as_dtype=lambda name: f"tf.{name}"
    )
    monkeypatch.setitem(sys.modules, "tensorflow", made)
    monkeypatch.setitem(sys.modules, "tensorflow.python.framework.tensor_spec", None)
    signature = {"a": TensorSpec((None,), object, "n"), "b": BoundedTensorSpec((), np.float32, 0, 1)}
    decoded = structured_value.decode_structured_value(structured_value.encode_structured_value(signature))
    assert decoded == {"a": ("tf", (None,), "tf.string", "n"), "b": ("tf", (), "tf.float32", None)}
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace())  # half imported
    assert _signatures.localize(signature) is signature


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
def test_with_tensorflow():
    # In a separate process: importing TensorFlow changes the class of the returned specs.
    code = """
        from typing import Any, NamedTuple

        import tensorflow as tf
        from tensorflow.core.protobuf import struct_pb2
        from tensorflow.python.framework import tensor_spec
        from tensorflow.python.saved_model import nested_structure_coder

        from reverb import _signatures, _tree
        from reverb._compat import structured_value

        class Pair(NamedTuple):
            first: Any
            second: Any

        signature = {
            "a": tf.TensorSpec([None, 3], tf.uint8, "n"),
            "b": (tf.TensorSpec(None, tf.string), [tf.TensorSpec([], tf.bfloat16)]),
            "c": Pair(tf.TensorSpec([2], tf.bool), tensor_spec.BoundedTensorSpec([2], tf.float32, 0, [1, 2])),
        }
        for encode, decode in (
            (_signatures.encode_signature, _signatures.decode_signature),
            (structured_value.encode_structured_value, structured_value.decode_structured_value),
        ):
            decoded = decode(encode(signature))
            assert decoded["a"] == signature["a"]
            assert decoded["b"] == signature["b"]
            assert decoded["c"].first == signature["c"].first
            assert all(isinstance(leaf, tf.TensorSpec) for leaf in _tree.flatten(decoded))
            assert decoded["c"].second == signature["c"].second

        del signature["c"]
        theirs = nested_structure_coder.encode_structure(signature)
        assert struct_pb2.StructuredValue.FromString(structured_value.encode_structured_value(signature)) == theirs
        assert structured_value.decode_structured_value(theirs.SerializeToString()) == signature
        bounded = {"x": tensor_spec.BoundedTensorSpec([2], tf.int32, 0, [1, 2])}
        theirs = nested_structure_coder.encode_structure(bounded)
        assert structured_value.decode_structured_value(theirs.SerializeToString()) == bounded
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
