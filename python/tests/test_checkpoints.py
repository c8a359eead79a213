"""Tests checkpoints: saved by one server, loaded by another, and read without a server."""

import datetime
import gc
import os
import pathlib
import pickle
import resource
import subprocess
import sys

from conditions import wait_until
from conftest import make_table, run_in_threads
import dm_reverb_files
import numpy as np
import pytest

import reverb
from reverb import checkpointers, checkpoints, pybind

UNIFORM = reverb.selectors.Uniform


def start(root, *tables, **options):
    checkpointer = checkpointers.DefaultCheckpointer(root, **options)
    return reverb.Server(list(tables) or [make_table()], checkpointer=checkpointer)


def fill(client, table="table", count=10, first=0):
    for i in range(first, first + count):
        client.insert(np.float32(i), {table: float(i + 1)})


def values(path, table=None):
    return sorted(float(item.data[0][0]) for item in checkpoints.read(path, table))


# --- Save and load ---


def test_a_server_continues_from_a_checkpoint(tmp_path, connect):
    with start(tmp_path / "root") as server:
        assert server.loaded_checkpoint is None
        client = connect(server)
        fill(client)
        list(client.sample("table", 3))
        path = client.checkpoint()
        fill(client, first=10, count=1)  # after the checkpoint, so not part of it
    assert os.path.isabs(path)
    assert pathlib.Path(path).parent == tmp_path / "root"

    table = make_table()
    with start(tmp_path / "root", table) as server:
        assert server.loaded_checkpoint == path
        assert table.info.current_size == 10  # the given object shows the loaded items
        client = connect(server)
        info = client.server_info()["table"]
        assert info.current_size == 10
        assert info.rate_limiter_info.insert_stats.completed == 10
        assert info.rate_limiter_info.sample_stats.completed == 3
        items = client.peek("table", 10)
        assert [float(item.data[0][0]) for item in items] == [float(i) for i in range(10)]
        assert [item.info.priority for item in items] == [float(i + 1) for i in range(10)]
        assert [item.info.times_sampled for item in items] == [3] + [0] * 9
        assert next(client.sample("table"))[0].info.times_sampled == 4


def test_the_next_samples_are_the_same(tmp_path):
    def make():
        return [
            make_table("uniform", sampler=UNIFORM(seed=1), remover=UNIFORM(seed=2), max_size=50),
            make_table("per", sampler=reverb.selectors.Prioritized(0.7, seed=3)),
            make_table("heap", sampler=reverb.selectors.MaxHeap(), remover=reverb.selectors.MinHeap(), max_size=20),
        ]

    def draw(client):
        drawn = []
        for table in ("uniform", "per", "heap"):
            drawn.append([sample[0].info.key for sample in client.sample(table, 40, exact=True)])
            client.mutate_priorities(table, updates={drawn[-1][0]: 0.25})
            drawn.append([sample[0].info.key for sample in client.sample(table, 40, exact=True)])
        return drawn

    with start(tmp_path, *make()) as server:
        client = server.localhost_client()
        for table in ("uniform", "per", "heap"):
            fill(client, table, 60)
            list(client.sample(table, 7))
        client.checkpoint()
        expected = draw(client)
    with start(tmp_path, *make()) as server:
        assert draw(server.localhost_client()) == expected


def test_saved_in_one_process_and_loaded_in_another(tmp_path):
    code = """
import sys, numpy as np, reverb
server = reverb.Server([reverb.Table.queue("queue", 100)],
                       checkpointer=reverb.checkpointers.DefaultCheckpointer(sys.argv[1]))
client = server.localhost_client()
with client.trajectory_writer(num_keep_alive_refs=3) as writer:
    for i in range(10):
        writer.append({"frame": np.full((8, 8), i, np.uint8), "text": b"step %d" % i})
        if i >= 2:
            writer.create_item("queue", 1.0, {"frames": writer.history["frame"][-3:],
                                              "last": writer.history["text"][-1]})
print(client.checkpoint())
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with start(tmp_path, reverb.Table.queue("queue", 100)) as server:
        assert server.loaded_checkpoint == done.stdout.strip()
        samples = list(server.localhost_client().sample("queue", 8, emit_timesteps=False))
    for i, sample in enumerate(samples):
        frames, last = sample.data
        np.testing.assert_array_equal(frames[:, 0, 0], [i, i + 1, i + 2])
        assert last.item() == b"step %d" % (i + 2)


def test_two_servers_have_two_roots(tmp_path):
    with start(tmp_path / "a") as first, start(tmp_path / "b") as second:
        fill(first.localhost_client(), count=3)
        fill(second.localhost_client(), count=5)
        paths = [server.localhost_client().checkpoint() for server in (first, second)]
    assert [len(list(checkpoints.read(path))) for path in paths] == [3, 5]
    with start(tmp_path / "a") as first, start(tmp_path / "b") as second:
        sizes = [server.localhost_client().server_info()["table"].current_size for server in (first, second)]
    assert sizes == [3, 5]


def test_one_checkpoint_is_kept_by_default(tmp_path):
    with start(tmp_path / "one") as server:
        client = server.localhost_client()
        for i in range(3):
            fill(client, count=1, first=i)
            last = client.checkpoint()
    assert [entry.path for entry in checkpoints.find(tmp_path / "one")] == [last]
    with start(tmp_path / "more", keep_latest=2) as server:
        client = server.localhost_client()
        paths = []
        for i in range(4):
            fill(client, count=1, first=i)
            paths.append(client.checkpoint())
    entries = checkpoints.find(tmp_path / "more")
    assert [entry.path for entry in entries] == paths[-2:]
    assert all(entry.is_complete and not entry.is_dm_reverb for entry in entries)
    assert [values(path) for path in paths[-2:]] == [[0, 1, 2], [0, 1, 2, 3]]


def test_other_files_in_the_root_stay(tmp_path):
    (tmp_path / "zzz").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    with start(tmp_path) as server:
        client = server.localhost_client()
        fill(client, count=2)
        client.checkpoint()
        assert os.path.isdir(client.checkpoint())
    assert (tmp_path / "zzz").is_dir()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_checkpoint_at_the_end_if_configured(tmp_path):
    with start(tmp_path, on_stop=True) as server:
        fill(server.localhost_client(), count=4)
    assert values(tmp_path) == [0, 1, 2, 3]


def has_saved(root, size):
    try:
        return checkpoints.info(root).tables["table"].current_size == size
    except RuntimeError:  # no checkpoint yet, or it has just been replaced
        return False


def test_periodic_checkpoints_if_configured(tmp_path):
    with start(tmp_path, interval=0.05) as server:
        fill(server.localhost_client(), count=4)
        wait_until(lambda: has_saved(tmp_path, 4), what="a periodic checkpoint")


def test_servers_without_a_checkpointer_save_to_a_place_of_their_own(serve, connect):
    client = connect(serve(make_table()))
    fill(client, count=2)
    path = client.checkpoint()
    assert values(path) == [0, 1]
    for file in sorted(pathlib.Path(path).parent.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()


def test_concurrent_requests(tmp_path):
    with start(tmp_path) as server:
        client = server.localhost_client()
        fill(client)
        paths = []
        run_in_threads(6, lambda: paths.append(client.checkpoint()))
    assert len(paths) == 6
    assert values(tmp_path) == [float(i) for i in range(10)]


# --- Saved and given settings ---


def test_saved_settings_win_and_differences_are_logged(tmp_path, caplog):
    with start(tmp_path, make_table(max_size=20, limiter=reverb.rate_limiters.MinSize(2))) as server:
        fill(server.localhost_client(), count=5)
        server.localhost_client().checkpoint()
    caplog.clear()
    with start(tmp_path, make_table(max_size=30, limiter=reverb.rate_limiters.MinSize(3))) as server:
        info = server.localhost_client().server_info()["table"]
        assert info.max_size == 20
        assert info.rate_limiter_info.min_size_to_sample == 2
    assert "max_size" in caplog.text
    assert "20" in caplog.text
    assert "30" in caplog.text


def test_given_settings_can_win(tmp_path):
    with start(tmp_path, make_table(max_size=20)) as server:
        fill(server.localhost_client(), count=5)
        server.localhost_client().checkpoint()
    restore = checkpointers.Restore(
        rate_limiter="given", sizes="given", selectors="given", signature="given", counters="reset"
    )
    signature = {"x": reverb.TensorSpec([None], np.float32)}
    table = make_table(
        max_size=3, sampler=reverb.selectors.Lifo(), limiter=reverb.rate_limiters.MinSize(2), signature=signature
    )
    with start(tmp_path, table, restore=restore) as server:
        client = server.localhost_client()
        info = client.server_info()["table"]
        assert info.max_size == 3
        assert info.current_size == 3
        assert info.rate_limiter_info.min_size_to_sample == 2
        assert info.signature == signature
        assert float(next(client.sample("table"))[0].data[0]) == 4  # the newest first


def test_tables_that_one_side_lacks(tmp_path):
    with start(tmp_path, make_table("a"), make_table("b")) as server:
        fill(server.localhost_client(), "a", 2)
        fill(server.localhost_client(), "b", 3)
        server.localhost_client().checkpoint()
    with pytest.raises(ValueError, match='"b"'):
        start(tmp_path, make_table("a"))
    with start(tmp_path, make_table("a"), restore=checkpointers.Restore(extra_tables="drop")) as server:
        assert set(server.localhost_client().server_info()) == {"a"}
    with start(tmp_path, make_table("a"), restore=checkpointers.Restore(extra_tables="create")) as server:
        infos = server.localhost_client().server_info()
        assert {name: info.current_size for name, info in infos.items()} == {"a": 2, "b": 3}
    with start(tmp_path, make_table("a"), make_table("b"), make_table("c")) as server:
        assert server.localhost_client().server_info()["c"].current_size == 0
    with pytest.raises(ValueError, match='"c"'):
        start(
            tmp_path,
            *(make_table(name) for name in "abc"),
            restore=checkpointers.Restore(missing_tables="fail"),
        )


def test_the_fallback_is_for_roots_without_a_checkpoint(tmp_path, caplog):
    with start(tmp_path / "old") as server:
        fill(server.localhost_client(), count=2)
        old = server.localhost_client().checkpoint()
    with start(tmp_path / "new", fallback_checkpoint_path=old) as server:
        assert server.loaded_checkpoint == old
        fill(server.localhost_client(), count=1, first=2)
        server.localhost_client().checkpoint()
    with start(tmp_path / "new", fallback_checkpoint_path=old) as server:
        assert server.localhost_client().server_info()["table"].current_size == 3
    assert values(old) == [0, 1]  # never written to
    caplog.clear()
    with start(tmp_path / "newer", fallback_checkpoint_path=tmp_path / "typo") as server:
        assert server.loaded_checkpoint is None
    assert "typo" in caplog.text


def test_nothing_is_loaded_if_disabled(tmp_path):
    with start(tmp_path) as server:
        fill(server.localhost_client(), count=2)
        server.localhost_client().checkpoint()
    with start(tmp_path, load_latest=False) as server:
        assert server.loaded_checkpoint is None
        assert server.localhost_client().server_info()["table"].current_size == 0


def test_wrong_options_are_refused(tmp_path):
    for options in (
        {"interval": 0},
        {"interval": -1.0},
        {"interval": float("nan")},
        {"keep_latest": 0},
        {"restore": checkpointers.Restore(sizes="mine")},
        {"restore": checkpointers.Restore(extra_tables="maybe")},
        {"restore": checkpointers.Restore(counters="")},
    ):
        with pytest.raises(ValueError):
            start(tmp_path, **options)
    for options in ({"interval": "soon"}, {"keep_latest": 1.5}, {"restore": 3}):
        with pytest.raises(TypeError):
            start(tmp_path, **options)


def test_groups_cannot_be_saved(tmp_path, caplog):
    with reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path), "g")) as server:
        assert "group" in caplog.text
        with pytest.raises(ValueError):
            server.localhost_client().checkpoint()


def test_a_custom_checkpointer_must_return_options(tmp_path):
    class Mine(checkpointers.CheckpointerBase):
        def internal_checkpointer(self):
            return str(tmp_path)

    with pytest.raises(TypeError, match="CheckpointerOptions"):
        reverb.Server([make_table()], checkpointer=Mine())

    class Native(checkpointers.CheckpointerBase):
        def internal_checkpointer(self):
            return pybind.create_default_checkpointer(str(tmp_path), "", None)

    with reverb.Server([make_table()], checkpointer=Native()) as server:
        assert os.path.dirname(server.localhost_client().checkpoint()) == str(tmp_path)


# --- Damage ---


def damage(path):
    """Flips a bit in the middle of every file below `path`."""
    for file in pathlib.Path(path).rglob("*"):
        data = bytearray(file.read_bytes()) if file.is_file() else b""
        if data:
            data[len(data) // 2] ^= 0x10
            file.write_bytes(data)


def test_damage_is_reported_and_nothing_is_loaded(tmp_path):
    with start(tmp_path) as server:
        fill(server.localhost_client())
        path = server.localhost_client().checkpoint()
    damage(tmp_path)
    with pytest.raises(RuntimeError) as raised:
        start(tmp_path)
    assert raised.value.code == "DATA_LOSS"
    assert str(tmp_path) in str(raised.value)
    for attempt in (checkpoints.verify, lambda path: list(checkpoints.read(path))):
        with pytest.raises(RuntimeError):
            attempt(path)


def test_the_one_before_is_loaded_when_the_latest_is_damaged(tmp_path, caplog):
    with start(tmp_path, keep_latest=2) as server:
        client = server.localhost_client()
        fill(client, count=2)
        before = client.checkpoint()
        fill(client, count=2, first=2)
        latest = client.checkpoint()
    (pathlib.Path(latest) / "MANIFEST").write_bytes(b"not what it was")
    with start(tmp_path, keep_latest=2) as server:
        assert server.loaded_checkpoint == before
        assert server.localhost_client().server_info()["table"].current_size == 2
    assert latest in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with start(tmp_path / "root") as server:
        client = server.localhost_client()
        fill(client, count=1)
        with pytest.raises(RuntimeError, match="root"):
            client.checkpoint()
        assert client.server_info()["table"].current_size == 1


def test_a_disk_that_is_full(tmp_path):
    # A limit on the size of files simulates a full disk, which would need root.
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with start(tmp_path) as server:
        client = server.localhost_client()
        client.insert(np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8), {"table": 1.0})
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limit[1]))
        try:
            with pytest.raises(RuntimeError) as raised:
                client.checkpoint()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert raised.value.code == "FAILED_PRECONDITION"
        assert str(tmp_path) in str(raised.value)
        assert "ulimit -f" in str(raised.value)
        checkpoints.verify(client.checkpoint())


def test_a_place_that_is_a_file(tmp_path):
    (tmp_path / "root").write_text("a file")
    with pytest.raises((RuntimeError, ValueError)), start(tmp_path / "root") as server:
        fill(server.localhost_client(), count=1)
        server.localhost_client().checkpoint()
    assert (tmp_path / "root").read_text() == "a file"


# --- Reading without a server ---


def test_items_have_their_metadata(tmp_path):
    before = datetime.datetime.now(datetime.timezone.utc)
    with start(tmp_path, make_table("a"), make_table("b")) as server:
        client = server.localhost_client()
        fill(client, "a", 3)
        fill(client, "b", 2)
        key = next(client.sample("a"))[0].info.key
        path = client.checkpoint()
    items = list(checkpoints.read(path))
    assert [item.table for item in items] == ["a"] * 3 + ["b"] * 2
    assert [item.priority for item in items] == [1.0, 2.0, 3.0, 1.0, 2.0]
    assert [item.times_sampled for item in items] == [1, 0, 0, 0, 0]
    assert items[0].key == key
    after = datetime.datetime.now(datetime.timezone.utc)
    slack = datetime.timedelta(seconds=1)
    assert all(before - slack < item.inserted_at < after + slack for item in items)
    # The latest checkpoint of a root; one table, or some.
    assert [item.table for item in checkpoints.read(tmp_path, "b")] == ["b"] * 2
    assert [item.table for item in checkpoints.read(tmp_path, ["b", "a"])] == ["b"] * 2 + ["a"] * 3
    info = checkpoints.info(tmp_path)
    assert info.path == path
    assert before - slack < info.created < after + slack
    assert {name: table.current_size for name, table in info.tables.items()} == {"a": 3, "b": 2}
    assert 0 < info.payload_bytes <= info.file_bytes
    checkpoints.verify(path)
    assert pickle.loads(pickle.dumps(items[0])).key == key


def test_data_has_the_structure_of_the_signature(tmp_path):
    signature = {
        "obs": {"pixels": reverb.TensorSpec([None, 4, 4], np.uint8)},
        "act": (reverb.TensorSpec([None], np.int32), reverb.TensorSpec([], np.float64)),
    }
    with start(tmp_path, make_table(signature=signature)) as server:
        client = server.localhost_client()
        with client.trajectory_writer(num_keep_alive_refs=2) as writer:
            for i in range(3):
                writer.append({"p": np.full((4, 4), i, np.uint8), "a": np.int32(i), "r": float(i)})
                if i >= 1:
                    history = writer.history
                    writer.create_item(
                        "table",
                        1.0,
                        {"obs": {"pixels": history["p"][-2:]}, "act": (history["a"][-2:], history["r"][-1])},
                    )
        client.checkpoint()
    first, second = checkpoints.read(tmp_path)
    np.testing.assert_array_equal(first.data["obs"]["pixels"][:, 0, 0], [0, 1])
    np.testing.assert_array_equal(second.data["act"][0], [1, 2])
    assert second.data["act"][1] == 2.0
    assert second.data["act"][1].shape == ()
    flat = next(checkpoints.read(tmp_path, flat=True)).data
    assert [column.dtype for column in flat] == [np.int32, np.float64, np.uint8]


def test_items_outlive_their_reader(tmp_path):
    with start(tmp_path) as server:
        fill(server.localhost_client(), count=3)
        server.localhost_client().checkpoint()
    items = checkpoints.read(tmp_path)
    first = next(items)
    del items
    gc.collect()
    assert first.data[0][0] == 0
    first.data[0][0] = 7  # the array is the caller's


def test_what_is_not_there(tmp_path):
    with pytest.raises(RuntimeError) as raised:
        checkpoints.read(tmp_path)
    assert raised.value.code == "NOT_FOUND"
    for call in (checkpoints.info, checkpoints.verify, checkpoints.find, checkpoints.read):
        with pytest.raises(RuntimeError, match="nowhere"):
            call(tmp_path / "nowhere")
    with start(tmp_path) as server:
        fill(server.localhost_client(), count=1)
        server.localhost_client().checkpoint()
    for tables in ("tabel", ["table", "tabel"]):
        with pytest.raises(RuntimeError, match="tabel") as raised:
            checkpoints.read(tmp_path, tables)
        assert raised.value.code == "NOT_FOUND"
    for wrong in (None, 3, b"\x00", object()):
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            checkpoints.read(wrong)


# --- Checkpoints of dm-reverb ---


@pytest.fixture
def old(tmp_path):
    return dm_reverb_files.write_small(tmp_path / "old" / "2026-07-14T10:29:53.5-07:00")


def check_small(items):
    assert [item.key for item in items] == [1, 2, 3]
    assert [item.priority for item in items] == [1.0, 2.0, 3.0]
    assert [item.times_sampled for item in items] == [2, 2, 2]
    for i, item in enumerate(items):
        np.testing.assert_array_equal(item.data["act"], np.array([i, i + 1], np.int32))
        np.testing.assert_array_equal(
            item.data["obs"], np.array([[2 * i, 2 * i + 1], [2 * i + 2, 2 * i + 3]], np.float32)
        )


def test_dm_reverbs_checkpoints_are_read(old):
    items = list(checkpoints.read(old))
    check_small(items)
    assert items[0].inserted_at == datetime.datetime(1970, 1, 1, 0, 16, 41, tzinfo=datetime.timezone.utc)
    info = checkpoints.info(old.parent)
    assert info.format == "dm-reverb"
    assert info.created == datetime.datetime(2026, 7, 14, 17, 29, 53, 500_000, tzinfo=datetime.timezone.utc)
    assert info.tables["replay"].signature["obs"] == reverb.TensorSpec([None, 2], np.float32)
    assert [entry.is_dm_reverb for entry in checkpoints.find(old.parent)] == [True]
    checkpoints.verify(old)


@pytest.mark.parametrize("place", ["root", "itself", "fallback"])
def test_a_server_starts_from_a_checkpoint_of_dm_reverb(old, tmp_path, place):
    arguments = {
        "root": (old.parent,),
        "itself": (old,),
        "fallback": (tmp_path / "new", "", old),
    }[place]
    server = reverb.Server(
        [make_table("replay", sampler=UNIFORM())], checkpointer=checkpointers.DefaultCheckpointer(*arguments)
    )
    with server:
        assert server.loaded_checkpoint == str(old)
        client = server.localhost_client()
        info = client.server_info()["replay"]
        assert (info.current_size, info.max_size) == (3, 100)
        assert info.rate_limiter_info.insert_stats.completed == 3
        assert info.rate_limiter_info.sample_stats.completed == 5
        sample = next(client.sample("replay", emit_timesteps=False, unpack_as_table_signature=True))
        assert sample.data["obs"].shape == (2, 2)
        path = client.checkpoint()  # in our own format, and newer
    assert checkpoints.info(path).format != "dm-reverb"
    assert len(list(checkpoints.read(arguments[0]))) == 3
    if place != "root":  # in a root, the newer one has replaced it
        assert {file.name for file in old.iterdir() if file.is_file()} == {
            "DONE",
            "chunks.tfrecord",
            "items.tfrecord",
            "tables.tfrecord",
        }


def test_dm_reverbs_checkpoints_are_converted(old, tmp_path):
    path = checkpoints.convert(old.parent, tmp_path / "new")
    assert pathlib.Path(path).parent == tmp_path / "new"
    assert checkpoints.info(path).format != "dm-reverb"
    check_small(list(checkpoints.read(path)))
    checkpoints.verify(path)
    with start(tmp_path / "new", make_table("replay")) as server:
        assert server.loaded_checkpoint == path
        assert server.localhost_client().server_info()["replay"].current_size == 3


@pytest.mark.parametrize("name", ["tables.tfrecord", "items.tfrecord", "chunks.tfrecord"])
def test_damaged_checkpoints_of_dm_reverb_are_errors(old, tmp_path, name):
    file = old / name
    good = file.read_bytes()
    for bad in (good[:-3], b"", bytes([*good[:20], good[20] ^ 1, *good[21:]])):
        file.write_bytes(bad)
        with pytest.raises(RuntimeError) as raised:
            start(old.parent, make_table("replay"))
        assert raised.value.code == "DATA_LOSS"
    file.unlink()
    with pytest.raises(RuntimeError, match=name.removesuffix(".tfrecord")):
        start(old.parent, make_table("replay"))


def test_unfinished_checkpoints_of_dm_reverb_are_skipped(old):
    (old / "DONE").unlink()
    with start(old.parent, make_table("replay")) as server:
        assert server.loaded_checkpoint is None
