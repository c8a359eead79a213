"""Tests a client of several server processes: shares of samples, killed servers, writers that move, registration."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys

import conditions
import numpy as np
import processes
import pytest

import reverb

_SERVER = """
import sys, reverb
port, register, checkpoint = int(sys.argv[1]), sys.argv[2] or None, sys.argv[3] or None
table = reverb.Table("replay", reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo(), max_size=100000,
                     rate_limiter=reverb.rate_limiters.MinSize(1))
checkpointer = reverb.checkpointers.DefaultCheckpointer(checkpoint) if checkpoint else None
server = reverb.Server([table], port=port, checkpointer=checkpointer, register=register,
                       advertised_address=f"localhost:{port}")
print("ready", flush=True)
server.wait()
"""


class Process:
    """A server in a process of its own, which can be killed and started again at the same port."""

    def __init__(self, checkpoint="", register=""):
        self.port = processes.free_port()
        self.address = f"localhost:{self.port}"
        self._arguments = [str(self.port), register, checkpoint]
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *self._arguments], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "ready\n"

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def stop(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self._process.pid, signal.SIGCONT)


@pytest.fixture
def start():
    """start() starts a server process that ends with the test."""
    started = []

    def make(**arguments):
        started.append(Process(**arguments))
        return started[-1]

    yield make
    for process in started:
        if process._process.poll() is None:
            process.kill()


def fill(address, count, value, priority=1.0):
    with reverb.Client(address).trajectory_writer(1) as writer:
        for _ in range(count):
            writer.append([np.int64(value)])
            writer.create_item("replay", priority, writer.history[0][-1:])


def values_of(sample):
    return np.asarray(sample.data).ravel().tolist()


def count_values(batches, num_batches):
    seen = collections.Counter()
    for _ in range(num_batches):
        seen.update(values_of(next(batches)))
    return seen


def test_shares_of_servers_and_a_server_that_is_killed_and_returns(start, tmp_path):
    servers = [start(checkpoint=str(tmp_path / str(i))) for i in range(2)]
    fill(servers[0].address, 100, 0)
    fill(servers[1].address, 900, 1)
    client = reverb.Client([server.address for server in servers])
    for server in servers:
        reverb.Client(server.address).checkpoint()
    batches = client.sample_batches("replay", 100)
    # A server that takes long to answer first is left out until then.
    first = conditions.wait_until(
        lambda: batch if (batch := next(batches)).info.table_size[0] == 1000 else None, what="both servers have answered"
    )
    assert np.allclose(first.info.probability, 1 / 1000)
    seen = count_values(batches, 100)
    assert abs(seen[0] - 1000) < 180  # six standard deviations

    keys = first.info.key
    lost = [key for key, value in zip(keys, values_of(first), strict=True) if value == 1]
    servers[1].kill()
    conditions.wait_until(lambda: set(count_values(batches, 5)) == {0}, what="samples of the other server only")
    batch = next(batches)
    assert np.allclose(batch.info.probability, 1 / 100)
    assert (batch.info.table_size == 100).all()
    client.update_priorities("replay", keys, np.full(len(keys), 1.0))
    assert client.dropped_updates == len(lost)
    assert len(list(client.sample_batches("replay", 10, num_batches=20))) == 20

    servers[1].start()
    conditions.wait_until(lambda: set(count_values(batches, 5)) == {0, 1}, what="samples of the server that returned")
    conditions.wait_until(lambda: np.allclose(next(batches).info.probability, 1 / 1000))
    seen = count_values(batches, 100)
    assert abs(seen[0] - 1000) < 180

    def updates_arrive():
        before = client.dropped_updates
        client.update_priorities("replay", lost, np.full(len(lost), 3.0))
        return client.dropped_updates == before

    conditions.wait_until(updates_arrive, what="updates for the server that returned")
    priorities = {item.info.priority for item in reverb.Client(servers[1].address).peek("replay", 900)}
    assert priorities == {1.0, 3.0}, "the restored server has the keys of its shard"


def test_a_server_that_does_not_answer(start):
    servers = [start(), start()]
    for value, server in enumerate(servers):
        fill(server.address, 100, value)
    client = reverb.Client([server.address for server in servers])
    batches = client.sample_batches("replay", 50)
    assert set(count_values(batches, 5)) == {0, 1}
    servers[1].stop()
    try:
        conditions.wait_until(lambda: set(count_values(batches, 5)) == {0}, what="samples of the other server only")
        assert len(list(client.sample_batches("replay", 10, num_batches=20))) == 20
    finally:
        servers[1].resume()
    conditions.wait_until(lambda: set(count_values(batches, 5)) == {0, 1}, what="samples of both")


def test_a_writer_moves_when_its_server_is_lost(start, caplog):
    servers = [start(), start()]
    client = reverb.Client([server.address for server in servers], lost_server_timeout=1.0)
    writer = client.trajectory_writer(1)

    def write(values):
        for value in values:
            writer.append([np.int64(value)])
            writer.create_item("replay", 1.0, writer.history[0][-1:])

    write(range(10))
    writer.flush()
    infos = client.server_infos()
    (home,) = [server for server in servers if infos[server.address]["replay"].current_size == 10]
    (other,) = [server for server in servers if server is not home]
    home.kill()
    write(range(10, 30))
    writer.flush(timeout_ms=60_000)
    items = reverb.Client(other.address).peek("replay", 100)
    assert [values_of(item)[0] for item in items] == [*range(10, 30)], "in order"
    conditions.wait_until(
        lambda: any("its writer continues with the server at" in record.getMessage() for record in caplog.records)
    )
    # Single inserts and new writers use the server that is left.
    client.insert([np.int64(99)], {"replay": 1.0}, timeout=60)
    with client.trajectory_writer(1) as second:
        second.append([np.int64(100)])
        second.create_item("replay", 1.0, second.history[0][-1:])
    assert reverb.Client(other.address).server_info()["replay"].current_size == 22
    writer.close()


def test_servers_that_register_are_used_without_a_restart(start, tmp_path):
    folder = f"file://{tmp_path}/servers"
    client = reverb.Client(folder)
    with pytest.raises(reverb.errors.DeadlineExceededError, match="no server"):
        client.server_info(timeout=0.2)
    first = start(register=folder)
    fill(first.address, 50, 0)
    batches = client.sample_batches("replay", 20)
    assert set(count_values(batches, 2)) == {0}
    second = start(register=folder)
    fill(second.address, 50, 1)
    conditions.wait_until(lambda: set(count_values(batches, 5)) == {0, 1}, what="samples of the server that joined")
    assert client.num_servers == 2
    assert client.server_info()["replay"].current_size == 100
    assert len([name for name in os.listdir(tmp_path / "servers") if name.endswith(".server")]) == 2


def test_a_server_that_stops_leaves_the_folder(tmp_path):
    table = reverb.Table.queue("queue", 10)
    with reverb.Server([table], register=f"file://{tmp_path}", host="localhost") as server:
        (entry,) = os.listdir(tmp_path)
        text = (tmp_path / entry).read_text()
        assert f"address localhost:{server.port}\nshard {server.shard}\n" in text
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="file:///path"):
        reverb.Server([reverb.Table.queue("queue", 10)], register="somewhere")


def test_dns(start):
    server = start()
    fill(server.address, 3, 7)
    client = reverb.Client(f"dns:///localhost:{server.port}")
    assert client.num_servers == 1, "one, although the name may have addresses of both families"
    assert client.server_info(timeout=60)["replay"].current_size == 3
    assert [values_of(s)[0] for s in client.sample("replay", 2, emit_timesteps=False)] == [7, 7]
