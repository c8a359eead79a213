"""Who is measured: this package, and dm-reverb where an environment with it is given."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys


@dataclasses.dataclass(frozen=True)
class Peer:
    """A side of the contest: an interpreter that can import its `reverb`."""

    name: str
    python: str
    environment: dict[str, str]
    version: str


# TensorFlow is a library of the other side; where it is loaded, it shall only say what matters.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def _look(name: str, python: str, environment: dict[str, str], package: str) -> Peer:
    program = f"import reverb, importlib.metadata as m; print('reverb', *[m.version(n) for n in {package!r}.split()])"
    if not package:
        program = "import reverb; print(reverb.__version__, 'of', reverb.__path__[0])"
    try:
        done = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SystemExit(f"bench: {python} cannot be run: {error}") from None
    if done.returncode != 0:
        raise SystemExit(f"bench: {python} cannot import {name}:\n{done.stderr[-1500:]}")
    return Peer(name, python, environment, done.stdout.splitlines()[-1])


def ours() -> Peer:
    """The package that this interpreter imports."""
    return _look("ours", sys.executable, dict(os.environ), "")


def dm_reverb(python: str) -> Peer:
    """dm-reverb of another environment's interpreter; what leads this one to our package is kept from it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return _look("dm-reverb", python, environment | _QUIET, "dm-reverb tensorflow")
