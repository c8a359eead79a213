"""Leases: what `Client.sample(..., lease=...)` and `Client.sample_batches(..., lease=...)` yield.

A leased sample is not consumed before it is acknowledged. Until then its item stays in the table, where no other
sampler gets it. If its consumer dies, the lease expires, and other consumers get the item.

>>> import reverb
>>> server = reverb.Server([reverb.Table.queue("queue", 10)])
>>> client = server.localhost_client()
>>> for step in range(3):
...     client.insert({"x": step}, priorities={"queue": 1.0})
>>> for sample in client.sample("queue", 2, emit_timesteps=False, names=True, lease=30.0):
...     print(sample.data["x"].tolist())  # the next iteration acknowledges it
[0]
[1]
>>> sample = next(client.sample("queue", emit_timesteps=False, lease=30.0))
>>> sample.release()
LeaseOutcome(settled=1, gone=0, expired=0)
>>> client.server_info()["queue"].current_size
1
>>> server.stop()
"""

from __future__ import annotations

from typing import Any, NamedTuple

from reverb import _core
from reverb.replay_sample import PaddedBatch, ReplaySample


class LeaseOutcome(NamedTuple):
    """What became of the leases of a sample or of a batch, as numbers of items."""

    # The lease was in force.
    settled: int
    # The lease was in force, but the item had left the table meanwhile: evicted, deleted, or too old.
    gone: int
    # The table does not know the lease: it expired, so other consumers may get the item, or it was released before.
    expired: int


class Leased:
    """The methods of samples and batches that are leased."""

    _lease: _core.Lease

    def ack(self, *, timeout: float | None = None) -> LeaseOutcome:
        """Reports that the items were consumed: the table counts the samples, and removes items that are used up.

        Does nothing, and returns zeros, if they were acknowledged or released before.
        """
        return self._lease.ack(timeout)

    def release(self, *, timeout: float | None = None) -> LeaseOutcome:
        """Gives the items back: other consumers can sample them at once, as if they had not been sampled."""
        return self._lease.release(timeout)

    def extend(self, seconds: float, *, timeout: float | None = None) -> LeaseOutcome:
        """Makes the lease end `seconds` from now.

        Raises:
            ValueError: for `seconds` that is not a positive finite number.
            RuntimeError: if the items were acknowledged or released before.
        """
        return self._lease.extend(seconds, timeout)

    @property
    def is_held(self) -> bool:
        """Whether the items were neither acknowledged nor released. The lease may have expired."""
        return self._lease.is_held


class LeasedSample(Leased, ReplaySample):
    """A leased item, or a batch of leased items."""


class LeasedPaddedBatch(Leased, PaddedBatch):
    """A padded batch of leased items."""


class LeasedTimesteps(Leased, list[ReplaySample]):
    """The steps of a leased item, each a ReplaySample: `emit_timesteps=True`. The item is settled as a whole."""


def _with_lease(sample: Any, lease: _core.Lease, iterator: Any) -> LeasedSample | LeasedPaddedBatch | LeasedTimesteps:
    leased: Any
    if isinstance(sample, list):
        leased = LeasedTimesteps(sample)
    elif isinstance(sample, PaddedBatch):
        leased = LeasedPaddedBatch(*sample)
        leased.lengths = sample.lengths
    else:
        leased = LeasedSample(*sample)
    leased._lease = lease
    # An iterator that is dropped releases its last sample: `next(client.sample(...))` needs it.
    leased._iterator = iterator
    return leased
