"""Tests servers that keep part of their data on disk."""

import os
import signal
import subprocess
import sys

from conditions import wait_until
from conftest import make_table
import numpy as np
import pytest

import reverb

SECONDS = 60
SIZE = 40_000  # of an item
COUNT = 200


def data_of(number):
    return np.random.default_rng(number).integers(0, 256, SIZE, dtype=np.uint8)


def start(tmp_path, *tables, memory_limit=20 * SIZE, **options):
    storage = reverb.Storage(tmp_path / "tier", memory_limit=memory_limit, disk_limit=64 << 20)
    return reverb.Server(list(tables), storage=storage, **options)


def insert(client, numbers, table="table"):
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for number in numbers:
            writer.append({"number": np.int64(number), "data": data_of(number)})
            writer.create_item(
                table, 1.0, {"number": writer.history["number"][-1:], "data": writer.history["data"][-1:]}
            )


def check(data):
    if isinstance(data, list):  # without a signature: the leaves, in the order of their names
        data = dict(zip(("data", "number"), data, strict=True))
    np.testing.assert_array_equal(data["data"][0], data_of(int(data["number"][0])))


def test_data_that_is_on_disk_is_sampled(tmp_path, connect):
    table = make_table(sampler=reverb.selectors.Uniform())
    with start(tmp_path, table) as server:
        client = connect(server)
        insert(client, range(COUNT))
        storage = client.server_info(timeout=SECONDS).storage
        assert storage.memory_bytes <= storage.memory_limit == 20 * SIZE
        assert storage.disk_bytes >= (COUNT - 20) * SIZE
        assert storage.file_bytes <= storage.disk_limit == 64 << 20
        assert storage.error == ""
        for sample in client.sample("table", 3 * COUNT, emit_timesteps=False, timeout=SECONDS):
            check(sample.data)
        after = client.server_info(timeout=SECONDS).storage
        assert after.read_bytes > COUNT * SIZE
        assert after.lost_chunks == 0


def test_batches_of_data_on_disk(tmp_path, connect):
    with start(tmp_path, make_table(sampler=reverb.selectors.Uniform())) as server:
        client = connect(server)
        insert(client, range(COUNT))
        batches = client.sample_batches("table", 64, timeout=SECONDS)
        for _ in range(5):
            batch = next(batches)
            for number, data in zip(batch.data["number"], batch.data["data"], strict=True):
                check({"number": number, "data": data})


def test_a_queue_returns_everything_in_order(tmp_path, connect):
    with start(tmp_path, reverb.Table.queue("queue", COUNT)) as server:
        client = connect(server)
        insert(client, range(COUNT), table="queue")
        samples = client.sample("queue", COUNT, emit_timesteps=False, timeout=SECONDS)
        numbers = []
        for sample in samples:
            check(sample.data)
            numbers.append(int(sample.data[1][0]))
        assert numbers == list(range(COUNT))
        wait_until(lambda: client.server_info(timeout=SECONDS).storage.disk_bytes == 0)


def test_overlapping_items_share_what_is_on_disk(tmp_path, connect):
    with start(tmp_path, make_table(sampler=reverb.selectors.Uniform())) as server:
        client = connect(server)
        with client.trajectory_writer(num_keep_alive_refs=4) as writer:
            for number in range(COUNT):
                writer.append({"number": np.int64(number), "data": data_of(number)})
                if number >= 3:
                    history = writer.history
                    writer.create_item("table", 1.0, {"number": history["number"][-4:], "data": history["data"][-4:]})
        assert client.server_info(timeout=SECONDS).stored_bytes < 1.1 * COUNT * SIZE
        for sample in client.sample("table", COUNT, emit_timesteps=False, timeout=SECONDS):
            all_data, numbers = sample.data
            assert list(np.diff(numbers)) == [1, 1, 1]
            for number, data in zip(numbers, all_data, strict=True):
                check({"number": [number], "data": [data]})


def test_a_checkpoint_contains_what_is_on_disk(tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path / "checkpoints"))
    with start(tmp_path, make_table(), checkpointer=checkpointer) as server:
        client = server.localhost_client()
        insert(client, range(COUNT))
        path = client.checkpoint()
    numbers = []
    for item in reverb.checkpoints.read(path, "table"):
        check(item.data)
        numbers.append(int(item.data["number"][0]))
    assert sorted(numbers) == list(range(COUNT))
    # Loading it moves most of it to disk again.
    with start(tmp_path, make_table(), checkpointer=checkpointer) as server:
        client = server.localhost_client()
        storage = client.server_info().storage
        assert storage.disk_bytes >= (COUNT - 20) * SIZE
        assert storage.memory_bytes <= storage.memory_limit
        for sample in client.sample("table", COUNT, emit_timesteps=False, timeout=SECONDS):
            check(sample.data)
        client.checkpoint()


def test_row_tables_stay_in_memory(tmp_path, connect):
    with start(tmp_path, reverb.RowTable("rows", consumers=["train"]), memory_limit=SIZE) as server:
        rows = connect(server).rows("rows")
        for number in range(20):
            rows.put([str(number)], {"data": [data_of(number)]})
        batch = rows.claim("train", 20, needs=["data"], timeout=SECONDS)
        for key, data in zip(batch.keys, batch["data"], strict=True):
            np.testing.assert_array_equal(data, data_of(int(key)))


def test_files_of_a_server_that_was_killed_are_removed(tmp_path):
    program = (
        "import sys, numpy as np, reverb\n"
        "server = reverb.Server([reverb.Table.queue('q', 1000)],"
        " storage=reverb.Storage(sys.argv[1], memory_limit=10**6, disk_limit=2**26))\n"
        "client = server.localhost_client()\n"
        "for i in range(100):\n"
        "    client.insert(np.random.bytes(40_000), {'q': 1.0})\n"
        "print('ready', flush=True)\n"
        "server.wait()\n"
    )
    tier = tmp_path / "tier"
    process = subprocess.Popen([sys.executable, "-c", program, str(tier)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        # The folder belongs to that process.
        with pytest.raises(RuntimeError, match="give each server a folder of its own"):
            start(tmp_path, make_table())
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    left = sorted(tier.glob("*.payloads"))
    assert left
    with start(tmp_path, make_table()) as server:
        assert not any(file.exists() for file in left)
        insert(server.localhost_client(), range(50))
        assert list(tier.glob("*.payloads"))
    assert not list(tier.glob("*.payloads"))


def test_damaged_files_cost_the_items_in_them(tmp_path, connect):
    with start(tmp_path, make_table(sampler=reverb.selectors.Uniform())) as server:
        client = connect(server)
        insert(client, range(COUNT))
        for file in sorted((tmp_path / "tier").glob("*.payloads"))[:1]:
            with open(file, "r+b") as damaged:
                damaged.write(b"\xff" * 4096)
        for sample in client.sample("table", 5 * COUNT, emit_timesteps=False, timeout=SECONDS):
            check(sample.data)
        info = client.server_info(timeout=SECONDS)
        assert 0 < info.storage.lost_chunks < 5
        assert COUNT - 5 < info["table"].current_size < COUNT


def test_memory_limit_is_by_default_part_of_that_of_the_server(tmp_path):
    storage = reverb.Storage(tmp_path / "tier", disk_limit=64 << 20)
    with reverb.Server([make_table(max_size=10_000)], storage=storage, memory_limit=64 << 20) as server:
        info = server.localhost_client().server_info()
        kept = (64 << 20) // 16 * 13
        assert info.storage.memory_limit == kept // 4 * 3
        # More than the memory of the server.
        insert(server.localhost_client(), range(2000))
        info = server.localhost_client().server_info()
        assert info.storage.disk_bytes > 0
        assert info.stored_bytes > 2000 * SIZE
        assert info.memory["stored"] <= kept
        assert info.memory["used"] <= 64 << 20


def test_a_server_without_storage_has_none(serve):
    assert serve(make_table()).localhost_client().server_info().storage is None


@pytest.mark.parametrize(
    ("storage", "error", "message"),
    [
        ("/tmp", TypeError, "storage must be a reverb.Storage"),
        (reverb.Storage("/tmp", memory_limit=0), ValueError, "memory_limit"),
        (reverb.Storage("/tmp", memory_limit=2**60), ValueError, "memory_limit of the server"),
        (reverb.Storage("/tmp", memory_limit=1, disk_limit=-1), ValueError, "disk_limit"),
        (reverb.Storage("/proc/no/such", memory_limit=1), Exception, "/proc/no"),
    ],
)
def test_invalid_storage(storage, error, message):
    with pytest.raises(error, match=message):
        reverb.Server([make_table()], storage=storage)
