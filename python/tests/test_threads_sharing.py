"""Tests threads: shared objects, waits that release the GIL, and no lost or duplicated item."""

import collections
import contextlib
import queue
import threading
import time

from conditions import wait_for_waiters
from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors


def run_together(*functions, timeout=60):
    """Runs all functions concurrently and raises the first error."""
    errors, barrier = [], threading.Barrier(len(functions))

    def call(function):
        try:
            barrier.wait(20)
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    alive = [thread.name for thread in threads if thread.is_alive()]
    assert not alive, f"threads that do not end: {alive}"
    if errors:
        raise errors[0]


# --- One shared client ---


def test_one_client_for_inserts_samples_priorities_and_information(serve, connect):
    table = make_table("table", sampler=selectors.Prioritized(1.0), max_size=500)
    client = connect(serve(table))
    client.insert(-1, {"table": 1.0})
    keys: queue.Queue = queue.Queue()

    def insert(number):
        for i in range(100):
            client.insert(1000 * number + i, {"table": 1.0})

    def sample():
        for step in client.sample("table", 200, timeout=30):
            keys.put(step[0].info.key)

    def update():
        for _ in range(100):
            client.mutate_priorities("table", updates={keys.get(timeout=30): 2.0})

    def ask():
        for _ in range(100):
            assert client.server_info()["table"].current_size >= 1
            assert table.info.current_size >= 1
            assert table.can_sample(1)

    run_together(*(lambda n=n: insert(n) for n in range(3)), sample, sample, update, update, ask)
    info = table.info.rate_limiter_info
    assert (info.insert_stats.completed, info.sample_stats.completed) == (301, 400)
    assert table.info.current_size == 301


def test_writers_in_threads_of_their_own(serve, connect):
    client = connect(serve(make_table("table", max_size=100_000)))
    threads, episodes, length = 6, 5, 20

    def write(number):
        writer = client.trajectory_writer(4)
        for episode in range(episodes):
            for i in range(length):
                writer.append({"who": number, "step": np.int32(100 * episode + i), "blob": np.full(64, i, np.uint8)})
                if writer.episode_steps >= 4:
                    writer.create_item("table", 1.0, {k: column[-4:] for k, column in writer.history.items()})
            writer.end_episode()

    run_together(*(lambda n=n: write(n) for n in range(threads)))
    items = client.peek("table", 100_000)
    assert len(items) == threads * episodes * (length - 3)
    assert client.server_info()["table"].num_episodes == threads * episodes
    seen = collections.Counter()
    for item in items:
        blob, step, who = item.data.values()
        assert len(set(who.tolist())) == 1
        assert np.diff(step).tolist() == [1, 1, 1]
        assert (blob[:, 0] == step % 100).all()
        seen[int(who[0]), int(step[0])] += 1
    assert set(seen.values()) == {1}


def test_readers_and_writers_on_a_queue_share_out_every_item_once(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 7)))
    writers, readers, count = 3, 4, 120  # 360 items, 90 to each reader
    seen = [[] for _ in range(readers)]

    def write(number):
        with client.trajectory_writer(1) as writer:
            for i in range(count):
                writer.append(1000 * number + i)
                writer.create_item("queue", 1.0, writer.history[-1:])

    def read(number):
        for step in client.sample("queue", writers * count // readers, timeout=30):
            seen[number].append(int(step[0].data[0]))

    run_together(*(lambda n=n: write(n) for n in range(writers)), *(lambda n=n: read(n) for n in range(readers)))
    everything = sorted(value for part in seen for value in part)
    assert everything == sorted(1000 * number + i for number in range(writers) for i in range(count))
    for part in seen:  # each reader sees part of each writer's items, in order
        for number in range(writers):
            mine = [value for value in part if value // 1000 == number]
            assert mine == sorted(mine)


def test_a_shared_writer_takes_turns(serve, connect):
    client = connect(serve(make_table("table", max_size=100_000)))
    writer = client.trajectory_writer(1000)

    def write():
        for i in range(200):
            writer.append({"x": i})

    run_together(write, write, write)
    assert writer.episode_steps == 600
    assert sorted(writer.history["x"][:].numpy().tolist()) == sorted([*range(200)] * 3)
    writer.close()


def test_one_iterator_shared_by_threads_gives_each_sample_once(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1000)))
    for i in range(300):
        client.insert(i, {"queue": 1.0})
    samples = client.sample("queue", 300, timeout=30)
    seen, lock = [], threading.Lock()

    def read():
        for step in samples:
            with lock:
                seen.append(int(step[0].data[0]))

    run_together(read, read, read)
    assert sorted(seen) == list(range(300))


# --- More items than the table admits ---


def test_ten_thousand_items_through_a_table_that_admits_ten(serve, connect):
    """Creating items never waits, so one thread can write all of them first, and sample them afterwards."""
    total = 10_000
    client = connect(serve(reverb.Table.queue("queue", 10)))
    writer = client.trajectory_writer(1)
    for i in range(total):
        writer.append(np.int32(i))
        writer.create_item("queue", 1.0, writer.history[-1:])
    deadline = time.monotonic() + 30
    while client.server_info()["queue"].current_size < 10:
        assert time.monotonic() < deadline
        writer.flush(total - 10, timeout_ms=30_000)
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(0, timeout_ms=20)
    seen = [int(sample.data[0][0]) for sample in client.sample("queue", total, emit_timesteps=False, timeout=30)]
    assert seen == list(range(total))
    writer.flush(timeout_ms=30_000)
    writer.close()


def test_a_window_of_unconfirmed_items_is_kept_small_by_flush(serve, connect):
    client = connect(serve(make_table("table", max_size=100_000)))
    with client.trajectory_writer(1) as writer:
        for i in range(2000):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1:])
            writer.flush(5)
            if i % 500 == 499:
                assert client.server_info()["table"].current_size >= i + 1 - 5
    assert client.server_info()["table"].current_size == 2000


# --- Waits release the GIL ---


class Counter:
    """Counts in pure Python in a thread; progress during a wait shows that the GIL is free."""

    def __enter__(self):
        self.count, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self):
        while not self._stop.is_set():
            self.count += 1
            if self.count % 100 == 0:
                time.sleep(0)  # yields the processor

    def __exit__(self, *_):
        self._stop.set()
        join(self._thread)


@contextlib.contextmanager
def waiting(name, client, server):
    """Yields a call that waits until its timeout."""
    if name in ("flush", "end_episode"):
        with contextlib.closing(client.trajectory_writer(1)) as writer:
            writer.append(0)
            writer.create_item("full", 1.0, writer.history[-1:])
            yield lambda: getattr(writer, name)(timeout_ms=200)
    elif name == "older flush":
        writer = client.writer(1)
        writer.append([0])
        writer.create_item("full", 1, 1.0)
        yield lambda: writer.flush(timeout=0.2)
        next(client.sample("full"))
        writer.close()
    else:
        yield {
            "sample": lambda: next(client.sample("empty", timeout=0.2)),
            "insert": lambda: client.insert(0, {"full": 1.0}, timeout=0.2),
            "wait": lambda: server.wait(timeout=0.2),
            "information": lambda: reverb.Client("localhost:1").server_info(timeout=0.2),
        }[name]


@pytest.mark.parametrize("name", ["sample", "insert", "flush", "end_episode", "older flush", "wait", "information"])
def test_others_run_while_a_call_waits(serve, connect, name):
    server = serve(make_table("empty"), reverb.Table.queue("full", 1))
    client = connect(server)
    client.insert(0, {"full": 1.0})
    with waiting(name, client, server) as call, Counter() as counter:
        before, start = counter.count, time.monotonic()
        with pytest.raises(reverb.DeadlineExceededError):
            call()
        took, counted = time.monotonic() - start, counter.count - before
    assert 0.15 < took < 10
    # A held GIL would let it count a few hundred at most, between switches.
    assert counted > 2000


def test_a_blocked_sample_goes_on_as_soon_as_another_thread_inserts(serve, connect):
    client = connect(serve(make_table("table")))
    for i in range(20):
        client.reset("table")
        thread = threading.Timer(0.02, client.insert, args=(i, {"table": 1.0}))
        thread.daemon = True
        thread.start()
        assert next(client.sample("table", timeout=30))[0].data == [i]
        join(thread)


def test_a_blocked_insert_goes_on_as_soon_as_another_thread_samples(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 1)))
    client.insert(0, {"queue": 1.0})
    for i in range(20):
        taken = []
        thread = threading.Timer(0.02, lambda taken=taken: taken.append(next(client.sample("queue"))[0].data[0]))
        thread.daemon = True
        thread.start()
        client.insert(i + 1, {"queue": 1.0}, timeout=30)
        join(thread)
        assert taken == [i]


def test_a_learner_and_an_actor_in_lockstep_by_the_limiter(serve, connect):
    """Each thread waits for the other repeatedly: neither runs ahead of the ratio."""
    table = make_table(
        "table", sampler=selectors.Uniform(), limiter=rate_limiters.SampleToInsertRatio(2.0, 5, 6.0), max_size=10_000
    )
    client = connect(serve(table))

    def act():
        for i in range(300):
            client.insert(i, {"table": 1.0}, timeout=30)

    def learn():
        for _ in client.sample("table", 590, timeout=30):
            pass

    run_together(act, learn)
    info = table.info.rate_limiter_info
    assert (info.insert_stats.completed, info.sample_stats.completed) == (300, 590)


def test_closing_iterators_of_blocked_threads_ends_them(serve, connect):
    client = connect(serve(make_table("empty")))
    iterators = [client.sample("empty", 10) for _ in range(4)]
    ended = []

    def read(iterator):
        try:
            next(iterator)
        except (StopIteration, RuntimeError) as error:
            ended.append(error)

    threads = [threading.Thread(target=read, args=(iterator,)) for iterator in iterators]
    for thread in threads:
        thread.start()
    wait_for_waiters(client, 4)
    start = time.monotonic()
    for iterator in iterators:
        iterator.close()
    for thread in threads:
        thread.join(20)
    assert len(ended) == 4
    assert time.monotonic() - start < 3


def test_dropping_things_while_others_use_them(serve, connect):
    """Servers, writers and iterators are dropped in one thread while the objects they share live in another."""
    client = connect(serve(make_table("table", max_size=100_000)))
    client.insert(0, {"table": 1.0})

    def churn():
        for i in range(60):
            writer = client.trajectory_writer(2)
            writer.append(i)
            column = writer.history[-1:]
            writer.create_item("table", 1.0, column)
            samples = client.sample("table", 100, timeout=30)
            next(samples)
            writer.flush(timeout_ms=60_000)
            del writer, samples
            with contextlib.suppress(RuntimeError):  # it may have expired with its writer
                column.numpy()

    run_together(churn, churn, churn, timeout=120)
    assert client.server_info()["table"].current_size == 181
