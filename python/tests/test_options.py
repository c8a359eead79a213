"""Tests options beyond dm-reverb: limits on bytes, names, reconnect timeouts."""

import math
import pickle
import threading

from conftest import join, make_table
import numpy as np
import pytest
import transports

import reverb

STEP = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8)  # does not compress


# --- The server's bytes ---


def test_inserts_wait_while_the_store_is_full(connect):
    with reverb.Server([make_table()], max_bytes=3 * STEP.nbytes) as server:
        client = connect(server)
        for _ in range(2):
            client.insert(STEP, {"table": 1.0})
        with pytest.raises(reverb.DeadlineExceededError):
            for _ in range(2):
                client.insert(STEP, {"table": 1.0}, timeout=0.3)
        assert client.server_info()["table"].current_size in (2, 3)
        client.reset("table")
        client.insert(STEP, {"table": 1.0}, timeout=30)


def test_inserts_evict_if_configured(connect):
    with reverb.Server([make_table()], max_bytes=3 * STEP.nbytes, when_full="evict") as server:
        client = connect(server)
        for _ in range(10):
            client.insert(STEP, {"table": 1.0}, timeout=30)
        assert client.server_info()["table"].current_size in (2, 3)


def test_inserts_wait_for_memory(connect):
    data = np.random.default_rng(1).integers(0, 255, 2**20, np.uint8)
    with reverb.Server([make_table()], memory_limit=16 * 2**20) as server:
        client = connect(server)
        with pytest.raises(reverb.DeadlineExceededError):
            for _ in range(30):
                client.insert(data, {"table": 1.0}, timeout=1)
        # 13/16 of the limit are for items.
        assert client.server_info()["table"].current_size in (11, 12)
        client.reset("table")
        client.insert(data, {"table": 1.0}, timeout=30)


def test_a_table_evicts_beyond_its_max_bytes(connect):
    data = np.random.default_rng(1).integers(0, 255, 100_000, np.uint8)
    tables = [make_table("small", max_bytes=350_000), make_table("other")]
    with reverb.Server(tables) as server:
        client = connect(server)
        for _ in range(10):
            client.insert(data, {"small": 1.0, "other": 1.0}, timeout=30)
        info = client.server_info()
        assert (info["small"].current_size, info["other"].current_size) == (3, 10)
        assert (info["small"].max_bytes, info["other"].max_bytes) == (350_000, None)
        assert info["small"].evictions == 7
        with pytest.raises(IndexError, match="more than the table's max_bytes of 350000"):
            client.insert(np.tile(data, 4), {"small": 1.0}, timeout=30)
        client.change_table("other", max_bytes=250_000)
        assert client.server_info()["other"].current_size == 2
        client.change_table("other", max_bytes=math.inf)
        assert client.server_info()["other"].max_bytes is None
        for wrong in (0, -1, 2**63):
            with pytest.raises(ValueError, match=r"max_bytes .* must be a positive number of bytes"):
                client.change_table("other", max_bytes=wrong)
            with pytest.raises(ValueError, match=r"max_bytes .* must be a positive number of bytes"):
                make_table(max_bytes=wrong)


def test_a_memory_limit_without_room():
    with pytest.raises(ValueError, match=r"memory_limit is 1000 bytes; it must be at least 16777216"):
        reverb.Server([make_table()], memory_limit=1000)


@pytest.mark.parametrize("value", [0, -1, 2**63])
def test_invalid_bounds(value):
    with pytest.raises(ValueError, match=rf"max_bytes \({value}\) must be a positive number of bytes, or None"):
        reverb.Server([make_table()], max_bytes=value)
    with pytest.raises(ValueError, match=rf"write_window_bytes \({value}\) must be a positive number of bytes"):
        reverb.Client("localhost:1", write_window_bytes=value)


@pytest.mark.parametrize("value", [1.5, "1 GiB"])
def test_bounds_that_are_no_integers(value):
    with pytest.raises(TypeError, match="max_bytes must be an int"):
        reverb.Server([make_table()], max_bytes=value)
    with pytest.raises(TypeError, match="write_window_bytes must be an int"):
        reverb.Client("localhost:1", write_window_bytes=value)


def test_what_to_do_when_full_has_two_values():
    with pytest.raises(ValueError, match='when_full must be "wait" or "evict", got \'drop\''):
        reverb.Server([make_table()], max_bytes=1, when_full="drop")


# --- The client's ---


class Producer(threading.Thread):
    """Writes items of one step, and counts the create_item() calls that have returned."""

    def __init__(self, client, items):
        super().__init__(daemon=True)
        self.client = client
        self.items = items
        self.created = 0

    def run(self):
        writer = self.client.trajectory_writer(1)
        for _ in range(self.items):
            writer.append(STEP)
            writer.create_item("queue", 1.0, writer.history[-1:])
            self.created += 1
        writer.flush(timeout_ms=60_000)


@pytest.mark.parametrize("transport", transports.ALL)
def test_a_writer_waits_when_its_window_is_full(serve, transport):
    server = serve(reverb.Table.queue("queue", 1))
    producer = Producer(transports.connect(server, transport, write_window_bytes=1), 10)
    producer.start()
    for taken in range(10):
        # One item is in the queue, one is unconfirmed.
        assert producer.created <= taken + 2
        next(server.localhost_client().sample("queue", timeout=60))
    join(producer)
    assert producer.created == 10


@pytest.mark.parametrize("options", [{}, {"write_window_bytes": None}, {"write_window_bytes": 10**6}])
def test_a_writer_does_not_wait_while_there_is_room(serve, options):
    server = serve(reverb.Table.queue("queue", 1))
    client = transports.connect(server, "grpc", **options)
    writer = client.trajectory_writer(1)
    for _ in range(10):
        writer.append(STEP)
        writer.create_item("queue", 1.0, writer.history[-1:])
    keys = {next(client.sample("queue", timeout=60))[0].info.key for _ in range(10)}
    writer.flush(timeout_ms=60_000)
    assert len(keys) == 10


def test_a_lost_server_is_awaited_for_the_reconnect_timeout():
    with reverb.Server([make_table()]) as server:
        client = transports.connect(server, "grpc", reconnect_timeout=0.0)
        writer = client.trajectory_writer(1)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush(timeout_ms=60_000)
        many = client.sample("table", num_samples=10_000, timeout=60)
        batches = client.sample_batches("table", 2, timeout=60)
        assert next(many)
        assert next(batches)
        assert next(client.sample("table"))
    with pytest.raises(RuntimeError) as error:
        writer.append(2)  # may have noticed already
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush(timeout_ms=60_000)
    assert error.value.code == "UNAVAILABLE"
    for samples in (many, batches):
        with pytest.raises(RuntimeError) as error:
            for _ in samples:  # returns prefetched samples first
                pass
        assert error.value.code == "UNAVAILABLE"
    with pytest.raises(RuntimeError) as error:
        next(client.sample("table", timeout=60))
    assert error.value.code == "UNAVAILABLE"


@pytest.mark.parametrize("value", [-1, -0.5, float("nan")])
def test_a_reconnect_timeout_is_not_negative(value):
    with pytest.raises(ValueError, match="reconnect_timeout"):
        reverb.Client("localhost:1", reconnect_timeout=value)


def test_a_client_bounds_what_it_receives():
    with reverb.Server([reverb.Table.queue("t", 10)]) as server:
        writer_client = transports.connect(server, "grpc")
        writer_client.insert([np.zeros(2**20, np.uint8) + 1, np.arange(2**19)], {"t": 1.0})
        client = transports.connect(server, "grpc", max_response_bytes=2**20)
        with pytest.raises(IndexError, match="max_response_bytes") as caught:  # as for all RESOURCE_EXHAUSTED
            next(client.sample("t"))
        assert caught.value.code == "RESOURCE_EXHAUSTED"
    with pytest.raises(ValueError, match=r"max_response_bytes \(1000\) must be at least 1048576"):
        reverb.Client("localhost:1", max_response_bytes=1000)
    with pytest.raises(ValueError, match="max_response_bytes"):
        reverb.Client("localhost:1", max_response_bytes=0)


def test_a_name_is_short_text():
    with pytest.raises(TypeError, match="name must be a str"):
        reverb.Client("localhost:1", name=b"actor")
    with pytest.raises(ValueError, match="1024 bytes, got 1025"):
        reverb.Client("localhost:1", name="n" * 1025)


def test_options_travel_with_a_pickle(monkeypatch):
    options = {
        "in_process": False,
        "local": False,
        "name": "actor 3",
        "write_window_bytes": None,
        "reconnect_timeout": 5.0,
        "max_response_bytes": 2**24,
        "keepalive_timeout": 7.0,
    }
    client = reverb.Client("localhost:1", **options)
    seen = {}
    monkeypatch.setattr(
        reverb.Client, "__init__", lambda self, address, **given: seen.update(given, address=address)
    )
    pickle.loads(pickle.dumps(client))
    assert seen == {**options, "address": "localhost:1"}


class Terse(reverb.Client):
    def __init__(self, address):
        super().__init__(address)


def test_a_class_that_takes_the_address_alone_can_be_pickled():
    assert isinstance(pickle.loads(pickle.dumps(Terse("localhost:1"))), Terse)


# --- Time-outs ---

# Calls that take a timeout, as functions of it. `client` has a table "table" with an item.
TIMEOUTS = {
    "timeout": [
        lambda server, client, value: client.insert(1.0, {"table": 1.0}, timeout=value),
        lambda server, client, value: next(client.sample("table", timeout=value)),
        lambda server, client, value: next(client.sample_batches("table", 1, timeout=value)),
        lambda server, client, value: client.mutate_priorities("table", {}, timeout=value),
        lambda server, client, value: client.update_priorities("table", [], [], timeout=value),
        lambda server, client, value: client.peek("table", timeout=value),
        lambda server, client, value: client.reset("table", timeout=value),
        lambda server, client, value: client.set_rate_limiter(
            "table", reverb.rate_limiters.MinSize(1), timeout=value
        ),
        lambda server, client, value: client.create_table(
            reverb.Table.queue("new", 3), exist_ok=True, timeout=value
        ),
        lambda server, client, value: client.change_table("table", max_size=5, timeout=value),
        lambda server, client, value: client.remove_table("new", timeout=value),
        lambda server, client, value: client.checkpoint(timeout=value),
        lambda server, client, value: client.trajectory_writer(1, timeout=value),
        lambda server, client, value: client.vector_writer(1, 1, timeout=value),
        lambda server, client, value: client.writer(1, timeout=value),
        lambda server, client, value: client.writer(1).flush(timeout=value),
        lambda server, client, value: client.writer(1).close(timeout=value),
        lambda server, client, value: client.writer(1).close(retry_on_unavailable=False, timeout=value),
        lambda server, client, value: server.wait(timeout=value),
    ],
    "reconnect_timeout": [lambda server, client, value: reverb.Client("localhost:1", reconnect_timeout=value)],
    "keepalive_timeout": [
        lambda server, client, value: reverb.Client("localhost:1", keepalive_timeout=value),
        lambda server, client, value: reverb.Server([make_table()], keepalive_timeout=value),
    ],
    "seconds": [lambda server, client, value: reverb.set_wait_log_after(value)],
    "interval": [lambda server, client, value: reverb.Server(
            [make_table()], checkpointer=reverb.checkpointers.DefaultCheckpointer("/nowhere", interval=value)
        )],
}


@pytest.mark.parametrize("value", [float("nan"), -1.0, -float("inf"), -1e-9, np.float32(-2)])
@pytest.mark.parametrize("name", TIMEOUTS)
def test_timeouts_that_are_none(server, client, name, value):
    client.insert(1.0, {"table": 1.0})
    for call in TIMEOUTS[name]:
        with pytest.raises(ValueError, match=rf"{name} \({float(value)!r}\)"):
            call(server, client, value)


def test_timeouts_of_dm_reverb_keep_their_meaning(client):
    for no_limit in (None, 0, -1):
        assert client.server_info(no_limit)
    with pytest.raises(ValueError, match=r"timeout \(nan\)"):
        client.server_info(float("nan"))
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1])
    writer.flush(timeout_ms=-1)  # no limit
    writer.end_episode(timeout_ms=-1)  # does not wait


def test_a_sample_that_looks_once_does_not_wait_for_the_signature():
    client = reverb.Client("localhost:1")
    samples = client.sample("table", unpack_as_table_signature=True, timeout=0)
    with pytest.raises((reverb.DeadlineExceededError, RuntimeError)):
        next(samples)
