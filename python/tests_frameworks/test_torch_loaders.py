"""Tests BatchDataset in DataLoaders with worker processes, and in the ranks of torch.distributed."""

from __future__ import annotations

import collections
import socket

from conftest import make_table
import interpreters
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import reverb
from reverb.torch import BatchDataset, PaddedBatch

# PyTorch and Python warn about fork() in a process with threads, which some tests do on purpose.
QUIET = {"PYTHONWARNINGS": "ignore"}
# On top of interpreters.PRELUDE.
PRELUDE = """
import torch, torch.utils.data
import reverb.torch
def loader(client, context, *, table="queue", workers=2, **arguments):
    dataset = reverb.torch.BatchDataset(client, table, arguments.pop("size", 2), **arguments)
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
"""


@pytest.fixture
def queue(serve):
    """A client of a queue with forty numbers."""
    client = serve(reverb.Table.queue("queue", 40), make_table()).localhost_client()
    for number in range(40):
        client.insert({"x": np.int64(number)}, {"queue": 1.0, "table": 1.0})
    return client


def numbers(batches):
    return [number for batch in batches for number in batch.data["x"].flatten().tolist()]


def test_a_loader_without_workers_keeps_the_order(queue):
    batches = list(DataLoader(BatchDataset(queue, "queue", 4, num_batches=10), batch_size=None))
    assert numbers(batches) == list(range(40))
    assert type(batches[0]) is reverb.ReplaySample
    assert type(batches[0].info) is reverb.SampleInfo


def test_workers_share_the_batches_and_take_nothing_twice(queue):
    dataset = BatchDataset(queue.server_address, "queue", 4, num_batches=10)
    loader = DataLoader(dataset, batch_size=None, num_workers=3, multiprocessing_context="spawn")
    assert len(loader) == 10
    batches = list(loader)
    assert len(batches) == 10
    assert sorted(numbers(batches)) == list(range(40))
    keys = [key for batch in batches for key in batch.info.key.tolist()]
    assert len(set(keys)) == 40
    for batch in batches:
        assert torch.equal(batch.data["x"].flatten(), batch.data["x"].flatten().sort().values)
    assert queue.server_info()["queue"].current_size == 0


def test_more_workers_than_batches(queue):
    dataset = BatchDataset(queue.server_address, "queue", 4, num_batches=1)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert numbers(loader) == [0, 1, 2, 3]
    assert queue.server_info()["queue"].current_size == 36


def test_a_client_is_sent_to_workers_as_its_address(queue):
    remote = reverb.Client(queue.server_address, in_process=False, local=False)
    for client in (queue, remote):
        loader = DataLoader(
            BatchDataset(client, "queue", 10, num_batches=2), batch_size=None, num_workers=1,
            multiprocessing_context="spawn",
        )  # fmt: skip
        assert len(numbers(loader)) == 20


def test_nests_and_padding_pass_through_workers(serve):
    pair = collections.namedtuple("Pair", ["second", "first"])
    client = serve(reverb.Table.queue("queue", 10)).localhost_client()
    writer = client.trajectory_writer(2)
    for step in range(2):
        writer.append(pair(np.float32(step), {"y": [np.bool_(True)]}))
        history = writer.history
        writer.create_item("queue", 1.0, pair(history[0][:], {"y": [history[1]["y"][0][:]]}))
    writer.flush()
    dataset = BatchDataset(client.server_address, "queue", 2, num_batches=1, pad=True)
    (batch,) = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert type(batch) is PaddedBatch
    assert batch.data.second.tolist() == [[0, 0], [0, 1]]
    assert batch.lengths.first["y"][0].tolist() == [1, 2]
    assert batch.data.first["y"][0].tolist() == [[True, False], [True, True]]


def test_an_error_in_a_worker_is_raised(queue):
    dataset = BatchDataset(queue.server_address, "nonsense", 2, num_batches=1, timeout=60)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(ValueError, match='Could not find table "nonsense"'):
        list(loader)


def test_forked_workers_of_a_process_that_has_not_used_the_library(queue):
    out = interpreters.run(
        f"""
batches = list(loader("{queue.server_address}", "fork", num_batches=20))
print(sorted(number for batch in batches for number in batch.data["x"].flatten().tolist()))
""",
        prelude=interpreters.PRELUDE + PRELUDE,
        **QUIET,
    )
    assert out == f"{list(range(40))}\n"


@pytest.mark.parametrize("argument", ["client", "client.server_address"])
def test_forked_workers_of_a_process_that_has_a_client(queue, argument):
    """A server on the same host is used through its local endpoint, which survives fork()."""
    out = interpreters.run(
        f"""
client = reverb.Client("{queue.server_address}")
client.server_info()
batches = list(loader({argument}, "fork", workers=4, num_batches=20))
print(sorted(number for batch in batches for number in batch.data["x"].flatten().tolist()))
assert client.server_info()["queue"].current_size == 0
""",
        prelude=interpreters.PRELUDE + PRELUDE,
        **QUIET,
    )
    assert out == f"{list(range(40))}\n"


def test_forked_workers_of_the_process_of_the_server():
    """The whole of a small program in one process, and the default start method of Linux."""
    out = interpreters.run(
        """
server = make_server(reverb.Table.queue("queue", 40), make_table())
client = server.localhost_client()
for number in range(40): client.insert({"x": np.int64(number)}, {"queue": 1.0})
for _ in range(2):
    batches = list(loader(client, "fork", workers=4, num_batches=20))
    print(sorted(number for batch in batches for number in batch.data["x"].flatten().tolist()))
    for number in range(40): client.insert({"x": np.int64(number)}, {"queue": 1.0}, timeout=30)
    client.reset("table")
server.stop()
""",
        prelude=interpreters.PRELUDE + PRELUDE,
        **QUIET,
    )
    assert out == f"{list(range(40))}\n" * 2


@pytest.mark.parametrize("argument", ["client", "client.server_address"])
def test_forked_workers_of_a_process_that_used_grpc_fail_with_the_remedy(queue, argument):
    out = interpreters.run(
        f"""
client = reverb.Client("{queue.server_address}")
client.server_info()
try:
    next(iter(loader({argument}, "fork", table="table", num_batches=20)))
except RuntimeError as error:
    print(str(error).splitlines()[-1])
assert sorted(len(batch.info.key) for batch in loader({argument}, None, workers=0, num_batches=2)) == [2, 2]
""",
        prelude=interpreters.PRELUDE + PRELUDE,
        REVERB_LOCAL="0",
        **QUIET,
    )
    assert "fork()" in out
    assert '"spawn"' in out


RANK = """
import torch.distributed as distributed
rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method=f"tcp://localhost:{os.environ['PORT']}", rank=rank, world_size=2)
dataset = reverb.torch.BatchDataset(os.environ["SERVER"], "queue", 4, num_batches=5)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
own = []
for batch in torch.utils.data.DataLoader(dataset, batch_size=None):
    own += batch.data["x"].flatten().tolist()
    model(batch.data["x"].float()).sum().backward()  # averages gradients: every rank has as many batches
everything = [None, None]
distributed.all_gather_object(everything, own)
print(sorted(everything[0] + everything[1]), min(map(len, everything)))
distributed.destroy_process_group()
"""


def test_ranks_have_streams_of_their_own(queue):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    ranks = [
        interpreters.start(
            RANK, prelude=interpreters.PRELUDE + PRELUDE, RANK=str(rank), PORT=str(port),
            SERVER=queue.server_address, **QUIET,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [interpreters.finish(rank, seconds=120, quiet=False) for rank in ranks]
    assert outputs == [f"{list(range(40))} 20\n"] * 2
