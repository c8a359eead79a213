"""Tests Client: inserting, sampling, priorities, information. Each test runs without a socket and with one."""

import pickle
import threading
import time

from conditions import next_in_time, stays_true_for, wait_for_waiters
from conftest import make_table, run_in_threads
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors


def only(iterator):
    (value,) = iterator
    return value


# --- insert ---


def test_insert_and_sample(client):
    client.insert([0, 1], {"table": 1.5})
    (step,) = next(client.sample("table"))
    assert isinstance(step, reverb.ReplaySample)
    assert step.data == [np.array(0), np.array(1)]
    assert all(isinstance(value, np.ndarray) and value.dtype == np.int64 for value in step.data)
    sample = next(client.sample("table", emit_timesteps=False))
    assert [value.tolist() for value in sample.data] == [[0], [1]]
    info = sample.info
    assert isinstance(info, reverb.SampleInfo)
    assert (info.probability, info.table_size, info.priority, info.times_sampled) == (1.0, 1, 1.5, 2)
    assert [type(field) for field in info] == [int, float, int, float, int]
    assert 0 <= info.key < 2**64


def test_insert_of_nests_and_bytes(client):
    client.insert({"b": {"x": b"raw\0", "y": "text"}, "a": [np.zeros((2, 3), np.float32), True]}, {"table": 1})
    sample = next(client.sample("table", emit_timesteps=False))
    assert [value.shape for value in sample.data] == [(1, 2, 3), (1,), (1,), (1,)]
    assert sample.data[2].tolist() == [b"raw\0"]
    assert sample.data[3].tolist() == [b"text"]


def test_insert_into_several_tables_stores_the_data_once(client, server):
    client.insert(np.zeros(1000), {"table": 1.0, "queue": 2.0})
    first, second = (next(client.sample(name))[0] for name in ("table", "queue"))
    assert first.info.key != second.info.key
    assert (first.info.priority, second.info.priority) == (1.0, 2.0)


@pytest.mark.parametrize("priority", [1, True, np.float32(1), np.array(1.0), np.array([1.0])])
def test_priorities_of_any_kind(client, priority):
    client.insert(0, {"table": priority})
    assert next(client.sample("table"))[0].info.priority == 1.0


@pytest.mark.parametrize("priority", ["1", None, b"1", [1, 2]])
def test_priorities_that_are_none(client, priority):
    with pytest.raises(TypeError, match="priority"):
        client.insert(0, {"table": priority})


def test_insert_errors(client):
    with pytest.raises(ValueError, match="at least one"):
        client.insert(0, {})
    with pytest.raises(ValueError, match="^Unable to find signatures for table.*queue"):
        client.insert(0, {"nowhere": 1.0})
    for nothing in ({}, [], (), {"a": {}, "b": []}):
        with pytest.raises(ValueError, match="has no values"):
            client.insert(nothing, {"table": 1.0})
    with pytest.raises(ValueError, match="nan"):
        client.insert(0, {"table": float("nan")})
    with pytest.raises(TypeError):
        client.insert(np.datetime64("2020-01-01"), {"table": 1.0})
    assert client.server_info()["table"].current_size == 0


def test_insert_checks_the_signature(serve, connect):
    spec = {"a": reverb.TensorSpec((3,), np.float32), "b": reverb.TensorSpec((), np.int64)}
    client = connect(serve(make_table(signature=spec)))
    client.insert({"a": np.zeros(3, np.float32), "b": 1}, {"table": 1.0})
    with pytest.raises(ValueError, match="float64"):
        client.insert({"a": np.zeros(3), "b": 1}, {"table": 1.0})
    with pytest.raises(ValueError, match=r"\[4\]"):
        client.insert({"a": np.zeros(4, np.float32), "b": 1}, {"table": 1.0})
    with pytest.raises(ValueError, match="1 tensors"):
        client.insert({"b": 1}, {"table": 1.0})


def test_insert_waits_for_the_limiter(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    client.insert(0, {"queue": 1.0})
    start = time.monotonic()
    with pytest.raises(reverb.DeadlineExceededError):
        client.insert(1, {"queue": 1.0}, timeout=0.2)
    assert 0.15 < time.monotonic() - start < 3


def test_a_blocked_insert_ends_with_a_server_of_this_process(serve):
    server = serve(reverb.Table.queue("queue", 1))
    client = server.localhost_client()
    client.insert(0, {"queue": 1.0})
    threading.Thread(target=lambda: (wait_for_waiters(client, 1), server.stop())).start()
    with pytest.raises(RuntimeError, match="Error when confirming that all items written to table."):
        client.insert(1, {"queue": 1.0}, timeout=10)


# --- sample ---


def test_nothing_happens_before_the_first_next(client):
    client.sample("nowhere", 0)
    with pytest.raises(ValueError, match=r"max_samples \(0\) must be -1 or >= 1"):
        next(client.sample("table", 0))
    with pytest.raises(ValueError, match=r"max_samples \(-2\)"):
        next(client.sample("table", -2))
    assert list(client.sample("table", -1)) == []


@pytest.mark.parametrize("num_samples", [1, 3])
def test_a_table_that_does_not_exist(client, num_samples):
    with pytest.raises(RuntimeError, match="nowhere") as caught:
        next(client.sample("nowhere", num_samples))
    assert caught.value.code == "NOT_FOUND"


def test_a_queue_in_order_and_to_the_end(client):
    for i in range(20):
        client.insert(i, {"queue": 1.0})
    samples = client.sample("queue", 20)
    assert [int(step.data[0]) for (step,) in samples] == list(range(20))
    with pytest.raises(StopIteration):
        next(samples)


def test_never_more_than_was_asked_for(client, server):
    for i in range(20):
        client.insert(i, {"table": 1.0})
    assert len(list(client.sample("table", 7))) == 7
    assert server.tables[0].info.rate_limiter_info.sample_stats.completed == 7


def test_at_most_one_ahead_where_samples_take_items_away(client, server):
    for i in range(10):
        client.insert(i, {"queue": 1.0})
    samples = client.sample("queue", 10)
    for i in range(3):
        assert int(next(samples)[0].data[0]) == i
    assert stays_true_for(0.1, lambda: server.tables[1].info.current_size >= 6)
    samples.close()
    assert list(samples) == []


def test_what_the_limiter_allows_is_handed_out(serve, connect):
    # Three samples are allowed, four are requested: three arrive, then the call waits.
    limiter = rate_limiters.RateLimiter(3.0, 1, 0.0, 100.0)
    client = connect(serve(make_table(limiter=limiter)))
    client.insert(0, {"table": 1.0})
    samples = client.sample("table", 100, timeout=0.3)
    for _ in range(3):
        next_in_time(samples)
    with pytest.raises(reverb.DeadlineExceededError):
        next(samples)
    client.insert(1, {"table": 1.0})
    next_in_time(samples)


@pytest.mark.parametrize("num_samples", [1, 5])
def test_sample_with_a_timeout(client, num_samples):
    start = time.monotonic()
    with pytest.raises(reverb.DeadlineExceededError):
        next(client.sample("table", num_samples, timeout=0.2))
    assert time.monotonic() - start < 3


def test_exact_samples_see_every_update(serve, connect):
    client = connect(serve(make_table(sampler=selectors.MaxHeap())))
    client.insert(0, {"table": 1.0})
    client.insert(1, {"table": 2.0})
    samples = client.sample("table", 3, exact=True)
    key = next(samples)[0].info.key
    client.mutate_priorities("table", {key: 0.5})
    assert next(samples)[0].info.key != key
    client.mutate_priorities("table", {key: 5.0})
    assert next(samples)[0].info.key == key


def test_a_blocked_sample_ends_when_another_thread_closes_it(client):
    samples = client.sample("table", 2)
    threading.Timer(0.2, samples.close).start()
    assert list(samples) == []


@pytest.mark.parametrize("num_samples", [1, 2])
def test_a_blocked_sample_ends_with_a_server_of_this_process(serve, num_samples):
    server = serve(make_table())
    client = server.localhost_client()
    client.server_info()  # makes the client aware that the server is in this process
    threading.Timer(0.2, server.stop).start()
    with pytest.raises(RuntimeError):
        next(client.sample("table", num_samples, timeout=20))


def test_steps_share_their_info(client):
    with client.writer(3) as writer:
        for i in range(3):
            writer.append([i, float(i)])
        writer.create_item("table", 3, 1.0)
    steps = next(client.sample("table"))
    assert [[int(step.data[0]), float(step.data[1])] for step in steps] == [[0, 0.0], [1, 1.0], [2, 2.0]]
    assert all(step.info is steps[0].info for step in steps)


def test_items_that_are_no_steps(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 10, layout="any")))
    with client.trajectory_writer(3) as writer:
        for i in range(3):
            writer.append({"a": i, "b": np.arange(3)})
        columns = writer.history
        writer.create_item("queue", 1.0, [columns["a"][:], columns["a"][-2:]])
        writer.create_item("queue", 1.0, [columns["a"][-1]])
        writer.create_item("queue", 1.0, [columns["a"][:], columns["b"][-1]])
    for left in (3, 2, 1):
        with pytest.raises(ValueError, match="Can't split non timestep trajectory into timesteps."):
            next(client.sample("queue"))
        assert client.server_info()["queue"].current_size == left
        next(client.sample("queue", emit_timesteps=False))


def test_unpack_as_table_signature(serve, connect):
    number = reverb.TensorSpec((), np.int64)
    spec = {"b": (number, number), "a": number}
    client = connect(serve(make_table(signature=spec), make_table("plain")))
    client.insert({"b": (1, 2), "a": 3}, {"table": 1.0, "plain": 1.0})
    (step,) = next(client.sample("table", unpack_as_table_signature=True))
    assert step.data == {"b": (1, 2), "a": 3}
    sample = next(client.sample("table", emit_timesteps=False, unpack_as_table_signature=True))
    assert sample.data == {"b": ([1], [2]), "a": [3]}
    (step,) = next(client.sample("plain", unpack_as_table_signature=True))
    assert step.data == [3, 1, 2]
    with pytest.raises(ValueError, match='Could not find table "nowhere"'):
        next(client.sample("nowhere", unpack_as_table_signature=True))


def test_namedtuples_of_signatures_have_one_class(serve):
    from typing import NamedTuple

    class Step(NamedTuple):
        observation: object
        action: object

    spec = Step(reverb.TensorSpec((), np.int64), reverb.TensorSpec((), np.int64))
    server = serve(make_table(signature=spec))
    types = set()
    for _ in range(2):
        client = server.localhost_client()
        client.insert(Step(1, 2), {"table": 1.0})
        data = next(client.sample("table", unpack_as_table_signature=True))[0].data
        assert data._fields == Step._fields
        types.add(type(data))
    assert len(types) == 1


def test_items_with_other_columns_than_the_signature(serve):
    server = serve(make_table(signature=[reverb.TensorSpec((), np.int64)]))
    client = server.localhost_client()
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append([1, 2])
        writer.create_item("table", 1.0, [column[:] for column in writer.history])
    with pytest.raises(ValueError, match="columns"):
        next(client.sample("table", unpack_as_table_signature=True))


def test_samples_own_their_memory(client):
    client.insert(np.arange(1000), {"table": 1.0})
    samples = [sample.data[0] for sample in client.sample("table", 5, emit_timesteps=False)]
    samples[0][:] = 0
    assert all((sample[0] == np.arange(1000)).all() for sample in samples[1:])


def test_many_threads_share_a_client(client):
    client.insert(0, {"table": 1.0})
    errors = []

    def work():
        try:
            for _ in range(20):
                client.insert(0, {"table": 1.0})
                assert len(list(client.sample("table", 3))) == 3
                client.server_info()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    run_in_threads(4, work)
    assert errors == []


# --- Priorities ---


@pytest.fixture
def prioritized(serve, connect):
    client = connect(serve(make_table("per", sampler=selectors.Prioritized(1.0, seed=1))))
    for i in range(4):
        client.insert(i, {"per": 1.0})
    client.keys = {int(item.data[0][0]): item.info.key for item in client.peek("per", 10)}
    return client


def probabilities(client):
    return {int(s.data[0][0]): s.info.probability for s in client.sample("per", 100, emit_timesteps=False)}


def test_updates_and_deletes(prioritized):
    keys = prioritized.keys
    updates = {np.uint64(keys[0]): np.float32(3.0), keys[1]: np.array(0.0), 12345: 1.0}
    prioritized.mutate_priorities(table="per", updates=updates, deletes=[keys[3], 54321])
    assert probabilities(prioritized) == {0: 0.75, 2: 0.25}


def test_deletes_as_an_array(prioritized):
    deletes = np.array([prioritized.keys[i] for i in range(3)], np.uint64)
    prioritized.mutate_priorities("per", deletes=deletes)
    assert prioritized.server_info()["per"].current_size == 1


def test_updates_as_arrays(prioritized):
    keys = np.array([prioritized.keys[i] for i in range(4)], np.uint64)
    prioritized.update_priorities("per", keys, np.array([1, 3, 0, 0], np.float32))
    assert probabilities(prioritized) == {0: 0.25, 1: 0.75}
    prioritized.update_priorities("per", list(keys[:1]), [0.0])
    with pytest.raises(ValueError, match="priorities"):
        prioritized.update_priorities("per", keys, [1.0])
    with pytest.raises(ValueError, match="priorities"):
        prioritized.update_priorities("per", keys[:1], [1.0, 2.0])


@pytest.mark.parametrize("priority", [-1.0, float("nan")])
def test_priorities_that_are_refused(prioritized, priority):
    with pytest.raises(ValueError):
        prioritized.mutate_priorities("per", {prioritized.keys[0]: priority})
    assert probabilities(prioritized)[0] == 0.25


@pytest.mark.parametrize("key", [-1, 1.0, 2**64, "1", None])
def test_keys_that_are_none(prioritized, key):
    with pytest.raises(TypeError, match="key"):
        prioritized.mutate_priorities("per", {key: 1.0})
    with pytest.raises(TypeError, match="key"):
        prioritized.mutate_priorities("per", deletes=[key])


def test_mutate_a_table_that_does_not_exist(client):
    for arguments in ({}, {"updates": {1: 1.0}}, {"deletes": [1]}):
        with pytest.raises(RuntimeError, match="nowhere"):
            client.mutate_priorities("nowhere", **arguments)


def test_peek_does_not_count(client, server):
    assert client.peek("table", 3) == []
    for i in range(3):
        client.insert([i, "x"], {"table": float(i)})
    items = client.peek("table", 2)
    assert len(items) == 2
    assert [item.info.priority for item in items] == [0.0, 1.0]
    assert items[0].data[1].tolist() == [b"x"]
    assert server.tables[0].info.rate_limiter_info.sample_stats.completed == 0
    with pytest.raises(ValueError):
        client.peek("table", 0)
    with pytest.raises(RuntimeError, match="nowhere"):
        client.peek("nowhere")


# --- Other calls ---


def test_reset(client):
    client.insert(0, {"table": 1.0})
    client.reset("table")
    info = client.server_info()["table"]
    assert (info.current_size, info.rate_limiter_info.insert_stats.completed) == (0, 0)
    with pytest.raises(RuntimeError, match="nowhere"):
        client.reset("nowhere")


def test_server_info(client):
    infos = client.server_info()
    assert sorted(infos) == ["queue", "table"]
    assert infos["queue"].max_times_sampled == 1
    assert client.server_info(1)["table"].name == "table"
    assert client.server_info(timeout=0)["table"].current_size == 0
    client.insert(0, {"table": 1.0})
    assert client.server_info()["table"].num_episodes == 1


def test_clients_can_be_pickled(client):
    copy = pickle.loads(pickle.dumps(client))
    assert copy.server_address == copy._server_address == client.server_address
    copy.insert(0, {"table": 1.0})
    assert repr(copy) == f"Client, server_address={client.server_address}"


def test_a_server_that_is_not_there():
    client = reverb.Client("localhost:1")
    start = time.monotonic()
    with pytest.raises(reverb.DeadlineExceededError, match="did not complete within 0.2 s"):
        client.server_info(timeout=0.2)
    for call in (
        lambda: client.insert(0, {"table": 1.0}, timeout=0.05),
        lambda: client.writer(1, timeout=0.05),
        lambda: client.trajectory_writer(1, timeout=0.05),
        lambda: next(client.sample("table", timeout=0.05)),
        lambda: next(client.sample("table", 3, timeout=0.05)),
        lambda: client.reset("table", timeout=0.05),
        lambda: client.mutate_priorities("table", {1: 1.0}, timeout=0.05),
        lambda: client.peek("table", timeout=0.05),
    ):
        with pytest.raises((reverb.DeadlineExceededError, RuntimeError)):
            call()
    assert time.monotonic() - start < 10


def test_a_client_may_be_made_before_its_server(serve):
    with reverb.Server([make_table()]) as first:
        port = first.port
    client = reverb.Client(f"localhost:{port}", in_process=False, local=False)
    result = []
    thread = threading.Thread(target=lambda: result.append(client.server_info(20)))
    thread.start()
    assert stays_true_for(0.2, thread.is_alive)
    with reverb.Server([make_table()], port=port):
        thread.join(20)
    assert list(result[0]) == ["table"]


def test_an_address_that_is_none():
    with pytest.raises((ValueError, TypeError)):
        reverb.Client(None)


# --- Conversions that run Python code ---


class Interrupting:
    """Raises KeyboardInterrupt during a conversion, as a Ctrl-C handler does."""

    def _interrupt(self, *_, **__):
        raise KeyboardInterrupt

    __float__ = __index__ = __array__ = _interrupt


class InterruptingMapping:
    def keys(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "call",
    [
        lambda client, writer: client.insert(0, {"table": Interrupting()}),
        lambda client, writer: client.insert(Interrupting(), {"table": 1.0}),
        lambda client, writer: client.insert(0, InterruptingMapping()),
        lambda client, writer: client.mutate_priorities("table", deletes=[Interrupting()]),
        lambda client, writer: client.mutate_priorities("table", updates={1: Interrupting()}),
        lambda client, writer: client.update_priorities("table", [Interrupting()], [1.0]),
        lambda client, writer: client.update_priorities("table", [1], [Interrupting()]),
        lambda client, writer: writer.append({"x": Interrupting()}),
        lambda client, writer: writer.create_item("table", Interrupting(), writer.history["x"][-1]),
        lambda client, writer: writer.history["x"][[Interrupting()]],
    ],
)
def test_interrupts_are_no_type_errors(client, call):
    writer = client.trajectory_writer(1)
    writer.append({"x": 1.0})
    with pytest.raises(KeyboardInterrupt):
        call(client, writer)


def test_a_table_name_that_is_no_text(client):
    with pytest.raises(ValueError, match=r"name of a table .*'\\ud800'"):
        client.insert(0, {"\ud800": 1.0})


@pytest.mark.parametrize("keys", [b"12", bytearray(b"12"), "12", {1: 2.0, 2: 2.0}, {1, 2}, np.uint64(1), 5])
def test_keys_that_are_no_sequence(client, keys):
    with pytest.raises(TypeError, match="keys must be a sequence"):
        client.update_priorities("table", keys, [1.0, 2.0])
    with pytest.raises(TypeError, match="keys must be a sequence"):
        client.mutate_priorities("table", deletes=keys)


@pytest.mark.parametrize("priorities", [b"12", bytearray(b"12"), "12", {1: 2.0, 2: 2.0}, {1.0, 2.0}, frozenset({1, 2})])
def test_priorities_that_are_no_sequence(client, priorities):
    with pytest.raises(TypeError, match="priorities must be a sequence"):
        client.update_priorities("table", [1, 2], priorities)


@pytest.mark.parametrize("address", [8000, None, ["localhost:8000", 8001]])
def test_an_address_of_a_wrong_type(address):
    with pytest.raises(TypeError, match=r'server_address must be a str such as "localhost:8000", or a sequence of them, got'):
        reverb.Client(address)
