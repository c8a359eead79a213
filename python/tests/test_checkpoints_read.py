"""Tests reading checkpoints as datasets: batches, shuffled order, selected columns, memory; and copies of them."""

import collections
import itertools
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys

from conftest import make_table
import dm_reverb_files
import numpy as np
import pytest

import reverb
from reverb import checkpointers, checkpoints

Pair = collections.namedtuple("Pair", ["second", "first"])


def save(root, *tables, write):
    checkpointer = checkpointers.DefaultCheckpointer(root, keep_latest=100)
    with reverb.Server(list(tables) or [make_table(max_size=100_000)], checkpointer=checkpointer) as server:
        client = server.localhost_client()
        write(client)
        return client.checkpoint()


def write_steps(client, count=10, table="table", length=1):
    """Writes an item of the last `length` steps after each step; the last step of item i is i + length - 1."""
    with client.trajectory_writer(num_keep_alive_refs=length) as writer:
        for i in range(count + length - 1):
            writer.append(
                {"obs": {"pixels": np.full((2, 3), i % 256, np.uint8), "pos": np.float32(i)}, "act": np.int64(i)}
            )
            if i >= length - 1:
                history = writer.history
                writer.create_item(
                    table,
                    float(i + 1),
                    {
                        "obs": {"pixels": history["obs"]["pixels"][-length:], "pos": history["obs"]["pos"][-length:]},
                        "act": history["act"][-1],
                    },
                )


def acts(batches):
    return [batch.data["act"].tolist() for batch in batches]


# --- Names ---


def test_items_have_the_writers_names(tmp_path):
    save(tmp_path, write=write_steps)
    items = list(checkpoints.read(tmp_path, "table"))
    assert [item.data["act"].item() for item in items] == list(range(10))
    assert items[3].data["obs"]["pixels"].shape == (1, 2, 3)
    assert items[3].data["obs"]["pos"].tolist() == [3.0]
    flat = next(checkpoints.read(tmp_path, "table", flat=True)).data
    assert [column.dtype for column in flat] == [np.int64, np.uint8, np.float32]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"b": 1, "a": 2.0}, {"a": [2.0], "b": [1]}),
        ([1, (2, 3)], [[1], ([2], [3])]),
        (Pair(1, {"x": 2}), Pair([1], {"x": [2]})),
        (np.float32(4), [[4.0]]),  # a single value: a list of one column
    ],
)
def test_any_structure_comes_back(tmp_path, data, expected):
    save(tmp_path, write=lambda client: client.insert(data, {"table": 1.0}))
    read = next(checkpoints.read(tmp_path)).data
    as_lists = reverb._tree.map_structure(lambda leaf: leaf.tolist(), read)
    assert as_lists == expected
    if hasattr(expected, "_fields"):
        assert (type(as_lists).__name__, as_lists._fields) == ("Pair", ("second", "first"))


def test_different_structures_are_flat_lists(tmp_path):
    def write(client):
        client.insert({"a": 1, "b": 2}, {"table": 1.0})
        client.insert([1, 2], {"table": 1.0})

    save(tmp_path, make_table(layout="any"), write=write)
    assert [type(item.data) for item in checkpoints.read(tmp_path)] == [list, list]


# --- Batches ---


def test_batches_have_the_form_of_sampled_ones(tmp_path):
    save(tmp_path, write=lambda client: write_steps(client, 10, length=2))
    reader = checkpoints.read(tmp_path, "table", batch_size=4)
    batches = list(reader)
    assert len(reader) == len(batches) == 3
    assert acts(batches) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    first = batches[0]
    assert isinstance(first, reverb.ReplaySample)
    assert first.data["obs"]["pixels"].shape == (4, 2, 2, 3)
    assert first.data["obs"]["pos"].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert first.data["obs"]["pixels"].dtype == np.uint8
    assert first.info.priority.tolist() == [2, 3, 4, 5]
    assert first.info.probability.tolist() == [0.1] * 4
    assert first.info.table_size.tolist() == [10] * 4
    assert first.info.times_sampled.tolist() == [0] * 4
    assert [array.dtype for array in first.info] == [np.uint64, np.float64, np.int64, np.float64, np.int32]
    keys = [item.key for item in checkpoints.read(tmp_path, "table")]
    assert np.concatenate([batch.info.key for batch in batches]).tolist() == keys
    first.data["act"][0] = 7  # the arrays are the caller's
    full = checkpoints.read(tmp_path, "table", batch_size=4, drop_last=True)
    assert len(full) == 2
    assert acts(full) == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_a_reader_can_be_read_again(tmp_path):
    save(tmp_path, write=write_steps)
    reader = checkpoints.read(tmp_path, "table", batch_size=5)
    assert acts(reader) == acts(reader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    # Passes do not disturb each other, nor does next().
    assert [pair[0].data["act"][0] - pair[1].data["act"][0] for pair in zip(reader, reader, strict=True)] == [0, 0]
    assert next(reader).data["act"][0] == 0
    assert next(reader).data["act"][0] == 5
    with pytest.raises(StopIteration):
        next(reader)
    assert "2 batches of 5 of table" in repr(reader)
    assert reader.tables == ["table"]


def test_items_of_different_lengths_can_be_padded(tmp_path):
    def write(client):
        with client.trajectory_writer(num_keep_alive_refs=5) as writer:
            for i in range(5):
                writer.append({"x": np.int32(i + 1)})
                writer.create_item("table", 1.0, {"x": writer.history["x"][:]})

    save(tmp_path, write=write)
    with pytest.raises(ValueError, match="pad"):
        next(checkpoints.read(tmp_path, "table", batch_size=3))
    padded = next(checkpoints.read(tmp_path, "table", batch_size=3, pad=True))
    assert padded.data["x"].tolist() == [[1, 0, 0], [1, 2, 0], [1, 2, 3]]
    assert padded.lengths["x"].tolist() == [1, 2, 3]


def test_strings_and_empty_tables(tmp_path):
    def write(client):
        for i in range(3):
            client.insert({"text": f"step {i}".encode()}, {"a": 1.0})

    save(tmp_path, make_table("a"), make_table("b"), write=write)
    assert next(checkpoints.read(tmp_path, "a", batch_size=2)).data["text"].tolist() == [[b"step 0"], [b"step 1"]]
    empty = checkpoints.read(tmp_path, "b", batch_size=2)
    assert len(empty) == 0
    assert list(empty) == []


def test_batches_are_of_one_table(tmp_path):
    save(tmp_path, make_table("a"), make_table("b"), write=lambda client: client.insert(1.0, {"a": 1.0}))
    with pytest.raises(ValueError, match=r"one table.*'a', 'b'"):
        checkpoints.read(tmp_path, batch_size=2)
    with pytest.raises(RuntimeError, match=r'no table "c"; it has "a", "b"') as raised:
        checkpoints.read(tmp_path, "c", batch_size=2)
    assert raised.value.code == "NOT_FOUND"
    assert len(checkpoints.read(tmp_path, ["a", "b"])) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"shuffle": -3},
        {"shuffle": 0},
        {"seed": -1},
        {"seed": 2**64},
        {"pad": True},
        {"drop_last": True},
    ],
)
def test_numbers_out_of_range(tmp_path, arguments):
    save(tmp_path, write=write_steps)
    with pytest.raises(ValueError, match=next(iter(arguments))):
        checkpoints.read(tmp_path, "table", **arguments)
    for wrong in ({"batch_size": 1.5}, {"batch_size": "4"}, {"seed": "x"}, {"shuffle": "yes"}, {"select": 2.5}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be"):
            checkpoints.read(tmp_path, "table", **wrong)


def test_a_damaged_segment_is_an_error(tmp_path):
    save(tmp_path, write=lambda client: write_steps(client, 300))
    for file in (tmp_path / "segments").glob("*.chunks"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    for shuffle in (False, True):
        with pytest.raises(RuntimeError, match=r"\.chunks") as raised:
            list(checkpoints.read(tmp_path, "table", batch_size=16, shuffle=shuffle))
        assert raised.value.code == "DATA_LOSS"


# --- Random order ---


def test_a_shuffled_pass_has_every_item_once(tmp_path):
    save(tmp_path, write=lambda client: write_steps(client, 2000))
    reader = checkpoints.read(tmp_path, "table", batch_size=64, shuffle=True, seed=3)
    first, second = (list(itertools.chain(*acts(reader))) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(2000))
    assert first != second
    assert first != sorted(first)
    # The same seed: the same order, pass by pass, whatever the size of batches.
    again = checkpoints.read(tmp_path, "table", shuffle=True, seed=3)
    assert [int(item.data["act"]) for item in again] == first
    assert [int(item.data["act"]) for item in again] == second
    other = checkpoints.read(tmp_path, "table", shuffle=True, seed=4)
    assert [int(item.data["act"]) for item in other] != first
    unseeded = [[int(item.data["act"]) for item in checkpoints.read(tmp_path, shuffle=True)] for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    # Data and info belong together.
    batch = next(reader)
    assert batch.info.priority.tolist() == [act + 1 for act in batch.data["act"].tolist()]


def test_seeds_and_passes_have_orders_of_their_own(tmp_path):
    save(tmp_path, write=lambda client: write_steps(client, 100))
    orders = set()
    for seed in (0, 1, 2, 3, 2**32, 2**32 + 1, 2**64 - 1):
        reader = checkpoints.read(tmp_path, "table", batch_size=100, shuffle=True, seed=seed)
        orders |= {tuple(batch.data["act"].tolist()) for _ in range(4) for batch in reader}
    assert len(orders) == 7 * 4


def test_a_reader_can_be_pickled(tmp_path, monkeypatch):
    save(tmp_path, write=write_steps)
    reader = checkpoints.read(
        tmp_path, "table", batch_size=4, shuffle=True, seed=3, select=["obs/pos", "act"], drop_last=True
    )
    list(reader)  # the copy counts on
    copy = pickle.loads(pickle.dumps(reader))
    assert acts(copy) == acts(reader)
    assert repr(copy) == repr(reader)
    assert next(iter(copy)).data["obs"].keys() == {"pos"}
    # It reads the same checkpoint, whatever the folder has by then.
    save(tmp_path, write=lambda client: write_steps(client, 1))
    again = pickle.loads(pickle.dumps(reader))
    assert (again.path, len(again)) == (reader.path, 2)
    items = checkpoints.read(tmp_path, ["table"], flat=True)
    assert [item.key for item in pickle.loads(pickle.dumps(items))] == [item.key for item in items]
    # It is found from other folders, too.
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(checkpoints.read(".", "table"))
    monkeypatch.chdir(tmp_path.parent)
    assert len(pickle.loads(pickled)) == 11
    # Workers get it that way.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (items,)) == 11


def test_a_window_mixes_across_the_table(tmp_path):
    save(tmp_path, write=lambda client: write_steps(client, 5000))
    order = [int(item.data["act"]) for item in checkpoints.read(tmp_path, shuffle=600, seed=1)]
    assert sorted(order) == list(range(5000))
    # Each tenth of the pass has items of many parts of the table, though not of all.
    for part in np.split(np.array(order), 10):
        assert len(set(part // 256)) >= 3


def test_every_order_has_the_same_probability(tmp_path):
    save(tmp_path, write=lambda client: write_steps(client, 3))
    reader = checkpoints.read(tmp_path, "table", batch_size=3, shuffle=True, seed=0)
    counts = collections.Counter(tuple(next(iter(reader)).data["act"].tolist()) for _ in range(1200))
    assert len(counts) == 6
    # Chi-squared with 5 degrees of freedom: above 25 with a probability of 1.4e-4, and the seed is fixed.
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 25


# --- Columns ---


def test_selected_columns(tmp_path):
    save(tmp_path, write=write_steps)

    def shapes(select):
        data = next(checkpoints.read(tmp_path, "table", batch_size=2, select=select)).data
        return reverb._tree.map_structure(lambda leaf: leaf.shape, data)

    assert shapes("act") == {"act": (2,)}
    assert shapes(["obs/pos", "act"]) == {"act": (2,), "obs": {"pos": (2, 1)}}
    assert shapes("obs") == shapes([("obs",)]) == {"obs": {"pixels": (2, 1, 2, 3), "pos": (2, 1)}}
    assert shapes([0]) == {"act": (2,)}
    for shuffle in (False, True):
        items = checkpoints.read(tmp_path, "table", select=("obs", "pos"), shuffle=shuffle, seed=1)
        assert sorted(item.data["obs"]["pos"].item() for item in items) == list(range(10))
    for wrong in ("reward", "ob", "obs/pixel", 3, -1):
        with pytest.raises(ValueError, match=r"'act', 'obs/pixels', 'obs/pos'"):
            checkpoints.read(tmp_path, "table", select=[wrong])
    with pytest.raises(ValueError, match="no column"):
        checkpoints.read(tmp_path, "table", select=[])


def test_selecting_from_other_nests(tmp_path):
    save(tmp_path, write=lambda client: client.insert(Pair([1, 2.0], (3, {"x": 4})), {"table": 1.0}))
    data = next(checkpoints.read(tmp_path, select=["second/1", "first/1"])).data
    assert (type(data).__name__, data._fields) == ("Pair", ("second", "first"))
    assert reverb._tree.map_structure(lambda leaf: leaf.tolist(), data) == ([[2.0]], ({"x": [4]},))
    assert next(checkpoints.read(tmp_path, select=["first/0"])).data._fields == ("first",)
    flat = next(checkpoints.read(tmp_path, select=[0, 3], flat=True)).data
    assert [column.tolist() for column in flat] == [[1], [4]]
    with pytest.raises(ValueError, match="have no names"):
        checkpoints.read(tmp_path, select="first", flat=True)
    with pytest.raises(ValueError, match="no column 9"):
        list(checkpoints.read(tmp_path, select=[9], flat=True))


def test_checkpoints_of_dm_reverb_too(tmp_path):
    old = dm_reverb_files.write_small(tmp_path / "2026-07-14T10:29:53.5-07:00")
    reader = checkpoints.read(old, "replay", batch_size=2, select="act")
    assert [batch.data["act"].tolist() for batch in reader] == [[[0, 1], [1, 2]], [[2, 3]]]
    shuffled = checkpoints.read(old, "replay", batch_size=3, shuffle=True, seed=1)
    assert sorted(next(shuffled).data["act"][:, 0].tolist()) == [0, 1, 2]
    with pytest.raises(ValueError, match="convert"):
        checkpoints.copy(old, tmp_path / "copy")


# --- Memory ---

MEASURE = """
import sys, reverb
from reverb import checkpoints

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) * 1024

most, before = 0, resident()
reader = checkpoints.read(sys.argv[1], "table", batch_size=8, shuffle=sys.argv[2] == "shuffled", seed=1)
for batch in reader:
    most = max(most, resident() - before)
print(most)
"""


@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_memory_does_not_grow_with_the_table(tmp_path, order):
    def write(client):
        random = np.random.default_rng(1)
        for _ in range(256):
            client.insert({"x": random.integers(0, 256, 2**20, dtype=np.uint8)}, {"table": 1.0})

    save(tmp_path, write=write)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path, order], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    # The files have 256 MiB; up to 64 MiB of them are mapped, and two batches of 8 MiB exist at a time.
    assert int(done.stdout) < 140 * 2**20


# --- Names of folders, copies ---


def test_folder_names_have_no_colons(tmp_path):
    path = pathlib.Path(save(tmp_path, write=write_steps))
    assert ":" not in path.name
    # Those of earlier releases had them: they are still found, in the right order, and continued.
    old = path.with_name(path.name.replace("-", ":").replace(":", "-", 2))
    path.rename(old)
    assert [entry.path for entry in checkpoints.find(tmp_path)] == [str(old)]
    assert len(checkpoints.read(tmp_path)) == 10
    new = save(tmp_path, write=lambda client: write_steps(client, 1))
    assert [entry.path for entry in checkpoints.find(tmp_path)] == [str(old), new]
    assert checkpoints.info(tmp_path).path == new
    assert checkpoints.info(tmp_path).tables["table"].current_size == 11


def content(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_copy_is_complete(tmp_path):
    root = tmp_path / "root"
    first = save(root, write=lambda client: write_steps(client, 20))
    second = save(root, write=lambda client: write_steps(client, 5))  # shares files with the first
    before = content(root)
    copied = pathlib.Path(checkpoints.copy(first, tmp_path / "deep" / "copy"))
    assert copied == tmp_path / "deep" / "copy" / pathlib.Path(first).name
    assert content(root) == before
    assert os.listdir(tmp_path / "deep") == ["copy"]
    latest = checkpoints.copy(root, f"{tmp_path}/latest/")
    for file in sorted(root.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (tmp_path / "deep").rename(tmp_path / "moved")
    assert [entry.path for entry in checkpoints.find(tmp_path / "moved" / "copy")] == [
        str(tmp_path / "moved" / "copy" / pathlib.Path(first).name)
    ]
    assert len(checkpoints.read(tmp_path / "moved" / "copy")) == 20
    assert len(checkpoints.read(latest)) == 25
    assert pathlib.Path(latest).name == pathlib.Path(second).name
    checkpoints.verify(latest)
    with reverb.Server(
        [make_table(max_size=100_000)], checkpointer=checkpointers.DefaultCheckpointer(tmp_path / "latest")
    ) as server:
        assert server.localhost_client().server_info()["table"].current_size == 25


def test_a_copy_never_replaces_anything(tmp_path):
    path = save(tmp_path / "root", write=write_steps)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    for taken in ("empty", "file", "root"):
        with pytest.raises(RuntimeError, match=f"{taken}.*exists") as raised:
            checkpoints.copy(path, tmp_path / taken)
        assert raised.value.code == "ALREADY_EXISTS"
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path / "empty") == []
    with pytest.raises(RuntimeError, match="nowhere"):
        checkpoints.copy(tmp_path / "nowhere", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_damage_is_not_copied(tmp_path):
    path = save(tmp_path / "root", write=lambda client: write_steps(client, 300))
    for file in (tmp_path / "root" / "segments").glob("*.chunks"):
        bad = bytearray(file.read_bytes())
        bad[len(bad) // 2] ^= 1
        file.write_bytes(bad)
    with pytest.raises(RuntimeError, match="chunks") as raised:
        checkpoints.copy(path, tmp_path / "copy")
    assert raised.value.code == "DATA_LOSS"
    assert os.listdir(tmp_path) == ["root"]  # no rest of the attempt
