"""Tests tables that clients create, change and remove while the server runs, and items that age."""

import gc
import math
import threading

from conditions import wait_for_waiters, wait_until
from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb import checkpointers


def test_a_table_is_created_used_and_removed(server, client):
    table = make_table("new", sampler=reverb.selectors.Prioritized(0.5), max_size=7, max_times_sampled=5, max_age=60)
    client.create_table(table)
    info = client.server_info()["new"]
    assert (info.max_size, info.max_times_sampled, info.max_age) == (7, 5, 60)
    assert info.sampler_options.prioritized.priority_exponent == 0.5
    assert list(client.server_info()) == ["table", "queue", "new"]
    client.insert([1.0], {"new": 2.0})
    assert next(client.sample("new"))[0].info.priority == 2.0
    assert table.info.current_size == 0, "the object does not show the server's table"
    client.remove_table("new")
    assert list(client.server_info()) == ["table", "queue"]
    for call in (
        lambda: client.remove_table("new"),
        lambda: next(client.sample("new")),
        lambda: client.change_table("new", max_size=3),
    ):
        with pytest.raises(RuntimeError, match="new") as caught:
            call()
        assert caught.value.code == "NOT_FOUND"


def test_an_existing_table(client):
    with pytest.raises(RuntimeError, match="exists already.*exist_ok") as caught:
        client.create_table(make_table("table"))
    assert caught.value.code == "ALREADY_EXISTS"
    client.create_table(make_table("table"), exist_ok=True)
    with pytest.raises(RuntimeError, match="max_size is 1000, not 5"):
        client.create_table(make_table("table", max_size=5), exist_ok=True)


def test_arguments_are_checked(client):
    for wrong in ("new", None, {"name": "new"}):
        with pytest.raises(TypeError, match=r"table must be a reverb\.Table"):
            client.create_table(wrong)
    with pytest.raises(ValueError, match="nothing to change"):
        client.change_table("table")
    with pytest.raises(ValueError, match="max_size is 0"):
        client.change_table("table", max_size=0)
    with pytest.raises(TypeError, match="max_size must be an int"):
        client.change_table("table", max_size=1.5)
    for wrong in (0, -1, math.nan):
        with pytest.raises(ValueError, match=r"max_age .* must be a positive number of seconds"):
            client.change_table("table", max_age=wrong)
        with pytest.raises(ValueError, match="max_age"):
            make_table(max_age=wrong)
    for wrong in ("1", True, [1]):
        with pytest.raises(TypeError, match="max_age must be a number of seconds"):
            make_table(max_age=wrong)


def test_writers_and_iterators_find_tables_that_come_later(client):
    with client.trajectory_writer(num_keep_alive_refs=1) as writer, client.writer(1) as steps:
        writer.append({"x": 1.0})
        with pytest.raises(ValueError, match="the table could not be found"):
            writer.create_item("later", 1.0, {"x": writer.history["x"][-1:]})
        client.create_table(make_table("later"))
        writer.create_item("later", 1.0, {"x": writer.history["x"][-1:]})
        writer.flush()
        steps.append({"x": 2.0})
        steps.create_item("later", 1, 1.0)
        steps.flush()
    assert client.server_info()["later"].current_size == 2
    assert len(list(client.sample("later", 2))) == 2


def test_writers_that_outlive_their_client_find_tables_that_come_later(serve, connect):
    server = serve(make_table())
    writer = connect(server).trajectory_writer(num_keep_alive_refs=1)
    gc.collect()
    client = connect(server)
    client.create_table(make_table("later"))
    writer.append({"x": 1.0})
    writer.create_item("later", 1.0, {"x": writer.history["x"][-1:]})
    writer.flush()
    assert client.server_info()["later"].current_size == 1


def test_writers_use_the_signature_of_a_replaced_table(serve, connect):
    server = serve(make_table("again", signature={"x": reverb.TensorSpec((), "float32")}))
    client, other = connect(server), connect(server)
    single = client.trajectory_writer(num_keep_alive_refs=1)
    many = client.vector_writer(2, num_keep_alive_refs=1)
    other.remove_table("again")
    signature = {"y": reverb.TensorSpec((), "int64"), "z": reverb.TensorSpec((), "int64")}
    other.create_table(make_table("again", signature=signature))
    step = {"y": np.int64(2), "z": np.int64(3)}
    single.append(step)
    single.create_item("again", 1.0, {name: single.history[name][-1] for name in step})
    single.flush()
    many.append({name: np.full(2, value) for name, value in step.items()})
    assert many.create_items("again", 1.0, {name: many.history[name][-1] for name in step}).all()
    many.flush()
    assert client.server_info()["again"].current_size == 3
    single.close()
    many.close()


def test_readers_use_the_signature_of_a_replaced_table(serve, connect):
    server = serve(make_table("again", signature={"x": reverb.TensorSpec((), "float32")}))
    client, other = connect(server), connect(server)
    client.insert({"x": np.float32(1)}, priorities={"again": 1.0})
    read = {"emit_timesteps": False, "unpack_as_table_signature": True}
    assert next(client.sample("again", **read)).data == {"x": 1}
    other.remove_table("again")
    signature = {"y": reverb.TensorSpec((), "int64"), "z": reverb.TensorSpec((), "int64")}
    other.create_table(make_table("again", signature=signature))
    other.insert({"y": 2, "z": 3}, priorities={"again": 1.0})
    assert next(client.sample("again", **read)).data == {"y": 2, "z": 3}
    assert client.peek("again")[0].data == {"y": 2, "z": 3}
    assert next(client.sample_batches("again", 1)).data == {"y": [2], "z": [3]}


def test_a_table_with_another_signature_takes_the_name(client):
    for dtype in ("float32", "int64"):
        signature = {"x": reverb.TensorSpec((), dtype)}
        client.create_table(make_table("again", signature=signature))
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append({"x": signature["x"].dtype.type(3)})
            writer.create_item("again", 1.0, {"x": writer.history["x"][-1]})
        sample = next(client.sample("again", emit_timesteps=False, unpack_as_table_signature=True))
        assert sample.data["x"].dtype == dtype
        client.remove_table("again")


def test_removing_a_table_ends_its_waits(server, client):
    client.create_table(make_table("empty"))
    caught = []

    def wait():
        try:
            next(client.sample("empty"))
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_for_waiters(client, 1)
    client.remove_table("empty")
    join(thread)
    assert 'table "empty" was removed from the server' in str(caught[0])


def test_limits_change_while_the_table_is_in_use(client):
    for step in range(10):
        client.insert([step], {"table": 1.0})
    client.change_table("table", max_size=3)
    info = client.server_info()["table"]
    assert (info.current_size, info.max_size, info.evictions) == (3, 3, 7)
    client.change_table("table", max_times_sampled=1, max_age=3600, rate_limiter=reverb.rate_limiters.MinSize(2))
    info = client.server_info()["table"]
    assert (info.max_times_sampled, info.max_age) == (1, 3600)
    assert info.rate_limiter_info.min_size_to_sample == 2
    client.change_table("table", max_times_sampled=0, max_age=math.inf)
    info = client.server_info()["table"]
    assert (info.max_times_sampled, info.max_age) == (0, None)


def test_a_queue_that_is_made_smaller_keeps_its_capacity(client):
    for step in range(100):
        client.insert([step], {"queue": 1.0})
    client.change_table("queue", max_size=10, rate_limiter=reverb.rate_limiters.Queue(10))
    info = client.server_info()["queue"]
    assert (info.current_size, info.cursor, info.uncounted_inserts) == (10, 10.0, 90)
    assert len(list(client.sample("queue", 10, timeout=60))) == 10
    for step in range(10):
        client.insert([step], {"queue": 1.0}, timeout=60)
    assert client.server_info()["queue"].current_size == 10


def test_a_worker_that_restarts_finds_its_table_after_a_change(client):
    client.create_table(make_table("new", max_size=7))
    client.change_table("new", max_size=9)
    client.create_table(make_table("new", max_size=7), exist_ok=True)
    assert client.server_info()["new"].max_size == 9
    with pytest.raises(RuntimeError, match="max_size is 9, not 8"):
        client.create_table(make_table("new", max_size=8), exist_ok=True)
    with pytest.raises(RuntimeError, match="layout is first, not any"):
        client.create_table(make_table("new", max_size=7, layout="any"), exist_ok=True)
    with pytest.raises(ValueError, match="max_size is -2"):
        client.change_table("new", max_size=-2)


def test_iterators_obey_limits_that_another_client_changed(serve):
    server = serve(make_table())
    client = reverb.Client(
        f"localhost:{server.port}", in_process=False, local=False
    )  # in one process, nothing is prefetched
    with client.writer(1) as writer:
        for value in range(1000):
            writer.append(value)
            writer.create_item("table", 1, 1.0)
    assert len(list(client.sample("table", 2))) == 2
    other = server.localhost_client()
    other.change_table("table", max_times_sampled=1)
    samples = client.sample("table", 1000)
    for _ in range(100):
        next(samples)
    samples.close()
    # At most one sample plus a sixteenth of those that were taken is prefetched. The window may grow once more while
    # the samples of the last one are taken.
    assert other.server_info()["table"].current_size >= 1000 - 100 - 2 * (1 + 100 // 16)
    batches = client.sample_batches("table", 10)
    next(batches)
    batches.close()
    size = other.server_info()["table"].current_size
    other.change_table("table", max_times_sampled=0)
    assert len(list(client.sample("table", 500))) == 500
    assert other.server_info()["table"].current_size == size


def test_items_age(serve, connect):
    server = serve(make_table(max_age=0.05), make_table("old", max_age=1000))
    client = connect(server)
    client.insert([1.0], {"table": 1.0, "old": 1.0})
    wait_until(lambda: client.server_info()["table"].aged_out == 1)
    info = client.server_info()
    assert (info["table"].current_size, info["old"].current_size, info["old"].aged_out) == (0, 1, 0)
    with pytest.raises(reverb.errors.DeadlineExceededError):
        next(client.sample("table", timeout=0.01))


def test_max_age_of_a_table():
    assert make_table().info.max_age is None
    assert make_table(max_age=math.inf).info.max_age is None
    assert "max_age" not in repr(make_table())
    table = make_table(max_age=1.5)
    assert table.info.max_age == 1.5
    assert repr(table).endswith(", max_age=1.5)")
    assert table.replace(name="other").info.max_age == 1.5
    assert table.replace(max_age=2).info.max_age == 2
    assert table.replace(max_age=math.inf).info.max_age is None
    assert reverb.Table.queue("queue", 3, max_age=4).info.max_age == 4
    assert reverb.Table.stack("stack", 3, max_age=1e12).info.max_age == pytest.approx(2**63 / 1e9)


def test_a_created_table_is_in_checkpoints(tmp_path):
    def start():
        return reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path)))

    with start() as server:
        client = server.localhost_client()
        client.create_table(make_table("new", max_age=1000))
        client.insert([1.0], {"new": 1.0})
        client.checkpoint()
    with start() as server:
        info = server.localhost_client().server_info()
        assert list(info) == ["table", "new"]
        assert (info["new"].current_size, info["new"].max_age) == (1, 1000)


CONTRADICTIONS = {
    "min_size_to_sample 100 exceeds max_size 10": {"max_size": 10, "limiter": reverb.rate_limiters.MinSize(100)},
    "min_size_to_sample 20 exceeds max_size 10": {
        "max_size": 10,
        "limiter": reverb.rate_limiters.SampleToInsertRatio(2.0, 20, 10.0),
    },
    "max_times_sampled 1 allows fewer samples": {
        "max_times_sampled": 1,
        "limiter": reverb.rate_limiters.SampleToInsertRatio(4.0, 1, 100.0),
    },
    "evicted before they are sampled": {
        "max_size": 10,
        "max_times_sampled": 1,
        "limiter": reverb.rate_limiters.Queue(100),
    },
}


@pytest.mark.parametrize("text", CONTRADICTIONS)
def test_settings_that_contradict_each_other(serve, caplog, text):
    table = make_table("odd", **CONTRADICTIONS[text])
    with caplog.at_level("WARNING", logger="reverb"):
        server = serve(table)
        wait_until(lambda: caplog.records, what="a warning")
    assert 'table "odd"' in caplog.text
    assert text in caplog.text
    client = server.localhost_client()
    with pytest.raises(ValueError, match=text):
        client.create_table(make_table("another", **CONTRADICTIONS[text]))
    assert list(client.server_info()) == ["odd"]


def test_ordinary_settings_are_not_warned_of(serve, caplog):
    with caplog.at_level("WARNING", logger="reverb"):
        serve(make_table(), reverb.Table.queue("queue", 1), reverb.Table.stack("stack", 3))
    assert not caplog.records


@pytest.mark.parametrize("role", ["sampler", "remover"])
@pytest.mark.parametrize("wrong", ["uniform", None, reverb.selectors.Uniform, 3])
def test_selectors_of_another_type(role, wrong):
    arguments = {"sampler": reverb.selectors.Fifo(), "remover": reverb.selectors.Fifo(), role: wrong}
    with pytest.raises(
        TypeError, match=rf"{role} must be one of reverb\.selectors, got .*; use reverb\.selectors\.Uniform"
    ):
        reverb.Table("table", max_size=10, rate_limiter=reverb.rate_limiters.MinSize(1), **arguments)
