"""Row tables: rows under keys, whose columns arrive over time."""

import threading

import conditions
import numpy as np
import pytest
import transports

import reverb


@pytest.fixture(name="start", params=transports.ALL)
def fixture_start(request):
    """Starts a server with a row table, and returns the table."""
    servers = []

    def start(**options):
        options.setdefault("consumers", ["train"])
        server = reverb.Server([reverb.RowTable("rollouts", **options)])
        servers.append(server)
        return transports.connect(server, request.param, name="trainer-1").rows("rollouts")

    yield start
    for server in servers:
        server.stop()


def test_columns_arrive_over_time(start):
    rows = start()
    tokens = [np.arange(3, dtype=np.int32), np.arange(5, dtype=np.int32)]
    tags = [{"prompt": 7, "reward": np.float32(0.5), "ok": True, "split": "math"}, {}]
    assert rows.put(["a", "b"], {"tokens": tokens, "text": ["x", b"y"]}, tags=tags, version=12) == (2, [], 0)
    assert rows.put(["a"], {"advantages": [0.25]}).stored == 1
    batch = rows.claim("train", 1, needs=["tokens", "advantages"], select=["text"], timeout=60)
    assert batch.keys == ["a"]
    assert batch.tags == [{"prompt": 7, "reward": 0.5, "ok": True, "split": "math"}]
    assert type(batch.tags[0]["prompt"]) is int
    assert batch.versions.tolist() == [12]
    np.testing.assert_array_equal(batch["tokens"].values, tokens[0])
    assert batch["tokens"].values.dtype == np.int32
    assert batch["advantages"].padded().tolist() == [0.25]
    assert list(batch["text"]) == [b"x"]
    with pytest.raises(KeyError, match="name other columns in needs or select"):
        batch["other"]
    assert batch.extend().settled == 1
    assert batch.ack().settled == 1
    assert batch.ack().expired == 1
    assert [row.key for row in rows.list()] == ["b"]


def test_a_jagged_column_can_be_padded():
    jagged = reverb.Jagged(np.arange(5), np.array([0, 3, 3, 5]))
    assert len(jagged) == 3
    assert jagged.lengths.tolist() == [3, 0, 2]
    assert [row.tolist() for row in jagged] == [[0, 1, 2], [], [3, 4]]
    assert jagged.padded(-1, multiple_of=4).tolist() == [[0, 1, 2, -1], [-1] * 4, [3, 4, -1, -1]]
    assert jagged.padded(-1, side="left").tolist() == [[0, 1, 2], [-1] * 3, [-1, 3, 4]]
    with pytest.raises(IndexError):
        jagged[3]
    with pytest.raises(ValueError, match="multiple_of"):
        jagged.padded(multiple_of=0)


def test_the_write_that_makes_a_row_ready_wakes_the_claim(start):
    rows = start()
    claimed = []
    thread = threading.Thread(target=lambda: claimed.append(rows.claim("train", 1, needs=["x"], timeout=60)))
    thread.start()
    conditions.wait_until(lambda: rows.info()["waiting_claims"] == 1)
    rows.put(["a"], {"y": [1]})
    assert rows.info()["waiting_claims"] == 1
    assert 'lacks "x"' in rows.info()["claim_reason"]
    rows.put(["a"], {"x": [1]})
    thread.join(60)
    assert claimed[0].keys == ["a"]


def test_a_timeout_names_the_reasons(start):
    rows = start()
    rows.put(["a"], {"x": [1]})
    with pytest.raises(reverb.DeadlineExceededError, match='1 row lacks "advantages"'):
        rows.claim("train", 1, needs=["advantages"], timeout=0)


def test_groups_are_claimed_and_filtered_whole(start):
    rows = start(group_size=2)
    rows.put(["a0", "a1", "b0"], {"x": [1, 2, 3]}, groups=[7, 7, 8], tags=[{"r": 1.0}, {"r": 1.0}, {"r": 0.0}])
    with pytest.raises(reverb.DeadlineExceededError, match="incomplete group"):
        rows.claim("train", 4, timeout=0)
    rows.put(["b1"], {"x": [4]}, groups=[8], tags=[{"r": 1.0}])
    with rows.claim("train", 2, where="std(r) > 0", timeout=60) as batch:
        assert batch.keys == ["b0", "b1"]
        assert batch.groups == ["8", "8"]
    assert rows.delete(where="std(r) == 0") == 2
    assert rows.info()["rows"] == 0


def test_an_exception_releases_the_batch(start):
    rows = start()
    rows.put(["a"], {"x": [1]})
    with pytest.raises(ZeroDivisionError), rows.claim("train", 1, timeout=60):
        raise ZeroDivisionError
    assert rows.claim("train", 1, timeout=0).keys == ["a"]


def test_stale_rows_are_aborted(start):
    rows = start(staleness=reverb.Staleness(max_lag=1, batch=2), max_running=4)
    with rows.reserve(2, version=0, timeout=60) as slots:
        rows.put(["a"], {"x": [1]}, version=0, open=True, reservation=slots)
        assert rows.info()["running"] == 1
    assert rows.info()["running"] == 0
    rows.set_version(2)
    assert rows.put(["a"], {"x": [1]}, append=True).aborted == ["a"]
    assert rows.put(["late"], {"x": [1]}, create=False).aborted == ["late"]
    with pytest.raises(RuntimeError, match="rows of version 0 are stale"):
        rows.reserve(1, version=0)
    with pytest.raises(RuntimeError, match="cannot become 1"):
        rows.set_version(1)


def test_open_rows_are_resumed(start):
    rows = start()
    rows.put(["a"], {"tokens": [[1, 2]]}, open=True)
    assert rows.put(["a"], {"tokens": [[3]]}, append=True).stored == 1
    assert rows.list("tokens.length == 3")[0].is_open
    assert rows.requeue("a") == []
    assert rows.claim("resume", 1, needs=["tokens"], timeout=60)["tokens"][0].tolist() == [1, 2, 3]
    assert rows.close(["a", "unknown"]) == ["unknown"]
    assert rows.claim("train", 1, timeout=0).keys == ["a"]


def test_bad_arguments_name_the_remedy(start):
    rows = start()
    with pytest.raises(ValueError, match=r"where: write == to compare:\n  x = 1\n    \^"):
        rows.claim("train", 1, where="x = 1", timeout=0)
    with pytest.raises(RuntimeError, match='the consumers are "train", "resume"'):
        rows.claim("trian", 1)
    with pytest.raises(ValueError, match="has 1 values for 2 keys"):
        rows.put(["a", "b"], {"x": [1]})
    with pytest.raises(TypeError, match='tag "t" must be'):
        rows.put(["a"], tags=[{"t": [1]}])
    with pytest.raises(ValueError, match="either keys or a condition"):
        rows.delete()
    rows.put(["a"], {"x": [1]})
    with pytest.raises(RuntimeError, match="pass overwrite"):
        rows.put(["a"], {"x": [2]})
    assert rows.put(["a"], {"x": [2]}, overwrite=True).stored == 1
    assert rows.get("a", ["x"])["x"][0] == 2


def test_options_are_checked():
    with pytest.raises(ValueError, match="set batch"):
        reverb.RowTable("t", staleness=reverb.Staleness(1, "wait"))
    with pytest.raises(ValueError, match="order must be"):
        reverb.RowTable("t", order="lifo")
    with pytest.raises(TypeError, match="consumers must be a sequence of str"):
        reverb.RowTable("t", consumers="train")
    assert "group_size=8" in repr(reverb.RowTable("t", group_size=8))


def test_tables_are_created_while_the_server_runs():
    server = reverb.Server([reverb.Table.queue("queue", 10)])
    client = server.localhost_client()
    client.create_row_table(reverb.RowTable("rows", consumers=["train"]))
    assert client.rows("rows").info()["rows"] == 0
    with pytest.raises(RuntimeError, match="exists already"):
        client.create_row_table(reverb.RowTable("rows", consumers=["train"]))
    client.remove_row_table("rows")
    with pytest.raises(RuntimeError, match='there is no row table "rows"'):
        client.rows("rows").info()
    server.stop()


def test_ranks_share_a_batch():
    server = reverb.Server([reverb.RowTable("rollouts", consumers=["train"])])
    rows = reverb.Client(f"localhost:{server.port}", name="trainer").rows("rollouts")
    rows.put(list("abcd"), {"tokens": [[1] * 8, [1] * 7, [1] * 2, [1]]})
    parts = [rows.claim("train", 4, needs=["tokens"], ranks=2, rank=rank, step=3) for rank in (1, 0)]
    assert [part.keys for part in parts] == [["b", "c"], ["a", "d"]]
    assert [part.step for part in parts] == [3, 3]
    with pytest.raises(ValueError, match=r"rank 1 \(trainer\) claims with drop_last = true and rank 1"):
        rows.claim("train", 4, needs=["tokens"], ranks=2, rank=1, step=3, drop_last=True)
    for part in parts:
        assert part.ack().settled == 2
    with pytest.raises(RuntimeError, match="step 3 is over") as error:
        rows.claim("train", 4, needs=["tokens"], ranks=2, rank=1, step=3)
    assert error.value.code == "FAILED_PRECONDITION"
    rows.put(["e"], {"tokens": [[1]]})
    empty = rows.claim("train", 4, at_least=1, needs=["tokens"], ranks=2, rank=1, step=4)
    assert (len(empty), empty.step) == (0, 4)
    assert empty.ack().settled == 0
    assert len(empty["tokens"]) == 0
    with pytest.raises(ValueError, match="need ranks"):
        rows.claim("train", 4, step=4)
    server.stop()
