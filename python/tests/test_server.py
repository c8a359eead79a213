"""Tests servers: start, service, end."""

import gc
import socket
import threading
import time
import weakref

from conftest import make_table
import pytest

import reverb
from reverb import pybind


def test_takes_any_free_port(serve):
    first, second = serve(make_table()), serve(make_table())
    assert 0 < first.port < 65536
    assert first.port != second.port


def test_listens_on_all_interfaces(serve):
    server = serve(make_table())
    for host in ("127.0.0.1", "127.0.0.2", "localhost"):
        with socket.create_connection((host, server.port), timeout=5) as connection:
            assert connection.getpeername()[1] == server.port


def test_listens_on_the_given_address():
    with reverb.Server([make_table()], host="127.0.0.1") as server:
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):  # another address of this machine
            socket.create_connection(("127.0.0.2", server.port), timeout=5)


def test_a_given_port():
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with reverb.Server(tables=[make_table()], port=port, checkpointer=None) as server:
        assert server.port == port
        with pytest.raises(ValueError, match="Failed to BuildAndStart gRPC server"):
            reverb.Server([make_table()], port=port)


@pytest.mark.parametrize("tables", [None, [], ()])
def test_needs_tables(tables):
    with pytest.raises(ValueError, match="table"):
        reverb.Server(tables)


@pytest.mark.parametrize("tables", [make_table(), {"table": make_table()}, ["table"], 3])
def test_tables_of_a_wrong_type(tables):
    with pytest.raises(TypeError, match=r"tables must be a sequence of reverb\.Table or reverb\.RowTable, such as \[table\], got"):
        reverb.Server(tables)


def test_names_are_unique():
    with pytest.raises(ValueError, match="twice"):
        reverb.Server([make_table("twice"), make_table("twice"), make_table("once")])


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_ports_that_do_not_exist(port):
    with pytest.raises(ValueError, match=str(port)):
        reverb.Server([make_table()], port=port)


def test_a_table_belongs_to_one_server(serve):
    table = make_table()
    serve(table)
    with pytest.raises(ValueError, match="another server"):
        reverb.Server([table])
    serve(table.replace())


def test_tables_show_what_is_in_the_server(serve, connect):
    table = make_table()
    server = serve(table)
    assert server.tables == (table,)
    client = connect(server)
    client.insert(1, {"table": 1.0})
    assert table.info.current_size == 1
    assert table.info.rate_limiter_info.insert_stats.completed == 1
    assert table.can_sample(1)
    next(client.sample("table"))
    assert table.info.rate_limiter_info.sample_stats.completed == 1


def test_stop_is_idempotent_and_leaves_tables_readable(serve):
    table = make_table()
    server = serve(table)
    server.localhost_client().insert(1, {"table": 1.0})
    server.stop()
    server.stop()
    assert table.info.current_size == 1
    assert table.can_sample(1) in (True, False)


def test_is_free_again_after_stop(serve):
    server = serve(make_table())
    server.stop()
    with reverb.Server([make_table()], port=server.port) as second:
        assert second.port == server.port


def test_wait_returns_when_another_thread_stops_it(serve):
    server = serve(make_table())
    threading.Timer(0.1, server.stop).start()
    start = time.monotonic()
    server.wait(timeout=60)
    assert time.monotonic() - start < 5
    server.wait(timeout=60)


def test_wait_with_a_timeout(serve):
    server = serve(make_table())
    with pytest.raises(reverb.DeadlineExceededError, match="still runs"):
        server.wait(timeout=0.05)


def test_is_destroyed_with_the_last_reference():
    server = reverb.Server([make_table()])
    port, alive = server.port, weakref.ref(server)
    del server
    gc.collect()
    assert alive() is None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_repr(serve):
    server = serve(reverb.Table.queue("q", 5))
    text = repr(server)
    assert text.startswith(f"Server(port={server.port}, reverb_service=ReverbServiceAsync(tables=[Table(")
    assert "checkpointer=" in text


def test_clients_at_hand(serve):
    server = serve(make_table())
    client = server.localhost_client()
    assert client.server_address == f"localhost:{server.port}"
    assert isinstance(server._server, pybind.Server)
    assert isinstance(client._client, pybind.Client)
