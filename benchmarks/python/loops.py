"""What a measurement does over and over, by name.

A loop is opened once and run in slices, each of which gives figures by name; `operations` is how many were done in all,
also those before the clock was started.
"""

from __future__ import annotations

import loops_call
import loops_sample
import loops_tensorflow
import loops_write

LOOPS = {
    "write": loops_write.Write,
    "actor": loops_write.Actor,
    "write-transition": loops_write.WriteTransition,
    "write-vector": loops_write.WriteVector,
    "produce": loops_write.Produce,
    "sample": loops_sample.Sample,
    "batches": loops_sample.Batches,
    "dataset": loops_tensorflow.Elements,
    "dataset-batches": loops_tensorflow.DatasetBatches,
    "call": loops_call.Call,
}
