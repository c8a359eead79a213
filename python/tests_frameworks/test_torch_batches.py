"""Tests reverb.torch.BatchDataset: tensors over the memory of batches, structures, dtypes, TensorDicts."""

from __future__ import annotations

import collections

from conftest import make_table
import ml_dtypes
import numpy as np
import pytest
import torch

import reverb
import reverb.torch
from reverb.torch import BatchDataset, _tensors

Pair = collections.namedtuple("Pair", ["second", "first"])


@pytest.fixture
def client(serve, connect):
    uniform = make_table("uniform", sampler=reverb.selectors.Uniform(seed=1))
    return connect(serve(make_table(), uniform, reverb.Table.queue("queue", 100)))


def insert(client, values, table="table"):
    for value in values:
        client.insert(value, {table: 1.0})


def test_batches_are_tensors_with_the_structure_and_values_of_numpy_batches(serve, connect):
    data = {"x": np.arange(3, dtype=np.float32), "nest": Pair(np.int64(1), [np.bool_(True), np.zeros((2, 2))])}
    signature = {
        "x": reverb.TensorSpec([None, 3], np.float32),
        "nest": Pair(
            reverb.TensorSpec([None], np.int64),
            [reverb.TensorSpec([None], np.bool_), reverb.TensorSpec([None, 2, 2], np.float64)],
        ),
    }
    client = connect(serve(make_table(signature=signature, sampler=reverb.selectors.Lifo())))
    insert(client, [data, {**data, "x": data["x"] + 1}])
    (batch,) = BatchDataset(client, "table", 4, num_batches=1)
    (expected,) = client.sample_batches("table", 4, num_batches=1)
    assert type(batch) is reverb.ReplaySample
    assert type(batch.info) is reverb.SampleInfo
    assert type(batch.data["nest"]) is type(expected.data["nest"])
    assert type(batch.data["nest"].first) is list
    tensors = [*batch.info[:2], batch.data["x"], batch.data["nest"].second, *batch.data["nest"].first]
    arrays = [*expected.info[:2], expected.data["x"], expected.data["nest"].second, *expected.data["nest"].first]
    for tensor, array in zip(tensors, arrays, strict=True):
        assert tensor.dtype == torch.from_numpy(array).dtype
        np.testing.assert_array_equal(tensor.numpy(), array)
    assert [field.dtype for field in batch.info] == [
        torch.uint64, torch.float64, torch.int64, torch.float64, torch.int32,
    ]  # fmt: skip


def test_tensors_share_the_memory_of_the_arrays(client):
    insert(client, [{"x": np.arange(100, dtype=np.float32)}])
    batch = next(client.sample_batches("table", 8))
    tensors = _tensors.to_tensors(batch.data)
    assert tensors["x"].data_ptr() == batch.data["x"].ctypes.data
    tensors["x"][0, 0, 0] = 7
    assert batch.data["x"][0, 0, 0] == 7


def test_memory_is_reused_only_after_the_last_tensor_over_it_is_gone(client):
    insert(client, [{"x": np.full(1000, step, np.float32)} for step in range(50)], "uniform")
    batches = iter(BatchDataset(client, "uniform", 64))
    first = next(batches)
    row = first.data["x"][3]  # a view keeps the memory, too
    keys, values, place = first.info.key.clone(), row.clone(), first.data["x"].data_ptr()
    del first
    others = set()
    for _ in range(30):
        batch = next(batches)
        others.add(batch.data["x"].data_ptr())
        batch.data["x"].zero_()
        batch.info.key.zero_()
        del batch
    assert place not in others
    assert len(others) < 30, "no memory was reused"
    assert torch.equal(row, values)
    assert keys.numel() == 64
    del row
    assert any(next(batches).data["x"].data_ptr() == place for _ in range(30))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.float16(1.5), torch.float16),
        (np.uint16(65535), torch.uint16),
        (np.uint32(2**32 - 1), torch.uint32),
        (np.uint64(2**64 - 1), torch.uint64),
        (np.int8(-5), torch.int8),
        (np.bool_(True), torch.bool),
        (np.complex64(1 + 2j), torch.complex64),
        (ml_dtypes.bfloat16(-2.5), torch.bfloat16),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_dtypes(client, value, dtype):
    insert(client, [{"x": np.asarray(value)}])
    tensor = next(iter(BatchDataset(client, "table", 2))).data["x"]
    assert tensor.dtype == dtype
    assert tensor.shape == (2, 1)
    assert tensor.flatten().tolist() == [np.asarray(value).item()] * 2


def test_a_column_of_strings_is_named(client):
    insert(client, [{"x": np.float32(1), "nest": {"name": "abc"}}])
    with pytest.raises(TypeError, match=r"column \('nest', 'name'\): PyTorch has no dtype.*object.*sample_batches"):
        next(iter(BatchDataset(client, "table", 2)))


def test_padded_batches_have_their_lengths(client):
    writer = client.trajectory_writer(4)
    for step in range(8):
        writer.append({"x": np.float32(step % 4)})
        writer.create_item("queue", 1.0, {"x": writer.history["x"][:]})
        if step == 3:
            writer.end_episode()
    writer.flush()
    batch = next(iter(BatchDataset(client, "queue", 4, pad=True)))
    assert type(batch) is reverb.torch.PaddedBatch
    assert batch.lengths["x"].tolist() == [1, 2, 3, 4]
    assert batch.data["x"][1].tolist() == [0, 1, 0, 0]
    as_dict = next(iter(BatchDataset(client, "queue", 4, pad=True, tensordict=True)))
    assert as_dict["lengths", "x"].tolist() == [1, 2, 3, 4]


def test_tensordicts(client):
    tensordict = pytest.importorskip("tensordict")
    insert(client, [{"x": np.arange(3), "list": [np.float32(1), {"y": np.bool_(True)}]}])
    batch = next(iter(BatchDataset(client, "table", 5, tensordict=True)))
    assert isinstance(batch, tensordict.TensorDict)
    assert batch.batch_size == (5,)
    assert batch["data", "x"].shape == (5, 1, 3)
    assert batch["data", "list", "1", "y"].dtype == torch.bool
    assert batch["info", "key"].dtype == torch.uint64
    assert batch[2:4].batch_size == (2,)
    assert set(batch.keys()) == {"info", "data"}


def test_a_table_of_single_values_as_tensordicts(client):
    insert(client, [np.float32(2)])
    batch = next(iter(BatchDataset(client, "table", 3, tensordict=True)))
    assert batch["data"].flatten().tolist() == [2, 2, 2]


def test_priorities_and_weights_take_tensors(serve, connect):
    client = connect(serve(make_table(sampler=reverb.selectors.Prioritized(1.0))))
    insert(client, [{"x": np.float32(step)} for step in range(3)])
    batch = next(iter(BatchDataset(client, "table", 8, exact=True)))
    weights = reverb.importance_weights(batch, beta=0.5)
    assert torch.from_numpy(weights).shape == (8,)
    client.update_priorities("table", batch.info.key, torch.full((8,), 5.0, dtype=torch.float32))
    assert {item.info.priority for item in client.peek("table", 3)} <= {1.0, 5.0}
    assert 5.0 in {item.info.priority for item in client.peek("table", 3)}


def test_the_number_of_batches(client):
    insert(client, [np.float32(2)])
    dataset = BatchDataset(client, "table", 3, num_batches=4)
    assert len(dataset) == 4
    assert len(list(dataset)) == 4
    assert len(list(dataset)) == 4, "each iteration starts anew"
    with pytest.raises(TypeError, match="without num_batches has no length"):
        len(BatchDataset(client, "table", 3))


def test_arguments(client):
    with pytest.raises(ValueError, match=r"batch_size \(0\) must be between 1"):
        BatchDataset(client, "table", 0)
    with pytest.raises(ValueError, match=r"num_batches \(-1\) must be between 1"):
        next(iter(BatchDataset(client.server_address, "table", 1, num_batches=-1)))
    with pytest.raises(TypeError, match="client must be a Client or an address, got 5 of type int"):
        BatchDataset(5, "table", 1)
    with pytest.raises(ValueError, match="nonsense"):
        next(iter(BatchDataset(client, "nonsense", 1, timeout=20)))


def test_a_timeout_does_not_end_the_iteration(client):
    batches = iter(BatchDataset(client, "table", 1, timeout=0.01))
    with pytest.raises(reverb.DeadlineExceededError):
        next(batches)
    insert(client, [{"x": np.float32(3)}])
    batches_of_all = iter(BatchDataset(client, "table", 1, timeout=60))
    assert next(batches_of_all).data["x"].item() == 3
    assert next(batches).data["x"].item() == 3
    batches.close()
    assert list(batches) == []


def test_it_cannot_be_resumed_and_says_so(client):
    dataset = BatchDataset(client, "table", 1)
    with pytest.raises(NotImplementedError, match=r"table 'table' changes while it is sampled.*checkpoint"):
        dataset.state_dict()
    with pytest.raises(NotImplementedError, match="no state to resume from"):
        dataset.load_state_dict({})
