"""Tests tables as values, without and with a server."""

import dataclasses
import pickle
import sys

from conftest import make_table
import numpy as np
import pytest

import reverb
from reverb import pybind, rate_limiters, reverb_types, selectors


def test_info_without_a_server():
    table = make_table(
        "replay", sampler=selectors.Prioritized(0.8), max_size=10, max_times_sampled=3, limiter=rate_limiters.MinSize(2)
    )
    info = table.info
    assert isinstance(info, reverb_types.TableInfo)
    assert table.name == info.name == "replay"
    assert info.sampler_options.WhichOneof("distribution") == "prioritized"
    assert info.sampler_options.prioritized.priority_exponent == 0.8
    assert not info.sampler_options.is_deterministic
    assert info.remover_options.WhichOneof("distribution") == "fifo"
    assert info.remover_options.is_deterministic
    assert (info.max_size, info.max_times_sampled, info.current_size, info.num_episodes) == (10, 3, 0, 0)
    limiter = info.rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (1.0, 2)
    assert (limiter.min_diff, limiter.max_diff) == (-sys.float_info.max, sys.float_info.max)
    assert (limiter.insert_stats.completed, limiter.sample_stats.completed) == (0, 0)
    assert info.signature is None


@pytest.mark.parametrize(
    ("selector", "kind"),
    [
        (selectors.Fifo(), "fifo"),
        (selectors.Lifo(), "lifo"),
        (selectors.Uniform(), "uniform"),
        (selectors.Uniform(seed=3), "uniform"),
        (selectors.Prioritized(1.0, seed=3), "prioritized"),
        (selectors.MinHeap(), "heap"),
        (selectors.MaxHeap(), "heap"),
    ],
)
def test_every_selector_on_both_sides(selector, kind):
    info = make_table(sampler=selector, remover=selector).info
    assert info.sampler_options.WhichOneof("distribution") == kind
    assert info.remover_options == info.sampler_options


def test_heaps():
    assert make_table(sampler=selectors.MinHeap()).info.sampler_options.heap.min_heap
    assert not make_table(sampler=selectors.MaxHeap()).info.sampler_options.heap.min_heap


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"name": ""}, ValueError, "nonempty"),
        ({"name": "x" * 1025}, ValueError, "the name has 1025 bytes, at most 1024"),
        ({"name": "\u2603" * 342}, ValueError, "the name has 1026 bytes, at most 1024"),
        ({"name": 3}, TypeError, "name must be a str"),
        ({"max_size": 0}, ValueError, r"max_size \(0\)"),
        ({"max_size": -1}, ValueError, r"max_size \(-1\)"),
        ({"max_size": 2.5}, TypeError, "max_size"),
        ({"max_size": 2**31}, TypeError, "32 bits"),
        ({"max_times_sampled": None}, TypeError, "max_times_sampled"),
        ({"signature": {"a": "no spec"}}, ValueError, "unsupported signature spec"),
        ({"signature": {1: np.zeros(3)}}, TypeError, "str"),
    ],
)
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        make_table(**{"name": "table", **arguments})


@pytest.mark.parametrize("bad", [None, 3, "fifo"])
def test_bad_parts(bad):
    with pytest.raises(TypeError):
        reverb.Table("t", bad, selectors.Fifo(), 1, rate_limiters.MinSize(1))
    with pytest.raises(TypeError):
        reverb.Table("t", selectors.Fifo(), selectors.Fifo(), 1, bad)


def test_sizes_of_numpy_and_odd_names():
    table = make_table('any "name" \u2603', max_size=np.int64(5), max_times_sampled=-3)
    assert table.info.max_size == 5
    assert table.info.max_times_sampled == -3
    assert table.name == 'any "name" \u2603'


def test_queue_and_stack():
    queue, stack = reverb.Table.queue("q", 10), reverb.Table.stack("s", 10)
    for table, kind in ((queue, "fifo"), (stack, "lifo")):
        info = table.info
        assert info.sampler_options.WhichOneof("distribution") == kind
        assert info.remover_options.WhichOneof("distribution") == kind
        assert (info.max_size, info.max_times_sampled) == (10, 1)
        limiter = info.rate_limiter_info
        assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (1.0, 1)
        assert (limiter.min_diff, limiter.max_diff) == (0.0, 10.0)


def test_can_sample_and_insert_ask_the_limiter_alone():
    queue = reverb.Table.queue("q", 2)
    assert queue.can_insert(2)
    assert not queue.can_insert(4)
    assert not queue.can_sample(1)
    free = make_table()
    assert free.can_insert(10**9)
    assert not free.can_sample(1)
    for bad in (0, -1):
        with pytest.raises(ValueError):
            free.can_sample(bad)
        with pytest.raises(ValueError):
            free.can_insert(bad)
    for bad in (1.5, 2**31, "1"):
        with pytest.raises(TypeError):
            free.can_sample(bad)


def test_replace_keeps_what_is_not_given():
    signature = {"a": reverb.TensorSpec((3,), np.float32, "a")}
    table = make_table(
        "old",
        sampler=selectors.MaxHeap(),
        max_size=7,
        limiter=rate_limiters.SampleToInsertRatio(2.0, 3, 4.0),
        max_times_sampled=5,
        signature=signature,
    )
    same = table.replace()
    assert same is not table
    ours, theirs = same.info, table.info
    ours.table_worker_time = theirs.table_worker_time
    assert ours == theirs
    other = table.replace(name="new", max_size=9, rate_limiter=rate_limiters.MinSize(1), max_times_sampled=0)
    assert other.info.name == "new"
    assert other.info.max_size == 9
    assert other.info.max_times_sampled == 0
    assert other.info.rate_limiter_info.min_size_to_sample == 1
    assert other.info.sampler_options == theirs.sampler_options
    assert other.info.signature == signature
    assert table.name == "old"


def test_replace_with_the_seed_of_the_selector():
    table = make_table(sampler=selectors.Uniform(seed=7))
    assert table.replace()._sampler.seed == 7


def test_signatures_come_back_as_they_were():
    bounded = reverb.BoundedTensorSpec((2,), np.int32, minimum=0, maximum=[5, 6], name="action")
    signature = {"b": [reverb.TensorSpec((None, 3), np.float32, "x")], "a": (bounded,)}
    assert make_table(signature=signature).info.signature == signature


@pytest.mark.parametrize("empty", [None, {}, (), []])
def test_an_empty_signature_is_none(empty):
    assert make_table(signature=empty).info.signature is None


def test_anything_with_shape_and_dtype_describes_a_leaf():
    signature = make_table(signature=[np.zeros((2, 3), np.int8), np.float32(1)]).info.signature
    assert signature == [reverb.TensorSpec((2, 3), np.int8), reverb.TensorSpec((), np.float32)]


def test_reprs():
    assert repr(selectors.Fifo()) == "FifoSelector"
    assert repr(selectors.Lifo()) == "LifoSelector"
    assert repr(selectors.Uniform()) == "UniformSelector"
    assert repr(selectors.MinHeap()) == "HeapSelector(sign=1)"
    assert repr(selectors.MaxHeap()) == "HeapSelector(sign=-1)"
    assert repr(selectors.Prioritized(0.8)) == "PrioritizedSelector(priority_exponent=0.8)"
    assert repr(rate_limiters.MinSize(3)) == (
        "RateLimiter(samples_per_insert=1, min_diff_=-1.79769e+308, max_diff=1.79769e+308, min_size_to_sample=3)"
    )
    assert repr(reverb.Table.queue("q", 5)) == (
        "Table(sampler=FifoSelector, remover=FifoSelector, max_size=5, max_times_sampled=1, name=q, "
        "rate_limiter=RateLimiter(samples_per_insert=1, min_diff_=0, max_diff=5, min_size_to_sample=1), "
        "signature=nullptr)"
    )


def test_infos_are_plain_values():
    info = make_table().info
    assert dataclasses.is_dataclass(info)
    info.table_worker_time.sleeping_ms = 5
    info.current_size = 3
    with pytest.raises(TypeError):
        hash(info)


def test_a_pickle_has_the_settings_of_a_table_without_its_items():
    table = reverb.Table(
        "t", selectors.Prioritized(0.5, seed=3), selectors.MaxHeap(), 7, rate_limiters.SampleToInsertRatio(2.0, 3, 4.0), 5,
        signature={"x": reverb.TensorSpec((2,), np.float32, "x")}, layout="first", max_age=60.0, max_bytes=1 << 30,
    )  # fmt: skip
    with reverb.Server([table]) as server:
        server.localhost_client().insert({"x": np.zeros(2, np.float32)}, {"t": 1.0})
        copy = pickle.loads(pickle.dumps(table))
    assert repr(copy) == repr(table)
    assert (copy.info.current_size, copy.info.max_age, copy.info.layout) == (0, 60.0, "first")
    assert copy.info.max_bytes == 1 << 30
    assert copy.info.signature == table.info.signature
    with reverb.Server([copy]) as server:
        assert server.localhost_client().server_info()["t"].current_size == 0


# --- Selectors and limiters ---


@pytest.mark.parametrize(
    "selector",
    [selectors.Fifo(), selectors.Lifo(), selectors.Uniform(seed=2**64 - 1), selectors.MinHeap(), selectors.MaxHeap(),
     selectors.Prioritized(0.5, seed=3)],
)  # fmt: skip
def test_selectors_are_values(selector):
    copy = pickle.loads(pickle.dumps(selector))
    assert type(copy) is type(selector)
    assert copy == selector
    assert hash(copy) == hash(selector)
    assert copy.seed == selector.seed
    assert selector != selectors.Prioritized(0.25)


@pytest.mark.parametrize("exponent", [float("nan"), float("inf"), -1.0])
def test_exponents_that_cannot_work(exponent):
    with pytest.raises(ValueError):
        selectors.Prioritized(exponent)


def test_selectors_from_their_options():
    chosen = [selectors.Fifo(), selectors.Lifo(), selectors.Uniform(), selectors.MinHeap(), selectors.Prioritized(0.5)]
    for selector in chosen:
        options = make_table(sampler=selector).info.sampler_options
        assert pybind.selector_from_proto(options.SerializeToString()) == selector
    for bad in (b"\xff\xff", b""):
        with pytest.raises(ValueError):
            pybind.selector_from_proto(bad)


def test_min_size():
    for bad in (0, -1):
        with pytest.raises(ValueError, match="min_size_to_sample"):
            rate_limiters.MinSize(bad)
    for bad in (2**31, 1.5):
        with pytest.raises(TypeError):
            rate_limiters.MinSize(bad)


@pytest.mark.parametrize(
    "arguments", [(0, 1, 0, 1), (-1, 1, 0, 1), (1, 0, 0, 1), (1, 1, float("nan"), 1), (1, 1, 2, 1)]
)
def test_numbers_of_a_limiter_that_cannot_work(arguments):
    with pytest.raises(ValueError):
        rate_limiters.RateLimiter(*arguments)


@pytest.mark.parametrize("limiter", [rate_limiters.Queue, rate_limiters.Stack])
@pytest.mark.parametrize("size", [0, -1, 0.5, float("nan")])
def test_a_queue_into_which_nothing_fits(limiter, size):
    with pytest.raises(ValueError, match=rf"size of a {limiter.__name__} \({size}\)"):
        limiter(size)


@pytest.mark.parametrize(
    ("ratio", "min_size", "buffer", "good"),
    [
        (5, 10, 4, False),
        (0.5, 10, 0.9, False),
        (0.5, 10, 1.1, True),
        (5, 10, (8, 12), False),
        (0.1, 10, (9.5, 10.5), False),
        (1, 10, (5, 9), True),
        (1, 10, (11, 15), False),
        (1, 10, (7, 12), True),
        (1, 0, (-100, 100), False),
        (0, 10, 100, False),
        (-1, 10, 100, False),
    ],
)
def test_sample_to_insert_ratio(ratio, min_size, buffer, good, caplog):
    if good:
        rate_limiters.SampleToInsertRatio(ratio, min_size, buffer)
    else:
        with pytest.raises(ValueError):
            rate_limiters.SampleToInsertRatio(ratio, min_size, buffer)
    assert ("max_diff (9)" in caplog.text) == (buffer == (5, 9))


def test_the_offset_of_a_buffer():
    info = make_table(limiter=rate_limiters.SampleToInsertRatio(2.0, 10, 5.0)).info.rate_limiter_info
    assert (info.min_diff, info.max_diff) == (15.0, 25.0)
    info = make_table(limiter=rate_limiters.SampleToInsertRatio(2.0, 10, (5.0, 30.0))).info.rate_limiter_info
    assert (info.min_diff, info.max_diff) == (5.0, 30.0)


def test_a_limiter_may_be_replaced(serve):
    table = reverb.Table.queue("q", 2)
    table.set_rate_limiter(rate_limiters.Queue(5))
    assert table.info.rate_limiter_info.max_diff == 5
    server = serve(make_table(limiter=rate_limiters.MinSize(10)))
    server.tables[0].set_rate_limiter(rate_limiters.MinSize(1))
    client = server.localhost_client()
    client.insert(1, {"table": 1.0})
    next(client.sample("table"))
    client.set_rate_limiter("table", rate_limiters.MinSize(7))
    assert client.server_info()["table"].rate_limiter_info.min_size_to_sample == 7


@pytest.mark.parametrize("name", ["sampler", "remover"])
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("uniform", r"got 'uniform' of type str; use reverb\.selectors\.Uniform\(\)"),
        ("max_heap", r"got 'max_heap' of type str; use reverb\.selectors\.MaxHeap\(\)"),
        ("prioritized", r"use reverb\.selectors\.Prioritized\(priority_exponent=0\.6\)"),
        (selectors.Fifo, r"use reverb\.selectors\.Fifo\(\)"),
        (selectors.MinHeap, r"use reverb\.selectors\.MinHeap\(\)"),
        ("best", r"use reverb\.selectors\.Uniform\(\), Fifo\(\) or another"),
        (None, r"got None of type NoneType"),
    ],
)
def test_a_selector_of_a_wrong_type(name, value, remedy):
    chosen = {"sampler": selectors.Uniform(), "remover": selectors.Fifo(), name: value}
    with pytest.raises(TypeError, match=rf"{name} must be one of reverb\.selectors, .*{remedy}"):
        reverb.Table("table", max_size=10, rate_limiter=rate_limiters.MinSize(1), **chosen)


@pytest.mark.parametrize("value", ["min_size", rate_limiters.MinSize, None, 3])
def test_a_limiter_of_a_wrong_type(serve, value):
    expected = r"rate_limiter must be one of reverb\.rate_limiters, got .* of type .*; use reverb\.rate_limiters\.MinSize\(1\)"
    table = make_table()
    client = serve(table).localhost_client()
    for call in (
        lambda: reverb.Table("table", selectors.Uniform(), selectors.Fifo(), max_size=10, rate_limiter=value),
        lambda: table.set_rate_limiter(value),
        lambda: client.set_rate_limiter("table", value),
    ):
        with pytest.raises(TypeError, match=expected):
            call()
