"""Runs the example for Ray, and checks its output."""

from pathlib import Path
import re
import subprocess
import sys

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def test_rollout_workers_and_a_learner_find_the_shortest_way():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "ray_rollouts.py"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 servers are up" in done.stdout
    lengths = [float(text) for text in re.findall(r"episodes of ([\d.]+) steps", done.stdout)]
    assert len(lengths) == 12
    assert lengths[0] > 10
    assert "the last episode, without exploration, took 7 steps" in done.stdout
