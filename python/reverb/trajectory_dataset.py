"""TrajectoryDataset: sampled items as a tf.data.Dataset."""

from __future__ import annotations

from typing import Any

from reverb._tensorflow import arguments, loading
from reverb._tensorflow.sampling import SamplingDataset

__all__ = ["TrajectoryDataset"]


class TrajectoryDataset(SamplingDataset):
    """A `tf.data.Dataset` with one element for each sampled item.

    Elements are ReplaySamples: `info` has a scalar for each field, `data` a tensor for each column with its time
    dimension, or without one if it is squeezed. With `batch_size`, elements are batches.

        dataset = reverb.TrajectoryDataset.from_table_signature(
            f"localhost:{server.port}", "replay", max_in_flight_samples_per_worker=512
        )
        for sample in dataset.batch(256).prefetch(2): ...

    TensorFlow is imported when the first dataset is created.
    """

    _PART = arguments.Part.TRAJECTORY

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
        *,
        batch_size: int | None = None,
    ) -> None:
        """Contacts no server. ValueError for arguments out of range; ImportError without TensorFlow.

        Args:
            server_address: "host:port", as a str or a scalar tensor.
            table: its name, as a str or a scalar tensor.
            dtypes: a nest of tf.DTypes, the structure of `data`; its lists become tuples.
            shapes: a nest of tf.TensorShapes, or None for an unknown rank. The nest of `dtypes`: a tuple is a nest, and
                not a shape.
            max_in_flight_samples_per_worker: samples that are requested at a time.
            num_workers_per_iterator: streams of each iterator; -1: one, which keeps the order of the table.
            max_samples_per_stream: accepted and not needed: a stream never has to be reopened.
            rate_limiter_timeout_ms: the iterator ends when the rate limiter has blocked it for so long; -1: never.
            max_samples: items that an iterator takes from the table before it ends; -1: unlimited.
            batch_size: each element has this many items, with `batch_size` as the first dimension of all tensors. The
                items must have one shape.
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
            batch_size=batch_size,
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
        *,
        batch_size: int | None = None,
    ) -> TrajectoryDataset:
        """Returns a dataset with the dtypes and shapes of the table's signature, which describes whole items.

        Args:
            server_address: "host:port".
            table: its name.
            max_in_flight_samples_per_worker: and the others: see __init__().
            num_workers_per_iterator: see there.
            max_samples_per_stream: see there.
            rate_limiter_timeout_ms: see there.
            get_signature_timeout_secs: seconds to wait for the server; None: unlimited.
            max_samples: see there.
            batch_size: see there.

        Raises:
            ValueError: if there is no such table, or if it has no signature.
            DeadlineExceededError: if the server did not answer in time.
        """
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
            batch_size=batch_size,
        )
