"""Tests TFClient in eager mode and inside of functions."""

import math
import os
import pickle
import threading

from conditions import wait_for_waiters
from conftest import join, make_table
import numpy as np
import pytest

import reverb

tf = pytest.importorskip("tensorflow")


@pytest.fixture(params=["eager", "function"])
def run(request):
    """run(f) calls f() eagerly, or as a tf.function, which cannot return an operation."""

    def call(f):
        result = f()
        return None if isinstance(result, tf.Operation) else result

    return call if request.param == "eager" else (lambda f: tf.function(lambda: call(f))())


@pytest.fixture
def server(serve):
    return serve(
        make_table("replay", sampler=reverb.selectors.Prioritized(1.0)),
        make_table("variables", max_size=1),
        make_table("signed", signature={"x": tf.TensorSpec([2], tf.float32)}),
    )


@pytest.fixture
def tf_client(server):
    return reverb.TFClient(f"localhost:{server.port}")


def test_a_variable_container(run, server, tf_client):
    # As in TF-Agents: a trainer pushes a nest of variables, collectors read the latest one.
    variables = {"w": (tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64)), "step": tf.Variable(7)}
    dtypes = tf.nest.map_structure(lambda variable: variable.dtype, variables)

    def push():
        tf_client.insert(
            tf.nest.flatten(variables), tables=tf.constant(["variables"]), priorities=tf.constant([1.0], tf.float64)
        )
        return tf.constant(0)

    for i in range(3):
        variables["step"].assign(i)
        run(push)
        sample = run(lambda: tf_client.sample("variables", data_dtypes=[dtypes]))
        assert isinstance(sample, reverb.ReplaySample)
        (data,) = sample.data
        assert data["w"][0].numpy().tolist() == [1.0, 2.0]
        assert (int(data["w"][1]), int(data["step"])) == (3, i)
    assert server.localhost_client().server_info()["variables"].current_size == 1


def test_the_first_step_of_an_item(run, server, tf_client):
    with server.localhost_client().trajectory_writer(3) as writer:
        for i in range(3):
            writer.append({"x": i, "y": np.full(2, i)})
        writer.create_item("replay", 2.0, {"x": writer.history["x"][:], "y": writer.history["y"][-1]})
    sample = run(lambda: tf_client.sample("replay", {"x": tf.int64, "y": tf.int64}))
    assert int(sample.data["x"]) == 0
    assert sample.data["y"].numpy().tolist() == [2, 2], "a squeezed column has one step"
    assert (float(sample.info.priority), int(sample.info.times_sampled)) == (2.0, 1)
    assert sample.info.key.dtype == tf.uint64


def test_a_sample_is_awaited(run, server, tf_client):
    client = server.localhost_client()
    seen = []
    thread = threading.Thread(
        target=lambda: seen.append(int(run(lambda: tf_client.sample("replay", [tf.int64])).data[0])), daemon=True
    )
    thread.start()
    wait_for_waiters(client, 1)
    client.insert([5], {"replay": 1.0})
    join(thread)
    assert seen == [5]


def test_functions_that_wait_for_samples_leave_room_for_others(server, tf_client):
    sample = tf.function(lambda: tf_client.sample("replay", [tf.int64]).data[0])
    count = 2 * os.cpu_count() + 2
    threads = [threading.Thread(target=sample, daemon=True) for _ in range(count)]
    sample.get_concrete_function()
    for thread in threads:
        thread.start()
    wait_for_waiters(server.localhost_client(), count)

    @tf.function
    def insert():
        tf_client.insert([tf.constant(1, tf.int64)], tf.constant(["replay"]), tf.constant([1.0], tf.float64))

    insert()
    join(*threads)
    assert server.localhost_client().server_info()["replay"].rate_limiter_info.sample_stats.completed == count


def test_priorities(run, server, tf_client):
    client = server.localhost_client()
    for i in range(3):
        client.insert([i], {"replay": 1.0})
    keys = {int(item.data[0][0]): item.info.key for item in client.peek("replay", 3)}
    chosen = np.array([keys[0], keys[2]], np.uint64)  # TensorFlow converts a list of large integers by way of floats
    run(lambda: tf_client.update_priorities("replay", tf.constant(chosen), tf.constant([0.0, 0.0], tf.float64)))
    assert {int(run(lambda: tf_client.sample("replay", [tf.int64])).data[0]) for _ in range(5)} == {1}


def test_unknown_tables(run, tf_client):
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        run(lambda: tf_client.sample("nowhere", [tf.int64]).data)
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        run(lambda: tf_client.update_priorities("nowhere", tf.constant([1], tf.uint64), tf.constant([1.0], tf.float64)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="nowhere"):
        run(
            lambda: tf_client.insert(
                [tf.constant(1)], tf.constant(["nowhere"]), tf.constant([1.0], tf.float64)
            )
        )


def test_samples_that_do_not_fit_the_request(run, server, tf_client):
    server.localhost_client().insert([1], {"replay": 1.0})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Inconsistent number of tensors received"):
        run(lambda: tf_client.sample("replay", [tf.int64, tf.int64]).data)
    with pytest.raises(tf.errors.InvalidArgumentError, match="float32.*int64"):
        run(lambda: tf_client.sample("replay", [tf.float32]).data)


def test_arguments_that_are_refused(run, tf_client):
    def insert(tables, priorities, data=1):
        run(lambda: tf_client.insert([tf.constant(data)], tables, priorities))

    names, numbers = tf.constant(["replay"]), tf.constant([1.0], tf.float64)
    for tables, priorities in (
        (tf.constant("replay"), numbers),
        (tf.constant([1]), numbers),
        (names, tf.constant(1.0, tf.float64)),
        (names, tf.constant([1.0], tf.float32)),
        (names, tf.constant([1.0, 2.0], tf.float64)),
    ):
        with pytest.raises(ValueError, match="tables|priorities"):
            insert(tables, priorities)
    with pytest.raises(AttributeError):
        insert(["replay"], numbers)
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)nan"):
        insert(names, tf.constant([math.nan], tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="signed"):
        insert(tf.constant(["signed"]), numbers, data=[1.0, 2.0, 3.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="same shape"):
        run(
            lambda: tf_client.update_priorities(
                "replay", tf.constant([1, 2], tf.uint64), tf.constant([1.0], tf.float64)
            )
        )
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(
            lambda: tf_client.update_priorities(
                "replay", tf.constant([1], tf.uint64), tf.constant([math.nan], tf.float64)
            )
        )


def test_the_address(server, tf_client):
    # Acme turns a TFClient into a Client by this attribute.
    assert isinstance(tf_client, reverb.TFClient)
    assert tf_client.server_address == tf_client._server_address == f"localhost:{server.port}"
    assert pickle.loads(pickle.dumps(tf_client)).server_address == tf_client.server_address
