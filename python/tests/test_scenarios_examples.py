"""Runs the examples in examples/python, and checks their output."""

import ast
import os
from pathlib import Path
import re
import subprocess
import sys

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Processes may start slowly on a busy machine; waiting clients log this.
    said = [line for line in done.stderr.splitlines() if "still waiting" not in line]
    assert said == []
    return done.stdout


def numbers(pattern, output):
    """Returns the matches of the pattern's groups, as floats."""
    match = re.search(pattern, output)
    assert match, output
    return [float(group.replace(",", "")) for group in match.groups()]


def test_each_example_has_a_test():
    tests = Path(__file__).read_text(encoding="utf-8")
    names = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert len(names) >= 10
    assert [name for name in names if f'"{name}"' not in tests] == []


def test_each_example_is_in_the_index():
    index = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    files = [*EXAMPLES.glob("*.py"), *(EXAMPLES.parent / "cpp").glob("*.cc")]
    assert [path.name for path in files if f"({path.parent.name}/{path.name})" not in index] == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_each_example_says_what_it_is_for(path):
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert f"python examples/python/{path.name}" in text


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


def test_overlapping_trajectories():
    output = run("overlapping_trajectories.py")
    assert output.count("  steps [") == 8
    assert "steps [7 8 9], actions [1 0 1]" in output
    assert "begin at steps [0, 1, 2, 3, 4, 5, 6, 7]" in output


def test_several_tables():
    output = run("several_tables.py")
    (uniform,) = numbers(r"of pairs, drawn uniformly: +([\d.]+)", output)
    (prioritized,) = numbers(r"of triples, drawn by priority: +([\d.]+)", output)
    assert prioritized > 1.1 * uniform
    assert "{'best': 9, 'pairs': 199, 'triples': 0}" in output


def test_whole_episodes():
    output = run("whole_episodes.py")
    (played,) = numbers(r"played 200 episodes with a mean return of ([\d.]+)", output)
    (kept,) = numbers(r"kept the best 50, with a mean return of ([\d.]+)", output)
    assert kept > played
    assert "observations (16, " in output


def test_frame_stacking():
    output = run("frame_stacking.py")
    assert "item 2: frames [0 0 1 2] -> [0 1 2 3]" in output


def test_n_step():
    output = run("n_step.py", "30", "3000")
    errors = [float(error) for error in re.findall(r"samples ([\d.]+)", output)]
    assert len(errors) == 5
    assert min(errors[1:]) < errors[0]


def test_r2d2_sequences():
    output = run("r2d2_sequences.py", "30", "150")
    at_start, burnt_in, at_end = numbers(r"([\d.]+) at once, ([\d.]+) after .*, ([\d.]+) at the end", output)
    assert at_start > burnt_in > at_end
    first, last = numbers(r"loss ([\d.]+) -> ([\d.]+)", output)
    assert last < first
    assert "210 sequences" in output
    assert " 0 sequences were never sampled" in output


def test_ppo_queue():
    output = run("ppo_queue.py", "30")
    assert "the policy in the corridor: >>>>>>>" in output
    inserted, sampled, left = numbers(r"(\d+) fragments inserted, (\d+) sampled, (\d+) in the queue", output)
    assert inserted == sampled + left
    assert sampled == 30 * 16


def test_impala_queue():
    output = run("impala_queue.py", "90")
    assert "the right arm in 6 of 6 contexts" in output


def test_d4pg():
    output = run("d4pg.py", "1000")
    (before,) = numbers(r"before: (-[\d.]+)", output)
    (after,) = numbers(r"updates: (-[\d.]+)", output)
    assert after > before / 4


def test_distributed_sac():
    output = run("distributed_sac.py", "800")
    before, after = numbers(r"return: (-[\d.]+) before, (-[\d.]+) after", output)
    assert after > before / 4
    (ratio,) = numbers(r"([\d.]+) samples per insert", output)
    assert 5 < ratio <= 8


def test_grpo_rows():
    output = run("grpo_rows.py", "15")
    assert "15 updates of 128 rows with 2 ranks" in output
    first, last = numbers(r"mean reward: ([\d.]+) at first, ([\d.]+) at the end", output)
    assert first < 0.3
    assert last > 2 * first
    staleness = re.search(r"staleness: (.*)", output).group(1)
    assert sum(map(int, re.findall(r"(\d+) rows", staleness))) == 15 * 128
    assert set(re.findall(r"lag (\d+)", staleness)) <= {"0", "1"}
    assert re.search(r"waiting: rank 0 [\d.]+ s for rows, rank 1 [\d.]+ s for rows", output)


def test_structured_patterns():
    output = run("structured_patterns.py")
    assert "transitions  9 items: 0-1, 1-2," in output
    assert "sequences    4 items: 0-1-2-3 (2.9), 2-3-4-5 (4.8), 4-5-6-7 (6.8), 6-7-8-9 (8.8)" in output
    assert "goals        2 items: 3-4, 7-8" in output
    assert "endings      1 items: 7-8-9" in output


def test_behaviour_cloning():
    output = run("behaviour_cloning.py", "20")
    assert "the checkpoint has 20 episodes" in output
    (agreement,) = numbers(r"agrees with the expert in ([\d.]+)% of 1000 steps", output)
    assert agreement > 90
    expert, clone, other = numbers(r"expert (-[\d.]+), of the clone (-[\d.]+), .* (-[\d.]+)", output)
    assert clone > 2 * expert
    assert other < 10 * clone


def test_vector_environments():
    output = run("vector_environments.py", "60")
    together = numbers(r"together +: (\d+) transitions of (\d+) episodes, (\d+) terminal", output)
    assert together == numbers(r"one_by_one: (\d+) transitions of (\d+) episodes, (\d+) terminal", output)
    transitions, episodes, terminal = together
    resets = 60 * 32 - transitions  # the steps that are not transitions
    assert 20 < resets <= terminal <= episodes
    assert terminal - resets < 10, "those that end with the last step are not reset any more"


def test_cpp_actor():
    actor = EXAMPLES.parents[1] / "build" / "dev" / "examples" / "cpp" / "reverb_actor"
    if not actor.exists():
        pytest.skip(f"{actor} is not built")
    output = run("cpp_actor.py", actor, "1500")
    assert "the actor in C++ wrote 1500 transitions" in output
    assert "1500 transitions, 12000 samples: 8.0 samples per insert" in output
    assert "the policy in the corridor: >>>>>>>" in output


def test_cpp_actor_that_is_not_built():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "cpp_actor.py", "/not/there"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "/not/there is not there; build it with" in done.stderr


def test_ray_rollouts():
    pytest.importorskip("ray", reason="needs Ray: python/tests_frameworks/test_ray_examples.py runs it")
    assert "took 7 steps" in run("ray_rollouts.py")
