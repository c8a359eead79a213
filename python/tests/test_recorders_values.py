"""Tests recorders with values of different dtypes, shapes and lengths, and final observations of vector environments."""

from __future__ import annotations

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
import numpy as np
import pytest

import reverb
from reverb.recorders import VectorTransitionRecorder

NO = np.zeros(2, bool)
END_OF_1 = np.array([False, True])


@pytest.fixture
def client(serve):
    return serve(reverb.Table.queue("queue", 1000)).localhost_client()


def stored(client, recorder):
    """Returns the items, after the recorder was closed."""
    (batch,) = client.sample_batches("queue", recorder.num_items, num_batches=1)
    return batch.data


def record_an_end(client, observation, final, name="final_obs", **info):
    """Records a step of two environments that reset in the same step, of which the second one ends; returns the items."""
    with VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="same_step") as recorder:
        recorder.reset(observation)
        recorder.step(np.zeros(2), observation, np.zeros(2), END_OF_1, NO, {name: final, **info})
    return stored(client, recorder)


@pytest.mark.parametrize("kind", ["objects", "rows"])
def test_final_observations_may_be_longer_strings(client, kind):
    final = np.array([None, "elephant"], object) if kind == "objects" else np.array(["", "elephant"])
    data = record_an_end(client, np.array(["cat", "dog"]), final)
    assert data["observation"].tolist() == [b"cat", b"dog"]
    assert data["next_observation"].tolist() == [b"cat", b"elephant"]


def test_final_observations_may_be_bytes_and_text(client):
    data = record_an_end(client, np.array(["a", "b"], object), np.array([b"", b"\xff"]))
    assert data["next_observation"].tolist() == [b"a", b"\xff"]


@pytest.mark.parametrize(
    ("observation", "final", "expected"),
    [
        (np.array([1, 2], np.float32), np.float64(2.5), 2.5),  # environments often return float64 for float32 spaces
        (np.array([1, 2], np.float32), 3, 3),
        (np.array([1, 2], np.uint8), 255, 255),  # a Python integer is an int64
        (np.array([1, 2], np.int32), np.float64(7), 7),
        (np.array([True, False]), np.int64(1), True),
    ],
)
@pytest.mark.parametrize("kind", ["objects", "rows"])
def test_final_observations_of_another_dtype_that_fit(client, observation, final, expected, kind):
    values = np.array([None, final], object) if kind == "objects" else np.array([final, final])
    data = record_an_end(client, observation, values)
    assert data["next_observation"].dtype == observation.dtype
    assert data["next_observation"][1] == expected


@pytest.mark.parametrize(
    ("observation", "final"),
    [
        (np.array([1, 2]), 2.5),
        (np.array([1, 2]), np.nan),
        (np.array([1, 2], np.uint8), 256),
        (np.array([1, 2], np.uint8), -1),
        (np.array([1.0, 2.0]), "two"),
        (np.array(["a", "b"]), 2.0),
        (np.array([1.0, 2.0]), 1j),
    ],
)
@pytest.mark.parametrize("kind", ["objects", "rows"])
def test_final_observations_that_do_not_fit(client, observation, final, kind):
    values = np.array([None, final], object) if kind == "objects" else np.array([final, final])
    with pytest.raises(
        ValueError, match=r"info\['final_obs'\] has dtype .*, but the other observations have .*; let the"
    ):
        record_an_end(client, observation, values)


@pytest.mark.parametrize(
    ("final", "text"),
    [
        (np.array([None, 5.0], object), r"info\['final_obs'\]\[1\] has shape \(\), but the observation has \(3,\)"),
        (np.zeros((2, 1)), r"info\['final_obs'\] has shape \(1,\), but the other observations have \(3,\)"),
        (np.zeros((1, 3)), r"info\['final_obs'\] must have a first dimension of 2"),
    ],
)
def test_final_observations_of_another_shape(client, final, text):
    with pytest.raises(ValueError, match=text):
        record_an_end(client, np.zeros((2, 3)), final)


def test_a_second_reset_before_the_first_step_may_have_longer_strings(client):
    with VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="disabled") as recorder:
        recorder.reset(np.array(["cat", "dog"]))
        recorder.reset(np.array(["elephant", ""]), mask=np.array([True, False]))
        recorder.step(np.zeros(2), np.array(["c", "d"]), np.zeros(2), ~NO, NO)
    assert stored(client, recorder)["observation"].tolist() == [b"elephant", b"dog"]


def test_a_second_reset_before_the_first_step_of_another_dtype(client):
    recorder = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="disabled")
    recorder.reset(np.array([1, 2]))
    with pytest.raises(ValueError, match=r"the observation of reset\(\) has dtype float64, but .* have int64"):
        recorder.reset(np.array([1.5, 2.5]), mask=np.array([True, False]))


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
def test_masks_of_final_observations(client, name):
    """Gymnasium's rows of environments without a value are zeros."""
    with pytest.raises(
        ValueError, match=rf"environments \[1\] have ended, but info\['{name}'\] has nothing of them: info\['_{name}'\]"
    ):
        record_an_end(client, np.array([1.0, 2.0]), np.zeros(2), name, **{f"_{name}": np.array([True, False])})
    data = record_an_end(client, np.array([1.0, 2.0]), np.array([0.0, 7.0]), name, **{f"_{name}": END_OF_1})
    assert data["next_observation"].tolist() == [1, 7]


class Doubles(gymnasium.Env):
    """Observations are float64 although the space is float32; episodes end after three steps."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return np.array([0.0, 0.5]), {}

    def step(self, action):
        self._t += 1
        return np.array([self._t, 0.5]), 1.0, self._t == 3, False, {}


def test_masks_and_dtypes_of_gymnasium(client):
    envs = SyncVectorEnv([Doubles] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    masks = []
    with VectorTransitionRecorder(client, "queue", env=envs) as recorder:
        recorder.reset(*envs.reset())
        for _ in range(6):
            values = envs.step(np.zeros(2, int))
            recorder.step(np.zeros(2, int), *values)
            if "final_obs" in values[-1]:
                masks.append(values[-1]["_final_obs"].tolist())
    assert masks == [[True, True]] * 2
    data = stored(client, recorder)
    assert data["next_observation"].dtype == np.float32
    assert data["next_observation"][:, 0].tolist() == [1, 1, 2, 2, 3, 3] * 2
