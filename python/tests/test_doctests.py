"""Runs the examples in the docstrings of the package."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "_priorities",
        "_specs",
        "_tree",
        "checkpoints",
        "client",
        "item_selectors",
        "rate_limiters",
        "replay_sample",
        "recorders.episodes",
        "recorders.parallel",
        "recorders.sequences",
        "recorders.transitions",
        "reverb_types",
        "server",
        "structured_writer",
        "trajectory_writer",
    ],
)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"reverb.{name}"))
    assert result.failed == 0
