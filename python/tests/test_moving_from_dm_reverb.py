"""Tests the statements of docs/moving_from_dm_reverb.md, in the order of its tables. Other tests have the details."""

import gc
import os
import signal
import threading

from conditions import wait_until, wait_until_blocked
import numpy as np
import pytest
import transports

import reverb
from reverb import rate_limiters, selectors, structured


def table(name, sampler=None, remover=None, max_size=1000, limiter=None, **more):
    return reverb.Table(
        name,
        sampler or selectors.Uniform(),
        remover or selectors.Fifo(),
        max_size,
        limiter or rate_limiters.MinSize(1),
        **more,
    )


@pytest.fixture
def server():
    tables = [
        table("any"),
        table("prioritized", selectors.Prioritized(1.0)),
        table("heap", selectors.MaxHeap(), selectors.MinHeap()),
        table("ten", limiter=rate_limiters.MinSize(10)),
        reverb.Table.queue("queue", 3),
        reverb.Table.queue("other queue", 3),
    ]
    with reverb.Server(tables) as it:
        yield it


@pytest.fixture(params=transports.ALL)
def client(request, server):
    return transports.connect(server, request.param)


def size(client, name):
    return client.server_info()[name].current_size


# --- Same behaviour, possibly surprising ---


def test_deletes_come_before_updates(client):
    client.insert(1, {"any": 1.0})
    key = client.peek("any")[0].info.key
    client.mutate_priorities("any", updates={key: 2.0}, deletes=[key])
    assert size(client, "any") == 0


def test_deletes_from_a_queue_do_not_give_the_place_back(client):
    for i in range(3):
        client.insert(i, {"queue": 1.0})
    client.mutate_priorities("queue", deletes=[item.info.key for item in client.peek("queue", 2)])
    with pytest.raises(reverb.DeadlineExceededError):
        client.insert(3, {"queue": 1.0}, timeout=0.05)


def test_inserts_that_wait_go_in_after_a_reset(client):
    writer = client.trajectory_writer(1)
    for i in range(5):
        writer.append([i])
        writer.create_item("queue", 1.0, [writer.history[0][-1:]])
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(timeout_ms=50)
    wait_until(lambda: size(client, "queue") == 3)
    client.reset("queue")
    writer.flush(timeout_ms=10_000)
    assert size(client, "queue") == 2


def test_sizes_have_32_bits():
    with pytest.raises(TypeError):
        table("t", max_size=2**31)


def test_heaps_take_negative_priorities(client):
    client.insert(1, {"heap": -5.0})
    assert next(client.sample("heap"))[0].info.priority == -5.0


# --- Data ---


def test_rows_that_are_not_neighbours(client):
    with client.trajectory_writer(10) as writer:
        writer.configure((0,), num_keep_alive_refs=10, max_chunk_length=10)
        for i in range(10):
            writer.append([i])
        column = writer.history[0]
        for choice in (column[-5::2], column[[0, 2]], column[[1, 1]], column[::-1]):
            writer.create_item("any", 1.0, [choice])
    rows = sorted(item.data[0].tolist() for item in client.peek("any", 4))
    assert rows == sorted([[5, 7, 9], [0, 2], [1, 1], list(range(9, -1, -1))])


def test_history_follows_the_rules_of_python(client):
    writer = client.trajectory_writer(10)
    for i in range(12):
        writer.append([i])
    column = writer.history[0]
    assert column[2:12].numpy().tolist() == list(range(2, 12))
    with pytest.raises(IndexError):
        column[12]
    with pytest.raises(ValueError, match="num_keep_alive_refs"):
        column[:2]


def test_foreign_byte_order_and_trailing_zeros(client):
    client.insert([np.arange(3, dtype=">i4"), b"ab\0"], {"any": 1.0})
    numbers, text = next(client.sample("any"))[0].data
    assert numbers.tolist() == [0, 1, 2]
    assert text.item() == b"ab\0"


def test_an_empty_column_beside_others(client):
    writer = client.trajectory_writer(2)
    writer.append({"a": 1, "b": 2})
    with pytest.raises(ValueError, match="empty"):
        writer.create_item("any", 1.0, {"a": writer.history["a"][:0], "b": writer.history["b"][:]})


def test_squeezed_columns_have_no_steps(client):
    with client.trajectory_writer(1) as writer:
        writer.append([1.0])
        writer.create_item("any", 1.0, [writer.history[0][-1]])
    with pytest.raises(ValueError, match="emit_timesteps=False"):
        next(client.sample("any"))


# --- Writers ---


def test_a_step_that_fails_changes_nothing(client):
    writer = client.trajectory_writer(5)
    writer.append({"a": 1, "b": 1.0})
    with pytest.raises(ValueError, match="wrong dtype"):
        writer.append({"a": 2, "b": "x"})
    writer.append({"a": 3, "b": 3.0})
    assert writer.history["a"][:].numpy().tolist() == [1, 3]


def test_a_column_twice_in_a_step(client):
    writer = client.trajectory_writer(1)
    writer.append({"a": 1}, partial_step=True)
    with pytest.raises(ValueError, match="already been set"):
        writer.append({"a": 2})


def test_an_open_step_ends_with_its_episode(client):
    writer = client.trajectory_writer(1)
    writer.append({"a": 1}, partial_step=True)
    writer.end_episode()
    writer.append({"a": 2})
    assert writer.episode_steps == 1


def test_time_outs_of_writers(client):
    writer = client.trajectory_writer(5)
    for i in range(5):
        writer.append([i])
        writer.create_item("queue", 1.0, [writer.history[0][-1:]])
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(timeout_ms=0)
    with pytest.raises(reverb.DeadlineExceededError):
        writer.end_episode(timeout_ms=10)
    assert writer.episode_steps == 0
    # Sending continues.
    assert [int(next(client.sample("queue"))[0].data[0]) for _ in range(5)] == list(range(5))
    writer.flush(timeout_ms=10_000)


def test_the_first_items_are_single_chunks(client):
    with client.trajectory_writer(1000) as writer:
        for _ in range(3):
            for i in range(1000):
                writer.append(np.int32(i))
            writer.create_item("queue", 1.0, writer.history[:])
            writer.end_episode()
    info = client.server_info()
    assert info.chunks == 3
    assert info.stored_bytes < 1.2 * 3 * 4000


def test_configure_changes_the_history(client):
    writer = client.trajectory_writer(2)
    writer.configure(("a",), num_keep_alive_refs=6, max_chunk_length=None)
    for i in range(6):
        writer.append({"a": i})
    assert writer.history["a"][-6:].numpy().tolist() == list(range(6))


def test_a_writer_without_a_server():
    nobody = reverb.Client("localhost:1")
    with pytest.raises(reverb.DeadlineExceededError):
        nobody.trajectory_writer(1, timeout=0.1)
    nobody.trajectory_writer(1, validate_items=False).append([1])


def test_columns_of_another_writer(client):
    one, other = client.trajectory_writer(1), client.trajectory_writer(1)
    one.append([1])
    other.append([1])
    with pytest.raises(ValueError, match="writer"):
        one.create_item("any", 1.0, [other.history[0][-1:]])


def test_the_older_writer_waits_until_items_are_in(client):
    with client.writer(1) as writer:
        writer.append([1])
        writer.create_item("any", 1, 1.0)
        writer.flush()
        assert size(client, "any") == 1


def test_the_older_writer_refuses_steps_that_are_not_alike(client):
    with client.writer(2, chunk_length=1) as writer:
        writer.append([np.zeros(2)])
        for other in ([np.zeros(3)], [np.zeros(2, np.float32)], [np.zeros(2), 1]):
            with pytest.raises(ValueError, match=r"concatenate|must have the same number"):
                writer.append(other)


def test_the_older_writer_counts_real_rows(client):
    with client.writer(10) as writer:
        writer.append([1])
        writer.create_item("any", 1, 1.0)
        writer.flush()  # a chunk of one row
        with pytest.raises(ValueError, match="only 1 steps"):
            writer.create_item("any", 5, 1.0)


def test_patterns_and_conditions():
    reference = structured.create_reference_step({"a": None})
    with pytest.raises(ValueError, match="no start"):
        reference["a"][:-2]
    with pytest.raises(ValueError, match="== or !="):
        _ = structured.Condition.step_index() % 3 >= 1
    with pytest.raises(ValueError, match="modulo"):
        _ = structured.Condition.step_index() % 0 == 1
    with pytest.raises(TypeError, match="conditions"):
        _ = 0 < structured.Condition.step_index() < 5
    config = structured.create_config({"a": reference["a"][-5::2]}, "any")
    signature = structured.infer_signature([config], {"a": reverb.TensorSpec((), np.int64)})
    assert tuple(signature["a"].shape) == (3,)


# --- Tables, selectors, priorities ---


@pytest.mark.parametrize(("name", "priority"), [("prioritized", -1.0), ("prioritized", np.inf), ("heap", np.nan)])
def test_an_invalid_priority_affects_no_other_item(client, name, priority):
    client.insert(1, {name: 1.0})
    key = client.peek(name)[0].info.key
    with pytest.raises(ValueError, match="priority"):
        client.insert(2, {name: priority})
    with pytest.raises(ValueError, match="priority"):
        client.mutate_priorities(name, {key: priority})
    assert next(client.sample(name, timeout=10))[0].info.priority == 1.0


def test_all_priorities_of_a_call_or_none(client):
    for i in range(2):
        client.insert(i, {"prioritized": 1.0})
    keys = [item.info.key for item in client.peek("prioritized", 2)]
    with pytest.raises(ValueError, match="priority"):
        client.update_priorities("prioritized", keys, [5.0, -1.0])
    assert [item.info.priority for item in client.peek("prioritized", 2)] == [1.0, 1.0]


def test_selectors_and_limiters_are_values():
    fifo, limiter = selectors.Fifo(), rate_limiters.MinSize(1)
    with reverb.Server([reverb.Table(name, fifo, fifo, 10, limiter) for name in "ab"]) as server:
        client = server.localhost_client()
        client.insert(1, {"a": 1.0, "b": 1.0})
        assert [next(client.sample(name))[0].data[0] for name in "ab"] == [1, 1]


def test_bad_arguments_are_errors(server):
    with pytest.raises(ValueError, match="at least 1"):
        server.tables[0].can_sample(0)
    with pytest.raises(ValueError, match="samples_per_insert"):
        rate_limiters.RateLimiter(0.0, 1, 0.0, 1.0)
    with pytest.raises(ValueError, match="min_size_to_sample"):
        rate_limiters.MinSize(0)


def test_updates_do_not_wait_behind_inserts(client):
    writer = client.trajectory_writer(1)
    for i in range(5):
        writer.append([i])
        writer.create_item("queue", 1.0, [writer.history[0][-1:]])
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(timeout_ms=50)
    wait_until(lambda: size(client, "queue") == 3)
    client.update_priorities("queue", [item.info.key for item in client.peek("queue", 3)], [2.0] * 3, timeout=10)
    writer.close()


def test_seeds():
    def picks():
        with reverb.Server([table("t", selectors.Uniform(seed=3))]) as server:
            client = server.localhost_client()
            for i in range(20):
                client.insert(i, {"t": 1.0})
            return [int(steps[0].data[0]) for steps in client.sample("t", 20)]

    assert picks() == picks()


# --- Waiting and errors ---


def test_a_time_out_of_zero_looks_once(client):
    with pytest.raises(reverb.DeadlineExceededError) as error:
        next(client.sample("ten", timeout=0))
    assert error.value.code == "DEADLINE_EXCEEDED"


def interrupt_when_blocked():
    """Sends SIGINT to this process once its main thread waits."""

    def run():
        wait_until_blocked()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_interrupts(client):
    with pytest.raises(KeyboardInterrupt):
        thread = interrupt_when_blocked()
        next(client.sample("ten", timeout=60))
    thread.join(timeout=60)


def test_errors_have_codes(client):
    with pytest.raises(RuntimeError) as error:
        next(client.sample("no such table"))
    assert error.value.code == "NOT_FOUND"


def test_waits_end_when_the_server_of_the_process_stops(server):
    client = server.localhost_client()
    writer = client.trajectory_writer(1)
    for i in range(5):
        writer.append([i])
        writer.create_item("queue", 1.0, [writer.history[0][-1:]])
    client.insert(1, {"other queue": 1.0})
    samples = client.sample("other queue", 2)
    next(samples)  # the connection is open; the next call has to wait
    found = []

    def wait(call):
        try:
            call()
        except Exception as error:
            found.append(type(error))

    calls = [lambda: next(samples), writer.flush]
    threads = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    server.stop()
    for thread in threads:
        thread.join(30)
    assert found == [RuntimeError, RuntimeError]


def test_items_of_another_layout():
    with reverb.Server([table("first"), table("any", layout="any")]) as server:
        client = server.localhost_client()
        for step in ({"x": 1}, {"y": 1}, {"y": 1.0}):
            client.insert(step, {"any": 1.0})
        client.insert({"x": 1}, {"first": 1.0})
        for step in ({"y": 1}, {"x": 1.0}):
            with pytest.raises(ValueError, match=r"but the table has \{x: int64\}"):
                client.insert(step, {"first": 1.0})
        assert client.peek("first")[0].data == {"x": [1]}


def test_the_first_call_after_an_outage():
    first = reverb.Server([table("t")])
    client = reverb.Client(f"localhost:{first.port}", in_process=False, local=False)
    assert list(client.server_info()) == ["t"]
    first.stop()
    with reverb.Server([table("u", signature=reverb.TensorSpec((), np.int64))], port=first.port):
        assert list(client.server_info(30)) == ["u"]
        client.insert(5, {"u": 1.0})
        (step,) = next(client.sample("u", unpack_as_table_signature=True))
        assert step.data == 5


def test_iterators_that_are_dropped(client):
    samples = client.sample("ten", timeout=0)
    with pytest.raises(reverb.DeadlineExceededError):
        next(samples)
    samples.close()
    del samples
    gc.collect()


# --- Servers and processes ---


def test_ports():
    with reverb.Server([table("t")], port=0) as server:
        assert server.port > 0
        with pytest.raises(ValueError, match="port"):
            reverb.Server([table("t")], port=server.port)
    with pytest.raises(ValueError, match="port 70000"):
        reverb.Server([table("t")], port=70_000)


def test_wait_leaves_the_handler_of_signals_alone(server):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        thread = interrupt_when_blocked()
        server.wait(timeout=60)
    thread.join(timeout=60)
    assert signal.getsignal(signal.SIGINT) is handler


# --- Checkpoints ---


def start(root, **options):
    return reverb.Server(
        [table("one"), table("other")], checkpointer=reverb.checkpointers.DefaultCheckpointer(root, **options)
    )


def save_twice(root):
    """Saves two checkpoints: two items in one table, then also three in the other."""
    with start(root, keep_latest=2) as server:
        client = server.localhost_client()
        for i in range(2):
            client.insert(np.full(100, i), {"one": 1.0})
        before = client.checkpoint()
        files = set((root / "segments").iterdir())
        for i in range(3):
            client.insert(np.full(100, i), {"other": 1.0})
        latest = client.checkpoint()
        return before, latest, files


def test_a_checkpoint_is_loaded_whole_or_not_at_all(tmp_path, caplog):
    before, latest, files = save_twice(tmp_path)
    for file in set((tmp_path / "segments").iterdir()) - files:
        file.unlink()
    with start(tmp_path) as server:
        assert server.loaded_checkpoint == before
        assert [info.current_size for info in server.localhost_client().server_info().values()] == [2, 0]
    assert latest in caplog.text
    for file in files:
        file.unlink()
    with pytest.raises(RuntimeError, match="none of the 2 checkpoints"):
        start(tmp_path)


def test_a_second_checkpoint_writes_what_is_new(tmp_path):
    _, latest, files = save_twice(tmp_path)
    assert files < set((tmp_path / "segments").iterdir())  # the second checkpoint uses these too
    assert [info.current_size for info in reverb.checkpoints.info(latest).tables.values()] == [2, 3]


def test_a_fallback_without_a_checkpoint_is_logged(tmp_path, caplog):
    with start(tmp_path / "root", fallback_checkpoint_path=str(tmp_path / "mistyped")) as server:
        assert server.loaded_checkpoint is None
    assert "mistyped" in caplog.text
