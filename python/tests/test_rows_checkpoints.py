"""Checkpoints of row tables: what a server that returns has, also after it was killed."""

import pathlib
import signal
import subprocess
import sys

import conditions
import numpy as np
import pytest

import reverb

_SERVER = """
import sys, time, reverb
folder, port_file = sys.argv[1:]
server = reverb.Server(
    [reverb.RowTable("rows", consumers=["stage", "train"], group_size=2, order="ready"),
     reverb.Table.queue("items", 100)],
    checkpointer=reverb.checkpointers.DefaultCheckpointer(folder))
with open(port_file + ".new", "w") as file:
    file.write(str(server.port))
import os
os.rename(port_file + ".new", port_file)
server.wait()
"""


def _table(**options) -> reverb.RowTable:
    return reverb.RowTable("rows", consumers=["stage", "train"], **options)


def _start(folder: pathlib.Path, table: reverb.RowTable) -> tuple[reverb.Server, reverb.Rows]:
    server = reverb.Server([table], checkpointer=reverb.checkpointers.DefaultCheckpointer(str(folder)))
    return server, reverb.Client(f"localhost:{server.port}").rows("rows")


def test_a_server_continues_with_its_rows(tmp_path):
    server, rows = _start(tmp_path, _table(group_size=2, staleness=reverb.Staleness(3, batch=100)))
    rows.set_version(2)
    rows.put(
        ["a0", "a1", "b0", "b1"],
        {"tokens": [np.arange(3), np.arange(2), [7], [8]], "text": ["x", "yy", b"z".decode(), "w"]},
        tags=[{"reward": 0.5}, {"reward": 1.0}, {}, {"split": "math"}],
        groups=[1, 1, 2, 2],
    )
    rows.put(["c0"], {"tokens": [[1]]}, groups=[3], open=True)
    rows.put(["c0"], {"tokens": [[2, 3]]}, append=True, version=3)
    rows.requeue("c0")
    rows.claim("train", 2, needs=["tokens"]).ack(state=b"loader\0state")
    rows.claim("stage", 2, needs=["tokens"])
    before = {row.key: row for row in rows.list()}
    reverb.Client(f"localhost:{server.port}").checkpoint()
    rows.put(["d0"], {"tokens": [[9]]}, groups=[4])
    server.stop()

    server, rows = _start(tmp_path, _table(group_size=2, staleness=reverb.Staleness(3, batch=100)))
    after = {row.key: row for row in rows.list()}
    assert list(after) == list(before)
    for key, row in after.items():
        assert row == before[key]._replace(leased_by=[])
    assert rows.state() == b"loader\0state"
    info = rows.info()
    assert (info["version"], info["leases"], info["created"]) == (2, 0, 5)
    assert info["settings"]["staleness"] == {"max_lag": 3, "when_stale": "drop", "batch": 100}
    batch = rows.claim("train", 2, needs=["tokens"], select=["text"], timeout=60)
    assert batch.keys == ["b0", "b1"]
    assert batch["text"].values.tolist() == [b"z", b"w"]
    assert rows.claim("stage", 4, timeout=60).keys == ["a0", "a1", "b0", "b1"], "what was leased is ready again"
    assert rows.claim("resume", 1, needs=["tokens"], timeout=60)["tokens"][0].tolist() == [1, 2, 3]
    assert reverb.Client(f"localhost:{server.port}").server_info().row_tables["rows"]["rows"] == 5
    server.stop()


def test_a_state_belongs_to_what_it_was_set_with(tmp_path):
    server, rows = _start(tmp_path, _table())
    assert rows.state() == b""
    rows.set_state(b"one")
    rows.put(["a"], {"x": [1]})
    batch = rows.claim("train", 1, lease=0.05)
    conditions.wait_until(lambda: rows.info()["expired"] == 1)
    assert batch.ack(state=b"two").expired == 1
    assert rows.state() == b"one", "the rows come again"
    rows.set_version(4, state=b"three")
    assert rows.state() == b"three"
    with pytest.raises(RuntimeError):
        rows.set_version(3, state=b"four")
    assert rows.state() == b"three"
    with pytest.raises(ValueError, match="16777217 bytes, more than 16777216"):
        rows.set_state(bytes(16 * 2**20 + 1))
    rows.set_state(bytes(16 * 2**20))
    assert len(rows.state()) == 16 * 2**20
    server.stop()


def test_a_table_of_a_client_comes_back(tmp_path):
    server, _ = _start(tmp_path, _table())
    client = reverb.Client(f"localhost:{server.port}")
    client.create_row_table(reverb.RowTable("mine", consumers=["c"]))
    client.rows("mine").put(["a"], {"x": [1]})
    saved = reverb.checkpoints.info(client.checkpoint()).row_tables
    assert sorted(saved) == ["mine", "rows"]
    assert saved["mine"]["rows"] == 1
    reverb.checkpoints.verify(tmp_path)
    server.stop()
    server, _ = _start(tmp_path, _table())
    client = reverb.Client(f"localhost:{server.port}")
    assert sorted(client.server_info().row_tables) == ["mine", "rows"]
    assert client.rows("mine").claim("c", 1, needs=["x"], timeout=60)["x"].values.tolist() == [1]
    server.stop()


@pytest.fixture
def run_server(tmp_path):
    started = []

    def run() -> tuple[subprocess.Popen, reverb.Client]:
        port_file = tmp_path / f"port{len(started)}"
        process = subprocess.Popen([sys.executable, "-c", _SERVER, str(tmp_path / "checkpoints"), str(port_file)])
        started.append(process)
        conditions.wait_until(port_file.exists)
        return process, reverb.Client(f"localhost:{port_file.read_text()}")

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_a_killed_server_returns_with_the_rows_of_its_checkpoint(run_server):
    """No row that was acknowledged before the checkpoint comes back, and none that was ready is lost."""
    acknowledged: set[str] = set()
    expected: set[str] = set()
    put = 0
    for _ in range(4):
        process, client = run_server()
        rows = client.rows("rows")
        if put:
            assert int(rows.state()) == len(acknowledged)
        keys = [f"{number}" for number in range(put, put + 20)]
        put += 20
        rows.put(keys, {"x": [[int(key)] * 3 for key in keys]}, groups=[int(key) // 2 for key in keys])
        expected.update(keys)
        batch = rows.claim("train", 10, needs=["x"], timeout=60)
        assert not acknowledged & set(batch.keys)
        acknowledged.update(batch.keys)
        batch.ack(state=str(len(acknowledged)).encode())
        leased = rows.claim("train", 4, needs=["x"], timeout=60)
        client.checkpoint()
        # Both are lost with the server: the rows come again.
        leased.ack()
        rows.put(["later0", "later1"], {"x": [[0], [0]]}, groups=["l", "l"])
        process.send_signal(signal.SIGKILL)
        process.wait()

    _, client = run_server()
    rows = client.rows("rows")
    rest = rows.claim("train", 1000, at_least=len(expected - acknowledged), needs=["x"], timeout=60)
    assert sorted(rest.keys) == sorted(expected - acknowledged)
    for key, values in zip(rest.keys, rest["x"], strict=True):
        assert values.tolist() == [int(key)] * 3
    stage = rows.claim("stage", 1000, at_least=len(expected), timeout=60)
    assert set(stage.keys) == expected, "the cursor of another consumer is its own"
