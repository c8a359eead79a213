"""Checks that samples of one server or of a set are those of one uniform table."""

from __future__ import annotations

import collections
import itertools
import time

import episodes
from records import check

import reverb

BINS = 64
BATCHES = 20
BATCH_SIZE = 256


def check_uniform(addresses: list[str], table: str, timeout: float) -> None:
    """Samples from all the servers with one client, and checks with chi-square that each item is equally likely."""
    expected = collections.Counter(
        hash(episodes.check(sample.data)) % BINS
        for address in addresses
        for sample in reverb.Client(address, in_process=False).peek(table, 10_000_000, timeout=timeout)
    )
    total = expected.total()
    check(total > 0, f"table {table} of {addresses} is empty")
    counts: collections.Counter[int] = collections.Counter()
    client = reverb.Client(addresses, in_process=False)
    batches = client.sample_batches(table, BATCH_SIZE, timeout=timeout)
    # A server that takes long to answer first is left out until then.
    deadline = time.monotonic() + timeout
    while (size := next(batches).info.table_size[-1]) != total:
        check(time.monotonic() < deadline, f"table {table} of {addresses} has {size} items in samples, not {total}")
    for batch in itertools.islice(batches, BATCHES):
        columns = [{name: column[row] for name, column in batch.data.items()} for row in range(BATCH_SIZE)]
        counts.update(hash(episodes.check(data)) % BINS for data in columns)
    scale = BATCHES * BATCH_SIZE / total
    statistic = sum((counts[bin] - scale * size) ** 2 / (scale * size) for bin, size in expected.items())
    # Mean and deviation of the chi-square distribution: a right sampler exceeds six deviations once in many millions.
    freedom = max(1, len(expected) - 1)
    check(
        statistic <= freedom + 6 * (2 * freedom) ** 0.5,
        f"samples of table {table} of {addresses} are not uniform: chi-square {statistic:.1f} for {freedom}",
    )
