"""Tests calls, writers and samples when connections break or servers do not respond."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import socket
import threading

from conftest import join, make_table
import numpy as np
from processes import free_port
from proxies import Proxy
import pytest

import reverb


@pytest.fixture
def make_proxy():
    with contextlib.ExitStack() as stack:

        def make(server):
            proxy = Proxy(server.port)
            stack.callback(proxy.close)
            return proxy

        yield make


@pytest.fixture
def proxy(serve, make_proxy):
    return make_proxy(serve(make_table(), reverb.Table.queue("queue", 100)))


@pytest.fixture
def client(proxy):
    return reverb.Client(proxy.address, in_process=False, local=False)


def fill(client, count=3):
    for i in range(count):
        client.insert([np.int64(i)], {"table": 1.0}, timeout=30)
    return [item.info.key for item in client.peek("table", count, timeout=30)]


# --- Writers ---


def test_a_full_table_does_not_delay_items_for_other_tables(serve):
    server = serve(reverb.Table.queue("full", 1), make_table("empty"))
    client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)
    writer = client.trajectory_writer(1, timeout=30)

    def write(table):
        writer.append([np.int64(1)])
        writer.create_item(table, 1.0, writer.history[0][-1:])
        writer.append([np.int64(0)])  # completes the chunk

    for _ in range(2):
        write("full")
    while client.server_info(30)["full"].waiting_inserts == 0:
        pass
    write("empty")  # succeeds without a flush
    assert next(client.sample("empty", timeout=30))
    assert next(client.sample("full", timeout=30))
    writer.close()


# --- Single calls ---

REPEATED = {
    "server_info": lambda client, keys: client.server_info(timeout=30),
    "peek": lambda client, keys: client.peek("table", 2, timeout=30),
    "set_rate_limiter": lambda client, keys: client.set_rate_limiter(
        "table", reverb.rate_limiters.MinSize(2), timeout=30
    ),
    "change_table": lambda client, keys: client.change_table("table", max_size=50, timeout=30),
    "create_table": lambda client, keys: client.create_table(reverb.Table.queue("new", 3), exist_ok=True, timeout=30),
    "update_priorities": lambda client, keys: client.update_priorities("table", keys, [7.0] * len(keys), timeout=30),
    "mutate_priorities": lambda client, keys: client.mutate_priorities("table", {}, keys[:1], timeout=30),
}


@pytest.mark.parametrize("call", REPEATED.values(), ids=REPEATED)
def test_a_call_whose_connection_breaks_is_retried(proxy, client, call):
    keys = fill(client)
    before = proxy.num_connections
    proxy.break_next_request()
    call(client, keys)
    assert proxy.num_connections > before, "the connection broke"
    if call is REPEATED["update_priorities"]:
        assert {item.info.priority for item in client.peek("table", 3, timeout=30)} == {7.0}


def test_calls_that_are_not_idempotent_are_not_retried(proxy, client):
    fill(client)
    proxy.break_next_request()
    with pytest.raises(RuntimeError, match="Reset: .* may have carried it out"):
        client.reset("table", timeout=30)
    client.server_info(timeout=30)
    proxy.break_next_request()
    with pytest.raises(RuntimeError, match="Checkpoint: .* may have carried it out"):
        client.checkpoint(timeout=30)


NOT_REPEATED = {
    "RemoveTable": lambda client: client.remove_table("table", timeout=30),
    "CreateTable": lambda client: client.create_table(reverb.Table.queue("new", 3), timeout=30),
}


@pytest.mark.parametrize("name", NOT_REPEATED)
def test_a_change_of_tables_is_not_repeated(proxy, client, name):
    client.server_info(timeout=30)
    proxy.break_next_request()
    with pytest.raises(RuntimeError, match=f"{name}: .* may have carried it out"):
        NOT_REPEATED[name](client)


def test_an_insert_whose_connection_breaks_is_inserted_once(proxy, client):
    client.insert([np.int64(0)], {"queue": 1.0}, timeout=60)  # its stream is kept
    for value in range(1, 4):
        proxy.break_next_request()
        client.insert([np.int64(value)], {"queue": 1.0}, timeout=60)
    assert client.server_info(60)["queue"].current_size == 4
    assert [int(next(client.sample("queue", timeout=60))[0].data[0]) for _ in range(4)] == [0, 1, 2, 3]


# --- Absent servers ---

NEEDS_A_SERVER = {
    "server_info": lambda client: client.server_info(),
    "sample": lambda client: next(client.sample("table", 2)),
    "sample_one": lambda client: next(client.sample("table")),
    "sample_batches": lambda client: next(client.sample_batches("table", 2)),
    "insert": lambda client: client.insert([1], {"table": 1.0}),
    "writer": lambda client: client.writer(1),
    "trajectory_writer": lambda client: client.trajectory_writer(1),
    "vector_writer": lambda client: client.vector_writer(2, 1),
}


def test_reconnect_timeout_holds_also_when_no_server_answers_at_first():
    client = reverb.Client(f"localhost:{free_port()}", reconnect_timeout=0.2)
    # Concurrently: each call takes a second.
    with concurrent.futures.ThreadPoolExecutor(len(NEEDS_A_SERVER)) as threads:
        ends = {
            name: threads.submit(run_for_a_while, lambda call=call: call(client))
            for name, call in NEEDS_A_SERVER.items()
        }
    for name, end in ends.items():
        error = end.exception()
        assert isinstance(error, RuntimeError), name
        assert f"the server at {client.server_address} could not be reached for" in str(error), name


def test_reconnect_timeout_holds_for_a_server_that_accepts_and_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = reverb.Client(f"127.0.0.1:{listener.getsockname()[1]}", reconnect_timeout=0.2)
        writer = client.trajectory_writer(1, validate_items=False)
        writer.append([1])
        writer.create_item("table", 1.0, writer.history[0][-1:])
        for call in [writer.flush, lambda: next(client.sample_batches("table", 2))]:
            with pytest.raises(RuntimeError, match="could not be reached for"):
                run_for_a_while(call)


def run_for_a_while(call):
    """Raises what call() raises, or TimeoutError if it hangs."""
    errors = [TimeoutError("the call has not ended")]

    def run():
        try:
            call()
        except Exception as error:  # noqa: BLE001  # passed on
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    raise errors[-1]


def test_reachable_servers_are_used_when_one_is_lost(serve):
    server = serve(make_table())
    one = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)
    keys = fill(one)
    lost = f"localhost:{free_port()}"
    both = reverb.Client([lost, one.server_address], in_process=False, local=False)
    both.mutate_priorities("table", {keys[0]: 7.0}, [keys[1]], timeout=60)
    assert {item.info.key: item.info.priority for item in one.peek("table", 3)} == {keys[0]: 7.0, keys[2]: 1.0}
    with pytest.raises(reverb.DeadlineExceededError, match=lost):
        both.reset("table", timeout=3)
    assert one.server_info()["table"].current_size == 0


# --- Samples ---


def test_samples_that_may_be_lost_are_logged(proxy, client, caplog):
    samples = client.sample("queue", 10, exact=True, timeout=60)
    received = []
    reader = threading.Thread(target=lambda: received.append(next(samples)), daemon=True)
    with caplog.at_level(logging.WARNING, logger="reverb"):
        reader.start()
        other = reverb.Client(proxy.address, in_process=False, local=False)
        while other.server_info(30)["queue"].waiting_samples == 0:
            pass
        proxy.break_all()
        other.insert([np.int64(1)], {"queue": 1.0}, timeout=30)
        if not received:  # the item may have been drawn for the connection that broke
            other.insert([np.int64(2)], {"queue": 1.0}, timeout=30)
        join(reader)
    lines = [record.getMessage() for record in caplog.records]
    assert any('samples of table "queue" that were requested and not received: 1.' in line for line in lines)
