"""Tests that values are returned unchanged: dtypes, shapes, layouts, structures, chunk lengths; both transports."""

from collections import namedtuple
import contextlib

from hypothesis import example, given
from hypothesis import strategies as st
import numpy as np
from profiles import bounded
import pytest
import transports

import reverb

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip

Pair = namedtuple("Pair", ["second", "first"])  # not in alphabetical order, on purpose


@pytest.fixture(scope="module", params=transports.ALL)
def client(request):
    with reverb.Server([reverb.Table.queue("queue", 100_000, layout="any")]) as server:
        yield transports.connect(server, request.param)


# --- Values ---

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
contents = st.sampled_from(["noise", "zeros", "ramp", "constant"])
layouts = st.sampled_from(
    ["plain", "fortran", "reversed", "strided", "transposed", "swapped", "read_only", "unaligned", "broadcast"]
)


def fill(dtype, shape, content, seed):
    """Returns an array of a dtype and shape whose bits are arbitrary (including NaNs), or compressible."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape))
    if content == "zeros":
        return np.zeros(shape, dtype)
    if content == "ramp":
        return np.arange(size).astype(dtype).reshape(shape)
    if content == "constant":
        return np.full(shape, 1, dtype)
    raw = np.random.default_rng(seed).bytes(size * dtype.itemsize)
    if dtype == np.bool_:
        return np.asarray(np.frombuffer(raw, np.uint8).reshape(shape) % 2).astype(np.bool_)
    return np.frombuffer(raw, dtype).reshape(shape).copy()


def lay_out(array, layout):
    """Returns the same values with another memory layout."""
    if not array.ndim and layout not in ("swapped", "read_only", "unaligned"):
        return array
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "reversed":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if layout == "strided":
        wide = np.zeros((*array.shape[:-1], 3 * array.shape[-1]), array.dtype)
        wide[..., ::3] = array
        return wide[..., ::3]
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "swapped":
        return array.astype(array.dtype.newbyteorder())
    if layout == "read_only":
        array = array.copy()
        array.flags.writeable = False
        return array
    if layout == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)
        view = raw[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    return array


@st.composite
def arrays(draw):
    """Draws an input and the expected output."""
    expected = fill(draw(st.sampled_from(DTYPES)), draw(shapes), draw(contents), draw(st.integers(0, 1000)))
    layout = draw(layouts)
    if layout == "broadcast" and expected.size:
        wide = np.broadcast_to(expected[:1], expected.shape) if expected.ndim else expected
        return wide, wide.copy()
    return lay_out(expected, layout), expected


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda value: (value, np.int64(value))),
    st.integers(2**63, 2**64 - 1).map(lambda value: (value, np.uint64(value))),
    st.floats().map(lambda value: (value, np.float64(value))),
    st.booleans().map(lambda value: (value, np.bool_(value))),
    st.tuples(st.sampled_from(DTYPES), st.integers(0, 100)).map(lambda pair: (np.dtype(pair[0]).type(pair[1]),) * 2),
).map(lambda pair: (pair[0], np.asarray(pair[1])))


def as_objects(shape, values):
    array = np.empty(shape, object)
    array.flat[:] = values if values else None
    return array


@st.composite
def strings(draw):
    """Draws text and bytes: bare, in arrays of objects, and in NumPy's own arrays of fixed width."""
    kind = draw(st.sampled_from(["bytes", "str", "objects", "S", "U"]))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if kind == "bytes":
        value = draw(st.binary(max_size=20))
        return value, as_objects((), [value])
    if kind == "str":
        value = draw(text)
        return value, as_objects((), [value.encode()])
    shape = draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    size = int(np.prod(shape))
    if kind == "objects":
        values = draw(st.lists(st.one_of(st.binary(max_size=8), text), min_size=size, max_size=size))
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        return as_objects(shape, values), as_objects(shape, encoded)
    # NumPy's arrays of fixed width strip trailing zeros before we see them.
    if kind == "S":
        array = np.array(draw(st.lists(st.binary(max_size=8), min_size=size, max_size=size)), "S8")
        values = array.reshape(-1).tolist()
    else:
        array = np.array(draw(st.lists(text, min_size=size, max_size=size)), "U8")
        values = [value.encode() for value in array.reshape(-1).tolist()]
    return array.reshape(shape), as_objects(shape, values)


values = st.one_of(arrays(), arrays(), scalars, strings())


def same(got, expected):
    """Returns whether both are equal bit by bit, in a new writable array."""
    assert isinstance(got, np.ndarray)
    assert got.dtype == expected.dtype
    assert got.dtype.isnative
    assert got.shape == expected.shape
    assert got.flags.writeable
    if got.dtype == object:
        assert got.tolist() == expected.tolist()
    else:
        assert got.tobytes() == expected.tobytes()


# --- Structures ---


def nests(leaves):
    keys = st.text("abcxyz/0 ", max_size=3)
    return st.recursive(
        leaves.map(lambda pair: ("leaf", pair)),
        lambda parts: st.one_of(
            st.lists(parts, max_size=3).map(lambda items: ("list", items)),
            st.lists(parts, max_size=3).map(lambda items: ("tuple", items)),
            st.tuples(parts, parts).map(lambda items: ("pair", list(items))),
            st.dictionaries(keys, parts, max_size=3).map(lambda items: ("dict", items)),
        ),
        max_leaves=6,
    )


def build(nest):
    """Returns (input, expected output in flat order)."""
    kind, content = nest
    if kind == "leaf":
        return content[0], [content[1]]
    if kind == "dict":
        parts = {key: build(part) for key, part in content.items()}
        return {key: part[0] for key, part in parts.items()}, [leaf for key in sorted(parts) for leaf in parts[key][1]]
    parts = [build(part) for part in content]
    make = {"list": list, "tuple": tuple, "pair": lambda items: Pair(*items)}[kind]
    return make([part[0] for part in parts]), [leaf for part in parts for leaf in part[1]]


# --- Round trips ---


@bounded(300)
@given(value=values)
@example(value=(np.zeros((2, 0, 3), np.float32), np.zeros((2, 0, 3), np.float32)))
@example(value=(np.arange(3, dtype=">i4"), np.arange(3, dtype=np.int32)))
@example(value=(np.array([b"a\0"], object), as_objects((1,), [b"a\0"])))
def test_a_value_comes_back(client, value):
    client.reset("queue")
    given_value, expected = value
    # A list or a tuple would be a nest; anything else here is a leaf.
    client.insert(given_value, {"queue": 1.0})
    sample = next(client.sample("queue", emit_timesteps=False))
    assert len(sample.data) == 1
    same(sample.data[0], expected[np.newaxis] if expected.dtype != object else expected.reshape((1, *expected.shape)))


@bounded(300)
@given(nest=nests(values))
def test_a_nest_comes_back_flat_in_the_order_of_its_keys(client, nest):
    client.reset("queue")
    data, expected = build(nest)
    if not expected:
        with pytest.raises(ValueError, match="has no values"):
            client.insert(data, {"queue": 1.0})
        return
    client.insert(data, {"queue": 1.0})
    (step,) = next(client.sample("queue"))
    assert len(step.data) == len(expected)
    for got, leaf in zip(step.data, expected, strict=True):
        same(got, leaf)


@bounded(60)
@given(nest=nests(st.one_of(arrays(), scalars)))
def test_a_nest_comes_back_in_the_structure_of_the_signature(nest):
    data, expected = build(nest)
    if not expected:
        return
    leaves = iter(expected)

    def spec(part):
        if isinstance(part, dict):
            made = {key: spec(part[key]) for key in sorted(part)}
            return {key: made[key] for key in part}
        if isinstance(part, Pair):
            return Pair(*(spec(each) for each in part))
        if isinstance(part, (list, tuple)):
            return type(part)(spec(each) for each in part)
        leaf = next(leaves)
        return reverb.TensorSpec(leaf.shape, leaf.dtype)

    def flat(part):
        if isinstance(part, dict):
            return [leaf for key in sorted(part) for leaf in flat(part[key])]
        if isinstance(part, (list, tuple)):
            return [leaf for each in part for leaf in flat(each)]
        return [part]

    def kinds(part):
        if isinstance(part, dict):
            return {key: kinds(value) for key, value in part.items()}
        if isinstance(part, (list, tuple)):
            return type(part).__name__, getattr(part, "_fields", ()), [kinds(each) for each in part]
        return None

    table = reverb.Table.queue("queue", 10, signature=spec(data))
    with reverb.Server([table]) as server:
        client = server.localhost_client()
        client.insert(data, {"queue": 1.0})
        (step,) = next(client.sample("queue", unpack_as_table_signature=True))
    assert kinds(step.data) == kinds(data)
    for got, leaf in zip(flat(step.data), expected, strict=True):
        same(got, leaf)


@st.composite
def columns(draw):
    """Draws a column over some steps, and the rows that an item takes from it."""
    length = draw(st.integers(1, 12))
    chunk_length = draw(st.none() | st.integers(1, length))
    dtype, shape, content = draw(st.sampled_from([*DTYPES, "object"])), draw(shapes), draw(contents)
    if dtype == "object":
        size = int(np.prod(shape))
        rows = [
            as_objects(shape, draw(st.lists(st.binary(max_size=5), min_size=size, max_size=size)))
            for _ in range(length)
        ]
    else:
        seed = draw(st.integers(0, 1000))
        rows = [fill(dtype, shape, content, seed + i) for i in range(length)]
        if content == "ramp" and dtype != "bool":
            rows = [(row + np.dtype(dtype).type(i)).astype(dtype) for i, row in enumerate(rows)]
    where = st.integers(-length, length - 1)
    key = draw(
        st.one_of(
            where,
            st.lists(where, min_size=1, max_size=6),
            st.builds(slice, st.none() | where, st.none() | st.integers(-length, length + 2),
                      st.sampled_from([None, 1, 2, 3, -1, -2])),
        )
    )  # fmt: skip
    return rows, chunk_length, key


@bounded(200)
@given(parts=st.lists(columns(), min_size=1, max_size=3), split=st.integers(1, 12))
def test_rows_of_columns_come_back_whatever_the_chunks_are(client, parts, split):
    """Each column has its own length, chunk length and choice of rows; a flush cuts chunks short."""
    client.reset("queue")
    with contextlib.closing(client.trajectory_writer(12)) as writer:
        for i, (_, chunk_length, _) in enumerate(parts):
            writer.configure((i,), num_keep_alive_refs=12, max_chunk_length=chunk_length)
        steps = max(len(rows) for rows, _, _ in parts)
        items = 0
        for at in range(steps):
            # Short columns come last: their rows are those of the newest steps.
            writer.append([rows[at - steps + len(rows)] if at >= steps - len(rows) else None for rows, _, _ in parts])
            if at + 1 == split:
                newest = [column for column, (rows, _, _) in zip(writer.history, parts, strict=True)
                          if at >= steps - len(rows)]  # fmt: skip
                writer.create_item("queue", 1.0, [column[-1] for column in newest])
                writer.flush()
                items += 1
        item, expected = [], []
        for column, (rows, _, key) in zip(writer.history, parts, strict=True):
            offset = steps - len(rows)
            if isinstance(key, int):
                item.append(column[key if key < 0 else key + offset])
                expected.append(rows[key])
                continue
            chosen = list(range(len(rows)))[key] if isinstance(key, slice) else [k % len(rows) for k in key]
            if not chosen:
                continue
            item.append(column[[k + offset for k in chosen]] if isinstance(key, list) or offset else column[key])
            expected.append(np.stack([rows[k] for k in chosen]))
        if not item:
            return
        for column, want in zip(item, expected, strict=True):
            same(np.asarray(column.numpy()), want)
            assert (column.dtype, column.shape) == (want.dtype, want.shape)
        writer.create_item("queue", 1.0, item)
        writer.flush()
    samples = list(client.sample("queue", items + 1, emit_timesteps=False, timeout=30))
    assert len(samples[-1].data) == len(expected)
    for got, want in zip(samples[-1].data, expected, strict=True):
        same(got, want)


@bounded(200)
@given(value=arrays(), count=st.integers(1, 30), length=st.integers(1, 30), chunk=st.integers(1, 30))
def test_steps_of_the_older_writer_come_back(client, value, count, length, chunk):
    """Tests complete steps, as a trajectory and step by step."""
    client.reset("queue")
    array, expected = value
    length = min(length, count)
    with client.writer(count, chunk_length=min(chunk, count)) as writer:
        for i in range(count):
            writer.append([array, i])
        for _ in range(2):
            writer.create_item("queue", length, 0.5)
    trajectory, steps = client.sample("queue", emit_timesteps=False), client.sample("queue")
    data = next(trajectory).data
    same(data[0], np.stack([expected] * length))
    assert data[1].tolist() == list(range(count - length, count))
    split = next(steps)
    assert len(split) == length
    for step in split:
        same(step.data[0], expected)


def test_arrays_that_cannot_be_stored_are_refused(client):
    client.reset("queue")
    for value in (np.datetime64("2024-01-01"), np.zeros(2, [("a", "i4")]), np.longdouble(1), as_objects((1,), [1.5])):
        with pytest.raises(TypeError):
            client.insert(value, {"queue": 1.0})
    assert client.server_info()["queue"].current_size == 0


def test_bfloat16_comes_back(client):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    client.insert(array, {"queue": 1.0})
    same(next(client.sample("queue"))[0].data[0], array)
