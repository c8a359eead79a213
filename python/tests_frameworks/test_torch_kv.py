"""reverb.integrations.kv with TensorDicts, and queues with tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")

from tensordict import NonTensorData, NonTensorStack, TensorDict  # noqa: E402

from reverb.integrations import kv  # noqa: E402
from reverb.integrations.queue import Queue  # noqa: E402


@pytest.fixture(name="store")
def fixture_store():
    store = kv.KVStore()
    yield store
    store.close()


def test_tensordicts_come_back(store):
    ids = torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([3])], layout=torch.jagged)
    prompts = [[{"role": "user", "content": "1 + 1?"}], [{"role": "user", "content": "2 + 2?"}]]
    fields = TensorDict(
        {
            "input_ids": ids,
            "scores": torch.tensor([0.5, 1.5]),
            "mask": torch.ones(2, 3, dtype=torch.bool),
            "uid": NonTensorStack("u0", "u1"),
            "raw_prompt": NonTensorStack(*(NonTensorData(prompt) for prompt in prompts)),
        },
        batch_size=[2],
    )
    meta = store.kv_batch_put(["a", "b"], "train", fields, [{"global_steps": 3, "status": "finished"}] * 2)
    assert meta.fields == ["input_ids", "scores", "mask", "uid", "raw_prompt"]
    data = store.kv_batch_get(["b", "a"], "train")
    assert isinstance(data, TensorDict)
    assert data.batch_size == torch.Size([2])
    assert [row.tolist() for row in data["input_ids"].unbind()] == [[3], [1, 2]]
    assert data["scores"].tolist() == [1.5, 0.5]
    assert torch.equal(data["mask"], torch.ones(2, 3, dtype=torch.bool))
    assert data["uid"] == ["u1", "u0"]
    assert data["raw_prompt"] == prompts[::-1]
    one = store.kv_batch_get("a", "train", select_fields="scores")
    assert list(one.keys()) == ["scores"]
    assert store.kv_list("train")["train"]["b"] == {"global_steps": 3, "status": "finished"}


def test_dicts_of_tensors_and_lists(store):
    store.kv_batch_put(["a", "b"], "p", {"x": [torch.ones(2), torch.ones(3)], "y": torch.arange(2), "z": ["u", "v"]})
    data = store.kv_batch_get(["a", "b"], "p")
    assert data["x"].is_nested
    assert data["y"].tolist() == [0, 1]
    assert data["z"] == ["u", "v"]
    one_for_all = TensorDict({"z": NonTensorData("same", batch_size=[2])}, batch_size=[2])
    store.kv_batch_put(["a", "b"], "p", one_for_all)
    assert store.kv_batch_get(["a", "b"], "p", ["z"])["z"] in ("same", ["same", "same"])


def test_tensors_in_a_queue_are_not_pickled():
    with Queue(allow_pickle=False) as queue:
        for tensor in (torch.arange(3), torch.randn(2, 3).to(torch.bfloat16), torch.tensor(1.5), torch.zeros(0, 2)):
            queue.put({"tensor": tensor, "name": "x"})
            got = queue.get(timeout=60)["tensor"]
            assert type(got) is torch.Tensor
            assert got.dtype == tensor.dtype
            assert torch.equal(got, tensor)
        jagged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
        with pytest.raises(TypeError, match="must be pickled"):
            queue.put(jagged)
    with Queue() as queue:
        queue.put([jagged, torch.nn.Linear(2, 2)])
        got, linear = queue.get(timeout=60)
        assert [row.tolist() for row in got.unbind()] == [[1.0], [1.0, 1.0]]
        assert linear.weight.shape == (2, 2)
