"""PatternDataset: patterns applied to a tf.data.Dataset of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reverb import structured_writer
from reverb._tensorflow import loading
from reverb.replay_sample import ReplaySample, SampleInfo

__all__ = ["PatternDataset", "pattern_dataset_with_info"]


class PatternDataset(loading.LazyDataset):
    """A `tf.data.Dataset` of the items that a StructuredWriter would create from a dataset of steps.

    Needs no server: it is for data sets of recorded steps. Elements have the structure of the pattern; tables and
    priorities of the configs do not matter.
    """

    @loading.unconverted
    def __init__(
        self,
        input_dataset: Any,
        configs: Sequence[structured_writer.Config],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[[Any], Any],
    ) -> None:
        """ValueError for configs that do not share a structure and a table; ImportError without TensorFlow.

        Args:
            input_dataset: a `tf.data.Dataset` whose elements are steps.
            configs: see reverb.structured. They are not modified.
            respect_episode_boundaries: False creates items across the ends of episodes, too.
            is_end_of_episode: returns whether a step is the last of its episode, as a scalar of dtype bool.
        """
        from reverb._tensorflow import patterns

        tf = loading.tensorflow("PatternDataset")
        self._become(
            *patterns.pattern_dataset(tf, input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
        )


def pattern_dataset_with_info(
    input_dataset: Any,
    configs: Sequence[structured_writer.Config],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> Any:
    """Returns a PatternDataset whose elements are ReplaySamples; all fields of their `info` are zero."""
    dataset: Any = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    is_tuple = type(dataset.element_spec) is tuple  # tf.data passes its elements one by one

    def with_info(*data: Any) -> ReplaySample:
        return ReplaySample(info=SampleInfo.zeros(), data=data if is_tuple else data[0])

    return dataset.map(with_info)
