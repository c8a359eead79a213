"""Tests reverb.torch.prefetch_to_device(). What needs a GPU is skipped where there is none."""

from __future__ import annotations

import contextlib

from conftest import make_table
import interpreters
import numpy as np
import pytest
import torch

import reverb
from reverb.torch import BatchDataset, PaddedBatch, _device, prefetch_to_device

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.fixture
def filled(serve, connect):
    """A client of a queue and a table with five times the same 32 items."""
    client = connect(serve(make_table(), reverb.Table.queue("queue", 160)))
    for number in range(160):
        step = number % 32
        item = {"x": np.full(3, step, np.float32), "flag": step % 2 == 0, "nest": [np.int64(step)]}
        client.insert(item, {"table": 1.0, "queue": 1.0})
    return client


def sources(client):
    return {
        "numpy": client.sample_batches("queue", 32, num_batches=5),
        "tensors": BatchDataset(client, "queue", 32, num_batches=5),
        "loader": torch.utils.data.DataLoader(BatchDataset(client, "queue", 32, num_batches=5), batch_size=None),
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["numpy", "tensors", "loader"])
@pytest.mark.parametrize("depth", [1, 3])
def test_batches_arrive_whole_and_in_order(filled, device, kind, depth):
    batches = list(prefetch_to_device(sources(filled)[kind], device, depth))
    assert len(batches) == 5
    for batch in batches:
        assert type(batch) is reverb.ReplaySample
        leaves = [batch.data["x"], batch.data["flag"], batch.data["nest"][0]]
        assert {leaf.device.type for leaf in leaves} == {device}
        assert [leaf.dtype for leaf in leaves] == [torch.float32, torch.bool, torch.int64]
        assert batch.data["x"].shape == (32, 1, 3)
        steps = batch.data["nest"][0].flatten()
        assert steps.tolist() == list(range(32))
        assert torch.equal(batch.data["x"][:, 0, 2], steps.float())
        assert torch.equal(batch.data["flag"].flatten(), steps % 2 == 0)
    infos = [batch.info for batch in batches]
    assert all(len(info.key) == 32 for info in infos)


@pytest.mark.parametrize("device", DEVICES)
def test_the_info_stays_on_the_host(filled, device):
    batch = next(prefetch_to_device(filled.sample_batches("table", 32), device))
    assert all(type(field) is np.ndarray for field in batch.info)
    batch = next(prefetch_to_device(BatchDataset(filled, "table", 32), device))
    assert {field.device.type for field in batch.info} == {"cpu"}
    filled.update_priorities("table", batch.info.key, torch.full((32,), 3.0))
    priorities = {item.info.key: item.info.priority for item in filled.peek("table", 160)}
    assert [priorities[key] for key in batch.info.key.tolist()] == [3.0] * 32


@pytest.mark.parametrize("device", DEVICES)
def test_other_elements_than_batches(device):
    class Named(reverb.ReplaySample):
        weights: np.ndarray

    batch = Named(reverb.SampleInfo.zeros(), {"a": np.ones(2)})
    batch.weights = np.arange(2)
    elements = [
        (np.ones(3, np.float32), [torch.zeros(2), "text", None, 5]),
        {"names": np.array([b"a"], object), "empty": np.zeros((0, 4), np.int16)},
        batch,
        PaddedBatch(reverb.SampleInfo.zeros(), np.ones(1), np.ones(1, np.int64)),
        np.float32(1),
    ]
    (pair, names, mapped, padded, number) = prefetch_to_device(elements, device)
    assert pair[0].device.type == pair[1][0].device.type == device
    assert pair[1][1:] == ["text", None, 5]
    assert names["names"].dtype == object
    assert names["empty"].shape == (0, 4)
    assert type(mapped) is Named
    assert mapped.weights.tolist() == [0, 1]
    assert mapped.weights.device.type == device
    assert (type(padded), padded.info) == (PaddedBatch, reverb.SampleInfo.zeros())
    assert padded.lengths.device.type == device
    assert number == 1


@pytest.mark.parametrize("device", DEVICES)
def test_tensordicts(filled, device):
    pytest.importorskip("tensordict")
    batches = list(prefetch_to_device(BatchDataset(filled, "queue", 32, num_batches=3, tensordict=True), device))
    assert len(batches) == 3
    for batch in batches:
        assert batch.batch_size == (32,)
        assert batch.device.type == device
        assert batch["data", "x"].device.type == device
        assert batch["data", "nest", "0"].flatten().tolist() == list(range(32))


def test_nothing_is_copied_on_the_cpu():
    array = np.ones(5, np.float32)
    (element,) = prefetch_to_device([{"x": array}], "cpu")
    assert element["x"].data_ptr() == array.ctypes.data


@pytest.mark.parametrize("device", DEVICES)
def test_errors_of_the_source_and_closing(filled, device):
    with pytest.raises(ValueError, match=r"depth \(0\) must be a positive integer"):
        prefetch_to_device([], device, 0)
    batches = prefetch_to_device(filled.sample_batches("nonsense", 1, timeout=20), device)
    with pytest.raises(ValueError, match="nonsense"):
        next(batches)
    batches = prefetch_to_device(filled.sample_batches("table", 4), device)
    next(batches)
    batches.close()
    assert list(batches) == []


DTYPES = [torch.uint8, torch.bool, torch.float64, torch.bfloat16, torch.int16, torch.complex64, torch.uint64]


def test_a_buffer_holds_tensors_of_all_dtypes():
    """The layout of the buffers, without a GPU."""
    tensors = [torch.ones(3 + number, 2).to(dtype) for number, dtype in enumerate(DTYPES)]
    tensors += [torch.tensor(5.0), torch.zeros(0, 4), torch.arange(12).reshape(3, 4).T]
    buffer = _device.StagingBuffer(pin=False)
    layout = buffer.fill(tensors)
    first = buffer.bytes
    copies = layout.views(buffer.bytes.clone())
    for tensor, copy in zip(tensors, copies, strict=True):
        assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
        assert copy.tolist() == tensor.tolist()
        assert copy.data_ptr() % 64 == 0 or copy.numel() == 0
    assert buffer.fill([tensor * 1 for tensor in tensors[7:9]] + tensors[9:]).num_bytes < first.numel()
    again = buffer.bytes
    assert buffer.fill([tensors[7] + 1, tensors[8], tensors[9]]) is not None
    assert buffer.bytes is again, "a batch of the same layout uses the same memory"


class LateCuda:
    """The part of torch.cuda that is used, with the CPU as the device: copies are made when an event is waited for."""

    def __init__(self, monkeypatch):
        self.copies = []  # that were started, and have not been made
        self.used_by = []  # streams, in the order of record_stream()
        copy = torch.Tensor.copy_

        def start_copy(target, source, non_blocking=False):
            if non_blocking:
                self.copies.append(lambda: copy(target, source))
                return target
            return copy(target, source)

        late = self

        class Event:
            def __init__(self, blocking=False):
                self._copies = []

            def record(self, stream):
                self._copies = list(late.copies)

            def synchronize(self):
                for make in self._copies:
                    if make in late.copies:
                        late.copies.remove(make)
                        make()

        class Stream:
            def __init__(self, device=None):
                pass

            def wait_event(self, event):
                event.synchronize()

        self.current = Stream()
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.Tensor, "copy_", start_copy)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: self.used_by.append(stream))


def test_a_buffer_is_not_filled_before_it_was_sent(monkeypatch):
    """The order of copies and events, without a GPU."""
    cuda = LateCuda(monkeypatch)
    transfer = _device.CudaTransfer(torch.device("cpu"))
    info = reverb.SampleInfo.zeros()
    batches = [reverb.ReplaySample(info, {"x": np.full(5, step), "y": [torch.tensor(step)]}) for step in range(6)]
    started = [transfer.start(batch) for batch in batches]
    assert len(cuda.copies) == 3, "as many as there are buffers"
    for step, each in enumerate(started):
        batch = transfer.finish(each)
        assert batch.info is info
        assert batch.data["x"].tolist() == [step] * 5
        assert batch.data["y"][0].item() == step
        assert batch.data["x"].untyped_storage().data_ptr() == batch.data["y"][0].untyped_storage().data_ptr()
    assert cuda.copies == []
    assert cuda.used_by == [cuda.current] * 6


def test_a_program_may_end_while_threads_work():
    """The end of the interpreter aborts the process if it meets a thread in the C++ code of PyTorch."""
    out = interpreters.run("""
import torch
from reverb._prefetch import Prefetcher
server = make_server()
client = connect(server, "in_process")
client.insert({"x": np.ones(100_000, np.float32)}, {"table": 1.0})
def work(batch):
    for _ in range(20): torch.from_numpy(batch.data["x"]).exp().sum().item()
    return batch
prefetchers = [Prefetcher(client.sample_batches("table", 2), work, 100) for _ in range(3)]
for each in prefetchers: next(each)
print("done")
""")
    assert out == "done\n"


@needs_gpu
def test_a_slow_consumer_sees_no_later_batch(filled):
    """Staging buffers are reused while batches wait on the device, and memory on it while kernels run."""
    torch.manual_seed(0)
    sums = []
    arrays = ({"x": np.full((1 << 20,), step, np.float32)} for step in range(40))
    for element in prefetch_to_device(arrays, "cuda", 2):
        total = element["x"]
        for _ in range(20):
            total = total + 0
        sums.append(total.mean())
        del element, total
    assert [value.item() for value in sums] == list(range(40))


@pytest.mark.parametrize("device", DEVICES)
def test_a_source_may_use_its_memory_again(device):
    def generate():
        array = np.zeros(1 << 20, np.float32)
        for step in range(20):
            array[:] = step
            yield {"x": array.copy() if device == "cpu" else array}

    elements = list(prefetch_to_device(generate(), device, 2))
    assert [element["x"].max().item() for element in elements] == list(range(20))


@needs_gpu
def test_the_consumer_may_use_any_stream(filled):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for batch in prefetch_to_device(filled.sample_batches("queue", 32, num_batches=5), "cuda:0"):
            assert (batch.data["nest"][0].flatten() * 2).tolist() == list(range(0, 64, 2))
