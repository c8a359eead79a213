"""Tests the placeholders for TensorFlow classes: the names exist and name their replacement."""

import pytest

from reverb import pattern_dataset, tf_client, timestep_dataset, trajectory_dataset


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (lambda: tf_client.TFClient("localhost:1"), "mutate_priorities"),
        (lambda: trajectory_dataset.TrajectoryDataset("localhost:1", "t", [], [], 1), r"Client\.sample"),
        (
            lambda: trajectory_dataset.TrajectoryDataset.from_table_signature("localhost:1", "t", 1),
            r"Client\.sample",
        ),
        (lambda: timestep_dataset.TimestepDataset(server_address="localhost:1"), r"Client\.sample"),
        (
            lambda: timestep_dataset.TimestepDataset.from_table_signature("localhost:1", "t", 1),
            r"Client\.sample",
        ),
        (lambda: pattern_dataset.PatternDataset(None, [], True, len), "structured_writer"),
        (lambda: pattern_dataset.pattern_dataset_with_info(None, [], True, len), "structured_writer"),
    ],
)
def test_say_what_to_use(make, instead):
    with pytest.raises(NotImplementedError, match=instead):
        make()


def test_work_with_isinstance():
    assert not isinstance(3, tf_client.TFClient)
    assert not isinstance(3, trajectory_dataset.TrajectoryDataset)
