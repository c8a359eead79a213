"""examples/demo: starts, learns something, says what the store did, and leaves nothing behind."""

import importlib.util
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = Path(__file__).parents[2]


def find_program():
    """The program `reverb` of the environment, of a build, or of the path."""
    built = [ROOT / "build" / folder / "apps" / "reverb" for folder in ("dev", "demo", "release")]
    candidates = [os.environ.get("REVERB_PROGRAM"), *map(str, built), shutil.which("reverb")]
    return next((found for found in candidates if found and shutil.which(found)), None)


PROGRAM = find_program()
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="the program `reverb` is not built"),
    pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="Gymnasium is not installed"),
]


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "demo" / "cartpole.py", "--program", PROGRAM, "--output", tmp_path / "plots",
         *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def running():
    """Every process with its parent and its start, which together with the number is its identity."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[0] != "Z":
            found[int(path.parent.name)] = (int(fields[1]), fields[19])
    return found


def descendants(ancestor):
    """The processes below one."""
    processes = running()
    below = {ancestor}
    while more := {pid for pid, (parent, _) in processes.items() if parent in below} - below:
        below |= more
    return {(pid, processes[pid][1]) for pid in below - {ancestor}}


def test_it_learns_and_says_what_the_store_did(tmp_path):
    demo = start(tmp_path, "--updates", "800", "--actors", "2")
    output, errors = demo.communicate(timeout=120)
    # So few updates are not enough to be good, except by luck.
    assert demo.returncode in (0, 1), errors
    assert "SOLVED in" in output
    assert ("NOT SOLVED" in output) == (demo.returncode == 1)
    assert re.search(r"info localhost:\d+ --watch", output)
    assert re.search(r" s +[\d,]+ transitions +[\d,]+ updates  return", output)
    ratio, low, high = map(float, re.search(r"([\d.]+); its bounds allow ([\d.]+) to ([\d.]+)", output).groups())
    assert low - 0.01 <= ratio <= high + 0.01
    assert 0 < high < 16
    (times,) = re.findall(r"samples: ([\d.]+) times as much", output)
    assert float(times) > 1
    (share,) = re.findall(r"top tenth.* got (\d+) % of the samples", output)
    assert int(share) > 10


def test_ctrl_c_ends_all_processes(tmp_path):
    demo = start(tmp_path)
    while "transitions" not in demo.stdout.readline():
        pass
    started = descendants(demo.pid)
    assert len(started) >= 6  # the server, who watches it, the learner and three actors
    demo.send_signal(signal.SIGINT)
    output, errors = demo.communicate(timeout=60)
    assert (demo.returncode, errors) == (130, "")
    assert "all processes have ended" in output
    # multiprocessing's own helper ends when it sees that its parent has.
    deadline = time.monotonic() + 30
    while (left := started & {(pid, start) for pid, (_, start) in running().items()}) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == set()


def test_what_is_wrong_is_said(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "cartpole.py", "--program", tmp_path / "absent"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "the program `reverb` is not here" in done.stderr
