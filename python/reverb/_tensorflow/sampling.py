"""The base of TrajectoryDataset and TimestepDataset."""

from __future__ import annotations

from typing import Any

from reverb._tensorflow import arguments, loading


class SamplingDataset(loading.LazyDataset):
    """A dataset of samples. Derived classes declare the arguments."""

    _PART: arguments.Part

    def _make(self, server_address: Any, table: Any, dtypes: Any, shapes: Any, **numbers: Any) -> None:
        from reverb._tensorflow import graph

        tf = loading.tensorflow(type(self).__name__)
        dtypes, shapes = arguments.with_tuples(dtypes), arguments.with_tuples(shapes)
        settings = arguments.make_settings(dtypes=dtypes, shapes=shapes, part=self._PART, tf=tf, **numbers)
        spec = arguments.element_spec(dtypes, settings, tf)
        variant, kept = graph.sampling_dataset(tf, settings, spec, server_address, table)
        self._become(variant, spec, (kept,))

    @classmethod
    def _signature(cls, server_address: str, table: str, timeout: float | None) -> tuple[Any, Any]:
        from reverb._tensorflow import streams

        loading.tensorflow(cls.__name__)  # before the signature, which then has TensorFlow's specs
        return arguments.specs_of_signature(streams.client_of(server_address), table, timeout)
