"""Tests importance_weights()."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from reverb._priorities import importance_weights
from reverb.replay_sample import ReplaySample, SampleInfo

probabilities = st.floats(1e-12, 1.0)
sizes = st.integers(1, 1 << 40)


def batch(pairs):
    return SampleInfo(
        key=np.arange(len(pairs), dtype=np.uint64),
        probability=np.array([probability for probability, _ in pairs]),
        table_size=np.array([size for _, size in pairs], np.int64),
        priority=np.ones(len(pairs)),
        times_sampled=np.ones(len(pairs), np.int32),
    )


@given(st.lists(st.tuples(probabilities, sizes), min_size=1, max_size=20), st.floats(0, 1))
def test_is_the_formula(pairs, beta):
    plain = [(size * probability) ** -beta for probability, size in pairs]
    expected = [weight / max(plain) for weight in plain]
    weights = importance_weights(batch(pairs), beta)
    np.testing.assert_allclose(weights, expected, rtol=1e-9)
    assert weights.max() == 1.0
    assert weights.dtype == np.float64


def test_the_rarest_item_counts_most():
    np.testing.assert_allclose(importance_weights(batch([(0.5, 4), (0.125, 4), (0.25, 4)]), 1.0), [0.25, 1.0, 0.5])
    np.testing.assert_array_equal(importance_weights(batch([(0.5, 4), (0.125, 4)]), 0), [1.0, 1.0])


def test_other_forms_of_the_batch():
    pairs = [(0.5, 10), (0.01, 10)]
    infos = [SampleInfo(i, p, n, 1.0, 1) for i, (p, n) in enumerate(pairs)]
    expected = importance_weights(batch(pairs), 0.4)
    np.testing.assert_array_equal(importance_weights(infos, 0.4), expected)
    np.testing.assert_array_equal(importance_weights([ReplaySample(i, None) for i in infos], 0.4), expected)
    np.testing.assert_array_equal(importance_weights(ReplaySample(batch(pairs), None), 0.4), expected)
    assert importance_weights(infos[1], 0.4) == 1.0
    assert importance_weights([], 0.4).shape == (0,)


def test_probabilities_near_zero_do_not_overflow():
    np.testing.assert_array_equal(importance_weights(batch([(5e-324, 1), (1.0, 1)]), 5.0), [1.0, 0.0])


def test_what_makes_no_sense():
    for beta in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="beta"):
            importance_weights(batch([(0.5, 1)]), beta)
    for pair in [(0.0, 1), (float("nan"), 1), (0.5, 0)]:
        with pytest.raises(ValueError, match="probability"):
            importance_weights(batch([pair]), 0.5)
