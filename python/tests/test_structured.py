"""Tests patterns, conditions and configs of the structured writer, as values."""

import operator
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from reverb import structured_writer as sw
from reverb._compat import structured_value
from reverb._specs import TensorSpec

# Flat: camera/0, camera/1/depth, done, position.
STEP = {"position": 0, "camera": [0, {"depth": 0}], "done": 0}


class Drive(NamedTuple):
    route: Any
    crash: Any


# --- Patterns ------------------------------------------------------------------------------------------


def test_an_int_is_one_row_and_a_slice_is_several():
    ref = sw.create_reference_step(STEP)
    assert ref["camera"][0][-1] == sw.PatternNode(flat_source_index=0, stop=-1)
    assert ref["position"][-4:] == sw.PatternNode(flat_source_index=3, start=-4)
    assert ref["done"][-4:-1] == sw.PatternNode(flat_source_index=2, start=-4, stop=-1)
    assert ref["done"][-5::2] == sw.PatternNode(flat_source_index=2, start=-5, step=2)
    assert ref["done"][np.int64(-2)] == sw.PatternNode(flat_source_index=2, stop=-2)
    assert sw.create_reference_step(None)[-1] == sw.PatternNode(stop=-1)


@pytest.mark.parametrize("key", ["x", None, 1.5, (1, 2), slice("a", None), slice(None, -2), slice(None), ...], ids=str)
def test_keys_that_mean_nothing(key):
    with pytest.raises(ValueError, match="Key"):
        sw.create_reference_step(STEP)["done"][key]


def test_a_leaf_cannot_be_iterated_over():
    with pytest.raises(TypeError, match="iterated"):
        list(sw.create_reference_step([0])[0])


def test_pattern_from_transform():
    pattern = sw.pattern_from_transform(STEP, lambda ref: Drive(ref["position"][-3:], {"bump": ref["done"][-1]}))
    assert isinstance(pattern, Drive)
    assert pattern.crash["bump"].flat_source_index == 2


def test_configs():
    ref = sw.create_reference_step(STEP)
    pattern = {"b": ref["position"][-3:], "a": (ref["done"][-1], [])}
    conditions = [sw.Condition.step_index() >= 3]
    config = sw.create_config(pattern, "trips", conditions)
    assert config.table == "trips"
    assert [node.flat_source_index for node in config.flat] == [2, 3]
    assert config.priority.constant_fn.value == 1.0
    assert config.priority.WhichOneof("priority_fn") == "constant_fn"
    assert sw.unpack_pattern(config) == pattern
    assert list(config.conditions) == conditions
    config.conditions.append(sw.Condition.is_end_episode())
    assert len(conditions) == 1  # a copy
    assert sw.Config.FromString(config.SerializeToString()) == config
    assert isinstance(config, sw.Config)
    assert sw.Config is sw.StructuredWriterConfig


def test_patterns_come_back():
    node = sw.create_reference_step(0)[-1]
    for pattern in (node, [node], (node, {"x": node}), Drive(node, [node, node])):
        assert sw.unpack_pattern(sw.create_config(pattern, "t")) == pattern
    flat = sw.Config(flat=[node, node], table="t")
    assert sw.unpack_pattern(flat) == [node, node]


def test_what_is_no_config():
    node = sw.create_reference_step(0)[-1]
    with pytest.raises(TypeError, match="reference step"):
        sw.create_config({"x": 3}, "t")
    with pytest.raises(TypeError, match="compared"):
        sw.create_config(node, "t", [sw.Condition.step_index()])
    with pytest.raises(TypeError, match="compared"):
        sw.create_config(node, "t", [sw.Condition.step_index() % 2])
    with pytest.raises(TypeError, match="ConditionProto"):
        sw.create_config(node, "t", [True])
    with pytest.raises(TypeError, match="str"):
        sw.create_config({1: node}, "t")
    with pytest.raises(TypeError):
        sw.create_config(node, 5)


def test_priorities():
    assert sw.constant_priority_fn(0).WhichOneof("priority_fn") == "constant_fn"
    priority = sw.td_error(0.9, STEP, lambda step: step["camera"][1]["depth"])
    assert priority.td_error.max_priority_weight == 0.9
    assert priority.td_error.flat_source_index == 1
    node = sw.create_reference_step(STEP)["done"][-1]
    assert sw.create_config(node, "t", priority=priority).priority == priority
    for bad in (lambda step: step["camera"], lambda step: 99, lambda step: True, lambda step: None):
        with pytest.raises(ValueError, match="must return a leaf"):
            sw.td_error(0.5, STEP, bad)


# --- Conditions ----------------------------------------------------------------------------------------

COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def holds(condition, value):
    """Evaluates a condition by the writer's rules."""
    kind = condition.WhichOneof("cmp")
    if kind == "mod_eq":
        result = value % condition.mod_eq.mod == condition.mod_eq.eq
    elif kind == "eq":
        result = value == condition.eq
    else:
        assert kind == "ge"
        result = value >= condition.ge
    return result != condition.inverse


@given(st.sampled_from(COMPARISONS), st.integers(-20, 20), st.lists(st.integers(-20, 20)))
def test_a_condition_holds_where_python_says_so(compare, bound, values):
    condition = compare(sw.Condition.step_index(), bound)
    assert [v for v in values if holds(condition, v)] == [v for v in values if compare(v, bound)]
    swapped = compare(bound, sw.Condition.step_index())
    assert [v for v in values if holds(swapped, v)] == [v for v in values if compare(bound, v)]


@given(st.sampled_from(COMPARISONS[:2]), st.integers(1, 9), st.integers(0, 9), st.lists(st.integers(0, 99)))
def test_so_does_one_modulo_a_number(compare, mod, remainder, values):
    condition = compare(sw.Condition.steps_since_applied() % mod, remainder)
    assert condition.WhichOneof("left") == "steps_since_applied"
    assert [v for v in values if holds(condition, v)] == [v for v in values if compare(v % mod, remainder)]


def test_left_sides():
    assert (sw.Condition.step_index() == 4) == sw.ConditionProto(step_index=True, eq=4)
    assert (sw.Condition.steps_since_applied() > 4) == sw.ConditionProto(steps_since_applied=True, ge=5)
    assert sw.Condition.is_end_episode() == sw.ConditionProto(is_end_episode=True, eq=1)
    data = sw.Condition.data(STEP)
    assert (data["camera"][0] < 1) == sw.ConditionProto(flat_source_index=0, ge=1, inverse=True)
    assert (data["position"] != np.int32(2)).WhichOneof("left") == "flat_source_index"
    assert (data["position"] != 2).flat_source_index == 3


def test_comparisons_that_would_lose_something():
    index = sw.Condition.step_index()
    for compare in COMPARISONS[2:]:
        with pytest.raises(ValueError, match="== or !="):
            compare(index % 3, 1)
    with pytest.raises(ValueError, match="== or !="):
        index % 3 % 2
    for mod in (0, -1):
        with pytest.raises(ValueError, match="> 0"):
            index % mod
    with pytest.raises(ValueError, match="remainder"):
        index % 3 == -1  # noqa: B015
    with pytest.raises(TypeError, match="neither true nor false"):
        0 < index < 5  # noqa: B015
    with pytest.raises(TypeError, match="neither true nor false"):
        sw.Condition.is_end_episode() and index > 3
    for bad in (1.5, "1", None):
        with pytest.raises(TypeError, match="int"):
            index >= bad  # noqa: B015
    with pytest.raises(ValueError, match="range"):
        index >= 1 << 31  # noqa: B015
    with pytest.raises(TypeError):
        hash(index)


# --- Signatures ----------------------------------------------------------------------------------------

SPEC = {
    "position": np.zeros(2, np.float32),
    "camera": [np.zeros((4, 4), np.uint8), {"depth": np.float64(0)}],
    "done": np.bool_(0),
}


def config(transform, table="t"):
    return sw.create_config(sw.pattern_from_transform(STEP, transform), table)


def test_signature_of_one_config():
    signature = sw.infer_signature(
        [
            config(
                lambda ref: {
                    "x": {"y": ref["position"][-3:]},
                    "z": (ref["done"][-1], ref["camera"][0][-5::2]),
                }
            )
        ],
        SPEC,
    )
    assert signature == {
        "x": {"y": TensorSpec((3, 2), np.float32, "x/y")},
        "z": (TensorSpec((), bool, "z/0"), TensorSpec((3, 4, 4), np.uint8, "z/1")),
    }


@given(st.integers(-40, -1), st.integers(0, 39), st.integers(1, 6))
def test_length_of_a_slice_is_that_of_the_list(start, length, step):
    stop = min(0, start + 1 + length)
    newest_last = list(range(100))
    rows = newest_last[start : stop or None : step]
    (spec,) = sw.infer_signature([config(lambda ref: [ref["done"][start:stop:step]])], SPEC)
    assert spec.shape == (len(rows),)


def test_a_bare_leaf_has_an_empty_name():
    assert sw.infer_signature([config(lambda ref: ref["done"][-1])], SPEC) == TensorSpec((), bool, "")


def test_lengths_that_differ_are_unknown():
    configs = [config(lambda ref, n=n: [ref["position"][-n:], ref["done"][-1]]) for n in (2, 3)]
    assert sw.infer_signature(configs, SPEC) == [
        TensorSpec((None, 2), np.float32, "0"),
        TensorSpec((), bool, "1"),
    ]


def test_step_specs_of_other_kinds():
    unknown = TensorSpec(None, np.int8)
    assert sw.infer_signature([config(lambda ref: [ref["done"][-2:]])], {**SPEC, "done": unknown}) == [
        TensorSpec(None, np.int8, "0")
    ]


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ([], "At least one"),
        # Users' tests match these sentences.
        (
            [config(lambda r: [r["done"][-1]]), config(lambda r: (r["done"][-1],))],
            r"All configs must have exactly the same pattern_structure\.",
        ),
        (
            [config(lambda r: r["done"][-1], "b"), config(lambda r: r["done"][-1], "a")],
            r"All configs must target the same table but provided configs included a, b\.",
        ),
        (
            [config(lambda r: {"x": r["done"][-1]}), config(lambda r: {"x": r["camera"][1]["depth"][-1]})],
            r"Configs produce trajectories with multiple dtypes at \('x',\)\. Got ",
        ),
        (
            [config(lambda r: {"x": r["done"][-1]}), config(lambda r: {"x": r["done"][-1:]})],
            r"Configs produce trajectories with incompatible shapes at \('x',\)\. Got ",
        ),
    ],
)
def test_configs_that_do_not_share_a_table(configs, message):
    with pytest.raises(ValueError, match=message):
        sw.infer_signature(configs, SPEC)


def test_shapes_that_differ_beyond_the_first_dimension():
    other = {**SPEC, "camera": [np.zeros((4, 5), np.uint8), {"depth": np.zeros((4, 4), np.uint8)}]}
    configs = [config(lambda r: r["camera"][0][-1]), config(lambda r: r["camera"][1]["depth"][-1])]
    with pytest.raises(ValueError, match="incompatible shapes"):
        sw.infer_signature(configs, other)
    with pytest.raises(ValueError, match="step_spec has 1"):
        sw.infer_signature([config(lambda r: r["position"][-1])], [np.float32(0)])


# --- For the extension ---------------------------------------------------------------------------------


def test_native_form():
    ref = sw.create_reference_step(STEP)
    made = sw.create_config(
        [ref["position"][-3::2], ref["done"][-1]],
        "trips",
        [
            sw.Condition.data(STEP)["done"] % 2 != 1,
            sw.Condition.step_index() < 4,
            sw.Condition.is_end_episode(),
        ],
        sw.td_error(0.5, STEP, lambda step: step["position"]),
    )
    assert sw.native_config(made) == (
        [(3, -3, None, 2), (2, None, -1, None)],
        "trips",
        [
            ("flat_source_index", 2, "mod_eq", 2, 1, True),
            ("step_index", 0, "ge", 0, 4, True),
            ("is_end_episode", 0, "eq", 0, 1, False),
        ],
        (0.5, 3),
        ([None, None],),
    )
    assert sw.native_config(sw.create_config(ref["done"][-1], "t"))[3] == 1.0
    assert sw.native_config(sw.Config(conditions=[sw.ConditionProto()])) == (
        [],
        "",
        [(None, 0, None, 0, 0, False)],
        None,
        (),
    )


def test_generated_messages_are_taken_too():
    pytest.importorskip("google.protobuf")
    from reverb.cc import patterns_pb2

    made = config(lambda ref: {"x": ref["done"][-2:]})
    generated = patterns_pb2.StructuredWriterConfig.FromString(made.SerializeToString())
    assert sw.as_config(generated) == made
    assert sw.unpack_pattern(generated) == sw.unpack_pattern(made)
    assert sw.infer_signature([generated], SPEC) == sw.infer_signature([made], SPEC)
    condition = patterns_pb2.Condition(step_index=True, ge=2)
    assert (sw.Condition.step_index() >= 2) == condition
    taken = sw.create_config([generated.flat[0]], "t", [condition])
    assert taken.conditions[0] == condition
    with pytest.raises(TypeError):
        sw.as_config("config")


def test_unknown_names_of_the_module():
    with pytest.raises(AttributeError, match="no attribute"):
        sw.StructuredReader  # noqa: B018
    assert structured_value.StructuredValue().WhichOneof("kind") is None
