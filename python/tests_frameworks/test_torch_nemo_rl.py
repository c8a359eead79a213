"""reverb.integrations.nemo_rl with tensors in TensorDicts."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
import re
import subprocess
import sys
import threading
from typing import Any

import conditions
import processes
import pytest

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")

from tensordict import TensorDict  # noqa: E402

import reverb  # noqa: E402
from reverb.integrations.nemo_rl import BatchMeta, ReverbDataPlaneClient  # noqa: E402


@pytest.fixture(name="client", params=["own server", "local", "grpc"])
def fixture_client(request, monkeypatch):
    if request.param == "own server":
        client = ReverbDataPlaneClient()
        yield client
        client.close()
        return
    server = reverb.Server([reverb.RowTable("other")])
    client = ReverbDataPlaneClient(f"localhost:{server.port}")
    client._client = reverb.Client(client.address, in_process=False, local=request.param == "local")
    yield client
    client.close()
    server.stop()


def register(client, **options):
    options = {"fields": ["x"], "num_samples": 4, "consumer_tasks": ["train"], **options}
    client.register_partition("p", **options)


def jagged(rows, dtype=torch.int64):
    return torch.nested.nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)


def fields_of(count=None, **fields):
    return TensorDict(fields, batch_size=[count or len(next(iter(fields.values())))])


def test_register_put_get_clear(client):
    register(client)
    meta = client.put_samples(["a", "b", "c", "d"], "p", fields_of(x=torch.arange(4)), [{"n": i} for i in range(4)])
    assert (meta.partition_id, meta.task_name, meta.sample_ids, meta.fields) == ("p", None, ["a", "b", "c", "d"], ["x"])
    assert meta.tags == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]
    out = client.get_samples(["d", "a"], "p", ["x"])
    assert out.batch_size == torch.Size([2])
    assert torch.equal(out["x"], torch.tensor([3, 0]))
    client.clear_samples(["a"], "p")
    with pytest.raises(KeyError, match='no samples "a"; 1 of 2'):
        client.get_samples(["a", "b"], "p", ["x"])
    client.clear_samples(None, "p")
    with pytest.raises(KeyError, match="3 of 3"):
        client.get_samples(["b", "c", "d"], "p", ["x"])
    client.clear_samples(None, "unknown")
    assert client.get_samples([], "p", ["x"]).batch_size == torch.Size([0])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(2),
        torch.tensor([True, False]),
        torch.randn(2, 5),
        torch.randn(2, 1),
        torch.randn(2, 3, 4, dtype=torch.float64),
        torch.randn(2, 3).to(torch.bfloat16),
        torch.randn(2, 3).to(torch.float16),
        torch.zeros(2, 0),
        torch.arange(12).reshape(6, 2).t()[:, ::2],  # not contiguous
        torch.randn(2, 3, requires_grad=True),
    ],
    ids=lambda tensor: f"{str(tensor.dtype)[6:]}{list(tensor.shape)}",
)
def test_tensors_come_back_as_they_were(client, tensor):
    register(client)
    client.put_samples(["a", "b"], "p", fields_of(x=tensor))
    out = client.get_samples(["a", "b"], "p", ["x"])["x"]
    assert out.dtype == tensor.dtype
    assert out.shape == tensor.shape
    assert torch.equal(out, tensor.detach())


def test_jagged_tensors_come_back_jagged(client):
    register(client)
    ids = jagged([[1, 2, 3], [4], [5, 6]])
    logprobs = jagged([[0.1, 0.2, 0.3], [0.4], [0.5, 0.6]], torch.float32)
    client.put_samples(["a", "b", "c"], "p", fields_of(3, ids=ids, logprobs=logprobs))
    out = client.get_samples(["c", "a", "b"], "p", ["ids", "logprobs"])
    assert out["ids"].is_nested
    assert out["ids"].layout is torch.jagged
    assert [row.tolist() for row in out["ids"].unbind()] == [[5, 6], [1, 2, 3], [4]]
    padded = torch.nested.to_padded_tensor(out["ids"], -1)
    assert padded.tolist() == [[5, 6, -1], [1, 2, 3], [4, -1, -1]]
    # PyTorch combines jagged tensors of the same offsets only.
    product = out["ids"] * out["logprobs"]
    torch.testing.assert_close(product.values(), torch.tensor([2.5, 3.6, 0.1, 0.4, 0.9, 1.6]))
    # Samples of equal length are an ordinary tensor.
    assert client.get_samples(["b"], "p", ["ids"])["ids"].tolist() == [[4]]


def test_jagged_tensors_of_other_forms(client):
    register(client)
    wide = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    client.put_samples(["a", "b"], "p", fields_of(2, x=wide))
    out = client.get_samples(["a", "b"], "p", ["x"])["x"]
    for got, expected in zip(out.unbind(), wide.unbind(), strict=True):
        assert torch.equal(got, expected)
    strided = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])
    client.put_samples(["a", "b"], "p", fields_of(2, y=strided))
    assert torch.equal(client.get_samples(["b", "a"], "p", ["y"])["y"].unbind()[1], strided.unbind()[0])
    values = torch.arange(10)
    narrowed = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 4, 10]), lengths=torch.tensor([2, 3]))
    client.put_samples(["a", "b"], "p", fields_of(2, z=narrowed))
    assert [row.tolist() for row in client.get_samples(["a", "b"], "p", ["z"])["z"].unbind()] == [[0, 1], [4, 5, 6]]
    with pytest.raises(ValueError, match="ragged in a dimension other than the first"):
        client.put_samples(["a", "b"], "p", fields_of(2, x=wide.transpose(1, 2)))


def test_fields_are_added_and_replaced(client):
    register(client, fields=["x", "y"])
    client.put_samples(["a", "b"], "p", fields_of(x=torch.tensor([1, 2])), [{"reward": 0.5}, {"reward": 1.5}])
    client.put_samples(["b"], "p", fields_of(x=torch.tensor([20]), y=torch.tensor([[7.0]])), [{"ok": True}])
    with pytest.raises(KeyError, match='samples "a" lack the field "y"'):
        client.get_samples(["a", "b"], "p", ["x", "y"])
    with pytest.raises(KeyError, match='lack the field "z"'):
        client.get_samples(["a", "b"], "p", ["z"])
    assert client.get_samples(["a", "b"], "p", ["x"])["x"].tolist() == [1, 20]
    client.put_samples(["a"], "p", tags=[{"late": "tag"}])
    meta = client.claim_meta("p", "train", ["x"], 2)
    assert meta.tags == [{"reward": 0.5, "late": "tag"}, {"reward": 1.5, "ok": True}]


def test_a_claim_advances_the_cursor_of_its_task(client):
    register(client, consumer_tasks=["logprob", "train"])
    tags = [{"input_lengths": 3, "source": "math"}, {"input_lengths": 1, "source": "code"}]
    client.put_samples(["a", "b"], "p", fields_of(2, x=jagged([[1, 2, 3], [4]])), tags)
    assert not client.check_consumption_status("p", ["train"])
    meta = client.claim_meta("p", "train", ["x"], 2)
    assert isinstance(meta, BatchMeta)
    assert dataclasses.asdict(meta) == {
        "partition_id": "p",
        "task_name": "train",
        "sample_ids": ["a", "b"],
        "fields": ["x"],
        "sequence_lengths": [3, 1],
        "extra_info": {},
        "tags": tags,
    }
    assert meta.size == 2
    assert client.check_consumption_status("p", ["train"])
    assert not client.check_consumption_status("p", ["logprob", "train"])
    assert not client.check_consumption_status("p", ["unknown"])
    assert client.claim_meta("p", "train", ["x"], 2, blocking=False).sample_ids == []
    assert client.claim_meta("p", "logprob", ["x"], 1).sample_ids == ["a"]
    assert client.claim_meta("p", "logprob", ["x"], 2, blocking=False).sample_ids == ["b"]
    assert client.check_consumption_status("p", ["logprob", "train"])
    # The data stays until it is cleared.
    assert [row.tolist() for row in client.get_data(meta)["x"].unbind()] == [[1, 2, 3], [4]]
    client.put_samples(["c"], "p", fields_of(x=torch.tensor([[9]])))
    assert not client.check_consumption_status("p", ["train"])


def test_get_data_needs_a_selection(client):
    register(client)
    client.put_samples(["a"], "p", fields_of(x=torch.tensor([1]), y=torch.tensor([2])))
    bare = BatchMeta("p", None, ["a"])
    with pytest.raises(ValueError, match="select_fields"):
        client.get_data(bare)
    assert client.get_data(bare, ["y"])["y"].tolist() == [2]
    assert list(client.get_data(BatchMeta("p", None, ["a"], ["x"])).keys()) == ["x"]


def test_leaves_that_are_not_tensors_are_rejected(client):
    register(client)
    for bad in (tensordict.NonTensorData("hello"), tensordict.NonTensorStack("a"), TensorDict({"y": torch.ones(1)}, [1])):
        with pytest.raises(TypeError, match="non-tensor"):
            client.put_samples(["a"], "p", TensorDict({"x": bad}, batch_size=[1]))
    with pytest.raises(TypeError, match="non-tensor"):
        client.put_samples(["a"], "p", {"x": ["text"]})
    with pytest.raises(ValueError, match="field 'x' has 2 samples for 1 keys"):
        client.put_samples(["a"], "p", fields_of(x=torch.ones(2)))
    with pytest.raises(ValueError, match="tags has 2 elements for 1 sample_ids"):
        client.put_samples(["a"], "p", tags=[{}, {}])
    with pytest.raises(TypeError, match='tag "t" must be a bool, an int, a float or a str'):
        client.put_samples(["a"], "p", tags=[{"t": [1]}])
    assert client.claim_meta("p", "train", [], 1, blocking=False).size == 0


def test_unknown_partitions_and_tasks_are_key_errors(client):
    with pytest.raises(KeyError, match="register_partition"):
        client.put_samples(["a"], "unknown", fields_of(x=torch.ones(1)))
    with pytest.raises(KeyError, match="register_partition"):
        client.get_samples(["a"], "unknown", ["x"])
    with pytest.raises(KeyError, match="register_partition"):
        client.check_consumption_status("unknown", ["train"])
    register(client)
    with pytest.raises(KeyError, match='task "tarin"'):
        client.claim_meta("p", "tarin", ["x"], 1)


def test_a_claim_waits_for_the_write_that_completes_the_batch(client):
    register(client)
    client.put_samples(["a", "b"], "p", fields_of(x=torch.ones(2)))
    claimed: list[Any] = []
    thread = threading.Thread(target=lambda: claimed.append(client.claim_meta("p", "train", ["x", "odd name"], 2)))
    thread.start()
    rows = client._rows("p")
    conditions.wait_until(lambda: rows.info()["waiting_claims"] == 1)
    client.put_samples(["b"], "p", fields_of(**{"odd name": torch.ones(1)}))
    assert conditions.stays_true_for(0.05, lambda: not claimed)
    client.put_samples(["a"], "p", fields_of(**{"odd name": torch.ones(1)}))
    thread.join(60)
    assert claimed[0].sample_ids == ["a", "b"]


def test_a_claim_that_times_out_names_the_reason(client):
    register(client)
    client.put_samples(["a"], "p", fields_of(x=torch.ones(1)))
    with pytest.raises(TimeoutError, match="waits for 2 rows"):
        client.claim_meta("p", "train", ["x"], 2, timeout_s=0.05)
    assert client.claim_meta("p", "train", ["x"], 2, blocking=False).sample_ids == ["a"]


def test_ranks_share_the_cursor(client):
    register(client, num_samples=64)
    ids = [f"s{i}" for i in range(64)]
    client.put_samples(ids, "p", fields_of(x=torch.arange(64)))
    claimed: dict[int, list[str]] = {}

    def claim(rank):
        claimed[rank] = []
        for _ in range(4):
            claimed[rank] += client.claim_meta("p", "train", ["x"], 4, dp_rank=rank).sample_ids

    threads = [threading.Thread(target=claim, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(key for keys in claimed.values() for key in keys) == sorted(ids)


def test_groups_are_claimed_as_a_whole(client):
    register(client, grpo_group_size=2)
    client.put_samples(["a", "b", "c", "d"], "p", fields_of(x=torch.arange(4)))
    client.put_samples(["d", "b", "a"], "p", fields_of(y=torch.arange(3)))  # written back in another order
    assert client.claim_meta("p", "train", ["x", "y"], 4, blocking=False).sample_ids == ["a", "b"]
    client.put_samples(["c"], "p", fields_of(y=torch.arange(1)))
    assert client.claim_meta("p", "train", ["x", "y"], 2).sample_ids == ["c", "d"]
    client.put_samples(["e", "f", "g"], "p", fields_of(x=torch.arange(3)), [{"group_id": g} for g in ("u", "v", "u")])
    assert client.claim_meta("p", "train", ["x"], 4, blocking=False).sample_ids == ["e", "g"]
    with pytest.raises(ValueError, match="groups of 2 samples, but the call has 1 new samples"):
        client.put_samples(["h"], "p", fields_of(x=torch.ones(1)))
    other = ReverbDataPlaneClient(client.address)  # has not registered the partition
    other.put_samples(["i", "j"], "p", fields_of(x=torch.ones(2)))
    assert other.claim_meta("p", "train", ["x"], 2).sample_ids == ["i", "j"]
    other._group_sizes["p"] = 0  # as if it had looked before the partition was registered
    other.put_samples(["k", "l"], "p", fields_of(x=torch.ones(2)))
    assert other.claim_meta("p", "train", ["x"], 2).sample_ids == ["k", "l"]
    reverb.Client(client.address).create_row_table(reverb.RowTable("foreign", group_size=2, consumers=["train"]))
    with pytest.raises(RuntimeError, match="was not created by register_partition"):
        other.put_samples(["a"], "foreign", fields_of(x=torch.ones(1)))


def test_a_partition_can_be_registered_again(client):
    register(client)
    client.put_samples(["a"], "p", fields_of(x=torch.ones(1)))
    register(client, num_samples=8)
    assert client.get_samples(["a"], "p", ["x"])["x"].tolist() == [1.0]
    with pytest.raises(RuntimeError, match="exists already, with other settings"):
        register(client, consumer_tasks=["train", "eval"])
    client.clear_samples(None, "p")
    register(client, consumer_tasks=["train", "eval"])
    assert client.check_consumption_status("p", ["eval"])


@dataclasses.dataclass
class OlderMeta:
    partition_id: str
    task_name: str | None
    sample_ids: list[str]
    fields: list[str] | None = None
    sequence_lengths: list[int] | None = None


class AnyMeta:
    def __init__(self, **values):
        self.__dict__.update(values)


@pytest.mark.parametrize("meta_class", [OlderMeta, AnyMeta])
def test_the_class_of_metas_can_be_chosen(meta_class):
    client = ReverbDataPlaneClient(meta_class=meta_class)
    register(client)
    meta = client.put_samples(["a"], "p", fields_of(x=torch.ones(1)), [{"input_lengths": 5}])
    assert type(meta) is meta_class
    meta = client.claim_meta("p", "train", ["x"], 1)
    assert type(meta) is meta_class
    assert meta.sequence_lengths == [5]
    assert client.get_data(meta)["x"].tolist() == [1.0]
    client.close()
    with pytest.raises(TypeError, match="does not accept partition_id, sample_ids"):
        ReverbDataPlaneClient(meta_class=dataclasses.make_dataclass("Other", ["fields"]))
    with pytest.raises(TypeError, match="must be a class with named parameters"):
        ReverbDataPlaneClient(meta_class=int)


def test_a_client_that_closes_leaves_the_server():
    owner = ReverbDataPlaneClient()
    other = ReverbDataPlaneClient(owner.address)
    register(other)
    other.put_samples(["a"], "p", fields_of(x=torch.ones(1)))
    other.close()
    other.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        other.get_samples(["a"], "p", ["x"])
    assert owner.get_samples(["a"], "p", ["x"])["x"].tolist() == [1.0]
    owner.close()
    owner.close()


def _rollout(results, stop, address, worker):
    client = ReverbDataPlaneClient(address)
    for group in range(5):
        ids = [f"{worker}_{group}_{i}" for i in range(2)]
        lengths = [3 + group, 1 + worker]
        tags = [{"input_lengths": length} for length in lengths]
        client.put_samples(ids, "p", fields_of(2, x=jagged([[worker] * length for length in lengths])), tags)
    client.close()
    results.put(worker)


def test_processes_share_a_partition():
    client = ReverbDataPlaneClient()
    register(client, num_samples=40, grpo_group_size=2)
    with processes.pool() as pool:
        for worker in range(4):
            pool.start(_rollout, client.address, worker)
        seen: list[str] = []
        for _ in range(4):
            meta = client.claim_meta("p", "train", ["x"], 10, timeout_s=120)
            data = client.get_data(meta)["x"]
            assert [len(row) for row in data.unbind()] == meta.sequence_lengths
            seen += meta.sample_ids
        assert len(set(seen)) == 40
        assert sorted(pool.take(4)) == [0, 1, 2, 3]
    assert client.check_consumption_status("p", ["train"])
    client.close()


def test_the_page(tmp_path):
    """docs/integrations.md marks its block that needs PyTorch as `py`; python/tests/test_docs.py runs the others."""
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
