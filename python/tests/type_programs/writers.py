"""Writers: `history` has the type that the program declares, else Any."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import reverb
from reverb.trajectory_writer import ColumnHistory
from reverb.vector_writer import VectorColumn, VectorColumnHistory


class Step(NamedTuple):
    observation: npt.NDArray[np.float32]
    reward: float


class History(NamedTuple):
    observation: ColumnHistory
    reward: ColumnHistory


def undeclared(client: reverb.Client) -> None:
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        assert_type(writer, reverb.TrajectoryWriter)
        writer.append({"observation": np.zeros(4), "deep": {"reward": 1.0}})
        writer.create_item(
            table="replay",
            priority=1.0,
            trajectory={
                "observation": writer.history["observation"][-3:],
                "reward": writer.history["deep"]["reward"][-1],
            },
        )
        writer.end_episode(timeout_ms=100)
        writer.create_item("replay", 1.0)  # error
        writer.append()  # error
        writer.flush(block_until_num_items="all")  # error


def declared(client: reverb.Client) -> None:
    writer: reverb.TrajectoryWriter[History] = client.trajectory_writer(num_keep_alive_refs=2)
    with writer:
        writer.append(Step(np.zeros(4, np.float32), 1.0))
        column = writer.history.observation[-2:]
        assert_type(column, reverb.TrajectoryColumn)
        writer.create_item("replay", np.float32(1), {"observation": column, "reward": writer.history.reward[-1]})
        writer.history.rewards  # error


def vector(client: reverb.Client) -> None:
    writer: reverb.VectorWriter[dict[str, VectorColumnHistory]] = client.vector_writer(8, num_keep_alive_refs=2)
    with writer:
        writer.append({"observation": np.zeros((8, 4))}, mask=np.ones(8, bool))
        assert_type(writer.history["observation"][-2:], VectorColumn)
        made = writer.create_items("replay", 1.0, writer.history["observation"][-2:])
        assert_type(made, npt.NDArray[np.bool_])
        writer.end_episode([True] * 8)
        writer.create_item("replay", 1.0, writer.history)  # error


def whole_steps(client: reverb.Client) -> None:
    with client.writer(max_sequence_length=2) as writer:
        writer.append([1, 2.0])
        writer.create_item("replay", num_timesteps=1, priority=1.0)
        writer.create_item("replay", priority=1.0)  # error


def patterns(client: reverb.Client) -> None:
    step = {"observation": np.zeros(4), "reward": 0.0}
    pattern = reverb.structured.pattern_from_transform(step, lambda ref: {"o": ref["observation"][-2:]})
    config = reverb.structured.create_config(pattern, "replay", conditions=[reverb.structured.Condition.step_index() >= 1])
    with client.structured_writer([config]) as writer:
        writer.append(step)
        writer.append(step, partial=True)  # error
