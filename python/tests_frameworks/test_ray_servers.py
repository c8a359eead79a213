"""Tests reverb.ray on a real Ray cluster of several nodes: servers and nodes that die, names, placement."""

from __future__ import annotations

import os
from pathlib import Path
import pickle
import re
import signal
import socket

from conditions import wait_until
import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import reverb
import reverb.ray

# Ray notices the death of a node after some of these checks.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "_system_config": HEALTH})
    made.connect()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def nodes(cluster):
    """Returns two nodes with the resource "place", and one server fits on each."""
    made = [cluster.add_node(num_cpus=1, resources={"place": 1}) for _ in range(2)]
    cluster.wait_for_nodes()
    yield made
    for node in made:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)


@pytest.fixture
def start(cluster):
    """start(name, ...) starts servers that are stopped after the test."""
    names = []

    def start(name, **options):
        made = reverb.ray.start(name, [make_table(), reverb.Table.queue("queue", 100)], **{"num_cpus": 0.1, **options})
        names.append(name)
        return made

    yield start
    for name in names:
        try:
            reverb.ray.stop(name, timeout=0)
        except ValueError:  # the test has stopped them
            continue


def make_table():
    return reverb.Table(
        "replay",
        reverb.selectors.Prioritized(0.6),
        reverb.selectors.Fifo(),
        1000,
        reverb.rate_limiters.MinSize(1),
        signature={"x": reverb.TensorSpec((), np.int64, "x")},
    )


def content(client):
    """Returns the values of all items of all servers."""
    found = []
    for address in client.server_address.split(","):
        one = reverb.Client(address)
        found += [int(item.data["x"][0]) for item in one.peek("replay", 1000, timeout=60)]
    return sorted(found)


def actors(name):
    return [
        ray.get_actor(actor["name"], namespace="reverb")
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["name"].startswith(f"{name}/")
    ]


def write(client, values):
    for value in values:
        client.insert({"x": np.int64(value)}, {"replay": 1.0}, timeout=60)


def takes(thief, port):
    """Returns whether the socket listens on the port, which the process that is ending may still have."""
    try:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("::", port))
    except OSError:
        return False
    thief.listen()
    return True


# --- Names and clients ---


def test_servers_are_found_by_their_name(start):
    servers = start("found", num_servers=2)
    assert servers == reverb.ray.Servers("found")
    assert len(set(servers.addresses())) == 2
    client = reverb.Client("ray://found")
    assert client.server_address.split(",") == servers.addresses()
    write(client, range(10))
    assert content(reverb.ray.client("found")) == list(range(10))
    batch = next(client.sample_batches("replay", 4, timeout=60))
    assert set(batch.data["x"].ravel().tolist()) <= set(range(10))


def test_tasks_and_actors_of_the_cluster_use_the_name(start):
    start("tasks")

    @ray.remote(num_cpus=0.1)
    def insert(client, value):  # runs where this module cannot be imported
        client.insert({"x": value}, {"replay": 1.0}, timeout=60)
        reverb.ray.client("tasks").insert({"x": value + 1}, {"replay": 1.0}, timeout=60)

    client = reverb.ray.client("tasks")
    ray.get([insert.remote(client, value) for value in (0, 10)])
    assert content(client) == [0, 1, 10, 11]


def test_a_client_in_a_pickle_looks_its_servers_up_again(start):
    start("pickled")
    data = pickle.dumps(reverb.ray.client("pickled", name="me"))
    assert b"ray://pickled" in data
    client = pickle.loads(data)
    write(client, [1])
    assert content(client) == [1]
    assert reverb.ray.refresh(client) is False


def test_what_is_wrong_with_a_name(cluster, start):
    with pytest.raises(ValueError, match=r'no servers of the name "absent" on this Ray cluster; start them with'):
        reverb.Client("ray://absent")
    with pytest.raises(ValueError, match=r"got '10.0.0.1:10001'; the address of a cluster belongs to ray.init"):
        reverb.Client("ray://10.0.0.1:10001")
    start("twice")
    with pytest.raises(ValueError, match=r'there are servers of the name "twice" already'):
        start("twice")
    with pytest.raises(ValueError, match="was not created with"):
        reverb.ray.refresh(reverb.Client("localhost:1"))
    with pytest.raises(TypeError, match=r"tables must be a sequence of reverb.Table"):
        reverb.ray.start("other", [])
    with pytest.raises(ValueError, match=r"num_servers \(0\) must be a positive integer"):
        reverb.ray.start("other", [make_table()], num_servers=0)


def test_servers_that_do_not_fit_are_an_error_and_leave_nothing(cluster):
    with pytest.raises(reverb.DeadlineExceededError, match=r"`ray status` shows whether resources are missing"):
        reverb.ray.start("large", [make_table()], num_cpus=1000, timeout=1)
    wait_until(lambda: not actors("large"), what="the end of the actor")


def test_stop_saves_and_the_next_servers_load(start, tmp_path):
    servers = start("again", num_servers=2, checkpoint_root=tmp_path)
    write(servers.client(), range(6))
    servers.stop()
    wait_until(lambda: not actors("again"), what="the end of the actors")
    client = start("again", num_servers=2, checkpoint_root=tmp_path).client()
    assert content(client) == list(range(6))


def test_the_program_of_the_documentation(cluster, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for text, other in {"ray.init()\n": "", "/shared/run42": str(tmp_path), "num_cpus=2": "num_cpus=0.1"}.items():
        assert text in code
        code = code.replace(text, other)
    names = {}
    exec(compile(code, "docs/deployment.md", "exec"), names)
    assert len(names["client"].server_address.split(",")) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"server-{index}" for index in range(4)]


# --- Crashes ---


@pytest.mark.parametrize("kill", ["process", "actor"])
def test_a_killed_server_returns_with_its_checkpoint_at_the_same_port(start, tmp_path, kill):
    servers = start(f"killed-{kill}", num_servers=2, checkpoint_root=tmp_path, checkpoint_interval=None)
    client = servers.client()
    write(client, range(10))
    before = servers.addresses()
    assert len(servers.checkpoint()) == 2
    write(client, [100, 101])  # one on each; that of the victim is lost
    victim = reverb.ray._actors(servers.name)[0]  # in the order of describe()
    pid = servers.describe()[0]["pid"]
    if kill == "process":
        os.kill(pid, signal.SIGKILL)
    else:
        ray.kill(victim, no_restart=False)
    wait_until(lambda: servers.describe()[0]["pid"] != pid, what="another process")
    assert servers.addresses() == before
    after = content(client)
    assert set(range(10)) <= set(after)
    assert len(after) == 11
    # The client from before goes on: it finds the new process at the old port.
    write(client, [200, 201])
    assert {200, 201} <= set(content(client))
    assert next(client.sample_batches("replay", 4, timeout=60)).data["x"].shape == (4, 1)


def test_a_writer_outlives_the_death_of_its_server(start, tmp_path):
    servers = start("writer", checkpoint_root=tmp_path, checkpoint_interval=None)
    client = servers.client()
    (before,) = servers.describe()
    with client.trajectory_writer(1) as writer:
        for value in range(20):
            writer.append({"x": np.int64(value)})
            writer.create_item("replay", 1.0, {"x": writer.history["x"][-1]})
            if value == 9:
                writer.flush(timeout_ms=60_000)
                servers.checkpoint()
                os.kill(before["pid"], signal.SIGKILL)
        writer.flush(timeout_ms=60_000)
    assert sorted(int(item.data["x"]) for item in client.peek("replay", 100)) == list(range(20))


def test_a_server_moves_when_its_node_dies(cluster, nodes, start, tmp_path):
    servers = start(
        "moves", checkpoint_root=tmp_path, checkpoint_interval=None, num_cpus=1, resources={"place": 1}
    )
    client = servers.client()
    write(client, range(5))
    servers.checkpoint()
    (before,) = servers.describe()
    victim, other = nodes if nodes[0].node_id == before["node_id"] else reversed(nodes)
    cluster.remove_node(victim, allow_graceful=False)
    # Ray ends the processes of the node a little later than the node.
    wait_until(lambda: servers.describe(timeout=120)[0]["pid"] != before["pid"], timeout=120, what="another process")
    assert servers.describe()[0]["node_id"] == other.node_id
    moved = servers.client()
    assert content(moved) == list(range(5))
    write(moved, [5])
    assert content(moved) == list(range(6))


def test_a_server_whose_port_is_taken_uses_another_and_announces_it(start, tmp_path):
    servers = start("ports", checkpoint_root=tmp_path, checkpoint_interval=None)
    (before,) = servers.addresses()
    client = servers.client()
    write(client, [1])
    servers.checkpoint()
    pid = servers.describe()[0]["pid"]
    with socket.socket(socket.AF_INET6) as thief:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: takes(thief, int(before.rpartition(":")[2])), what="a free port")
        wait_until(lambda: servers.describe()[0]["pid"] != pid, what="another process")
        (after,) = servers.addresses()
        assert after != before
        moved = reverb.Client("ray://ports")
        assert moved.server_address == after
        assert content(moved) == [1]
        assert reverb.ray.refresh(client)
        assert [int(item.data["x"][0]) for item in client.peek("replay", 10, timeout=60)] == [1]
        assert not reverb.ray.refresh(client)
