"""Tests reverb.formats: exports of tables and imports of them, with the real libraries where they are installed."""

import collections
import json
import subprocess
import sys

from conftest import make_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import ml_dtypes
import numpy as np
import pytest

import reverb
from reverb import __main__ as program
from reverb import checkpointers, checkpoints, formats

Pair = collections.namedtuple("Pair", ["second", "first"])

# What each format needs besides NumPy.
LIBRARIES = {"npz": None, "parquet": "pyarrow", "minari": "minari", "lerobot": "pyarrow"}
ANY_TABLE = ["npz", "parquet"]


def need(format):
    if LIBRARIES[format] is not None:
        pytest.importorskip(LIBRARIES[format])


def save(root, *tables, write):
    checkpointer = checkpointers.DefaultCheckpointer(root)
    with reverb.Server(list(tables) or [make_table(max_size=100_000)], checkpointer=checkpointer) as server:
        client = server.localhost_client()
        write(client)
        return client.checkpoint()


def items_of(path, table="table"):
    return list(checkpoints.read(path, table))


def assert_same(ours, theirs):
    """Checks that items have the same priorities, structures and values, bit by bit."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.priority == other.priority
        assert reverb._tree.map_structure(lambda _: 0, one.data) == reverb._tree.map_structure(lambda _: 0, other.data)
        for path, first in reverb._tree.flatten_with_path(one.data):
            second = dict(reverb._tree.flatten_with_path(other.data))[path]
            assert (first.dtype, first.shape) == (second.dtype, second.shape), path
            if first.dtype == object:
                assert first.tolist() == second.tolist()
            else:
                assert first.tobytes() == second.tobytes(), path


def round_trip(folder, path, format, table="table", **options):
    file = folder / f"data.{format}"
    count = formats.export_table(path, file, format=format, table=table, options=options)
    back = formats.import_table(file, folder / "back", format=format)
    assert isinstance(back, str)
    before, after = items_of(path, table), items_of(back, table)
    assert count == len(before)
    assert_same(before, after)
    return file, back


def write_mixed(client, lengths=(3, 1, 4, 4, 2)):
    """Writes items of several dtypes, nests and lengths."""
    random = np.random.default_rng(1)
    with client.trajectory_writer(num_keep_alive_refs=8) as writer:
        for number, length in enumerate(lengths):
            for step in range(length):
                writer.append(
                    {
                        "frame": random.integers(0, 256, (3, 2), np.uint8),
                        "f16": np.float16(step),
                        "bf16": np.array([step, 0.5], ml_dtypes.bfloat16),
                        "done": np.bool_(step == length - 1),
                        "text": f"step {number}/{step} ä\0".encode(),
                        "z": np.complex64(step + 1j),
                        "empty": np.zeros((2, 0), np.float32),
                        "u64": np.uint64(2**64 - 1 - step),
                    }
                )
            history = writer.history
            trajectory = {
                "obs": {"frames": history["frame"][-length:], "half": [history["f16"][-1:], history["bf16"][-length:]]},
                "last": Pair(history["u64"][-1], (history["frame"][-1], history["text"][-1])),
                "ends": history["done"][-length:],
                "texts": history["text"][-length:],
                "z": history["z"][-length:],
                "empty": history["empty"][-length:],
            }
            writer.create_item("table", float(number) + 0.25, trajectory)
            writer.end_episode()


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
    # One without items has no say in the names; different names are none.
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
    for column, words in ((arrow.array([{"a": 1}, {"a": 2}]), "struct"), (arrow.array([1, None]), "missing values")):
        parquet.write_table(arrow.table({"x": column}), tmp_path / "bad.parquet")
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


# --- Episodes ---


def write_episodes(client, lengths=(4, 1, 3), table="table"):
    """Writes whole episodes, with one observation more than actions."""
    random = np.random.default_rng(2)
    with client.trajectory_writer(num_keep_alive_refs=8) as writer:
        for number, length in enumerate(lengths):
            for step in range(length + 1):
                row = {
                    "observation": {
                        "image": random.integers(0, 256, (4, 4, 3), np.uint8),
                        "joints": (random.standard_normal(3).astype(np.float32), np.int16(step)),
                    }
                }
                if step < length:
                    row |= {
                        "action": random.standard_normal(2),
                        "reward": np.float32(step / 3),
                        "terminated": np.bool_(step == length - 1 and number % 2 == 0),
                        "truncated": np.bool_(step == length - 1 and number % 2 == 1),
                        "value": np.float64(step),
                    }
                    writer.append(row, partial_step=True)
                    writer.append({})
                else:
                    writer.append(row)
            history = writer.history
            trajectory = {
                "observation": {
                    "image": history["observation"]["image"][:],
                    "joints": tuple(column[:] for column in history["observation"]["joints"]),
                }
            }
            for name in ("action", "reward", "terminated", "truncated", "value"):
                trajectory[name] = history[name][:-1]
            writer.create_item(table, 1.5 + number, trajectory)
            writer.end_episode()


def test_minari_keeps_episodes(tmp_path):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    path = save(tmp_path / "root", write=write_episodes)
    file, _ = round_trip(tmp_path, path, "minari")
    dataset = minari.MinariDataset(file / "data")
    assert dataset.total_episodes == 3
    assert dataset.total_steps == 8
    for item, episode in zip(items_of(path), dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(episode.observations["image"], item.data["observation"]["image"])
        np.testing.assert_array_equal(episode.observations["joints"][0], item.data["observation"]["joints"][0])
        np.testing.assert_array_equal(episode.actions, item.data["action"])
        np.testing.assert_array_equal(episode.rewards, item.data["reward"])
        np.testing.assert_array_equal(episode.terminations, item.data["terminated"])
        np.testing.assert_array_equal(episode.truncations, item.data["truncated"])
        np.testing.assert_array_equal(episode.infos["value"], item.data["value"])
        assert dataset.observation_space.contains(
            reverb._tree.map_structure(lambda leaf: np.asarray(leaf[0]), episode.observations)
        )


@pytest.mark.filterwarnings("ignore")  # of Minari: no author, temporary folders that it does not remove
def test_minari_datasets_of_others_are_imported(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    environment = minari.DataCollector(gymnasium.make("CartPole-v1"))
    for seed in range(3):
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
        done = False
        while not done:
            _, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
            done = terminated or truncated
    dataset = environment.create_dataset("cartpole/random-v0")
    environment.close()
    path = formats.import_table(
        tmp_path / "datasets" / "cartpole" / "random-v0", tmp_path / "new", format="minari", table="episodes"
    )
    items = items_of(path, "episodes")
    for item, episode in zip(items, dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(item.data["observation"], episode.observations)
        assert len(item.data["observation"]) == len(item.data["action"]) + 1
        np.testing.assert_array_equal(item.data["terminated"], episode.terminations)
        assert item.data["terminated"][-1]


def test_minari_says_what_it_cannot_hold(tmp_path):
    pytest.importorskip("minari")
    pytest.importorskip("h5py")

    def attempt(number, write, **options):
        path = save(tmp_path / f"root{number}", write=write)
        formats.export_table(path, tmp_path / f"out{number}", format="minari", options=options)

    def transition(client):
        one = np.float32(1)
        client.insert({"obs": one, "act": one, "reward": one, "terminal": False}, {"table": 1.0})

    with pytest.raises(ValueError, match=r"1 observations and 1 actions.*needs 2"):
        attempt(0, transition)
    with pytest.raises(ValueError, match=r"needs observations, actions.*'x'.*--name"):
        attempt(1, lambda client: client.insert({"x": 1.0}, {"table": 1.0}))
    with pytest.raises(ValueError, match="not dicts"):
        attempt(2, lambda client: client.insert([1.0], {"table": 1.0}))
    with pytest.raises(ValueError, match=r"dtype string"):
        attempt(3, write_mixed_episode)
    with pytest.raises(ValueError, match=r"observations should be one of the columns"):
        attempt(4, write_episodes, names={"observations": "pixels"})
    with pytest.raises(ValueError, match="not a dataset of Minari"):
        formats.import_table(tmp_path, tmp_path / "new", format="minari")


def write_mixed_episode(client):
    client.insert({"obs": b"text", "act": 1.0, "reward": 1.0, "terminal": False}, {"table": 1.0})


def write_frames(client, lengths=(4, 1, 3)):
    """Writes episodes whose columns all have a row for each frame."""
    random = np.random.default_rng(3)
    with client.trajectory_writer(num_keep_alive_refs=8) as writer:
        for number, length in enumerate(lengths):
            for step in range(length):
                writer.append(
                    {
                        "observation": {
                            "state": random.standard_normal(3).astype(np.float32),
                            "grid": random.integers(0, 256, (4, 2, 3), np.uint8),
                        },
                        "action": random.standard_normal(2),
                        "one": np.ones(1, np.int16),
                        "next": (np.float32(step), np.bool_(step == length - 1)),
                        "says": f"größe {step}".encode(),
                    }
                )
            trajectory = reverb._tree.map_structure(lambda column: column[:], writer.history)
            writer.create_item("table", 0.5 + number, trajectory)
            writer.end_episode()


def test_lerobot_keeps_episodes(tmp_path):
    pytest.importorskip("pyarrow")
    path = save(tmp_path / "root", write=write_frames)
    file, _ = round_trip(tmp_path, path, "lerobot", fps=20, task="stack the cubes")
    info = json.loads((file / "meta" / "info.json").read_text())
    assert (info["total_episodes"], info["total_frames"], info["fps"]) == (3, 8, 20)
    assert info["features"]["observation.state"] == {"dtype": "float32", "shape": [3], "names": None}
    # Without our description it is a dataset like any other.
    (file / "meta" / "reverb.json").unlink()
    again = formats.import_table(file, tmp_path / "again", format="lerobot", table="table")
    for ours, theirs in zip(items_of(path), items_of(again), strict=True):
        np.testing.assert_array_equal(ours.data["observation"]["grid"], theirs.data["observation.grid"])
        np.testing.assert_array_equal(ours.data["next"][1], theirs.data["next.1"])
        assert theirs.data["says"].tolist() == ours.data["says"].tolist()
        assert theirs.priority == 1.0


def test_the_library_reads_lerobot(tmp_path):
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    path = save(tmp_path / "root", write=write_frames)
    formats.export_table(path, tmp_path / "out", format="lerobot", options={"fps": 20, "task": "stack the cubes"})
    dataset = library.LeRobotDataset("reverb/test", root=tmp_path / "out")
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (3, 8, 20)
    frames = [
        (number, frame, item) for number, item in enumerate(items_of(path)) for frame in range(len(item.data["action"]))
    ]
    for index, (number, frame, item) in enumerate(frames):
        read = dataset[index]
        assert (int(read["episode_index"]), int(read["frame_index"]), read["task"]) == (
            number,
            frame,
            "stack the cubes",
        )
        np.testing.assert_array_equal(read["observation.state"], item.data["observation"]["state"][frame])
        np.testing.assert_array_equal(read["observation.grid"], item.data["observation"]["grid"][frame])
        np.testing.assert_array_equal(
            np.asarray(read["action"], np.float32), item.data["action"][frame].astype(np.float32)
        )
        assert bool(read["next.1"]) == bool(item.data["next"][1][frame])
    np.testing.assert_allclose(
        dataset.meta.stats["action"]["mean"],
        np.concatenate([item.data["action"] for item in items_of(path)]).mean(axis=0),
    )


def test_lerobot_says_what_it_cannot_hold(tmp_path):
    pytest.importorskip("pyarrow")

    def attempt(number, write, **options):
        path = save(tmp_path / f"root{number}", write=write)
        formats.export_table(path, tmp_path / f"out{number}", format="lerobot", options=options)

    with pytest.raises(ValueError, match="different lengths"):
        attempt(0, write_episodes)
    with pytest.raises(ValueError, match=r"'empty'.*shape"):
        attempt(1, write_mixed)
    with pytest.raises(ValueError, match="not free"):
        attempt(2, lambda client: client.insert({"index": 1.0}, {"table": 1.0}))
    with pytest.raises(ValueError, match="fps"):
        attempt(3, write_frames, fps=0)
    with pytest.raises(ValueError, match="not a dataset of LeRobot"):
        formats.import_table(tmp_path, tmp_path / "new", format="lerobot")
