"""Connections that break at any byte, vanish, or are slow; servers that stop for a while."""

from concurrent.futures import ThreadPoolExecutor
import contextlib
import threading

from conftest import IS_LONG, connect
import episodes
import numpy as np
from proxy import TO_CLIENT, TO_SERVER
import pytest

import reverb


class Source:
    """A writer of numbered items."""

    def __init__(self, client, writer=1):
        self._out = client.trajectory_writer(episodes.ROWS, validate_items=False)
        self._writer = writer
        self._number = 0
        self._append()

    def write(self, count, table="log"):
        for _ in range(count):
            self._append()
            self._out.create_item(
                table, 1.0, {name: self._out.history[name][-episodes.ROWS :] for name in ("bytes", "place")}
            )

    def flush(self, timeout=60.0):
        self._out.flush(timeout_ms=int(1000 * timeout))

    def close(self):
        self.flush()
        self._out.close()

    def _append(self):
        self._out.append(episodes.step(self._writer, self._number))
        self._number += 1


def content(server, table="log"):
    client = reverb.Client(server.address, in_process=False)
    return [episodes.check(sample.data) for sample in client.peek(table, 100_000, timeout=60)]


def numbers(count, writer=1):
    return [(writer, number) for number in range(1, count + 1)]


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_a_writer_whose_connection_breaks_at_any_byte_writes_each_item_once_and_in_order(server, make_proxy, direction):
    places = range(
        1, 12_000 if direction == TO_SERVER else 700, 97 if IS_LONG else 997 if direction == TO_SERVER else 61
    )

    def run(task):
        writer, place = task
        proxy = make_proxy(server)
        proxy.plan_connection(cut_after={direction: place})
        source = Source(connect(proxy), writer)
        source.write(5)
        source.flush()
        source.write(5)
        source.flush()
        source.close()
        return proxy.connections

    with ThreadPoolExecutor(4) as threads:
        connections = list(threads.map(run, enumerate(places, 1)))
    assert max(connections) > 1
    items = content(server)
    wanted = [item for writer in range(1, len(places) + 1) for item in numbers(10, writer)]
    assert sorted(items) == wanted
    for writer in range(1, len(places) + 1):  # an item that is sent again does not pass those before it
        assert [item for item in items if item[0] == writer] == numbers(10, writer)


def test_a_writer_in_a_black_hole_times_out_and_continues_when_it_ends(server, proxy):
    source = Source(connect(proxy))
    source.write(3)
    source.flush()
    proxy.set(black_hole=True)
    source.write(3)
    with pytest.raises(reverb.DeadlineExceededError):
        source.flush(timeout=0.3)
    proxy.heal()
    source.flush()
    source.write(1)
    source.close()
    assert sorted(content(server)) == numbers(7)


def test_a_sampler_in_a_black_hole_times_out_and_continues_when_it_ends(server, proxy):
    source = Source(reverb.Client(server.address, in_process=False))
    source.write(5, "queue")
    source.flush()
    samples = connect(proxy).sample("queue", 5, emit_timesteps=False, names=True, exact=True, timeout=0.3)
    received = []

    def receive(count):
        while len(received) < count:
            with contextlib.suppress(reverb.DeadlineExceededError):
                received.append(episodes.check(next(samples).data))

    receive(1)
    proxy.set(black_hole=True)
    with pytest.raises(reverb.DeadlineExceededError):
        next(samples)
    proxy.heal()
    receive(5)
    assert received == numbers(5)
    source.close()


CALLS = {
    "server_info": lambda client: client.server_info(timeout=0.3),
    "insert": lambda client: client.insert([np.int64(1)], {"queue": 1.0}, timeout=0.3),
    "sample": lambda client: next(client.sample("log", timeout=0.3)),
    "sample_batches": lambda client: next(client.sample_batches("log", 2, timeout=0.3)),
    "peek": lambda client: client.peek("log", timeout=0.3),
    "update_priorities": lambda client: client.update_priorities("log", [1], [1.0], timeout=0.3),
    "reset": lambda client: client.reset("log", timeout=0.3),
    "checkpoint": lambda client: client.checkpoint(timeout=0.3),
}


@pytest.mark.parametrize("is_warm", [False, True], ids=["new", "warm"])
@pytest.mark.parametrize("fault", ["black hole", "stopped"])
def test_every_call_with_a_timeout_returns_when_nothing_answers(server, proxy, fault, is_warm):
    clients = {name: connect(proxy) for name in CALLS}
    if is_warm:
        for client in clients.values():
            client.server_info(timeout=60)
    if fault == "stopped":
        server.pause()
    else:
        proxy.set(black_hole=True)
    try:
        with ThreadPoolExecutor(len(CALLS)) as threads:
            ends = {name: threads.submit(call, clients[name]) for name, call in CALLS.items()}
            for name, end in ends.items():
                assert isinstance(end.exception(timeout=60), reverb.DeadlineExceededError), name
    finally:
        server.resume()
        proxy.heal()
    for client in clients.values():
        assert set(client.server_info(timeout=60)) == {"log", "queue"}


@pytest.mark.parametrize("faults", [{"delay": 0.02}, {"bytes_per_second": 200_000}], ids=["delay", "throttle"])
def test_a_slow_network_changes_nothing_but_the_time(server, proxy, faults):
    proxy.set(**faults)
    client = connect(proxy)
    source = Source(client)
    source.write(20, "queue")
    source.close()
    samples = client.sample("queue", 20, emit_timesteps=False, names=True, timeout=60)
    assert [episodes.check(sample.data) for sample in samples] == numbers(20)


def test_a_server_that_stops_for_a_while_loses_and_doubles_nothing(server, proxy):
    ways = [connect(proxy), reverb.Client(f"localhost:{server.port}", in_process=False)]
    sources = [Source(client, writer) for writer, client in enumerate(ways)]
    for source in sources:
        source.write(10)
        source.flush()
    server.pause()
    for source in sources:
        source.write(10)
        with pytest.raises(reverb.DeadlineExceededError):
            source.flush(timeout=0.2)
    proxy.cut()  # the writer reconnects to a server that does not answer, and resends
    server.resume()
    for source in sources:
        source.close()
    assert sorted(content(server)) == numbers(20, 0) + numbers(20, 1)


def test_calls_without_a_timeout_return_after_a_server_was_killed_and_started_again(server, proxy):
    clients = [connect(proxy), reverb.Client(f"localhost:{server.port}", in_process=False)]
    results = []
    waiting = []
    for client in clients:
        for call in (
            lambda client=client: next(client.sample("log")),
            lambda client=client: next(client.sample("queue")),
        ):
            thread = threading.Thread(target=lambda call=call: results.append(call()), daemon=True)
            thread.start()
            waiting.append(thread)
    observer = reverb.Client(server.address, in_process=False, local=False)
    while len(observer.server_info(timeout=60).waiters) < len(waiting):
        assert server.process.poll() is None
    server.kill()
    server.start()
    server.await_ready()
    source = Source(observer)
    source.write(2, "queue")
    source.write(1)
    source.close()
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()
    assert len(results) == len(waiting)
