"""Tests the TensorFlow classes in an environment without TensorFlow: the names exist and name the remedy."""

import subprocess
import sys

import pytest

from reverb import pattern_dataset, tf_client, timestep_dataset, trajectory_dataset
from reverb._tensorflow import loading

MAKERS = [
    lambda: tf_client.TFClient("localhost:1"),
    lambda: trajectory_dataset.TrajectoryDataset("localhost:1", "t", [], [], 1),
    lambda: trajectory_dataset.TrajectoryDataset.from_table_signature("localhost:1", "t", 1),
    lambda: timestep_dataset.TimestepDataset("localhost:1", "t", [], [], 1),
    lambda: timestep_dataset.TimestepDataset.from_table_signature("localhost:1", "t", 1),
    lambda: pattern_dataset.PatternDataset(None, [], True, len),
    lambda: pattern_dataset.pattern_dataset_with_info(None, [], True, len),
]


@pytest.mark.parametrize("make", MAKERS)
def test_without_tensorflow_the_error_has_the_remedy(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"needs TensorFlow, .* pip install tensorflow"):
        make()


@pytest.mark.parametrize("version", ["2.14.1", "1.15.0", "unknown"])
def test_an_old_tensorflow_is_refused(version, monkeypatch):
    class Module:
        __version__ = version

    monkeypatch.setitem(sys.modules, "tensorflow", Module)
    with pytest.raises(ImportError, match=f"2.15 or later and found {version}"):
        loading.tensorflow("TFClient")


def test_the_classes_work_with_isinstance_and_import_nothing():
    program = (
        "import sys, reverb\n"
        "classes = reverb.TFClient, reverb.TrajectoryDataset, reverb.TimestepDataset, reverb.PatternDataset\n"
        "assert not any(isinstance(3, each) for each in classes)\n"
        "print('tensorflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
