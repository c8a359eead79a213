"""Runs the page docs/jax.md."""

import os
from pathlib import Path
import subprocess
import sys

import pytest
from test_docs import program_of

pytest.importorskip("jax")
pytest.importorskip("grain")


def test_the_page(tmp_path):
    file = tmp_path / "page.py"
    file.write_text(program_of(Path(__file__).parents[2] / "docs" / "jax.md"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
