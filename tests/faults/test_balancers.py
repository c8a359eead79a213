"""Writers and samplers through HAProxy and nginx, whose servers join, leave, are killed and stall."""

import collections
import contextlib
import threading
import time

from balancers import HaProxy, Nginx
import episodes
import pytest

import reverb

TABLES = ("log:uniform:fifo:1000000",)
WRITERS = 6
FIRST_WRITER = 1000  # of the items that servers start with


@pytest.fixture
def servers(start_server):
    """Returns three servers, each of which has an item: a sampler that is connected to an empty one would wait."""
    made = [start_server(*TABLES, arguments=("--checkpoint-on-stop",)) for _ in range(3)]
    for index, server in enumerate(made):
        write_one(reverb.Client(server.address, in_process=False), FIRST_WRITER + index)
    return made


@pytest.fixture(params=[HaProxy, Nginx], ids=["haproxy", "nginx"])
def balance(request, tmp_path):
    """balance(servers) starts a balancer in front of three servers."""
    with contextlib.ExitStack() as stack:

        def start(servers):
            folder = tmp_path / "balancer"
            folder.mkdir()
            made = request.param(servers, folder)
            stack.callback(made.close)
            return made

        yield start


def write_one(client, writer, number=1):
    with client.trajectory_writer(episodes.ROWS, validate_items=False) as out:
        for step in (number - 1, number):
            out.append(episodes.step(writer, step))
        out.create_item("log", 1.0, {name: out.history[name][-episodes.ROWS :] for name in ("bytes", "place")})


class Load:
    """Writers and samplers in threads, each with a client of its own, and what they have seen."""

    def __init__(self, address):
        self._address = address
        self._is_over = threading.Event()
        self.confirmed = collections.defaultdict(list)  # by writer: numbers
        self.samples = dict.fromkeys(range(3), 0)  # by sampler: how many
        self.errors = []
        self._threads = [threading.Thread(target=self._run, args=(self._write, i), daemon=True) for i in range(WRITERS)]
        self._threads += [threading.Thread(target=self._run, args=(self._sample, i), daemon=True) for i in range(3)]
        for thread in self._threads:
            thread.start()

    def _run(self, work, index):
        try:
            work(reverb.Client(self._address, in_process=False, local=False), index)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, client, index):
        out = client.trajectory_writer(episodes.ROWS, validate_items=False)
        number = 0
        out.append(episodes.step(index, number))
        while not self._is_over.is_set():
            number += 1
            out.append(episodes.step(index, number))
            out.create_item("log", 1.0, {name: out.history[name][-episodes.ROWS :] for name in ("bytes", "place")})
            out.flush()
            self.confirmed[index].append(number)
            time.sleep(0.005)  # sets the rate of the load
        out.close()

    def _sample(self, client, index):
        samples = client.sample("log", 1_000_000, emit_timesteps=False, names=True)
        while not self._is_over.is_set():
            episodes.check(next(samples).data)
            self.samples[index] += 1
            time.sleep(0.005)  # sets the rate of the load
        samples.close()

    def progress(self):
        return {**{f"writer {i}": len(self.confirmed[i]) for i in range(WRITERS)}, **self.samples}

    def await_progress(self):
        """Waits until every writer and sampler has come further."""
        before = self.progress()
        deadline = time.monotonic() + 60
        while lacking := [name for name, count in self.progress().items() if count < before.get(name, 0) + 3]:
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, f"no progress of {lacking}"
            time.sleep(0.01)  # polls the condition

    def finish(self):
        """Ends the load: every blocked call returns."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.errors, self.errors


def content(server):
    client = reverb.Client(server.address, in_process=False)
    items = [episodes.check(sample.data) for sample in client.peek("log", 1_000_000, timeout=60)]
    assert len(set(items)) == len(items), "an item is twice on one server"
    return {item for item in items if item[0] < FIRST_WRITER}


def wanted(load):
    return {(writer, number) for writer, numbers in load.confirmed.items() for number in numbers}


def test_each_item_is_on_one_server_while_all_servers_live(servers, balance):
    load = Load(balance(servers).address)
    load.await_progress()
    load.await_progress()
    load.finish()
    contents = [content(server) for server in servers]
    assert sum(len(items) for items in contents) == len(wanted(load))
    assert set().union(*contents) == wanted(load)
    assert sum(bool(items) for items in contents) > 1  # the connections are distributed


def test_writers_and_samplers_outlive_a_server_that_is_killed(servers, balance):
    load = Load(balance(servers).address)
    load.await_progress()
    servers[0].kill()
    load.await_progress()
    middle = {writer: len(numbers) for writer, numbers in load.confirmed.items()}
    load.await_progress()
    load.finish()
    remaining = content(servers[1]) | content(servers[2])
    # All that was confirmed after the death is there, and in the order of its writer.
    for writer, numbers in load.confirmed.items():
        assert {(writer, number) for number in numbers[middle[writer] :]} <= remaining


def test_a_server_that_starts_later_is_used(servers, balance):
    servers[2].kill()
    balancer = balance(servers)
    load = Load(balancer.address)
    load.await_progress()
    servers[2].start()
    servers[2].await_ready()
    deadline = time.monotonic() + 60
    number = 0
    while not content(servers[2]):
        assert time.monotonic() < deadline
        number += 1
        # New connections reach it.
        write_one(reverb.Client(balancer.address, in_process=False, local=False), 99, number)
    load.await_progress()
    load.finish()
    assert wanted(load) <= set().union(*(content(server) for server in servers))


def test_a_server_that_is_removed_may_stop(servers, balance):
    balancer = balance(servers)
    load = Load(balancer.address)
    load.await_progress()
    balancer.remove(0)
    load.await_progress()
    servers[0].process.terminate()
    assert servers[0].process.wait(60) == 0
    load.await_progress()
    load.finish()
    servers[0].start()  # with the checkpoint of its end
    servers[0].await_ready()
    assert wanted(load) <= set().union(*(content(server) for server in servers))


def test_a_server_that_stalls_holds_up_nothing_for_ever(servers, balance):
    balancer = balance(servers)
    load = Load(balancer.address)
    load.await_progress()
    servers[0].pause()
    try:
        if balancer.notices_stalls:
            load.await_progress()
        else:
            before = sum(load.progress().values())
            deadline = time.monotonic() + 60
            while sum(load.progress().values()) < before + 50:  # of those on other servers
                assert time.monotonic() < deadline
                time.sleep(0.01)  # polls the condition
    finally:
        servers[0].resume()
    load.await_progress()
    load.finish()
    assert wanted(load) <= set().union(*(content(server) for server in servers))
