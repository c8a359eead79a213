"""Chooses who learns: `--with numpy` (default), `--with torch` or `--with jax`."""

import argparse
import importlib
from typing import Any


def make_learner(name: str, framework: str = "numpy", **arguments: Any) -> Any:
    """Creates the learner of that name from with_numpy.py, with_torch.py or with_jax.py."""
    return getattr(importlib.import_module(f"with_{framework}"), name)(**arguments)


def framework_of_the_command_line() -> str:
    """Returns the value of --with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with", choices=("numpy", "torch", "jax"), default="numpy", help="what to learn with")
    return str(vars(parser.parse_args())["with"])
