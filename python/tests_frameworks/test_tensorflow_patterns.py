"""Tests PatternDataset: patterns applied to a dataset of steps."""

import gc

from conditions import wait_until
import numpy as np
import pytest

import reverb
from reverb import pattern_dataset, structured
from reverb._tensorflow import patterns

tf = pytest.importorskip("tensorflow")

STRUCTURE = {"a": None, "b": {"c": None}, "last": None}


def steps(count=10, episode=5):
    return tf.data.Dataset.from_tensor_slices(
        {
            "a": np.arange(count, dtype=np.int32),
            "b": {"c": [f"text {i}" for i in range(count)]},
            "last": [i % episode == episode - 1 for i in range(count)],
        }
    )


def config(transform, conditions=(), table="unused"):
    return structured.create_config(structured.pattern_from_transform(STRUCTURE, transform), table, conditions)


def apply(configs, dataset=None, respect_episode_boundaries=True, is_end_of_episode=lambda step: step["last"]):
    return reverb.PatternDataset(dataset or steps(), configs, respect_episode_boundaries, is_end_of_episode)


def test_items_of_the_last_steps():
    dataset = apply([config(lambda ref: {"x": ref["a"][-3:], "y": [ref["b"]["c"][-1]]})])
    assert isinstance(dataset, tf.data.Dataset)
    assert isinstance(dataset, reverb.PatternDataset)
    assert dataset.element_spec == {
        "x": tf.TensorSpec([3], tf.int32, "x"), "y": (tf.TensorSpec([], tf.string, "y/0"),),
    }  # fmt: skip
    items = list(dataset)
    assert [item["x"].numpy().tolist() for item in items] == [
        [0, 1, 2], [1, 2, 3], [2, 3, 4], [5, 6, 7], [6, 7, 8], [7, 8, 9],
    ]  # fmt: skip
    assert [item["y"][0].numpy() for item in items][:2] == [b"text 2", b"text 3"]


def test_items_across_the_ends_of_episodes():
    dataset = apply([config(lambda ref: ref["a"][-3:])], respect_episode_boundaries=False)
    assert [item.numpy().tolist() for item in dataset] == [[i, i + 1, i + 2] for i in range(8)]


def test_several_configs_in_their_order():
    # A short pattern behind a long one starts as early as alone, and items may differ in length.
    configs = [config(lambda ref: (ref["a"][-3:],)), config(lambda ref: (ref["a"][-1:],))]
    before = [each.SerializeToString() for each in configs]
    dataset = apply(configs, steps(4, episode=4))
    assert dataset.element_spec == (tf.TensorSpec([None], tf.int32, "0"),)
    assert [item[0].numpy().tolist() for item in dataset] == [[0], [1], [0, 1, 2], [2], [1, 2, 3], [3]]
    assert [each.SerializeToString() for each in configs] == before, "the caller's configs stay as they are"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (structured.Condition.step_index() <= 2, [0, 1, 2]),
        (structured.Condition.step_index() % 3 != 0, [1, 2, 4, 5, 7, 8]),
        (structured.Condition.steps_since_applied() >= 4, [3, 7]),
        (structured.Condition.is_end_episode(), [9]),
    ],
)
def test_conditions(condition, expected):
    dataset = apply([config(lambda ref: ref["a"][-1], [condition])], steps(10, episode=10))
    assert [int(item) for item in dataset] == expected


def test_elements_with_info():
    dataset = pattern_dataset.pattern_dataset_with_info(
        steps(), [config(lambda ref: ref["a"][-1])], True, lambda step: step["last"]
    )
    sample = next(iter(dataset))
    assert isinstance(sample, reverb.ReplaySample)
    assert [field.dtype for field in sample.info] == [tf.int32, tf.float32, tf.int32, tf.float32, tf.int32]
    assert [float(field) for field in sample.info] == [0] * 5
    assert int(sample.data) == 0


def test_steps_that_are_tuples():
    structure = (None, None)
    dataset = reverb.PatternDataset(
        tf.data.Dataset.from_tensor_slices(([1, 2, 3], [False, False, True])),
        [structured.create_config(structured.pattern_from_transform(structure, lambda ref: ref[0][-2:]), "t")],
        True,
        lambda step: step[1],
    )
    assert [item.numpy().tolist() for item in dataset] == [[1, 2], [2, 3]]


def test_what_is_refused():
    with pytest.raises(ValueError, match="is_end_of_episode must return a scalar of dtype bool"):
        apply([config(lambda ref: ref["a"][-1])], is_end_of_episode=lambda step: step["a"])
    with pytest.raises(ValueError, match="At least one config"):
        apply([])
    with pytest.raises(ValueError, match=r"All configs must target the same table but provided configs included a, b\."):
        apply([config(lambda ref: ref["a"][-1], table="b"), config(lambda ref: ref["a"][-1], table="a")])


def test_several_iterators_and_their_end():
    dataset = apply([config(lambda ref: ref["a"][-1])])
    first, second = iter(dataset), iter(dataset)
    assert [int(next(first)) for _ in range(3)] == [0, 1, 2]
    assert int(next(second)) == 0
    del first, second
    wait_until(lambda: gc.collect() is not None and not patterns._applied, what="the end of the writers")
