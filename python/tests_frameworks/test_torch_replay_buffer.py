"""Tests reverb.torch.ReplayBuffer beside the replay buffers of the real TorchRL."""

from __future__ import annotations

from conftest import make_table, run_in_threads
import ml_dtypes
import numpy as np
import pytest
import torch

import reverb
from reverb.torch import ReplayBuffer

tensordict = pytest.importorskip("tensordict")
torchrl_data = pytest.importorskip("torchrl.data")
TensorDict = tensordict.TensorDict


def theirs(prioritized):
    storage = torchrl_data.LazyTensorStorage(100)
    if prioritized:
        return torchrl_data.TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.5, storage=storage, batch_size=8)
    return torchrl_data.TensorDictReplayBuffer(storage=storage, batch_size=8)


def ours(prioritized):
    return ReplayBuffer.local(100, batch_size=8, **({"alpha": 0.7, "beta": 0.5} if prioritized else {}))


@pytest.fixture
def buffer():
    made = ours(True)
    yield made
    made.close()


def transitions(count, start=0):
    numbers = torch.arange(start, start + count)
    return TensorDict(
        {
            "observation": numbers[:, None].float().expand(count, 4).contiguous(),
            "action": numbers,
            "next": {"reward": numbers[:, None].double(), "done": (numbers % 2 == 0)[:, None]},
        },
        [count],
    )


def layout(data):
    return {key: (value.dtype, value.shape) for key, value in data.items(include_nested=True, leaves_only=True)}


def script(buffer):
    """What a learner does with its buffer. Returns the last sample."""
    buffer.extend(transitions(20))
    buffer.extend(transitions(10, 20))
    buffer.add(transitions(1, 30)[0])
    for _ in range(3):
        sample = buffer.sample()
        loss = (sample["observation"].sum(1) - sample["next", "reward"].squeeze(1)).abs()
        sample["td_error"] = loss.float() + 0.1
        buffer.update_tensordict_priority(sample)
    assert buffer.sample(3).batch_size == (3,)
    assert len(buffer) == 31
    return buffer.sample()


@pytest.mark.parametrize("prioritized", [True, False])
def test_a_script_of_torchrl_changes_one_line(prioritized):
    own = ours(prioritized)
    sample, expected = script(own), script(theirs(prioritized))
    difference = set(expected.keys(True, True)) ^ set(sample.keys(True, True))
    assert difference <= {"td_error"}, "TorchRL stores the priorities among the data once there are some"
    wanted = {key: value for key, value in layout(expected).items() if key != "td_error"}
    assert layout(sample) == wanted
    assert sample.batch_size == expected.batch_size
    numbers = sample["action"]
    assert torch.equal(sample["observation"][:, 3], numbers.float())
    assert torch.equal(sample["next", "reward"][:, 0], numbers.double())
    assert torch.equal(sample["next", "done"][:, 0], numbers % 2 == 0)
    own.close()


def test_priorities_and_weights_are_those_of_torchrl():
    """The probabilities follow from (|error| + eps) ** alpha; weights are relative to the batch."""
    own, other = ours(True), theirs(True)
    errors = torch.tensor([0.1, 0.5, 1.0, 4.0])
    for each in (own, other):
        each.extend(transitions(4))
        seen = {}
        while len(seen) < 4:
            sample = each.sample(64)
            seen.update(zip(sample["action"].tolist(), sample["index"].tolist(), strict=True))
        index = torch.tensor([seen[number] for number in range(4)])
        each.update_priority(index, errors)
        sample = each.sample(4096)
        shares = torch.bincount(sample["action"], minlength=4) / 4096
        expected = errors**0.7 / (errors**0.7).sum()
        assert torch.allclose(shares, expected, atol=0.05), each
        weights = torch.zeros(4)
        weights[sample["action"]] = sample["priority_weight"]
        expected = (errors / errors.min()) ** (-0.7 * 0.5)
        assert torch.allclose(weights, expected.float(), rtol=1e-3), each
    own.close()


def test_new_rows_have_the_largest_priority(buffer):
    buffer.extend(transitions(4))
    sample = buffer.sample()
    buffer.update_priority(sample["index"], torch.full((8, 3), 2.0) + torch.tensor([0.0, 5.0, 1.0]))
    buffer.extend(transitions(1, 4))
    priorities = {item.data["action"].item(): item.info.priority for item in buffer.client.peek("replay", 10)}
    assert priorities[4] == pytest.approx(7)
    assert {round(priorities[number.item()]) for number in sample["action"]} == {7}


def test_extend_takes_priorities(buffer):
    data = transitions(3)
    data["td_error"] = torch.tensor([[1.0], [2.0], [3.0]])
    buffer.extend(data)
    priorities = {item.data["action"].item(): item.info.priority for item in buffer.client.peek("replay", 10)}
    assert priorities == pytest.approx({0: 1.0, 1: 2.0, 2: 3.0})
    assert "td_error" not in set(buffer.sample().keys())


def test_samples_go_back_into_a_buffer(buffer):
    buffer.extend(transitions(4))
    buffer.extend(buffer.sample())
    assert len(buffer) == 12
    assert set(buffer.sample().keys()) == {"action", "observation", "next", "index", "priority_weight"}


def test_rows_of_time(buffer):
    """Slices of trajectories: a row is an item of shape [T, ...]."""
    data = TensorDict({"observation": torch.arange(24.0).reshape(4, 3, 2)}, [4, 3])
    buffer.extend(data)
    sample = buffer.sample(6)
    assert sample["observation"].shape == (6, 3, 2)
    assert torch.equal(sample["observation"], data["observation"][(sample["observation"][:, 0, 0] / 6).long()])
    sample["td_error"] = torch.rand(6, 3, 1)
    buffer.update_tensordict_priority(sample)
    errors = {item.info.priority for item in buffer.client.peek("replay", 4)}
    assert any(error == pytest.approx(sample["td_error"].amax((1, 2))[5].item()) for error in errors)


def test_other_processes_may_write_to_the_table(serve):
    server = serve(make_table("replay", sampler=reverb.selectors.Uniform()))
    buffer = ReplayBuffer(f"localhost:{server.port}", "replay", batch_size=4, prefetch=2)
    ReplayBuffer(f"localhost:{server.port}", "replay").extend(transitions(5))
    assert len(buffer) == 5
    assert buffer.sample()["action"].shape == (4,)
    buffer.empty()
    assert len(buffer) == 0
    buffer.close()


def test_transforms(buffer):
    class Scale:
        def __call__(self, data):
            return data.set("observation", data["observation"] * 2)

        def inv(self, data):
            return data.set("observation", data["observation"] + 1)

    buffer.append_transform(Scale())
    buffer.append_transform(lambda data: data.set("observation", data["observation"] + 0.5))
    buffer.extend(transitions(4))
    sample = buffer.sample()
    assert torch.equal(sample["observation"][:, 0], (sample["action"] + 1) * 2 + 0.5)


def test_a_transform_of_torchrl(buffer):
    transforms = pytest.importorskip("torchrl.envs.transforms")
    buffer.append_transform(transforms.Compose(transforms.DoubleToFloat(in_keys=[("next", "reward")])))
    buffer.extend(transitions(4))
    assert buffer.sample()["next", "reward"].dtype == torch.float32


def test_numbers_of_rows_change(buffer):
    for count in range(1, 9):
        buffer.extend(transitions(count))
        buffer.extend(transitions(0))
    assert len(buffer) == 36
    sizes = [buffer.sample(size).batch_size[0] for size in (3, 20, 5, 1)]
    assert sizes == [3, 20, 5, 1]


def test_threads_share_a_buffer(buffer):
    buffer.extend(transitions(10))

    def work():
        for _ in range(20):
            buffer.extend(transitions(4))
            sample = buffer.sample()
            assert torch.equal(sample["observation"][:, 0], sample["action"].float())
            buffer.update_priority(sample["index"], torch.rand(8))

    run_in_threads(4, work)
    assert len(buffer) == 100


def test_info_iteration_and_bfloat16(buffer):
    buffer.extend(TensorDict({"x": torch.arange(3).bfloat16() / 4}, [3]))
    data, info = buffer.sample(2, return_info=True)
    assert set(info) == {"index", "priority_weight"}
    assert data["x"].dtype == torch.bfloat16
    assert set(data["x"].tolist()) <= {0, 0.25, 0.5}
    assert buffer.client.peek("replay", 1)[0].data["x"].dtype == ml_dtypes.bfloat16
    assert next(iter(buffer)).batch_size == (8,)
    assert np.isfinite(info["priority_weight"].numpy()).all()


def test_errors(buffer):
    with pytest.raises(TypeError, match=r"extend\(\) takes a TensorDict with a batch dimension, got a dict"):
        buffer.extend({"x": 1})
    with pytest.raises(TypeError, match=r"add\(\) takes a row"):
        buffer.extend(TensorDict({"x": torch.ones(2)}, []))
    with pytest.raises(TypeError, match=r"add\(\) takes a TensorDict, got a list"):
        buffer.add([1])
    with pytest.raises(TypeError, match=r"entry \('name',\).*is not a tensor"):
        buffer.extend(TensorDict({"name": tensordict.NonTensorData("abc")}, [2]))
    buffer.extend(transitions(2))
    with pytest.raises(KeyError, match="no entry 'td_error'"):
        buffer.update_tensordict_priority(buffer.sample())
    with pytest.raises(ValueError, match="created without one"):
        ReplayBuffer(buffer.client, "replay").sample()
    with pytest.raises(NotImplementedError, match="checkpoint"):
        buffer.state_dict()
    empty = ReplayBuffer.local(5, batch_size=2, timeout=0.01)
    with pytest.raises(reverb.DeadlineExceededError):
        empty.sample()
    empty.close()
