"""Tests TrajectoryDataset and TimestepDataset: elements, arguments, limits, errors, pipelines."""

import gc
import pickle
import subprocess
import sys

from conditions import wait_until
from conftest import make_table
import numpy as np
import pytest
import transports

import reverb
from reverb._tensorflow import streams

tf = pytest.importorskip("tensorflow")

SIGNATURE = {
    "observation": tf.TensorSpec([3, 2], tf.float32),
    "action": tf.TensorSpec([3], tf.int64),
    "name": [tf.TensorSpec([], tf.string)],
}


def address_of(server):
    return f"localhost:{server.port}"


def write(server, count, table="table", length=3):
    """Inserts trajectories whose actions are i, i + 1, ..."""
    with server.localhost_client().trajectory_writer(num_keep_alive_refs=length) as writer:
        for i in range(count):
            for step in range(length):
                writer.append(
                    {"observation": np.full(2, i, np.float32), "action": i + step, "name": [f"item {i}"]}
                )
            history = writer.history
            writer.create_item(
                table,
                1.0 + i,
                {"observation": history["observation"][-length:], "action": history["action"][-length:],
                 "name": [history["name"][0][-1]]},
            )  # fmt: skip
            writer.end_episode()


def queue(name="table", **arguments):
    return reverb.Table.queue(name, 1000, **arguments)


def drawn(table):
    return table.info.rate_limiter_info.sample_stats.completed


@pytest.fixture(params=transports.ALL)
def anywhere(request, monkeypatch):
    """Datasets that use the server over each transport."""
    real = streams.Client
    monkeypatch.setattr(streams, "Client", lambda address: real(address, **transports.OPTIONS[request.param]))
    streams._clients.clear()
    yield
    streams._clients.clear()


# --- Elements ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("anywhere")
def test_elements_are_the_items(serve):
    server = serve(queue(signature=SIGNATURE))
    write(server, 5)
    dataset = reverb.TrajectoryDataset.from_table_signature(address_of(server), "table", 2, max_samples=5)
    assert isinstance(dataset, tf.data.Dataset)
    assert isinstance(dataset, reverb.TrajectoryDataset)
    assert dataset.element_spec == reverb.ReplaySample(
        info=reverb.SampleInfo(*(tf.TensorSpec([], dtype) for dtype in reverb.SampleInfo.tf_dtypes())),
        data={
            "observation": tf.TensorSpec([3, 2], tf.float32),
            "action": tf.TensorSpec([3], tf.int64),
            "name": (tf.TensorSpec([], tf.string),),
        },
    )
    samples = list(dataset)
    assert [sample.data["action"].numpy().tolist() for sample in samples] == [[i, i + 1, i + 2] for i in range(5)]
    assert [sample.data["name"][0].numpy() for sample in samples] == [b"item %d" % i for i in range(5)]
    assert [sample.info.priority.numpy() for sample in samples] == [1.0 + i for i in range(5)]
    assert {sample.info.times_sampled.numpy() for sample in samples} == {1}
    assert len({int(sample.info.key) for sample in samples}) == 5
    np.testing.assert_array_equal(samples[3].data["observation"], np.full((3, 2), 3, np.float32))


def test_items_of_different_lengths(serve):
    server = serve(queue(layout="any"))
    for length in (1, 1, 4, 2, 2, 2):
        write(server, 1, length=length)
    dataset = reverb.TrajectoryDataset(
        address_of(server),
        "table",
        dtypes={"observation": tf.float32, "action": tf.int64, "name": [tf.string]},
        shapes={"observation": tf.TensorShape([None, 2]), "action": tf.TensorShape([None]), "name": [None]},
        max_in_flight_samples_per_worker=10,
        max_samples=6,
    )
    assert [sample.data["action"].shape[0] for sample in dataset] == [1, 1, 4, 2, 2, 2]
    assert dataset.element_spec.data["name"] == (tf.TensorSpec(None, tf.string),)


@pytest.mark.usefixtures("anywhere")
def test_timesteps_follow_each_other(serve):
    server = serve(queue())
    client = server.localhost_client()
    with client.writer(max_sequence_length=3) as writer:
        for i in range(6):
            writer.append({"x": i, "y": np.full(2, i, np.float32)})
            if i % 3 == 2:
                writer.create_item("table", 3, 1.0 + i)
    dataset = reverb.TimestepDataset(
        address_of(server),
        "table",
        {"x": tf.int64, "y": tf.float32},
        {"x": tf.TensorShape([]), "y": tf.TensorShape([2])},
        max_in_flight_samples_per_worker=2,
        max_samples=2,
    )
    assert isinstance(dataset, reverb.TimestepDataset)
    samples = list(dataset)
    assert [sample.data["x"].numpy() for sample in samples] == list(range(6))
    assert [sample.data["y"].numpy()[1] for sample in samples] == list(range(6))
    assert [sample.info.priority.numpy() for sample in samples] == [3.0] * 3 + [6.0] * 3


def test_timesteps_from_a_signature_of_one_step(serve):
    server = serve(queue(signature={"x": tf.TensorSpec([], tf.int64)}))
    server.localhost_client().insert({"x": 7}, {"table": 1.0})
    dataset = reverb.TimestepDataset.from_table_signature(address_of(server), "table", 1, max_samples=1)
    assert [int(sample.data["x"]) for sample in dataset] == [7]


def test_items_without_timesteps(serve):
    server = serve(queue())
    write(server, 1)  # the name has one step, the others have three
    dataset = reverb.TimestepDataset(
        address_of(server), "table", [tf.int64, tf.string, tf.float32],
        [tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape([2])], 1,
    )  # fmt: skip
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"Sampled trajectory cannot be decomposed into timesteps\."
    ):
        next(iter(dataset))


@pytest.mark.usefixtures("anywhere")
def test_batches_as_elements(serve):
    server = serve(make_table(signature=SIGNATURE, max_times_sampled=1))
    write(server, 12)
    dataset = reverb.TrajectoryDataset.from_table_signature(
        address_of(server), "table", 3, max_samples=12, batch_size=4
    )
    assert dataset.element_spec.data["observation"] == tf.TensorSpec([4, 3, 2], tf.float32)
    assert dataset.element_spec.info.key == tf.TensorSpec([4], tf.uint64)
    batches = list(dataset)
    assert len(batches) == 3
    assert [batch.data["action"].numpy()[:, 0].tolist() for batch in batches] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11],
    ]  # fmt: skip
    assert [name[0] for name in batches[0].data["name"][0].numpy()[:2].reshape(-1, 1)] == [b"item 0", b"item 1"]


def test_a_batch_waits_for_all_its_items(serve):
    server = serve(queue(signature=SIGNATURE))
    write(server, 3)
    dataset = reverb.TrajectoryDataset.from_table_signature(
        address_of(server), "table", 4, rate_limiter_timeout_ms=10, batch_size=4
    )
    assert list(dataset) == []
    write(server, 1)
    assert [batch.data["action"].shape for batch in dataset] == [(4, 3)], "the end of the first one lost no item"


def test_dtypes(serve):
    server = serve(queue())
    names = ["float16", "float64", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "bool",
             "complex64", "complex128", "bfloat16"]  # fmt: skip
    step = {name: np.ones((), tf.as_dtype(name).as_numpy_dtype) for name in names}
    server.localhost_client().insert(step, {"table": 1.0})
    (sample,) = reverb.TrajectoryDataset(
        address_of(server), "table", {name: tf.as_dtype(name) for name in names},
        {name: tf.TensorShape([1]) for name in names}, 1, max_samples=1,
    )  # fmt: skip
    for name in names:
        assert sample.data[name].dtype == tf.as_dtype(name)
        assert sample.data[name].numpy().astype(np.complex128).tolist() == [1], name


# --- Limits --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_max_samples_is_exact(serve, num_workers, in_flight):
    server = serve(table := make_table())
    server.localhost_client().insert([1], {"table": 1.0})
    dataset = reverb.TrajectoryDataset(
        address_of(server), "table", (tf.int64,), (tf.TensorShape([1]),), in_flight,
        num_workers_per_iterator=num_workers, max_samples=17,
    )  # fmt: skip
    assert len(list(dataset)) == 17
    assert drawn(table) == 17


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("in_flight", [1, 3, 7])
def test_samples_are_drawn_in_whole_windows(serve, in_flight):
    server = serve(table := make_table())
    server.localhost_client().insert([1], {"table": 1.0})
    dataset = reverb.TrajectoryDataset(
        address_of(server), "table", (tf.int64,), (tf.TensorShape([1]),), in_flight, num_workers_per_iterator=1
    )
    for i, _ in zip(range(20), dataset, strict=False):
        count = wait_until(lambda: drawn(table) % in_flight == 0 and drawn(table))
        assert i < count <= i + 2 * in_flight


def test_nothing_is_drawn_ahead_from_a_table_with_one_item(serve):
    # A table that serves the latest parameters: a prefetched sample would be outdated.
    server = serve(table := make_table(max_size=1))
    client = server.localhost_client()
    client.insert([0], {"table": 1.0})
    samples = iter(reverb.TimestepDataset(address_of(server), "table", (tf.int64,), (tf.TensorShape([]),), 1))
    for version in range(5):
        client.insert([version], {"table": 1.0})
        assert int(next(samples).data[0]) == version
    assert drawn(table) == 5


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_the_time_out_of_the_limiter_ends_the_iterator(serve, timeout_ms):
    server = serve(queue(signature=SIGNATURE))
    write(server, 3)
    dataset = reverb.TrajectoryDataset.from_table_signature(
        address_of(server), "table", 10, rate_limiter_timeout_ms=timeout_ms
    )
    assert len(list(dataset)) == 3
    assert list(dataset) == []
    write(server, 2)
    assert len(list(dataset)) == 2


# --- Arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_in_flight_samples_per_worker": 0}, r"max_in_flight_samples_per_worker \(0\) must be a positive"),
        ({"num_workers_per_iterator": 0}, r"num_workers_per_iterator \(0\) must be -1 or"),
        ({"max_samples_per_stream": -2}, r"max_samples_per_stream \(-2\) must be -1 or"),
        ({"max_samples": 0}, r"max_samples \(0\) must be -1 or"),
        ({"rate_limiter_timeout_ms": -2}, r"rate_limiter_timeout_ms \(-2\) must be an integer >= -1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be a positive"),
        ({"batch_size": 3, "max_samples": 10}, r"max_samples \(10\) must be a multiple of batch_size \(3\)"),
        ({"shapes": (tf.TensorShape([]), tf.TensorShape([]))}, "structure"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        reverb.TrajectoryDataset(
            **{"server_address": "localhost:1", "table": "t", "dtypes": (tf.int64,), "shapes": (tf.TensorShape([]),),
               "max_in_flight_samples_per_worker": 1, **arguments}
        )  # fmt: skip


def test_other_kinds_of_containers_are_a_type_error():
    with pytest.raises(TypeError):
        reverb.TrajectoryDataset("localhost:1", "t", (tf.int64,), {"x": tf.TensorShape([])}, 1)


def test_the_signature_of_the_table_is_needed(serve):
    server = serve(queue("b"), queue("a", signature=SIGNATURE), queue("c"))
    address = address_of(server)
    with pytest.raises(
        ValueError, match=rf"Server at {address} does not contain any table named x\. Found: a, b, c\."
    ):
        reverb.TrajectoryDataset.from_table_signature(address, "x", 1)
    with pytest.raises(ValueError, match=rf"Table b at {address} does not have a signature\."):
        reverb.TimestepDataset.from_table_signature(address, "b", 1)
    with pytest.raises(reverb.DeadlineExceededError):
        reverb.TrajectoryDataset.from_table_signature("localhost:1", "a", 1, get_signature_timeout_secs=0.01)


# --- Errors of iterators -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtypes", "shapes", "message"),
    [
        ((tf.float32,), ([],),
         r"Inconsistent number of tensors requested from table 'table'\.  Requested 1 tensors, but table signature "
         r"shows 2 tensors\."),
        ((tf.float32, tf.float32), ([2], []),
         r"Requested incompatible tensor at flattened index 1 from table 'table'\.  .*float32.*int64"),
        ((tf.float32, tf.int64), ([3], []), r"at flattened index 0 from table 'table'\.  .*\[3\].*\[2\]"),
    ],
)  # fmt: skip
def test_requests_that_do_not_fit_the_signature(serve, dtypes, shapes, message):
    server = serve(queue(signature=(tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.int64))))
    dataset = reverb.TrajectoryDataset(address_of(server), "table", dtypes, tuple(map(tf.TensorShape, shapes)), 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        next(iter(dataset))


@pytest.mark.parametrize(
    ("dtypes", "shapes", "message"),
    [
        ((tf.int64, tf.int64), ([1], [1]),
         r"Inconsistent number of tensors received from table 'table'\."),
        ((tf.float32,), ([1],), r"Specification has \(dtype, shape\): .*  Tensor has \(dtype, shape\): "),
        ((tf.int64,), ([2],), r"Specification has \(dtype, shape\): .*  Tensor has \(dtype, shape\): "),
    ],
)  # fmt: skip
def test_samples_that_do_not_fit_the_request(serve, dtypes, shapes, message):
    server = serve(queue())
    server.localhost_client().insert([1], {"table": 1.0})
    dataset = reverb.TrajectoryDataset(address_of(server), "table", dtypes, tuple(map(tf.TensorShape, shapes)), 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        next(iter(dataset))


def ints(server, table="table", **arguments):
    return reverb.TrajectoryDataset(
        address_of(server), table, (tf.int64,), (tf.TensorShape([1]),),
        **{"max_in_flight_samples_per_worker": 1, **arguments},
    )  # fmt: skip


def test_an_unknown_table_is_found_out_with_the_first_element(serve):
    iterator = iter(ints(serve(queue()), "nowhere"))
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        next(iterator)


def test_a_server_of_this_process_that_stops_ends_the_iterator_with_an_error(serve):
    server = serve(queue())
    server.localhost_client().insert([1], {"table": 1.0})
    iterator = iter(ints(server))
    assert int(next(iterator).data[0][0]) == 1
    server.stop()
    with pytest.raises(tf.errors.UnknownError, match="the server is shutting down"):
        next(iterator)


# --- Pipelines -----------------------------------------------------------------------------------------


def test_acmes_pipeline(serve):
    server = serve(make_table(signature=SIGNATURE, sampler=reverb.selectors.Uniform()))
    write(server, 10)
    address = address_of(server)

    def stream(_):
        return reverb.TrajectoryDataset.from_table_signature(address, "table", max_in_flight_samples_per_worker=8)

    dataset = (
        tf.data.Dataset.range(4)
        .interleave(stream, cycle_length=4, num_parallel_calls=4, deterministic=False)
        .map(lambda sample: sample._replace(data=sample.data["action"]))
        .batch(16, drop_remainder=True)
        .prefetch(2)
    )
    gc.collect()  # whatever the pipeline needs must be kept by it
    assert dataset.element_spec.data == tf.TensorSpec([16, 3], tf.int64)
    for batch in dataset.take(20).as_numpy_iterator():
        assert batch.data.shape == (16, 3)
        assert set(batch.data[:, 0]) <= set(range(10))
    del dataset, batch
    wait_until(lambda: gc.collect() is not None and streams.num_open() == 0, what="the end of all samplers")


def test_addresses_and_tables_as_tensors(serve):
    server = serve(queue("a"), queue("b"))
    for name, value in (("a", 1), ("b", 2)):
        server.localhost_client().insert([value], {name: 1.0})
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b"]).interleave(
        lambda table: reverb.TrajectoryDataset(
            tf.constant(address_of(server)), table, (tf.int64,), (tf.TensorShape([1]),), 1, max_samples=1
        ),
        cycle_length=2,
    )
    assert sorted(int(sample.data[0][0]) for sample in dataset) == [1, 2]


def test_mixtures_of_tables(serve):
    server = serve(make_table("a"), make_table("b"))
    for name, value in (("a", 1), ("b", 2)):
        server.localhost_client().insert([value], {name: 1.0})
    mixed = tf.data.Dataset.sample_from_datasets([ints(server, "a"), ints(server, "b")], [0.5, 0.5], seed=3)
    assert {int(sample.data[0][0]) for sample in mixed.take(100)} == {1, 2}


def test_inside_a_function(serve):
    server = serve(queue())
    client = server.localhost_client()
    for i in range(10):
        client.insert([i], {"table": 1.0})

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for sample in ints(server, max_samples=10, max_in_flight_samples_per_worker=4):
            result += sample.data[0][0]
        return result

    assert int(total()) == 45


def test_four_iterators_of_one_dataset_share_a_queue(serve):
    server = serve(queue())
    client = server.localhost_client()
    for i in range(40):
        client.insert([i], {"table": 1.0})
    dataset = ints(server, rate_limiter_timeout_ms=100)
    iterators = [iter(dataset) for _ in range(4)]
    seen = [int(next(iterator).data[0][0]) for _ in range(10) for iterator in iterators]
    assert sorted(seen) == list(range(40))


def test_a_distribution_strategy(serve):
    server = serve(make_table())
    server.localhost_client().insert([1], {"table": 1.0})
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    distributed = strategy.experimental_distribute_dataset(ints(server).batch(4, drop_remainder=True).prefetch(1))
    batch = next(iter(distributed))
    assert batch.data[0].shape == (4, 1)


# --- The package ---------------------------------------------------------------------------------------


def test_importing_reverb_does_not_import_tensorflow():
    program = (
        "import sys, reverb\n"
        "reverb.TrajectoryDataset, reverb.TimestepDataset, reverb.PatternDataset, reverb.TFClient\n"
        "assert 'tensorflow' not in sys.modules\n"
        "try: reverb.TrajectoryDataset('localhost:1', 't', (), (), 0)\n"
        "except ValueError: pass\n"
        "assert 'tensorflow' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_datasets_do_not_pickle_but_their_samples_do(serve):
    server = serve(make_table())
    server.localhost_client().insert([1], {"table": 1.0})
    sample = next(ints(server).as_numpy_iterator())
    assert pickle.loads(pickle.dumps(sample)).data[0].tolist() == [1]
