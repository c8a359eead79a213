"""What a server that is killed keeps, what clients that are killed take with them, and what is logged about it."""

import logging
import subprocess
import sys

import episodes
import numpy as np
import pytest

import reverb

TABLES = ("log:fifo:fifo:100000", "queue:queue:1000")


@pytest.fixture
def server(start_server):
    return start_server(*TABLES)


@pytest.fixture(params=["local", "grpc"])
def client(server, request):
    return reverb.Client(f"localhost:{server.port}", in_process=False, local=request.param == "local")


def write(out, numbers, table="log"):
    for number in numbers:
        out.append(episodes.step(1, number))
        if number > 0:
            item = {name: out.history[name][-episodes.ROWS :] for name in ("bytes", "place")}
            out.create_item(table, 1.0, item)
    out.flush(timeout_ms=60_000)


def restart(server):
    server.kill()
    server.start()
    server.await_ready()


def numbers(client, table="log"):
    return [episodes.check(sample.data)[1] for sample in client.peek(table, 100_000, timeout=60)]


def test_a_server_that_returns_has_its_checkpoint_and_writers_log_what_it_lost(server, client, caplog):
    out = client.trajectory_writer(episodes.ROWS)
    write(out, range(11))
    client.checkpoint(timeout=60)
    write(out, range(11, 16))
    restart(server)
    with caplog.at_level(logging.WARNING, logger="reverb"):
        write(out, range(16, 21))
    out.close()
    assert numbers(client) == [*range(1, 11), *range(16, 21)]
    assert any("of the items that it had confirmed, 5 are not in what it restored" in text for text in caplog.messages)


def test_a_server_that_returns_has_the_priorities_of_its_checkpoint(server, client):
    client.insert([np.int64(1)], {"log": 1.0}, timeout=60)
    (item,) = client.peek("log", timeout=60)
    client.update_priorities("log", [item.info.key], [2.0], timeout=60)
    client.checkpoint(timeout=60)
    client.update_priorities("log", [item.info.key], [3.0], timeout=60)
    restart(server)
    (item,) = client.peek("log", timeout=60)
    assert item.info.priority == 2.0
    client.update_priorities("log", [item.info.key], [4.0], timeout=60)
    assert client.peek("log", timeout=60)[0].info.priority == 4.0


def test_a_queue_that_returns_repeats_what_was_sampled_after_its_checkpoint(server, client):
    out = client.trajectory_writer(episodes.ROWS)
    write(out, range(7), "queue")

    def take(count):
        samples = client.sample("queue", count, emit_timesteps=False, names=True, exact=True, timeout=60)
        return [episodes.check(sample.data)[1] for sample in samples]

    assert take(2) == [1, 2]
    client.checkpoint(timeout=60)
    assert take(2) == [3, 4]
    restart(server)
    write(out, [7], "queue")
    assert take(5) == [3, 4, 5, 6, 7]
    out.close()


CONSUMER = """
import sys
import reverb
samples = reverb.Client(sys.argv[1], local=sys.argv[2] == "local").sample("queue", 100, exact=True, names=True)
print(int(next(samples)[0].data["place"][1]), flush=True)
sys.stdin.read()  # until it is killed
"""


def test_a_consumer_that_dies_takes_only_what_it_requested(server, client):
    out = client.trajectory_writer(episodes.ROWS)
    write(out, range(21), "queue")
    transport = "local" if client.transports(timeout=60) == ["local"] else "grpc"
    command = [sys.executable, "-c", CONSUMER, f"localhost:{server.port}", transport]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as consumer:
        first = int(consumer.stdout.readline())
        consumer.kill()
    samples = client.sample("queue", 19, emit_timesteps=False, names=True, exact=True, timeout=60)
    rest = [episodes.check(next(samples).data)[1] for _ in range(19)]
    # Without a lease, what was received is gone with the consumer. Nothing else is, and the order holds.
    assert first == 0
    assert rest == list(range(2, 21))
    out.close()
