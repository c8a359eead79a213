"""Recorders: from what environments return to items that algorithms need.

A recorder takes the values that an environment's reset() and step() return, and stores transitions, sequences or whole
episodes: with terminal flags, bootstrap discounts, n-step returns including those at the end of an episode, stacked
frames, padding and masks, and nothing that crosses the end of an episode.

    with reverb.recorders.TransitionRecorder(client, "replay", n_step=3, discount=0.99) as recorder:
        recorder.reset(*env.reset())
        while training:
            action = policy(...)
            observation, reward, terminated, truncated, info = env.step(action)
            recorder.step(action, observation, reward, terminated, truncated, info)
            if terminated or truncated:
                recorder.reset(*env.reset())

|                 | one environment    | vector environments      |
| --------------- | ------------------ | ------------------------ |
| transitions     | TransitionRecorder | VectorTransitionRecorder |
| sequences       | SequenceRecorder   | VectorSequenceRecorder   |
| whole episodes  | EpisodeRecorder    | VectorEpisodeRecorder    |
| several agents  | ParallelRecorder   |                          |

They work with Gymnasium, Gym 0.26, dm_env and PettingZoo's parallel environments, and import none of them.
"""

from __future__ import annotations

from reverb.recorders.episodes import EpisodeRecorder, VectorEpisodeRecorder
from reverb.recorders.parallel import ParallelRecorder
from reverb.recorders.sequences import SequenceRecorder, VectorSequenceRecorder
from reverb.recorders.transitions import TransitionRecorder, VectorTransitionRecorder

__all__ = [
    "EpisodeRecorder",
    "ParallelRecorder",
    "SequenceRecorder",
    "TransitionRecorder",
    "VectorEpisodeRecorder",
    "VectorSequenceRecorder",
    "VectorTransitionRecorder",
]
