"""Tests that every value that can be stored is returned unchanged."""

import collections

import numpy as np
import pytest

from reverb import _core

NUMERIC = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.longlong, np.uint8, np.uint16, np.uint32, np.uint64,
    np.ulonglong, np.float16, np.float32, np.float64, np.complex64, np.complex128,
]  # fmt: skip


def back(value):
    return _core._round_trip(value)


def assert_same(got, expected):
    assert isinstance(got, np.ndarray)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 3), (2, 0, 3), (1, 2, 3, 4)])
def test_numbers(dtype, shape):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    got = back(array)
    assert_same(got, array.astype(array.dtype.newbyteorder("=")))
    assert got.flags.writeable
    assert got.flags.c_contiguous


@pytest.mark.parametrize("dtype", NUMERIC)
def test_scalars_of_numpy(dtype):
    assert_same(back(dtype(1)), np.asarray(dtype(1)))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, np.bool_), (3, np.int64), (-(2**63), np.int64), (2**63, np.uint64), (2**64 - 1, np.uint64),
        (1.5, np.float64), (1 + 2j, np.complex128),
    ],
)  # fmt: skip
def test_scalars_of_python(value, dtype):
    assert_same(back(value), np.asarray(value, dtype))


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_an_integer_that_is_too_large(value):
    with pytest.raises(TypeError, match="64 bits"):
        back(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::2],
        np.arange(12)[::-1],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(1), (2, 3)),
        np.frombuffer(b"\0" + np.arange(3, dtype=np.float64).tobytes(), np.float64, offset=1),
        np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]),
    ],
    ids=["transposed", "strided", "reversed", "fortran", "broadcast", "unaligned", "masked"],
)
def test_arrays_that_do_not_lie_in_order(array):
    assert_same(back(array), np.asarray(array))


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">u2", ">c8"])
def test_other_byte_orders_are_swapped(dtype):
    array = np.arange(3).astype(dtype)
    assert_same(back(array), array.astype(array.dtype.newbyteorder("=")))


def test_read_only_arrays():
    array = np.arange(3)
    array.setflags(write=False)
    assert_same(back(array), array)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("häh", "häh".encode()),
        (b"ab\0c\0", b"ab\0c\0"),
        (np.str_("x"), b"x"),
        (np.bytes_(b"x"), b"x"),
        ("", b""),
    ],
)
def test_a_string(value, expected):
    got = back(value)
    assert got.dtype == object
    assert got.shape == ()
    assert got[()] == expected
    assert type(got[()]) is bytes


@pytest.mark.parametrize(
    "array",
    [
        np.array([[b"a", b"bc"], [b"", b"d"]]),
        np.array([["a", "bc"], ["", "d"]]),
        np.array([[b"a", "bc"], [b"", "d"]], dtype=object),
    ],
)
def test_arrays_of_strings(array):
    got = back(array)
    assert got.shape == (2, 2)
    assert got.tolist() == [[b"a", b"bc"], [b"", b"d"]]


def test_no_strings_at_all():
    assert back(np.array([], dtype="S3")).shape == (0,)


def test_strings_in_objects_keep_trailing_zeros():
    assert back(np.array([b"a\0\0"], dtype=object)).tolist() == [b"a\0\0"]


@pytest.mark.parametrize(
    "value",
    [
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.datetime64("2020-01-01"),
        np.timedelta64(1, "s"),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]),
        np.zeros(2, dtype=np.longdouble),
        np.longdouble(1),
        np.array([1, b"a"], dtype=object),
        np.array([None], dtype=object),
        object(),
        {1, 2},
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_what_cannot_be_stored(value):
    with pytest.raises(TypeError):
        back(value)


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[1.5, -2.0]], dtype=ml_dtypes.bfloat16)
    assert_same(back(array), array)
    assert_same(back(ml_dtypes.bfloat16(3)), np.asarray(ml_dtypes.bfloat16(3)))


def test_anything_with_array_interface():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3, dtype=np.float32)

    assert_same(back(Tensor()), np.arange(3, dtype=np.float32))


def test_an_error_while_converting_is_passed_on():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        back(Broken())


def test_results_are_independent():
    array = np.arange(3)
    first, second = back(array), back(array)
    first[0] = 9
    assert second[0] == 0
    assert array[0] == 0


def test_memory_lives_as_long_as_views_of_it():
    view = back(np.arange(1000))[10:20]
    others = [back(np.zeros(1000, np.int64)) for _ in range(10)]
    assert view.tolist() == list(range(10, 20))
    assert len(others) == 10


def test_leaves_in_order():
    Point = collections.namedtuple("Point", "y x")
    nest = {"b": [1, (2, None)], "a": Point(3, 4), "c": {}}
    assert _core._flatten(nest) == [3, 4, 1, 2, None]
    assert [path for path, _ in _core._flatten_with_path(nest)] == [
        ("a", "y"),
        ("a", "x"),
        ("b", 0),
        ("b", 1, 0),
        ("b", 1, 1),
    ]


def test_a_nest_that_holds_itself():
    nest = []
    nest.append(nest)
    with pytest.raises((RecursionError, ValueError)):
        _core._flatten(nest)
    with pytest.raises((RecursionError, ValueError)):
        _core._flatten_with_path(nest)


def test_more_dimensions_than_a_sample_could_have_are_refused(client):
    most = 31 if np.__version__.startswith("1.") else 63
    client.insert(np.zeros((1,) * most), {"queue": 1.0})
    assert next(client.sample("queue", emit_timesteps=False)).data[0].ndim == most + 1
    if most < 63:
        with pytest.raises(TypeError, match=f"at most {most}"):
            client.insert(np.zeros((1,) * (most + 1)), {"queue": 1.0})
