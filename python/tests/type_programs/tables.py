"""Tables and servers: selectors and limiters have types of their own."""

from __future__ import annotations

import numpy as np

import reverb
from reverb import rate_limiters, reverb_types, selectors


def make_table(sampler: reverb_types.SelectorType) -> reverb.Table:
    return reverb.Table(
        name="replay",
        sampler=sampler,
        remover=selectors.Fifo(),
        max_size=1000,
        rate_limiter=rate_limiters.SampleToInsertRatio(4.0, min_size_to_sample=100, error_buffer=(10.0, 900.0)),
        signature={"observation": reverb.TensorSpec([4], np.float32), "action": np.zeros((), np.int32)},
    )


tables = [
    make_table(selectors.Uniform(seed=1)),
    make_table(selectors.Prioritized(0.8)),
    make_table(selectors.MinHeap()),
    make_table(selectors.MaxHeap()).replace(name="other", sampler=selectors.Lifo()),
    reverb.Table.queue("queue", 10),
]
make_table("uniform")  # error
make_table(selectors.Uniform)  # error
make_table(rate_limiters.MinSize(1))  # error
make_table(None)  # error
reverb.Table("t", "fifo", selectors.Fifo(), 10, rate_limiters.MinSize(1))  # error
reverb.Table("t", selectors.Fifo(), "fifo", 10, rate_limiters.MinSize(1))  # error
reverb.Table("t", selectors.Fifo(), selectors.Fifo(), 10, 1)  # error
reverb.Table("t", selectors.Fifo(), selectors.Fifo(), "10", rate_limiters.MinSize(1))  # error
tables[0].replace(sampler="lifo")  # error
selectors.Prioritized()  # error
selectors.MinHeap(seed=1)  # error

with reverb.Server(tables, port=None, max_bytes=10**9, when_full="evict") as server:
    client = reverb.Client([f"localhost:{server.port}"], name="learner")
    client.set_rate_limiter("replay", rate_limiters.MinSize(1))
    client.set_rate_limiter("replay", "none")  # error
reverb.Server(tables, when_full="drop")  # error
reverb.Server(port="8000")  # error
reverb.set_wait_log_after("never")  # error
