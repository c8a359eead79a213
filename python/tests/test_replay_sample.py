"""Tests SampleInfo and ReplaySample."""

import importlib.util
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from reverb.replay_sample import ReplaySample, SampleInfo


def test_fields():
    assert SampleInfo._fields == ("key", "probability", "table_size", "priority", "times_sampled")
    assert ReplaySample._fields == ("info", "data")
    assert SampleInfo.zeros() == (0, 0.0, 0, 0.0, 0)
    assert [type(field) for field in SampleInfo.zeros()] == [int, float, int, float, int]
    sample = ReplaySample(info=SampleInfo.zeros(), data=[np.arange(3)])
    assert sample._replace(data=None) == (SampleInfo.zeros(), None)
    for incomplete in (lambda: SampleInfo(1, 2, 3, 4), lambda: ReplaySample(1)):
        with pytest.raises(TypeError):
            incomplete()


def test_without_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    names = [dtype.name for dtype in SampleInfo.tf_dtypes()]
    assert names == ["uint64", "float64", "int64", "float64", "int32"]
    assert SampleInfo.tf_shapes() == ((),) * 5


def run(code):
    return subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)], text=True).strip()


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
def test_with_tensorflow():
    # In a separate process: nothing else here imports it.
    output = run("""
        from reverb.replay_sample import SampleInfo
        import tensorflow as tf

        print(SampleInfo.tf_dtypes() == (tf.uint64, tf.float64, tf.int64, tf.float64, tf.int32))
        print(SampleInfo.tf_shapes() == (tf.TensorShape([]),) * 5)
        """)
    assert output.split() == ["True", "True"]


def test_nothing_heavy_is_imported():
    heavy = run("""
        import sys, reverb.replay_sample

        print([name for name in ("tensorflow", "google.protobuf", "tree") if name in sys.modules])
        """)
    assert heavy == "[]"
