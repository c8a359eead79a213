"""Tests TableInfo and its parts."""

import copy

import numpy as np
import pytest

from reverb import reverb_types as rt
from reverb._compat import table_messages
from reverb._specs import BoundedTensorSpec, TensorSpec


def make(**changes):
    fields = {
        "name": "replay",
        "sampler_options": table_messages.selector_options("prioritized", 0.6),
        "remover_options": table_messages.selector_options("fifo"),
        "max_size": 1000,
        "max_times_sampled": -1,
        "rate_limiter_info": table_messages.rate_limiter_info(2.0, 10, -5.5, 1e300, inserts=7, samples=3),
        "signature": {"x": (TensorSpec((None, 2), np.int8, "n"), BoundedTensorSpec((), np.float32, 0, 1))},
        "current_size": 6,
        "num_episodes": 2,
        "num_deleted_episodes": 1,
        "num_unique_samples": 3,
        "table_worker_time": rt.TableWorkerTime(sleeping_ms=12),
    }
    return rt.TableInfo(**{**fields, **changes})


def test_attributes():
    info = make()
    assert info.rate_limiter_info.insert_stats.completed == 7
    assert info.rate_limiter_info.sample_stats.completed == 3
    assert info.rate_limiter_info.min_diff == -5.5
    assert info.table_worker_time.inserting_ms == 0
    assert info.sampler_options.prioritized.priority_exponent == 0.6


@pytest.mark.parametrize(
    ("kind", "member", "deterministic"),
    [
        ("fifo", "fifo", True),
        ("lifo", "lifo", True),
        ("uniform", "uniform", False),
        ("min_heap", "heap", True),
        ("max_heap", "heap", True),
        ("prioritized", "prioritized", False),
        ("custom", None, False),
    ],
)
def test_selectors(kind, member, deterministic):
    options = table_messages.selector_options(kind, 0.0)
    assert options.WhichOneof("distribution") == member
    assert options.is_deterministic == deterministic
    assert options.heap.min_heap == (kind == "min_heap")
    assert rt.KeyDistributionOptions.FromString(options.SerializeToString()) == options


def test_no_such_selector():
    with pytest.raises(ValueError, match="newest"):
        table_messages.selector_options("newest")


def test_compared_by_value():
    assert make() == make()
    assert make() != make(max_size=9)
    slept = make()
    slept.table_worker_time.sleeping_ms = 99
    assert slept != make()
    slept.table_worker_time.sleeping_ms = make().table_worker_time.sleeping_ms
    assert slept == make()
    assert copy.deepcopy(slept) == slept
    with pytest.raises(TypeError):
        hash(slept)


@pytest.mark.parametrize("signature", [make().signature, None, TensorSpec((3,), np.uint8)])
def test_bytes(signature):
    info = make(signature=signature)
    assert rt.TableInfo.from_serialized_proto(info.to_serialized_proto()) == info


def test_bytes_that_are_none():
    with pytest.raises(ValueError, match="byte"):
        rt.TableInfo.from_serialized_proto(b"\xff\xff")
    assert rt.TableInfo.from_serialized_proto(b"").name == ""


def test_bytes_from_protobuf():
    pytest.importorskip("google.protobuf")
    from reverb.cc import schema_pb2

    proto = schema_pb2.TableInfo.FromString(make().to_serialized_proto())
    assert proto.rate_limiter_info.max_diff == 1e300
    assert proto.signature.dict_value.fields["x"].tuple_value.values[0].tensor_spec_value.name == "n"
    proto.num_episodes = 40
    assert rt.TableInfo.from_serialized_proto(proto.SerializeToString()) == make(num_episodes=40)


def test_names_for_annotations():
    assert rt.SpecNest is not None
    assert rt.SelectorType is not None
