"""Tests the proxy with a server that returns what it receives."""

import socket
import socketserver
import threading

from proxy import TO_CLIENT, TO_SERVER, Flip, Proxy
import pytest


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@pytest.fixture
def proxy():
    with Server(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        with Proxy(server.server_address[1]) as made:
            yield made
        server.shutdown()
        thread.join(60)


@pytest.fixture
def connect(proxy):
    made = []

    def connect():
        made.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))
        return made[-1]

    yield connect
    for end in made:
        end.close()


def exchange(end, data):
    end.sendall(data)
    return receive(end, len(data))


def receive(end, count):
    received = b""
    while len(received) < count and (part := end.recv(65536)):
        received += part
    return received


def test_bytes_are_forwarded(proxy, connect):
    data = bytes(range(256)) * 2000
    one, other = connect(), connect()
    assert exchange(one, data) == data
    assert exchange(other, data[:10]) == data[:10]
    assert proxy.connections == 2
    assert proxy.forwarded == {TO_SERVER: len(data) + 10, TO_CLIENT: len(data) + 10}
    assert proxy.flipped == 0


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_cut_ends_connections_and_allows_new_ones(proxy, connect, reset):
    end = connect()
    assert exchange(end, b"a") == b"a"
    assert proxy.cut(reset=reset) == 1
    try:
        assert end.recv(1) == b""
    except ConnectionResetError:
        assert reset
    assert exchange(connect(), b"b") == b"b"


def test_a_connection_is_cut_after_so_many_bytes(proxy, connect):
    proxy.plan_connection(cut_after={TO_CLIENT: 5})
    end = connect()
    end.sendall(b"0123456789")
    assert receive(end, 10) == b"01234"
    assert exchange(connect(), b"0123456789") == b"0123456789"


def test_chosen_bits_are_flipped(proxy, connect):
    proxy.plan_connection(flips=[Flip(TO_SERVER, 1, 0), Flip(TO_CLIENT, 2, 7), Flip(TO_CLIENT, 11, 1)])
    end = connect()
    assert exchange(end, bytes(4)) == bytes([0, 1, 128, 0])
    assert exchange(end, bytes(8)) == bytes([0] * 7 + [2])
    assert proxy.flipped == 3


def test_bits_are_flipped_with_a_probability(proxy, connect):
    proxy.set(flip_probability=0.01)
    data = bytes(100_000)
    received = exchange(connect(), data)
    flipped = sum(byte.bit_count() for byte in received)
    assert 1000 < flipped < 3000  # 2,000 in both directions
    proxy.heal()
    assert exchange(connect(), data) == data


def test_a_black_hole_holds_bytes_back(proxy, connect):
    end = connect()
    assert exchange(end, b"a") == b"a"
    proxy.set(black_hole=True)
    new = connect()
    for each in (end, new):
        each.sendall(b"b")
        each.settimeout(0.1)
        with pytest.raises(TimeoutError):
            each.recv(1)
        each.settimeout(60)
    proxy.heal()
    assert end.recv(1) == b"b"
    assert new.recv(1) == b"b"


def test_delayed_and_throttled_bytes_arrive(proxy, connect):
    proxy.set(delay=0.01, bytes_per_second=50_000)
    data = bytes(range(250)) * 20
    assert exchange(connect(), data) == data


def test_connections_are_refused(proxy, connect):
    proxy.set(refuse=True)
    try:
        assert connect().recv(1) == b""
    except ConnectionResetError:
        assert proxy.connections == 1
    proxy.heal()
    assert exchange(connect(), b"a") == b"a"


def test_new_connections_go_to_another_server(proxy, connect):
    with socket.create_server(("127.0.0.1", 0)) as other:
        end = connect()
        assert exchange(end, b"a") == b"a"
        proxy.retarget(other.getsockname()[1])
        new = connect()
        accepted, _ = other.accept()
        with accepted:
            new.sendall(b"b")
            assert accepted.recv(1) == b"b"
        assert exchange(end, b"c") == b"c"
