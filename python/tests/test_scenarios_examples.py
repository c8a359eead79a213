"""The examples in examples/python run, and do what they say."""

import os
from pathlib import Path
import re
import subprocess
import sys

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_all_are_run():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "dqn.py",
        "prioritized_replay.py",
        "quick_start.py",
    ]


def test_quick_start():
    output = run("quick_start.py")
    assert "the table holds 8 items" in output
    assert output.count("was drawn with probability 0.125") == 3
    assert "and 0 are left" in output


def test_actor_and_learner():
    output = run("dqn.py", "300")
    assert "the policy in the corridor: >>>>>>>" in output
    (ratio,) = re.findall(r"([\d.]+) samples per insert", output)
    assert 4 < float(ratio) < 9


def test_prioritized_replay():
    output = run("prioritized_replay.py")
    far_off, others = map(int, re.findall(r"(\d+) times", output))
    assert far_off > 3 * others
    (error,) = re.findall(r"largest error left: ([\d.]+)", output)
    assert float(error) < 1.0


def test_the_blocks_of_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("(4, 4)") == 1  # the first item is of a single step, the second of four
