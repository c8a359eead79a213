"""Runs the page docs/tensorflow.md and the examples for TensorFlow."""

import os
from pathlib import Path
import subprocess
import sys

import pytest
from test_docs import program_of

pytest.importorskip("tensorflow")

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "python" / "tensorflow").glob("*.py"))


def run(file, folder):
    return subprocess.run(
        [sys.executable, file], capture_output=True, text=True, timeout=240, cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_the_page(tmp_path):
    file = tmp_path / "page.py"
    file.write_text(program_of(ROOT / "docs" / "tensorflow.md"), encoding="utf-8")
    done = run(file, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples(file, tmp_path):
    done = run(file, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("OK"), done.stdout


def test_the_examples_are_found():
    assert {file.name for file in EXAMPLES} == {"make_dataset.py", "distributed_sac.py"}
