"""Weights that correct the bias of prioritized sampling."""

from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

from reverb.replay_sample import ReplaySample, SampleInfo


def importance_weights(
    info: SampleInfo | ReplaySample | Sequence[SampleInfo | ReplaySample], beta: float
) -> npt.NDArray[np.float64]:
    """Returns the importance-sampling weights of prioritized experience replay for a batch of samples.

    An item that was drawn with probability P from a table of N items has the weight

        w = (1 / (N * P)) ** beta

    divided by the largest w of the batch, so that updates are only scaled down. `beta` = 0 gives weights of 1,
    `beta` = 1 corrects the bias completely. Does not overflow for small probabilities.

    Args:
        info: the info of a batch, with arrays as fields; or a sequence of infos or samples.
        beta: >= 0, usually between 0 and 1.

    Returns:
        Weights in (0, 1], as float64, of the shape of `info.probability`.

    >>> importance_weights(SampleInfo([7, 8], [0.5, 0.125], [2, 2], [1.0, 1.0], [1, 1]), beta=1.0)
    array([0.25, 1.  ])
    """
    exponent = float(beta)
    if not math.isfinite(exponent) or exponent < 0:
        raise ValueError(f"beta is {exponent}, it must be finite and >= 0")
    if isinstance(info, ReplaySample):
        info = info.info
    if isinstance(info, SampleInfo):
        probability, size = np.asarray(info.probability, np.float64), np.asarray(info.table_size, np.float64)
    else:
        infos = [each.info if isinstance(each, ReplaySample) else each for each in info]
        probability = np.asarray([each.probability for each in infos], np.float64)
        size = np.asarray([each.table_size for each in infos], np.float64)
    if not np.all(probability > 0) or not np.all(size > 0):
        raise ValueError("every sample must have a probability > 0 and a table_size > 0")
    if probability.size == 0:
        return np.zeros(probability.shape)
    # Uses logarithms, relative to the largest weight.
    logs = -exponent * (np.log(size) + np.log(probability))
    weights: npt.NDArray[np.float64] = np.exp(logs - np.max(logs))
    return weights
