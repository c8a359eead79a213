"""Tests reverb.jax.BatchIterDataset with the real Grain."""

from __future__ import annotations

from conftest import make_table
import interpreters
import jax
import numpy as np
import pytest

import reverb
import reverb.jax

grain = pytest.importorskip("grain")


@pytest.fixture
def queue(serve):
    """A client of a queue with forty numbers."""
    client = serve(reverb.Table.queue("queue", 40), make_table()).localhost_client()
    for number in range(40):
        client.insert({"x": np.int64(number)}, {"queue": 1.0, "table": 1.0})
    return client


def numbers(batches):
    return [number for batch in batches for number in batch.data["x"].flatten().tolist()]


@pytest.mark.parametrize("as_address", [True, False])
def test_batches_and_transformations(queue, as_address):
    dataset = reverb.jax.BatchIterDataset(queue.server_address if as_address else queue, "queue", 4, num_batches=10)
    assert isinstance(dataset, grain.IterDataset)
    seen = list(dataset.map(lambda batch: batch._replace(data={"x": batch.data["x"] * 2})))
    assert numbers(seen) == list(range(0, 80, 2))
    assert type(seen[0]) is reverb.ReplaySample
    assert type(seen[0].info.key) is np.ndarray


def test_on_a_device(queue):
    dataset = reverb.jax.BatchIterDataset(queue, "queue", 4, num_batches=10, exact=True)
    batches = list(reverb.jax.prefetch_to_device(dataset))
    assert numbers(batches) == list(range(40))
    assert isinstance(batches[0].data["x"], jax.Array)


def test_a_thread_of_grain_may_prefetch(queue):
    dataset = reverb.jax.BatchIterDataset(queue, "queue", 4, num_batches=10)
    iterator = grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=2).__iter__()
    assert numbers(iterator) == list(range(40))


def test_worker_processes_share_the_batches_and_take_nothing_twice(queue):
    out = interpreters.run(
        f"""
from absl import flags
import grain
import reverb.jax
flags.FLAGS.mark_as_parsed()  # Grain reads them
if __name__ == "__main__":
    dataset = reverb.jax.BatchIterDataset("{queue.server_address}", "queue", 4, num_batches=10)
    dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    batches = list(dataset)
    print(len(batches), sorted(number for batch in batches for number in batch.data["x"].flatten().tolist()))
""",
        seconds=120,
        quiet=False,
    )
    assert out == f"10 {list(range(40))}\n"


def test_it_cannot_be_resumed_and_says_so(queue):
    iterator = iter(reverb.jax.BatchIterDataset(queue, "queue", 4))
    iterator.set_state(iterator.get_state())
    start = iterator.get_state()
    next(iterator)
    with pytest.raises(NotImplementedError, match=r"table 'queue' cannot be resumed after 0 batches.*checkpoint"):
        iterator.set_state(start)
    iterator.close()


def test_arguments(queue):
    with pytest.raises(ValueError, match=r"batch_size \(0\) must be between 1"):
        reverb.jax.BatchIterDataset(queue, "queue", 0)
    with pytest.raises(TypeError, match="nonsense"):
        reverb.jax.BatchIterDataset(queue, "queue", 1, nonsense=2)
