"""Tests iterators that wait: they block no other operation, and end when they are dropped."""

import gc
import os
import subprocess
import sys
import threading

from conditions import wait_for_waiters, wait_until
from conftest import join, make_table
import pytest

import reverb
from reverb._tensorflow import streams

tf = pytest.importorskip("tensorflow")


def ints(server, table="table", **arguments):
    return reverb.TrajectoryDataset(
        f"localhost:{server.port}", table, (tf.int64,), (tf.TensorShape([1]),),
        **{"max_in_flight_samples_per_worker": 1, **arguments},
    )  # fmt: skip


def test_many_iterators_that_wait_leave_room_for_a_function_that_fills_the_table(serve):
    # TensorFlow runs operations on as many threads as there are cores. Iterators that kept those would stop the
    # function, and wait for ever.
    num_iterators = 4 * os.cpu_count() + 32
    server = serve(reverb.Table.queue("table", 1000))
    client = server.localhost_client()
    tf_client = reverb.TFClient(client.server_address)
    dataset = tf.data.Dataset.range(num_iterators).interleave(
        lambda _: ints(server), cycle_length=num_iterators, num_parallel_calls=num_iterators, deterministic=False
    )
    seen = []

    def consume():
        iterator = iter(dataset)  # not take(100), whose end waits for the streams
        seen.extend(int(next(iterator).data[0][0]) for _ in range(100))

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    wait_for_waiters(client, num_iterators)

    @tf.function
    def fill():
        for i in tf.range(100, dtype=tf.int64):
            tf_client.insert([i * 1], tf.constant(["table"]), tf.constant([1.0], tf.float64))

    filler = threading.Thread(target=fill, daemon=True)
    filler.start()
    join(filler, consumer)
    assert len(set(seen)) == 100


@pytest.mark.parametrize("parallel", [False, True])
def test_dropped_iterators_end_their_samplers(serve, parallel):
    server = serve(make_table(), reverb.Table.queue("empty", 10))
    client = server.localhost_client()
    client.insert([1], {"table": 1.0})
    if parallel:
        # One stream has samples and the other waits.
        dataset = tf.data.Dataset.from_tensor_slices(["table", "empty"]).interleave(
            lambda table: ints(server, table), cycle_length=2, num_parallel_calls=2, deterministic=False
        )
    else:
        dataset = ints(server)
    iterator = iter(dataset)
    next(iterator)
    wait_until(lambda: streams.num_open() == (2 if parallel else 1))
    if parallel:
        wait_for_waiters(client, 1)
    del iterator
    wait_until(lambda: gc.collect() is not None and streams.num_open() == 0, what="the end of the samplers")
    assert not wait_for_waiters(client, 0).waiters


def test_an_iterator_that_is_dropped_while_another_thread_waits(serve):
    server = serve(reverb.Table.queue("table", 10))
    client = server.localhost_client()
    client.insert([1], {"table": 1.0})
    iterator = iter(ints(server).prefetch(1))
    next(iterator)
    wait_for_waiters(client, 1)  # the thread of prefetch()
    del iterator
    wait_until(lambda: gc.collect() is not None and streams.num_open() == 0, what="the end of the sampler")
    assert not wait_for_waiters(client, 0).waiters


def test_iterators_are_made_and_dropped_again_and_again(serve):
    # As TF-Agents' PPO learner does: Counter().flat_map(take(1).cache().repeat(epochs)).
    server = serve(make_table())
    server.localhost_client().insert([1], {"table": 1.0})
    dataset = tf.data.Dataset.counter().flat_map(lambda _: ints(server).take(1).cache().repeat(3)).take(60)
    assert sum(int(sample.data[0][0]) for sample in dataset) == 60
    wait_until(lambda: gc.collect() is not None and streams.num_open() == 0)


def test_an_iterator_waits_for_a_server_that_is_started_later():
    with reverb.Server([reverb.Table.queue("other", 1)]) as first:
        port = first.port
    dataset = reverb.TrajectoryDataset(f"localhost:{port}", "table", (tf.int64,), (tf.TensorShape([1]),), 1)
    seen = []
    consumer = threading.Thread(target=lambda: seen.append(int(next(iter(dataset)).data[0][0])), daemon=True)
    consumer.start()
    wait_until(lambda: streams.num_open() == 1)
    with reverb.Server([reverb.Table.queue("table", 10)], port=port) as server:
        server.localhost_client().insert([5], {"table": 1.0})
        join(consumer)
    assert seen == [5]


def test_a_program_ends_while_iterators_wait():
    program = (
        "import reverb, tensorflow as tf\n"
        "server = reverb.Server([reverb.Table.queue('table', 10)])\n"
        "dataset = reverb.TrajectoryDataset(f'localhost:{server.port}', 'table', (tf.int64,), (tf.TensorShape([1]),), 1)\n"
        "iterators = [iter(dataset.prefetch(1)) for _ in range(4)]\n"
        "server.localhost_client().insert([1], {'table': 1.0})\n"
        "print('end')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
