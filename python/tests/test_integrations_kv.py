"""reverb.integrations.kv with arrays and lists; python/tests_frameworks/test_torch_kv.py has TensorDicts."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import processes
import pytest

import reverb
from reverb.integrations import kv

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensordict") is not None, reason="results are TensorDicts where tensordict is installed"
)


@pytest.fixture(name="store")
def fixture_store():
    store = kv.KVStore()
    yield store
    store.close()


def test_fields_and_tags(store):
    meta = store.kv_batch_put(
        ["a", "b"],
        "train",
        {"ids": [np.arange(3), np.arange(2)], "score": np.array([0.5, 1.5]), "text": ["x", "y"]},
        [{"step": 3}, {"step": 4}],
    )
    assert (meta.keys, meta.partition_id, meta.fields, meta.size) == (["a", "b"], "train", ["ids", "score", "text"], 2)
    store.kv_batch_put(["b"], "train", {"score": np.array([2.5])}, None)
    data = store.kv_batch_get(["b", "a"], "train")
    assert [ids.tolist() for ids in data["ids"]] == [[0, 1], [0, 1, 2]]
    assert data["score"].tolist() == [2.5, 0.5]
    assert data["text"] == ["y", "x"]
    assert store.kv_list("train") == {"train": {"a": {"step": 3}, "b": {"step": 4}}}
    assert store.kv_batch_get("a", "train", "score")["score"].tolist() == [0.5]


def test_objects_keep_their_types(store):
    objects = ["text", "\0odd", b"bytes", [{"role": "user", "content": "hi"}], (1, 2), {1: 2}, None, 1.5]
    keys = [str(i) for i in range(len(objects))]
    store.kv_batch_put(keys, "p", {"object": objects})
    assert store.kv_batch_get(keys, "p")["object"] == objects
    with pytest.raises(ValueError, match="the object is pickled"):
        kv.KVStore(store.address, allow_pickle=False).kv_batch_get(keys, "p")
    assert kv.KVStore(store.address, allow_pickle=False).kv_batch_get(keys[3:4], "p")["object"] == objects[3:4]


def test_what_is_missing_is_named(store):
    with pytest.raises(KeyError, match='there is no partition "nowhere"'):
        store.kv_batch_get(["a"], "nowhere", ["x"])
    assert store.kv_list("nowhere") == {}
    store.kv_clear(["a"], "nowhere")
    store.kv_batch_put(["a", "b'\\"], "p", {"x": [1, 2]})
    store.kv_batch_put(["a"], "p", {"y": [np.zeros(0)]})
    with pytest.raises(KeyError, match='has no samples "c"; 1 of 2 are missing'):
        store.kv_batch_get(["a", "c"], "p", "x")
    with pytest.raises(KeyError, match='lack the field "y"'):
        store.kv_batch_get(["a", "b'\\"], "p", ["x", "y"])
    with pytest.raises(KeyError, match='lack the field "z"'):
        store.kv_batch_get(["a"], "p", ["z"])
    assert store.kv_batch_get("a", "p", "y")["y"].shape == (1, 0)
    assert list(store.kv_batch_get("b'\\", "p")) == ["x"]
    with pytest.raises(ValueError, match="needs fields or tags"):
        store.kv_batch_put(["a"], "p")
    with pytest.raises(ValueError, match="tags has 2 elements for 1 keys"):
        store.kv_batch_put(["a"], "p", None, [{}, {}])
    with pytest.raises(ValueError, match="field 'x' has 3 samples for 2 keys"):
        store.kv_batch_put(["a", "b"], "p", {"x": [1, 2, 3]})


def test_a_partition_that_refuses_samples_is_named(store):
    reverb.Client(store.address).create_row_table(reverb.RowTable("grouped", group_size=2))
    with pytest.raises(RuntimeError, match="partition 'grouped' refused 1 of 1 samples"):
        store.kv_batch_put(["a"], "grouped", {"x": [1]})


def test_clear_and_list(store):
    store.kv_batch_put(["a", "b"], "p", None, [{"t": 1}, {"t": 2}])
    store.kv_batch_put(["c"], "q", {"x": [1]})
    store.kv_clear("a", "p")
    assert store.kv_list() == {"p": {"b": {"t": 2}}, "q": {"c": {}}}
    store.kv_clear(["b", "unknown"], "p")
    assert store.kv_list("p") == {"p": {}}


def test_a_store_that_closes_leaves_the_server(store):
    other = pickle.loads(pickle.dumps(store))
    other.kv_batch_put(["a"], "p", {"x": [1]})
    other.close()
    other.close()
    with pytest.raises(RuntimeError, match="the store is closed"):
        other.kv_list("p")
    assert store.kv_batch_get("a", "p")["x"].tolist() == [1]


def _put_from_another_process(results, stop, address):
    kv.init(address)
    kv.kv_batch_put(keys=["child"], partition_id="p", fields={"x": [np.arange(4)]}, tags=[{"from": "child"}])
    results.put(kv.kv_list("p"))
    kv.close()


def test_the_functions_use_the_store_of_the_process(monkeypatch):
    monkeypatch.delenv("REVERB_KV_ADDRESS", raising=False)
    kv.close()
    with pytest.raises(RuntimeError, match="call init"):
        kv.kv_list()
    address = kv.init()
    try:
        with processes.pool() as pool:
            pool.start(_put_from_another_process, address)
            assert pool.take(1) == [{"p": {"child": {"from": "child"}}}]
        assert kv.kv_batch_get(keys="child", partition_id="p", select_fields="x")["x"].tolist() == [[0, 1, 2, 3]]
        kv.kv_clear(keys="child", partition_id="p")
        assert kv.kv_list("p") == {"p": {}}
        monkeypatch.setenv("REVERB_KV_ADDRESS", address)
        store = kv._default
        kv._default = None
        assert kv.kv_list("p") == {"p": {}}
        kv.close()
        kv._default = store
    finally:
        kv.close()
