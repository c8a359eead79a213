"""Scenarios: details that are easily missed, and small worked examples, as users see them."""

import os
from pathlib import Path
import subprocess
import sys
import threading
import time

from conditions import wait_for_waiters
from conftest import make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors
from reverb import structured_writer as sw


def values_of(column):
    """Returns the values of a history, with None for missing ones."""
    return [None if reference is None else reference.numpy().item() for reference in column]


# --- Selectors and limiters ---


def test_items_of_priority_zero_come_only_when_there_are_no_others(serve, connect):
    client = connect(serve(make_table("table", sampler=selectors.Prioritized(0.8, seed=0), max_times_sampled=50)))
    for i, priority in enumerate([0.0, 1.0, 0.0]):
        client.insert(i, {"table": priority})
    first = [sample[0] for sample in client.sample("table", 50, timeout=20)]
    assert {int(step.data[0]) for step in first} == {1}
    assert first[0].info.probability == 1.0
    # The item with a priority is used up. Now the others are equal.
    rest = [sample[0] for sample in client.sample("table", 60, timeout=20)]
    assert {int(step.data[0]) for step in rest} == {0, 2}
    assert rest[0].info.probability == 0.5


def test_can_sample_is_the_limiters_arithmetic(serve):
    table = make_table("table", limiter=rate_limiters.RateLimiter(2.0, 3, -1.0, 1e18))
    client = serve(table).localhost_client()
    for _ in range(2):
        client.insert(0, {"table": 1.0})
    assert not table.can_sample(1)  # two items of three
    client.insert(0, {"table": 1.0})
    # 3 inserts * 2 - 0 samples - n >= -1
    assert [table.can_sample(n) for n in (1, 7, 8, 1_000_000_000)] == [True, True, False, False]
    next(client.sample("table"))
    assert [table.can_sample(n) for n in (6, 7)] == [True, False]
    unlimited = make_table("table", max_times_sampled=1, limiter=rate_limiters.MinSize(1))
    other = serve(unlimited).localhost_client()
    other.insert(0, {"table": 1.0})
    assert unlimited.can_sample(1_000_000_000)


def test_min_size_reports_the_largest_numbers_as_its_bounds():
    limiter = make_table("table", limiter=rate_limiters.MinSize(7)).info.rate_limiter_info
    assert (limiter.min_diff, limiter.max_diff) == (-sys.float_info.max, sys.float_info.max)
    assert limiter.min_size_to_sample == 7


@pytest.mark.parametrize("count", [0, -3])
def test_can_sample_of_less_than_one_is_an_error_and_nothing_worse(count):
    table = make_table("table")
    for ask in (table.can_sample, table.can_insert):
        with pytest.raises(ValueError):
            ask(count)


def test_a_negative_priority_is_refused_and_the_table_remains_usable(serve, connect):
    client = connect(serve(make_table("table", sampler=selectors.Prioritized(1.0))))
    with pytest.raises(ValueError):
        client.insert(0, {"table": -1.0})
    client.insert(1, {"table": 1.0}, timeout=20)
    assert next(client.sample("table", timeout=20))[0].data == [1]


def test_one_selector_object_for_two_tables_and_both_sides(serve, connect):
    shared = selectors.Uniform()
    client = connect(serve(make_table("a", sampler=shared, remover=shared), make_table("b", sampler=shared)))
    for i in range(5):
        client.insert(i, {"a": 1.0, "b": 1.0}, timeout=20)
    assert {name: info.current_size for name, info in client.server_info().items()} == {"a": 5, "b": 5}


# --- Writers ---


@pytest.mark.parametrize("shape", [(2,), (3, 2)], ids=["of a step", "of the item"])
def test_the_older_writer_fits_a_signature_of_a_step_or_of_the_item(serve, connect, shape):
    client = connect(serve(make_table("table", signature={"x": reverb.TensorSpec(shape, np.float32)})))
    with client.writer(3) as writer:
        for i in range(3):
            writer.append({"x": np.full(2, i, np.float32)})
        writer.create_item("table", 3, 1.0)
    assert next(client.sample("table", emit_timesteps=False)).data[0].shape == (3, 2)


def test_columns_that_appear_late_have_none_before(serve):
    writer = serve(make_table()).localhost_client().trajectory_writer(10)
    for step in ({"x": 1, "z": 2}, {"z": 3, "y": 4}, {"w": 5}, {"x": 6, "w": 7}):
        writer.append(step)
    assert {name: values_of(column) for name, column in writer.history.items()} == {
        "x": [1, None, None, 6],
        "z": [2, 3, None, None],
        "y": [None, 4, None, None],
        "w": [None, None, 5, 7],
    }
    with pytest.raises(ValueError, match="cannot contain any None"):
        writer.history["x"][:]
    assert writer.history["w"][-2:].numpy().tolist() == [5, 7]


def test_positions_count_from_the_beginning_of_the_episode_also_when_old_steps_are_gone(serve):
    writer = serve(make_table()).localhost_client().trajectory_writer(4)
    for i in range(10):
        writer.append({"x": i})
    column = writer.history["x"]
    assert len(column) == 10
    assert values_of(column) == [None] * 6 + [6, 7, 8, 9]
    assert column[6:9].numpy().tolist() == [6, 7, 8]
    assert column[8].numpy() == 8
    assert column[-4:].numpy().tolist() == [6, 7, 8, 9]
    for gone in (slice(None), slice(-5, None), slice(5, 8), 5, -5, [9, 2]):
        with pytest.raises(ValueError):
            column[gone]
    for outside in (10, -11):
        with pytest.raises(IndexError):
            column[outside]


def test_a_plain_history(serve):
    writer = serve(make_table()).localhost_client().trajectory_writer(10)
    for i in (1, 2, 3):
        writer.append({"x": i})
    column = writer.history["x"]
    assert column[:].numpy().tolist() == [1, 2, 3]
    assert (column[0].numpy(), column[-1].numpy()) == (1, 3)
    assert (column[0].is_squeezed, column[0].shape, column[:].shape) == (True, (), (3,))
    assert column[[0, -1]].numpy().tolist() == [1, 3]


def test_an_episode_with_one_more_observation_than_actions(serve, connect):
    client = connect(serve(make_table()))
    writer = client.trajectory_writer(10)
    for i in range(4):
        writer.append({"obs": i, "act": 10 * i})
    writer.append({"obs": 4})
    writer.create_item("table", 1.0, {"act": writer.history["act"][:-1], "obs": writer.history["obs"][:]})
    writer.end_episode()
    with pytest.raises(ValueError, match="Can't split non timestep trajectory into timesteps."):
        next(client.sample("table"))
    sample = next(client.sample("table", emit_timesteps=False))
    assert [column.tolist() for column in sample.data] == [[0, 10, 20, 30], [0, 1, 2, 3, 4]]


def test_create_item_never_waits_for_the_table(serve, connect):
    client = connect(serve(reverb.Table.queue("full", 1)))
    client.insert(0, {"full": 1.0})
    writer = client.trajectory_writer(1)
    start = time.monotonic()
    for i in range(200):
        writer.append(i)
        writer.create_item("full", 1.0, writer.history[-1:])
    assert time.monotonic() - start < 5
    with pytest.raises(reverb.DeadlineExceededError):
        writer.end_episode(timeout_ms=20)
    writer.close()


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_one_step_in_many_tables_is_stored_once(serve, connect):
    names = [f"table{i}" for i in range(32)]
    client = connect(serve(*(make_table(name) for name in names)))
    data = np.frombuffer(np.random.default_rng(0).bytes(8_000_000), np.uint8)
    before = resident_bytes()
    writer = client.trajectory_writer(1)
    writer.append(data)
    for name in names:
        writer.create_item(name, 1.0, writer.history[-1])
    writer.flush(timeout_ms=60_000)
    assert resident_bytes() - before < 100_000_000  # 32 copies would be 256 MB
    samples = [next(client.sample(name, emit_timesteps=False)) for name in names[::10]]
    assert len({sample.info.key for sample in samples}) == len(samples)
    for sample in samples:
        np.testing.assert_array_equal(sample.data[0], data)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1), r"Tensor of wrong dtype provided for column \('a', 0\)\. Got float but expected double\."),
        (
            np.zeros(3),
            r"Tensor of incompatible shape provided for column \('a', 0\)\. "
            r"Got \[3\] which is incompatible with \[\]\.",
        ),
    ],
    ids=["dtype", "shape"],
)
def test_errors_of_a_step_name_the_column_by_its_path(serve, value, text):
    writer = serve(make_table()).localhost_client().trajectory_writer(2)
    writer.append({"a": [1.0, 2]})
    with pytest.raises(ValueError, match=text):
        writer.append({"a": [value, 2]})
    writer.append({"a": [3.0, 4]})  # nothing of the failed step was applied
    assert writer.history["a"][1][:].numpy().tolist() == [2, 4]


def test_a_field_given_twice_in_a_step_is_named(serve):
    writer = serve(make_table()).localhost_client().trajectory_writer(2)
    writer.append({"a": 1, "b": None}, partial_step=True)
    with pytest.raises(ValueError, match=r"Field \('a',\) has already been set in the active step"):
        writer.append({"a": 2}, partial_step=True)
    writer.append({"a": None, "b": 2})
    assert writer.episode_steps == 1


def test_leaving_a_block_flushes_unless_the_error_is_reverbs(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))

    def write(error):
        with client.trajectory_writer(1) as writer:
            writer.append(0)
            writer.create_item("queue", 1.0, writer.history[-1:])
            if error is not None:
                raise error

    write(None)
    assert client.server_info()["queue"].current_size == 1
    next(client.sample("queue"))
    with pytest.raises(OSError, match="mine"):  # an error of the program itself still flushes
        write(OSError("mine"))
    assert client.server_info()["queue"].current_size == 1
    start = time.monotonic()
    with pytest.raises(reverb.ReverbError):  # the queue is full: a flush would block forever
        write(reverb.DeadlineExceededError("ours"))
    assert time.monotonic() - start < 5


def test_rows_in_any_order_come_back_in_that_order(serve, connect):
    client = connect(serve(make_table(max_times_sampled=1)))
    writer = client.trajectory_writer(10)
    writer.configure(("x",), num_keep_alive_refs=10, max_chunk_length=10)
    for i in range(10):
        writer.append({"x": i})
    column = writer.history["x"]
    wanted = [column[-5::2], column[[0, 2]], column[[1, 1]], column[::-1], column[[9, 0, 4]]]
    for choice in wanted:
        writer.create_item("table", 1.0, choice)
    writer.flush()
    assert [s.data[0].tolist() for s in client.sample("table", 5, emit_timesteps=False)] == [
        [5, 7, 9], [0, 2], [1, 1], list(range(9, -1, -1)), [9, 0, 4],
    ]  # fmt: skip


# --- Structures ---


def test_dicts_are_flattened_by_sorted_key_and_restored_by_the_signature(serve, connect):
    spec = reverb.TensorSpec
    signature = {"b": spec((None,), np.int64), "a": {"z": spec((None,), np.int64), "y": spec((None,), np.int64)}}
    client = connect(serve(make_table(signature=signature)))
    client.insert({"b": 3, "a": {"z": 2, "y": 1}}, {"table": 1.0})
    flat = next(client.sample("table", emit_timesteps=False))
    assert [column.item() for column in flat.data] == [1, 2, 3]
    nest = next(client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)).data
    assert (nest["a"]["y"].item(), nest["a"]["z"].item(), nest["b"].item()) == (1, 2, 3)


def test_samples_of_an_insert_as_steps_and_as_a_trajectory(serve, connect):
    client = connect(serve(make_table()))
    client.insert([0, 1], {"table": 1.0})
    ((step,),) = [next(client.sample("table"))]
    assert [(value.shape, value.item()) for value in step.data] == [((), 0), ((), 1)]
    sample = next(client.sample("table", emit_timesteps=False))
    assert [value.tolist() for value in sample.data] == [[0], [1]]


def test_a_client_that_outlives_its_server_learns_the_new_signatures():
    def start(port, dtype):
        return reverb.Server([make_table(signature={"x": reverb.TensorSpec((), dtype)})], port)

    server = start(None, np.int64)
    port = server.port
    client = server.localhost_client()
    client.insert({"x": 1}, {"table": 1.0})
    assert client.server_info()["table"].signature["x"].dtype == np.int64
    server.stop()
    server = start(port, np.float32)
    assert client.server_info(20)["table"].signature["x"].dtype == np.float32
    client.insert({"x": np.float32(2)}, {"table": 1.0}, timeout=20)
    (step,) = next(client.sample("table", unpack_as_table_signature=True, timeout=20))
    assert step.data == {"x": 2}
    server.stop()


def test_keys_and_fields_of_infos(serve, connect):
    client = connect(serve(make_table()))
    client.insert(0, {"table": 2.5})
    info = next(client.sample("table"))[0].info
    key, probability = info[:2]
    assert info._fields == ("key", "probability", "table_size", "priority", "times_sampled")
    assert (probability, info.table_size, info.priority, info.times_sampled) == (1.0, 1, 2.5, 1)
    assert np.uint64(key) == key
    dtypes = reverb.SampleInfo.tf_dtypes()
    assert len(dtypes) == 5
    assert reverb.SampleInfo(*(() for _ in dtypes)) == ((), (), (), (), ())
    sample = reverb.ReplaySample(info=info, data=[1])
    assert sample._replace(data=[2]) == (info, [2])


# --- Structured writers ---


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (lambda c: [c.step_index() <= 2], [0, 1, 2]),
        (lambda c: [c.step_index() % 3 != 0], [1, 2, 4, 5, 7, 8]),
        (lambda c: [c.steps_since_applied() >= 4], [3, 7]),
        (lambda c: [c.step_index() > 2, c.step_index() < 5], [3, 4]),
        (lambda c: [c.step_index() == 6], [6]),
        (lambda c: [c.data({"x": 0, "odd": 0})["odd"] == 1, c.step_index() >= 4], [5, 7, 9]),
        (lambda c: [c.is_end_episode()], [9]),
    ],
    ids=["first three", "not every third", "every fourth", "between", "one", "by data", "the last"],
)
def test_conditions_choose_steps(serve, connect, conditions, expected):
    client = connect(serve(make_table(max_times_sampled=1)))
    pattern = sw.pattern_from_transform({"x": 0, "odd": 0}, lambda ref: ref["x"][-1])
    writer = client.structured_writer([sw.create_config(pattern, "table", conditions(sw.Condition))])
    for i in range(10):
        writer.append({"x": i, "odd": i % 2})
    writer.end_episode()
    assert client.server_info()["table"].current_size == len(expected)
    samples = client.sample("table", len(expected), emit_timesteps=False, timeout=20)
    assert [sample.data[0].item() for sample in samples] == expected


# --- Servers ---


def test_stopping_a_server_ends_all_waits(serve):
    server = serve(make_table(), reverb.Table.queue("queue", 1))
    client = server.localhost_client()
    client.insert(0, {"queue": 1.0})
    outcomes = {}

    def call(name, function):
        try:
            outcomes[name] = function()
        except Exception as error:
            outcomes[name] = error

    waits = {
        "sample": lambda: next(client.sample("table", timeout=30)),
        "insert": lambda: client.insert(0, {"queue": 1.0}, timeout=30),
        "wait": server.wait,
    }
    threads = [threading.Thread(target=call, args=item) for item in waits.items()]
    for thread in threads:
        thread.start()
    wait_for_waiters(client, 2)
    start = time.monotonic()
    server.stop()
    for thread in threads:
        thread.join(20)
    assert time.monotonic() - start < 5
    assert isinstance(outcomes["sample"], RuntimeError)
    assert "Error when confirming that all items written to table." in str(outcomes["insert"])
    assert outcomes["wait"] is None
    server.stop()
    assert server.tables[0].info.current_size == 0


def test_deleted_items_and_unknown_keys(serve, connect):
    client = connect(serve(make_table()))
    for i in range(5):
        client.insert(i, {"table": 1.0})
    keys = np.array([sample.info.key for sample in client.peek("table", 5)], np.uint64)
    client.mutate_priorities("table", updates={123456789: 1.0}, deletes=keys[:2])
    client.mutate_priorities(table="table", deletes=[int(keys[0]), 17])
    assert client.server_info()["table"].current_size == 3


def test_a_program_that_stops_its_servers_gets_no_warning():
    code = """
import reverb
for _ in range(3):
    server = reverb.Server([reverb.Table.queue("queue", 10)])
    client = server.localhost_client()
    client.insert([1], {"queue": 1.0})
    server.stop()
    del client, server
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
