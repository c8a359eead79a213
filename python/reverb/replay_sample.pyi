"""Types of samples. They are generic for type checkers only: Python 3.10 has no generic named tuples."""

from typing import Any, Generic, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

_Integer = TypeVar("_Integer", default=Any)
_Float = TypeVar("_Float", default=Any)

class SampleInfo(NamedTuple, Generic[_Integer, _Float]):
    key: _Integer
    probability: _Float
    table_size: _Integer
    priority: _Float
    times_sampled: _Integer

    @classmethod
    def tf_dtypes(cls) -> SampleInfo: ...
    @classmethod
    def tf_shapes(cls) -> SampleInfo: ...
    @classmethod
    def zeros(cls) -> SampleInfo[int, float]: ...

_Data = TypeVar("_Data", default=Any)
_Info = TypeVar("_Info", default=SampleInfo)

class ReplaySample(NamedTuple, Generic[_Data, _Info]):
    info: _Info
    data: _Data

class PaddedBatch(ReplaySample[_Data, _Info]):
    lengths: Any

class MixedBatch(ReplaySample[_Data, _Info]):
    source: npt.NDArray[np.int64]
    lengths: Any

# What Client.sample(), Client.sample_batches() and mix() yield. `data` is Any unless the caller declares its type:
# `batches: Iterator[reverb.ReplaySample[Transition]] = client.sample_batches(...)`.
_BatchInfo: TypeAlias = SampleInfo[npt.NDArray[np.integer[Any]], npt.NDArray[np.float64]]
_Sample: TypeAlias = ReplaySample[Any, SampleInfo[int, float]]
_Batch: TypeAlias = ReplaySample[_Data, _BatchInfo]
_PaddedBatch: TypeAlias = PaddedBatch[_Data, _BatchInfo]
_MixedBatch: TypeAlias = MixedBatch[_Data, _BatchInfo]
