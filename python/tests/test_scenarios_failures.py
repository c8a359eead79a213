"""Scenarios: killed processes: servers whose writers and readers continue with the next one, and actors."""

import os
import signal
import threading
import time

from conditions import wait_for_waiters, wait_until
from conftest import join, make_table
import numpy as np
from processes import free_port, pool
import pytest

import reverb


@pytest.fixture(autouse=True, params=["local", "grpc"])
def transport(request, monkeypatch):
    """All processes of a test use this transport: they inherit the variable."""
    monkeypatch.setenv("REVERB_LOCAL", "1" if request.param == "local" else "0")


def serve_forever(results, stop, port):
    server = reverb.Server([make_table("table", max_size=100_000), reverb.Table.queue("queue", 5)], port=port)
    results.put("up")
    server.wait()


def write_for_ever(results, stop, client, number):
    writer = client.trajectory_writer(4)
    i = 0
    while True:
        writer.append({"who": np.int32(number), "i": i, "data": np.full(1000, i % 256, np.uint8)})
        if writer.episode_steps >= 4:
            writer.create_item("table", 1.0, {name: column[-4:] for name, column in writer.history.items()})
        writer.flush(3)
        i += 1
        if i == 200:
            results.put(number)


@pytest.fixture
def processes():
    with pool(grace=0.0) as made:
        yield made


def kill(process):
    time.sleep(0.05)  # the release of the lock of its results queue cannot be observed
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)


def test_a_writer_continues_with_the_next_server(processes):
    port = free_port()
    first = processes.start(serve_forever, port)
    assert processes.take(1) == ["up"]
    client = reverb.Client(f"localhost:{port}")
    writer = client.trajectory_writer(4, timeout=30)

    def write(i):
        writer.append({"i": np.int64(i), "data": np.full(100, i % 256, np.uint8)})
        if writer.episode_steps >= 4:
            writer.create_item("table", 1.0, {name: column[-4:] for name, column in writer.history.items()})

    for i in range(20):
        write(i)
    writer.flush(timeout_ms=30_000)
    assert client.server_info(30)["table"].current_size == 17

    kill(first)
    # Unconfirmed items are not lost: they wait for a server.
    for i in range(20, 40):
        write(i)
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(timeout_ms=200)
    processes.start(serve_forever, port)
    assert processes.take(1) == ["up"]
    writer.flush(timeout_ms=60_000)
    for i in range(40, 50):
        write(i)
    writer.end_episode(timeout_ms=30_000)

    # Items of the second server, each once; items that reach back have their data.
    items = client.peek("table", 1000, timeout=30)
    last = sorted(int(item.data["i"][-1]) for item in items)
    assert last == list(range(20, 50))
    for item in items:
        data, i = item.data.values()
        assert np.diff(i).tolist() == [1, 1, 1]
        assert (data == (i % 256)[:, None]).all()
    writer.close()


def test_a_reader_continues_with_the_next_server(processes):
    port = free_port()
    first = processes.start(serve_forever, port)
    assert processes.take(1) == ["up"]
    client = reverb.Client(f"localhost:{port}")
    client.insert(1, {"table": 1.0}, timeout=30)
    samples = client.sample("table", 100_000, timeout=60)
    for _ in range(10):
        assert next(samples)[0].data == [1]
    kill(first)
    processes.start(serve_forever, port)
    assert processes.take(1) == ["up"]
    other = reverb.Client(f"localhost:{port}")
    other.insert(2, {"table": 1.0}, timeout=60)
    deadline = time.monotonic() + 60
    while next(samples)[0].data != [2]:  # prefetched samples come first
        assert time.monotonic() < deadline


def test_actors_that_are_killed_leave_the_table_in_order(serve, processes):
    server = serve(make_table("table", max_size=1_000_000), reverb.Table.queue("queue", 5))
    client = reverb.Client(f"localhost:{server.port}", in_process=False)
    actors = [processes.start(write_for_ever, client, number) for number in range(3)]
    assert sorted(processes.take(3)) == [0, 1, 2]
    for actor in actors[:2]:
        kill(actor)
    before = client.server_info(30)["table"].current_size
    assert before >= 2 * (197 - 3)
    wait_until(
        lambda: client.server_info(30)["table"].current_size >= before + 100, timeout=30, what="progress of the third"
    )
    kill(actors[2])
    seen = {}
    for item in client.peek("table", 1_000_000, timeout=60):
        data, i, who = item.data.values()
        assert np.diff(i).tolist() == [1, 1, 1]
        assert (data == (i % 256)[:, None]).all()
        assert len(set(who.tolist())) == 1
        seen.setdefault(int(who[0]), []).append(int(i[0]))
    for numbers in seen.values():  # none is missing, none is duplicated
        assert sorted(numbers) == list(range(len(numbers)))


def blocked_insert(results, stop, client):
    results.put("inserting")
    client.insert(10, {"queue": 1.0})


def blocked_sample(results, stop, client):
    results.put("sampling")
    next(client.sample("queue", 5))


@pytest.mark.parametrize("victim", [blocked_insert, blocked_sample], ids=["insert", "sample"])
def test_a_process_killed_while_it_waits_blocks_no_other(serve, processes, victim):
    server = serve(reverb.Table.queue("queue", 2))
    client = reverb.Client(f"localhost:{server.port}", in_process=False)
    if victim is blocked_insert:
        for i in range(2):
            client.insert(i, {"queue": 1.0})
    process = processes.start(victim, client)
    processes.take(1)
    wait_for_waiters(client, 1)
    kill(process)
    if victim is blocked_sample:  # an insert remains with its session
        wait_for_waiters(client, 0)
    received = []

    def read():
        for steps in client.sample("queue", 4, timeout=30):
            received.append(steps[0].data[0].ravel()[0])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    written = 2 if victim is blocked_insert else 0
    for i in range(written, 4):
        client.insert(i, {"queue": 1.0}, timeout=30)
    join(reader)
    # The waiting insert may have been applied too; then there is one more item.
    assert len(received) == 4
    assert received[:2] == [0, 1]


def test_a_client_in_a_process_that_ends_at_once_has_written_what_it_confirmed(serve, processes):
    server = serve(make_table("table"))
    client = reverb.Client(f"localhost:{server.port}", in_process=False)
    process = processes.start(insert_and_exit, client)
    process.join(30)
    assert process.exitcode == 7
    assert client.server_info()["table"].current_size == 10


def insert_and_exit(results, stop, client):
    for i in range(10):
        client.insert(i, {"table": 1.0})
    os._exit(7)
