"""Tests the choice of the transport: which clients use the local endpoint of a server, and which use gRPC."""

import os
from pathlib import Path
import signal
import socket
import stat
import subprocess
import sys

from conditions import wait_until
from conftest import make_table
import interpreters
import numpy as np
import processes
import pytest
import transports

import reverb

SECONDS = 30


def transport_of(client):
    (transport,) = client.transports(timeout=SECONDS)
    return transport


def another(address, **options):
    return reverb.Client(address, in_process=False, **options)


# --- Which one ---


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", socket.gethostname()])
def test_a_server_on_this_host_is_found(serve, host):
    server = serve(make_table())
    client = another(f"{host}:{server.port}")
    assert transport_of(client) == "local"
    client.insert(1, {"table": 1.0}, timeout=SECONDS)
    assert server.tables[0].info.current_size == 1


def test_a_server_in_this_process_is_used_directly(serve):
    client = serve(make_table()).localhost_client()
    assert transport_of(client) == "in-process"


def test_it_can_be_turned_off(serve, monkeypatch):
    server = serve(make_table())
    address = f"localhost:{server.port}"
    assert transport_of(another(address, local=False)) == "gRPC"
    monkeypatch.setenv("REVERB_LOCAL", "0")
    assert transport_of(another(address)) == "gRPC"
    with reverb.Server([make_table()]) as silent:
        assert silent.local_path is None
        monkeypatch.delenv("REVERB_LOCAL")
        assert transport_of(another(f"localhost:{silent.port}")) == "gRPC"
    with reverb.Server([make_table()], local=False) as silent:
        assert silent.local_path is None
        assert transport_of(another(f"localhost:{silent.port}")) == "gRPC"
    assert transport_of(another(address)) == "local"


def test_only_this_user_can_reach_the_socket(serve):
    server = serve(make_table())
    path = Path(server.local_path)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.parent.stat().st_uid == os.geteuid()
    assert server.localhost_client().server_info().local_path == str(path)
    server.stop()
    assert not path.exists()


def test_several_servers_have_a_transport_each(serve):
    servers = [serve(make_table()), reverb.Server([make_table()], local=False)]
    both = reverb.Client([f"localhost:{server.port}" for server in servers], in_process=False)
    assert both.transports(timeout=SECONDS) == ["local", "gRPC"]
    for _ in range(4):
        both.insert(1, {"table": 1.0}, timeout=SECONDS)
    assert [server.tables[0].info.current_size for server in servers] == [2, 2]
    assert len(list(both.sample("table", 6, timeout=SECONDS))) == 6
    servers[1].stop()


# --- Addresses of sockets ---


def test_a_path(tmp_path):
    path = tmp_path / "replay.sock"
    with reverb.Server([make_table()], local_path=path) as server:
        assert server.local_path == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        client = another(f"unix:{path}")
        assert transport_of(client) == "local"
        client.insert(1, {"table": 1.0}, timeout=SECONDS)
        assert [int(step.data[0]) for step in next(client.sample("table", timeout=SECONDS))] == [1]
        # By its port, it is a server like any other without a local endpoint.
        assert transport_of(another(f"localhost:{server.port}")) == "gRPC"
    assert not path.exists()
    with pytest.raises(reverb.DeadlineExceededError):
        client.server_info(timeout=0.3)


def test_any_user(tmp_path):
    with reverb.Server([make_table()], local="any user", local_path=tmp_path / "replay.sock") as server:
        assert stat.S_IMODE(Path(server.local_path).stat().st_mode) == 0o666
        assert transport_of(another(f"unix:{server.local_path}")) == "local"


def test_a_path_that_another_server_uses(tmp_path):
    path = tmp_path / "replay.sock"
    with reverb.Server([make_table()], local_path=path):
        with pytest.raises(ValueError, match="another server listens on"):
            reverb.Server([make_table()], local_path=path)
        assert transport_of(another(f"unix:{path}")) == "local"


def test_wrong_arguments(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="needs a socket that other users can reach"):
        reverb.Server([make_table()], local="any user")
    with pytest.raises(ValueError, match="local access is off"):
        reverb.Server([make_table()], local=False, local_path=tmp_path / "x.sock")
    with pytest.raises(ValueError, match="local must be True, False or \"any user\", got 'everyone'"):
        reverb.Server([make_table()], local="everyone")
    with pytest.raises((ValueError, RuntimeError), match="no-such-folder"):
        reverb.Server([make_table()], local_path=tmp_path / "no-such-folder" / "x.sock")
    with pytest.raises(ValueError, match="has no path"):
        reverb.Client("unix:")
    with pytest.raises(ValueError, match="local transport, which is off"):
        reverb.Client("unix:/tmp/x.sock", local=False)
    monkeypatch.setenv("REVERB_LOCAL", "0")
    with pytest.raises(ValueError, match="REVERB_LOCAL=0"):
        reverb.Client("unix:/tmp/x.sock")


# --- Servers that come and go ---


def test_a_client_follows_a_server_that_is_restarted():
    """With and without an endpoint, at the same port; the streams of a writer and of an iterator follow too."""
    port = processes.free_port()
    server = reverb.Server([make_table()], port)
    client = another(f"localhost:{port}")
    writer = client.trajectory_writer(1)
    samples = client.sample("table", 10**6)

    def use(value):
        writer.append({"x": np.full(100, value)})
        writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
        writer.flush(timeout_ms=SECONDS * 1000)
        client.insert({"x": np.full(100, value)}, {"table": 1.0}, timeout=SECONDS)
        wait_until(lambda: next(samples)[0].data[0][0] == value)

    for value, (local, expected) in enumerate([(True, "local"), (False, "gRPC"), (False, "gRPC"), (True, "local")]):
        if value > 0:
            server.stop()
            server = reverb.Server([make_table()], port, local=local)
        use(value)
        assert transport_of(client) == expected
    server.stop()


def test_a_client_that_exists_before_its_server():
    port = processes.free_port()
    client = another(f"localhost:{port}")
    samples = client.sample("table", 2, timeout=SECONDS)
    with pytest.raises(reverb.DeadlineExceededError):
        client.server_info(timeout=0.2)
    with reverb.Server([make_table()], port) as server:
        server.localhost_client().insert(7, {"table": 1.0})
        assert int(next(samples)[0].data[0]) == 7
        assert transport_of(client) == "local"


def test_a_server_that_lost_its_socket_file(serve):
    server = serve(make_table())
    client = another(f"localhost:{server.port}")
    client.insert(1, {"table": 1.0}, timeout=SECONDS)
    os.unlink(server.local_path)
    client.insert(2, {"table": 1.0}, timeout=SECONDS)
    assert transport_of(client) in ("local", "gRPC")
    late = another(f"localhost:{server.port}")
    assert transport_of(late) == "gRPC"
    late.insert(3, {"table": 1.0}, timeout=SECONDS)
    assert server.tables[0].info.current_size == 3


def test_two_servers_at_one_port():
    """On different addresses of the host: the socket belongs to one of them, which refuses clients of the other."""
    with (
        reverb.Server([make_table()], host="127.0.0.1") as first,
        reverb.Server([make_table()], first.port, host="[::1]") as second,
    ):
        assert second.local_path is None
        clients = [another(f"{host}:{first.port}") for host in ("127.0.0.1", "[::1]")]
        assert [transport_of(client) for client in clients] == ["local", "gRPC"]
        for client in clients:
            with client.trajectory_writer(1) as writer:
                writer.append(1)
                writer.create_item("table", 1.0, writer.history[-1:])
            client.insert(1, {"table": 1.0}, timeout=SECONDS)
        assert [server.tables[0].info.current_size for server in (first, second)] == [2, 2]


def start_server(port, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys, reverb; from conftest import make_table\n"
         f"server = reverb.Server([make_table()], {port}{''.join(f', {each}' for each in arguments)})\n"
         "print('ready', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=interpreters.environment(),
    )  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(SECONDS)
    process.stdin.close()
    process.stdout.close()


def test_a_killed_server_leaves_its_socket_behind():
    """A server without an endpoint at the same port is used over gRPC, the next one with an endpoint locally."""
    port = processes.free_port()
    client = another(f"localhost:{port}")
    for arguments, expected in [((), "local"), (("local=False",), "gRPC"), ((), "local")]:
        process = start_server(port, *arguments)
        try:
            client.insert(1, {"table": 1.0}, timeout=SECONDS)
            assert transport_of(client) == expected
            assert client.server_info(timeout=SECONDS)["table"].current_size == 1
        finally:
            kill(process)


def test_clients_that_are_killed_leave_nothing_behind(serve):
    server = serve(make_table(max_size=10))
    code = f"""
client = reverb.Client("localhost:{server.port}")
writer = client.trajectory_writer(1)
samples = client.sample("table", 100_000, emit_timesteps=False)
kept = []
while True:
    writer.append({{"x": np.ones(100_000)}})
    writer.create_item("table", 1.0, {{"x": writer.history["x"][-1:]}})
    writer.flush()
    kept.append(next(samples))
    if len(kept) == 20: print("ready", flush=True)
"""
    for _ in range(3):
        process = interpreters.start(code)
        assert interpreters.line(process) == "ready"
        kill_and_close(process)
    local = another(f"localhost:{server.port}")
    local.reset("table", timeout=SECONDS)
    wait_until(lambda: local.server_info(timeout=SECONDS).live_bytes == 0)


def kill_and_close(process):
    process.kill()
    process.wait(SECONDS)
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("transport", transports.ALL)
def test_large_and_small_values_are_the_same_over_each_transport(serve, transport):
    server = serve(reverb.Table.queue("queue", 1000, layout="any"))
    client = transports.connect(server, transport)
    rng = np.random.default_rng(0)
    values = [rng.integers(0, 256, size, np.uint8) for size in (0, 1, 127, 128, 129, 4096, 70_001, 3_000_000)]
    for value in values:
        client.insert({"x": value, "y": np.zeros(1000)}, {"queue": 1.0}, timeout=SECONDS)
    for value, sample in zip(values, client.sample("queue", len(values), emit_timesteps=False), strict=True):
        np.testing.assert_array_equal(sample.data[0][0], value)
        assert not sample.data[1].any()
