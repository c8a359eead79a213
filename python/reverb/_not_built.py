"""The error message if the native part is missing for this interpreter."""

from __future__ import annotations

from pathlib import Path
import platform
import re
import sys

__all__ = ["explain"]


def explain(folder: Path) -> str:
    """Returns a message with the interpreter, those that the package in `folder` was built for, and the remedy."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    built = set()
    for file in folder.glob("_core.cpython-*"):
        match = re.match(r"_core\.cpython-(\d)(\d+)", file.name)
        if match:
            built.add((int(match[1]), int(match[2])))
    there = ", ".join(f"CPython {major}.{minor}" for major, minor in sorted(built)) or "no interpreter"
    return (
        f"reverb was not built for this interpreter, {platform.python_implementation()} {platform.python_version()}: "
        f"in {folder} its native part, _core, is there for {there}. Run it with one of these, or build it for this "
        f"one: `pip install .` in the source tree, or `tools/python.sh develop {this}` to work on the tree itself"
    )
