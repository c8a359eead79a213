"""TimestepDataset: the steps of sampled items as a tf.data.Dataset."""

from __future__ import annotations

from typing import Any

from reverb._tensorflow import arguments, loading
from reverb._tensorflow.sampling import SamplingDataset

__all__ = ["TimestepDataset"]


class TimestepDataset(SamplingDataset):
    """A `tf.data.Dataset` with one element for each step of the sampled items, without a mark between items.

    Elements are ReplaySamples: `info` is that of the item, `data` has one step of each column. All columns of an item
    must have the same number of steps; a squeezed column has one. TrajectoryDataset has whole items.
    """

    _PART = arguments.Part.TIMESTEP

    @loading.unconverted
    def __init__(
        self,
        server_address: Any,
        table: Any,
        dtypes: Any,
        shapes: Any,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
    ) -> None:
        """Takes the arguments of TrajectoryDataset; `dtypes` and `shapes` describe one step.

        The numbers of samples count items, not steps.
        """
        self._make(
            server_address,
            table,
            dtypes,
            shapes,
            max_in_flight_samples_per_worker=max_in_flight_samples_per_worker,
            num_workers_per_iterator=num_workers_per_iterator,
            max_samples_per_stream=max_samples_per_stream,
            rate_limiter_timeout_ms=rate_limiter_timeout_ms,
            max_samples=max_samples,
            batch_size=None,
        )

    @classmethod
    @loading.unconverted
    def from_table_signature(
        cls,
        server_address: str,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        get_signature_timeout_secs: float | None = None,
        max_samples: int = -1,
    ) -> TimestepDataset:
        """Like TrajectoryDataset.from_table_signature(), for a table whose signature describes one step."""
        dtypes, shapes = cls._signature(server_address, table, get_signature_timeout_secs)
        return cls(
            server_address,
            table,
            dtypes,
            shapes,
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
        )
