"""Tests reverb.formats: exports of tables and imports of them, with the real libraries where they are installed."""

import json
import subprocess
import sys

from conftest import make_table
from exports import assert_same, items_of, round_trip, save, write_mixed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import ml_dtypes
import numpy as np
import pytest

import reverb
from reverb import __main__ as program
from reverb import checkpoints, formats

# What each format needs besides NumPy.
LIBRARIES = {"npz": None, "parquet": "pyarrow", "minari": "minari", "lerobot": "pyarrow"}
ANY_TABLE = ["npz", "parquet"]


def need(format):
    if LIBRARIES[format] is not None:
        pytest.importorskip(LIBRARIES[format])


@pytest.mark.parametrize("format", ANY_TABLE)
def test_everything_comes_back(tmp_path, format):
    need(format)
    path = save(tmp_path / "root", write=write_mixed)
    round_trip(tmp_path, path, format)


@pytest.mark.parametrize("format", ANY_TABLE)
def test_tables_with_a_signature_keep_it(tmp_path, format):
    need(format)
    signature = {"x": reverb.TensorSpec([None, 2], np.float32), "y": (reverb.TensorSpec([None], np.int64),)}
    path = save(
        tmp_path / "root",
        make_table(signature=signature),
        write=lambda client: client.insert({"x": np.ones(2, np.float32), "y": (np.int64(1),)}, {"table": 2.0}),
    )
    _, back = round_trip(tmp_path, path, format)
    assert checkpoints.info(back).tables["table"].signature == signature


@pytest.mark.parametrize("format", ["npz", "parquet", "minari", "lerobot"])
def test_empty_tables(tmp_path, format):
    need(format)
    path = save(tmp_path / "root", write=lambda client: None)
    assert formats.export_table(path, tmp_path / "file", format=format) == 0
    back = formats.import_table(tmp_path / "file", tmp_path / "back", format=format)
    assert items_of(back) == []


DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64", "complex64", "complex128", "bfloat16", "string"]  # fmt: skip


@st.composite
def tables(draw):
    """Returns (columns, items): the dtype, row shape and squeezing of columns; lengths and priorities of items."""
    columns = draw(
        st.lists(
            st.tuples(
                st.sampled_from(DTYPES),
                st.lists(st.integers(0, 3), max_size=2).map(tuple),
                st.booleans(),
                st.integers(0, 9),
            ),
            min_size=1,
            max_size=4,
        )
    )
    items = draw(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 1e6)), max_size=6))
    return columns, items


def random_row(random, dtype, shape):
    if dtype == "string":
        row = np.empty(shape, object)
        for index in np.ndindex(*shape):
            row[index] = random.bytes(int(random.integers(0, 5)))
        return row if shape else row[()]
    wanted = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    count = int(np.prod(shape))
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return np.frombuffer(random.bytes(count * wanted.itemsize), wanted).reshape(shape)


@pytest.mark.parametrize("format", ANY_TABLE)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(described=tables(), seed=st.integers(0, 2**32))
def test_any_table_comes_back(tmp_path_factory, format, described, seed):
    need(format)
    folder = tmp_path_factory.mktemp("any")
    columns, items = described
    random = np.random.default_rng(seed)

    def write(client):
        with client.trajectory_writer(num_keep_alive_refs=5) as writer:
            for length, priority in items:
                for _ in range(length):
                    writer.append({f"c{i}": random_row(random, *column[:2]) for i, column in enumerate(columns)})
                trajectory = {}
                for i, (_, _, squeezed, group) in enumerate(columns):
                    history = writer.history[f"c{i}"]
                    trajectory.setdefault(f"g{group % 3}", {})[f"c{i}"] = history[-1] if squeezed else history[-length:]
                writer.create_item("table", priority, trajectory)
                writer.end_episode()

    round_trip(folder, save(folder / "root", write=write), format)


@pytest.mark.parametrize("format", ANY_TABLE)
def test_servers_as_source_and_target(tmp_path, format, connect, serve):
    need(format)
    client, target = connect(serve(make_table(), make_table("other"))), connect(serve(make_table("table")))
    write_mixed(client)
    count = formats.export_table(client, tmp_path / "file", format=format, table="table")
    assert count == 5
    assert client.server_info()["table"].rate_limiter_info.sample_stats.completed == 0
    assert formats.import_table(tmp_path / "file", target, format=format) == 5
    ours, theirs = client.peek("table", 10), target.peek("table", 10)
    assert [item.info.priority for item in ours] == [item.info.priority for item in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for first, second in zip(reverb._tree.flatten(one.data), reverb._tree.flatten(other.data), strict=True):
            np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match=r"no table 'wrong'.*'table'"):
        formats.import_table(tmp_path / "file", target, format=format, table="wrong")
    with pytest.raises(ValueError, match=r"'table', 'other'|'other', 'table'"):
        formats.export_table(client, tmp_path / "file2", format=format)
    with pytest.raises(ValueError, match=r"no table 'tabel'"):
        formats.export_table(client, tmp_path / "file2", format=format, table="tabel")


def insert_numbers(client, numbers):
    for number in numbers:
        client.insert({"x": np.float32(number)}, {"table": float(number)})


def numbers_of(client):
    return sorted(float(item.data["x"][0]) for item in client.peek("table", 100))


def test_all_servers_of_a_client(tmp_path, serve, connect):
    sources, targets = ([serve(make_table()) for _ in range(2)] for _ in range(2))
    # The second source has fewer items than the first, and pages end at different times.
    insert_numbers(connect(sources[0]), range(20))
    insert_numbers(connect(sources[1]), range(100, 103))
    both, new = (reverb.Client([f"localhost:{server.port}" for server in each]) for each in (sources, targets))
    assert formats.export_table(both, tmp_path / "file", format="npz") == 23
    path = formats.import_table(tmp_path / "file", tmp_path / "new", format="npz")
    numbers = [*range(20), 100, 101, 102]
    assert [float(item.data["x"][0]) for item in items_of(path)] == numbers
    assert [item.priority for item in items_of(path)] == numbers
    # An import gives each server its share.
    assert formats.import_table(tmp_path / "file", new, format="npz") == 23
    shards = [numbers_of(connect(server)) for server in targets]
    assert [len(shard) for shard in shards] == [12, 11]
    assert sorted(shards[0] + shards[1]) == numbers
    # The program takes addresses with commas between them.
    addresses = ",".join(f"localhost:{server.port}" for server in sources)
    assert program.main(["export", addresses, "--format", "npz", "-o", str(tmp_path / "again")]) == 0
    with np.load(tmp_path / "again") as again, np.load(tmp_path / "file") as file:
        assert again["data/x"].tolist() == file["data/x"].tolist()
    # A server that is named twice has its items once.
    twice = reverb.Client([f"localhost:{sources[1].port}"] * 2)
    assert formats.export_table(twice, tmp_path / "twice", format="npz") == 3


def test_servers_that_differ(tmp_path, serve, connect):
    def export(*tables):
        servers = [serve(table) for table in tables]
        both = reverb.Client([f"localhost:{server.port}" for server in servers])
        return servers, lambda: formats.export_table(both, tmp_path / "file", format="npz", table="table")

    (_, second), attempt = export(make_table(), make_table("other"))
    with pytest.raises(ValueError, match=rf"localhost:{second.port} has no table 'table'; it has 'other'"):
        attempt()
    signatures = ({"x": reverb.TensorSpec([None], dtype)} for dtype in (np.float32, np.float64))
    (first, second), attempt = export(*(make_table(signature=signature) for signature in signatures))
    with pytest.raises(ValueError, match=rf"signature on localhost:{second.port} than on localhost:{first.port}"):
        attempt()
    # A table without items does not affect the names. If the names differ, the export has no names.
    (first, second), attempt = export(make_table(), make_table())
    insert_numbers(connect(first), range(2))
    assert attempt() == 2
    with np.load(tmp_path / "file") as file:
        assert file["data/x"].tolist() == [0, 1]
    (tmp_path / "file").unlink()
    connect(second).insert({"y": np.float32(7)}, {"table": 1.0})
    assert attempt() == 3
    with np.load(tmp_path / "file") as file:
        assert file["data/column_0"].tolist() == [0, 1, 7]


@pytest.mark.parametrize("format", ANY_TABLE)
def test_items_of_different_layouts_are_refused(tmp_path, format):
    need(format)

    def write(client):
        client.insert({"x": np.zeros(2, np.float32)}, {"table": 1.0})
        client.insert({"x": np.zeros(3, np.float32)}, {"table": 1.0})

    path = save(tmp_path / "root", write=write)
    with pytest.raises(ValueError, match=r"column 'x'.*\[3\].*\[2\]"):
        formats.export_table(path, tmp_path / "file", format=format)
    assert not list(tmp_path.glob("file*"))  # nothing is left


def test_nothing_is_replaced(tmp_path):
    path = save(tmp_path / "root", write=write_mixed)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="file"):
        formats.export_table(path, tmp_path / "file", format="npz")
    assert (tmp_path / "file").read_text() == "mine"
    formats.export_table(path, tmp_path / "data.npz", format="npz")
    with pytest.raises(FileExistsError, match="root"):
        formats.import_table(tmp_path / "data.npz", tmp_path / "root", format="npz")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        formats.import_table(tmp_path / "nowhere", tmp_path / "new", format="npz")
    with pytest.raises(ValueError, match=r"no format 'csv'; there are lerobot, minari, npz, parquet"):
        formats.export_table(path, tmp_path / "x", format="csv")
    with pytest.raises(RuntimeError, match="nowhere"):
        formats.export_table(tmp_path / "nowhere", tmp_path / "x", format="npz")


@pytest.mark.parametrize("format", ANY_TABLE)
def test_files_that_are_something_else(tmp_path, format):
    need(format)
    for content in (b"", b"not such a file", b"PK\x03\x04 broken", b"PAR1 broken PAR1"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(ValueError, match="file"):
            formats.import_table(tmp_path / "file", tmp_path / "new", format=format)
    assert not (tmp_path / "new").exists()
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="not an export of reverb"):
        formats.import_table(tmp_path / "other.npz", tmp_path / "new", format="npz")
    np.savez(tmp_path / "other.npz", reverb=np.array([{}], object))
    with pytest.raises(ValueError, match=r"other.npz is not an export of reverb, or damaged"):
        formats.import_table(tmp_path / "other.npz", tmp_path / "new", format="npz")


@pytest.mark.parametrize("format", ["npz", "parquet", "minari", "lerobot"])
def test_options_that_a_format_does_not_have(tmp_path, format):
    path = save(tmp_path / "root", write=write_mixed)
    with pytest.raises(ValueError, match=rf"format {format} has no option 'speed'; it has (none|'names'|'fps', 'task')"):
        formats.export_table(path, tmp_path / "file", format=format, options={"speed": 3})
    with pytest.raises(TypeError, match=r"options must be a dict such as .*got 'fps=3' of type str"):
        formats.export_table(path, tmp_path / "file", format=format, options="fps=3")
    assert not list(tmp_path.glob("file*"))


def write_points(client):
    for number in range(3):
        point = np.array([number, -number], np.float32)
        client.insert({"point": point, "text": b"a" * number, "count": np.int64(number)}, {"table": 1.0 + number})


def test_parquet_files_that_do_not_match_their_metadata(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = save(tmp_path / "root", write=write_points)
    formats.export_table(path, tmp_path / "file", format="parquet")
    table = parquet.read_table(tmp_path / "file")

    def replaced(name, array):
        return table.set_column(table.schema.get_field_index(name), name, array)

    def attempt(changed):
        assert b"reverb" in changed.schema.metadata, "it would not be stale"
        parquet.write_table(changed, tmp_path / "changed")
        return formats.import_table(tmp_path / "changed", tmp_path / "new", format="parquet")

    doubles = arrow.array([[[1.0, 2.0]]] * 3, arrow.large_list(arrow.list_(arrow.float64(), 2)))
    wide = arrow.array([[[1.0, 2.0, 3.0]]] * 3, arrow.large_list(arrow.list_(arrow.float32(), 3)))
    unsized = arrow.array([[[1.0, 2.0]]] * 3, arrow.large_list(arrow.list_(arrow.float32())))
    holes = arrow.array([[[1.0, 2.0]], [None], [[1.0, 2.0]]], arrow.large_list(arrow.list_(arrow.float32(), 2)))
    for changed, words in (
        (table.drop_columns(["count"]), r"no column 'count'.*it has 'point', 'text'; .*replace_schema_metadata"),
        (table.append_column("new", [[1, 2, 3]]), r"column 'new', which its metadata 'reverb' does not describe"),
        (replaced("point", doubles), r"'point' is of type .*double.*describes .*float32\[2\].*replace_schema_metadata"),
        (replaced("point", wide), r"'point' is of type .*\[3\].*describes .*float32\[2\]"),
        (replaced("point", unsized), r"'point' is of type .*describes .*float32\[2\]"),
        (replaced("point", holes), r"'point' has missing values|Expected all lists to be of size=2"),
        (replaced("count", arrow.array([0, 1, 2])), r"'count' is of type int64, .*describes large_list<.*int64"),
        (replaced("_priority", arrow.array(["a", "b", "c"])), r"'_priority' is of type string; .*cast it to float64"),
        (replaced("_priority", arrow.array([1.0, None, 2.0])), r"'_priority' has missing values"),
    ):
        with pytest.raises(ValueError, match=words):
            attempt(changed)
    # What other programs do without changing values is no problem; nor are columns that imports do not need.
    texts = table.column("text").cast(arrow.list_(arrow.binary()))
    whole = replaced("text", texts).drop_columns(["_key", "_inserted_at", "_times_sampled"])
    assert_same(items_of(path), items_of(attempt(whole)))
    # Without the metadata it is a file of another program.
    parquet.write_table(table.drop_columns(["count"]).replace_schema_metadata(), tmp_path / "others.parquet")
    others = items_of(formats.import_table(tmp_path / "others.parquet", tmp_path / "others", format="parquet"), "others")
    assert [sorted(item.data) for item in others] == [["point", "text"]] * 3


def test_npz_files_that_do_not_match_their_description(tmp_path):
    path = save(tmp_path / "root", write=write_points)
    formats.export_table(path, tmp_path / "file.npz", format="npz")
    with np.load(tmp_path / "file.npz") as file:
        arrays = dict(file)

    def attempt(**changed):
        np.savez(tmp_path / "changed.npz", **{**arrays, **{name.replace("__", "/"): a for name, a in changed.items()}})
        return formats.import_table(tmp_path / "changed.npz", tmp_path / "new", format="npz")

    for changed, words in (
        ({"data__point": arrays["data/point"].astype(np.float64)}, r"'data/point' is of dtype float64, .* float32; .*astype"),
        ({"data__text": np.array(["a"])}, r"'data/text' is of dtype <U1, .*uint8"),
        ({"data__point": arrays["data/point"][:2]}, r"'data/point' has 4 elements, .*\[3, 2\]"),
        ({"data__text": arrays["data/text"][:2]}, r"'data/text' has 2 bytes, the sizes of its strings add up to 3"),
        ({"lengths__count": np.array([1, 1])}, r"'lengths/count' has shape \[2\] instead of 3"),
        ({"lengths__count": np.array([2, 2, -1])}, r"'data/count' has 3 elements"),
        ({"lengths__count": np.array([1.0, 1.0, 1.0])}, r"'lengths/count' is of dtype float64, .*int64"),
        ({"info__key": arrays["info/key"][:1]}, r"'info/key' has shape \[1\] instead of 3"),
        ({"info__priority": np.array(["1", "2", "3"])}, r"'info/priority' is of dtype <U1, .*float64"),
        ({"info__priority": np.array(1.0)}, r"changed.npz"),
    ):
        with pytest.raises(ValueError, match=words):
            attempt(**changed)
    assert_same(items_of(path), items_of(attempt()))


def test_a_library_that_is_missing(tmp_path, monkeypatch):
    path = save(tmp_path / "root", write=write_mixed)
    for format, package in (("parquet", "pyarrow"), ("minari", "minari"), ("lerobot", "pyarrow")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"{format}.*pip install '{package}"):
            formats.export_table(path, tmp_path / "file", format=format)
        assert not list(tmp_path.glob("file*"))


# --- What other programs see ---


def test_numpy_reads_an_export(tmp_path):
    save(tmp_path / "root", write=write_mixed)
    formats.export_table(tmp_path / "root", tmp_path / "data.npz", format="npz")
    with np.load(tmp_path / "data.npz") as file:
        assert file["lengths/obs/frames"].tolist() == [3, 1, 4, 4, 2]
        assert file["data/obs/frames"].shape == (14, 3, 2)
        assert file["info/priority"].tolist() == [0.25, 1.25, 2.25, 3.25, 4.25]


def test_pyarrow_reads_an_export(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    save(tmp_path / "root", write=write_mixed)
    formats.export_table(tmp_path / "root", tmp_path / "data.parquet", format="parquet")
    rows = parquet.read_table(tmp_path / "data.parquet").to_pylist()
    assert [row["_priority"] for row in rows] == [0.25, 1.25, 2.25, 3.25, 4.25]
    assert [row["ends"] for row in rows[:2]] == [[False, False, True], [True]]
    assert rows[1]["texts"] == ["step 1/0 ä\0".encode()]
    expected = items_of(tmp_path / "root")[2].data["obs"]["frames"].tolist()
    assert rows[2]["obs/frames"] == expected


def test_parquet_files_of_others_are_imported(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table(
        {
            "tokens": arrow.array([[1, 2, 3], [4]], arrow.list_(arrow.int32())),
            "text": ["first", "second"],
            "score": [0.5, 1.5],
            "position": arrow.array([[1.0, 2.0], [3.0, 4.0]], arrow.list_(arrow.float32(), 2)),
        }
    )
    parquet.write_table(table, tmp_path / "others.parquet")
    path = formats.import_table(tmp_path / "others.parquet", tmp_path / "new", format="parquet")
    first, second = items_of(path, "others")
    assert first.data["tokens"].tolist() == [1, 2, 3]
    assert second.data["tokens"].tolist() == [4]
    assert (second.data["text"].item(), second.data["score"].item()) == (b"second", 1.5)
    assert second.data["position"].tolist() == [3.0, 4.0]
    assert first.priority == 1.0
    for names, columns, words in (
        (["x"], [[{"a": 1}, {"a": 2}]], "struct"),
        (["x"], [[1, None]], "missing values"),
        (["x", "x"], [[1], [2]], r"several columns 'x'; rename all but one"),
        (["x", "_priority"], [[1, 2], [1.0, float("nan")]], r"item 1 has the priority nan"),
    ):
        table = arrow.Table.from_arrays([arrow.array(column) for column in columns], names=names)
        parquet.write_table(table, tmp_path / "bad.parquet")
        with pytest.raises(ValueError, match=words):
            formats.import_table(tmp_path / "bad.parquet", tmp_path / "bad", format="parquet")


# --- The command line ---


def test_the_commands(tmp_path, capsys, serve):
    path = save(tmp_path / "root", make_table(), make_table("other"), write=write_mixed)
    file = str(tmp_path / "data.npz")
    assert program.main(["export", path, "--table", "table", "--format", "npz", "-o", file]) == 0
    assert capsys.readouterr().out == "5 items\n"
    assert program.main(["import", file, "--format", "npz", "--to", str(tmp_path / "new")]) == 0
    back = capsys.readouterr().out.strip()
    assert_same(items_of(path), items_of(back))
    address = f"localhost:{serve(make_table()).port}"
    assert program.main(["import", file, "--format", "npz", "--to", address]) == 0
    assert program.main(["export", address, "--format", "npz", "-o", str(tmp_path / "again.npz")]) == 0
    assert capsys.readouterr().out == "5 items\n5 items\n"
    for words, code, said in (
        (["export", path, "--format", "npz", "-o", f"{file}2"], 2, "'table', 'other'"),
        (["export", path, "--table", "table", "--format", "npz", "-o", file], 1, "exists"),
        (["export", path, "--table", "table", "--format", "npz", "-o", f"{file}2", "--fps", "3"], 2, "--fps"),
        (["export", "nowhere", "--format", "npz", "-o", f"{file}2"], 4, "nowhere"),
        (["export", "localhost:1", "--format", "npz", "-o", f"{file}2", "--timeout", "0.2"], 3, "localhost:1"),
        (["import", "nowhere", "--format", "npz", "--to", str(tmp_path / "x")], 4, "nowhere"),
    ):
        assert program.main(words) == code, words
        assert said in capsys.readouterr().err


def test_the_module_runs(tmp_path):
    save(tmp_path / "root", write=write_mixed)
    words = ["export", tmp_path / "root", "--format", "npz", "-o", tmp_path / "data.npz"]
    done = subprocess.run(
        [sys.executable, "-m", "reverb", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5 items\n", "")
    assert json.loads(np.load(tmp_path / "data.npz")["reverb"].tobytes())["table"] == "table"
