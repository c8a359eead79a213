"""Scenarios: nests and values of TensorFlow and dm-tree; skipped where those are not installed."""

import collections
import threading

from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors
from reverb import structured_writer as sw

Pair = collections.namedtuple("Pair", ["second", "first"])


def write_steps(writer, count):
    for i in range(count):
        writer.append({"x": i, "nest": Pair(np.float32(i), [i, (-i,)])})


# --- dm-tree ---


def test_histories_are_leaves_of_dm_trees_nests(serve, connect):
    tree = pytest.importorskip("tree")
    client = connect(serve(make_table(max_times_sampled=1)))
    writer = client.trajectory_writer(5)
    write_steps(writer, 4)
    assert tree.map_structure(lambda column: column[-1].numpy().item(), writer.history) == {
        "x": 3,
        "nest": Pair(3.0, [3, (-3,)]),
    }
    trajectory = tree.map_structure(lambda column: column[-2:], writer.history)
    paths = [path for path, _ in tree.flatten_with_path(trajectory)]
    assert paths == [("nest", "second"), ("nest", "first", 0), ("nest", "first", 1, 0), ("x",)]
    writer.create_item("table", 1.0, trajectory)
    writer.flush()
    (sample,) = client.sample("table", emit_timesteps=False)
    expected = tree.flatten(tree.map_structure(lambda column: column.numpy().tolist(), trajectory))
    assert [column.tolist() for column in sample.data] == [[2, 3], [2, 3], [-2, -3], [2, 3]]
    assert expected == [2, 3, 2, 3, -2, -3, 2, 3]


def test_signatures_and_samples_are_nests_of_dm_tree(serve):
    tree = pytest.importorskip("tree")
    data = {"x": np.int64(1), "nest": Pair(np.zeros(2), [np.int32(3)])}
    signature = tree.map_structure(lambda value: reverb.TensorSpec(value.shape, value.dtype), data)
    client = serve(make_table(signature=signature)).localhost_client()
    client.insert(data, {"table": 1.0})
    (step,) = next(client.sample("table", unpack_as_table_signature=True))
    assert tree.map_structure(lambda value: value.dtype.name, step.data)["nest"][0] == "float64"
    stacked = tree.map_structure(lambda *values: np.stack(values), *[step, step])  # infos too
    assert stacked.info.priority.tolist() == [1.0, 1.0]
    assert stacked.data["nest"][1][0].tolist() == [3, 3]


# --- TensorFlow ---


@pytest.fixture
def tf():
    return pytest.importorskip("tensorflow")


def test_tensors_and_variables_as_steps_and_priorities(serve, connect, tf):
    client = connect(serve(make_table(max_times_sampled=1)))
    writer = client.trajectory_writer(3)
    writer.append({"x": tf.constant([1.0, 2.0]), "name": tf.constant("a"), "flag": tf.constant(True)})
    writer.append({"x": tf.Variable([3.0, 4.0]), "name": "b", "flag": np.False_})
    writer.append(tf.nest.map_structure(lambda h: tf.zeros_like(h[-1].numpy()), writer.history))  # a padding step
    trajectory = tf.nest.map_structure(lambda h: h[:], writer.history)
    writer.create_item("table", tf.Variable(7.0), trajectory)
    writer.flush()
    (sample,) = client.sample("table", emit_timesteps=False)
    flag, name, x = sample.data
    assert sample.info.priority == 7.0
    assert flag.tolist() == [True, False, False]
    assert name.tolist() == [b"a", b"b", b""]
    assert x.dtype == np.float32
    assert x.tolist() == [[1, 2], [3, 4], [0, 0]]


def test_specs_go_in_and_come_out_as_tensorflows(serve, tf):
    signature = Pair({"a": tf.TensorSpec([None, 2], tf.float32, "a")}, (tf.TensorSpec([], tf.string),))
    client = serve(make_table(signature=signature)).localhost_client()
    known = client.server_info()["table"].signature
    assert isinstance(known.second["a"], tf.TensorSpec)
    assert known.second["a"] == tf.TensorSpec([None, 2], tf.float32, "a")
    assert known.first[0].is_compatible_with(tf.constant("text"))
    assert tf.nest.map_structure(lambda spec: spec.dtype, known).first == (tf.string,)
    assert type(known) is type(client.server_info()["table"].signature)
    assert [dtype.as_numpy_dtype for dtype in reverb.SampleInfo.tf_dtypes()] == [
        np.uint64, np.float64, np.int64, np.float64, np.int32,
    ]  # fmt: skip


def test_inferred_signatures_compare_with_tensorflows(tf):
    ref = sw.create_reference_step({"image": 0, "reward": 0})
    config = sw.create_config({"images": ref["image"][-2:], "reward": ref["reward"][-1]}, "temp", conditions=[])
    step = {"image": tf.TensorSpec([4, 4, 3], tf.uint8), "reward": tf.TensorSpec([], tf.float32)}
    assert sw.infer_signature([config], step) == {
        "images": tf.TensorSpec([2, 4, 4, 3], tf.uint8, "images"),
        "reward": tf.TensorSpec([], tf.float32, "reward"),
    }


def test_samples_through_a_tf_data_pipeline(serve, connect, tf):
    """Uses a generator in place of the datasets that do not exist yet, as the error of TrajectoryDataset suggests."""
    signature = {"x": reverb.TensorSpec((2,), np.float32), "i": reverb.TensorSpec((), np.int64)}
    server = serve(make_table(sampler=selectors.Fifo(), max_times_sampled=1, limiter=rate_limiters.MinSize(1)))
    client = connect(server)

    def generate():
        samples = client.sample("table", 1000, emit_timesteps=False, timeout=1)
        try:
            for sample in samples:
                i, x = sample.data
                yield sample.info.key, i[0], x[0]
        except reverb.DeadlineExceededError:
            return

    dataset = tf.data.Dataset.from_generator(
        generate,
        output_signature=(
            tf.TensorSpec([], tf.uint64),
            tf.TensorSpec(signature["i"].shape, tf.int64),
            tf.TensorSpec(signature["x"].shape, tf.float32),
        ),
    )

    def act():
        for i in range(40):
            client.insert({"x": np.full(2, i, np.float32), "i": i}, {"table": 1.0})

    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    batches = list(dataset.batch(8, drop_remainder=True).prefetch(2).take(5).as_numpy_iterator())
    join(actor)
    assert np.concatenate([i for _, i, _ in batches]).tolist() == list(range(40))
    assert batches[0][2].shape == (8, 2)
    assert batches[0][0].dtype == np.uint64


def test_priorities_from_a_traced_function(serve, connect, tf):
    client = connect(serve(make_table(sampler=selectors.Prioritized(1.0))))
    client.insert(0, {"table": 1.0})
    key = next(client.sample("table"))[0].info.key

    @tf.function
    def train(keys, errors):
        tf.numpy_function(
            lambda k, p: client.update_priorities("table", k, p) or np.int32(0), [keys, tf.abs(errors)], tf.int32
        )

    train(tf.constant([key], tf.uint64), tf.constant([-2.5], tf.float64))
    assert client.peek("table")[0].info.priority == 2.5
