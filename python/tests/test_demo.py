"""Tests examples/demo: it starts, learns something, reports the store's activity, and leaves nothing behind."""

import importlib.util
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import threading
from xml.etree import ElementTree

from conditions import wait_until
import numpy as np
import pytest

import reverb

ROOT = Path(__file__).parents[2]


def find_program():
    """Returns the program `reverb` that the variable names, of a build, installed beside Python, or of the path."""
    places = [ROOT / "build" / folder / "apps" / "reverb" for folder in ("dev", "release")]
    places.append(Path(sys.executable).parent / "reverb")
    candidates = [os.environ.get("REVERB_PROGRAM"), *map(str, places), shutil.which("reverb")]
    return next((found for found in candidates if found and shutil.which(found)), None)


PROGRAM = find_program()
pytestmark = pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="Gymnasium is not installed")
needs_program = pytest.mark.skipif(PROGRAM is None, reason="the program `reverb` is not built")


@pytest.fixture
def agent(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "demo")
    import agent

    yield agent
    sys.modules.pop("agent")


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "demo" / "cartpole.py", "--program", PROGRAM, "--output", tmp_path / "plots",
         *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def running():
    """Returns every process with its parent and its start time, which with the number identifies it."""
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
    """Returns the descendants of a process."""
    processes = running()
    below = {ancestor}
    while more := {pid for pid, (parent, _) in processes.items() if parent in below} - below:
        below |= more
    return {(pid, processes[pid][1]) for pid in below - {ancestor}}


@needs_program
def test_it_learns_and_reports_the_stores_activity(tmp_path):
    demo = start(tmp_path, "--updates", "1500", "--actors", "2", "--phases", "1", "1")
    output, errors = demo.communicate(timeout=120)
    # So few updates are rarely enough for a good result.
    assert demo.returncode in (0, 1), errors
    assert "SOLVED in" in output
    assert ("NOT SOLVED" in output) == (demo.returncode == 1)
    assert re.search(r"info localhost:\d+ --watch", output)
    assert re.search(r" s +[\d,]+ transitions +[\d,]+ updates  return", output)
    ratio, low, high = map(float, re.search(r"([\d.]+); its bounds allow ([\d.]+) to ([\d.]+)", output).groups())
    assert low - 0.01 <= ratio <= high + 0.01
    assert 0 < high < 16
    actors, learner = map(
        float, re.search(r"an actor waited for the learner in ([\d.]+) s, the learner for the actors in ([\d.]+) s", output).groups()
    )
    assert actors > 0
    assert learner > 0
    (times,) = re.findall(r"samples: ([\d.]+) times as much", output)
    assert float(times) > 1
    (share,) = re.findall(r"top tenth.* got (\d+) % of the samples", output)
    assert int(share) > 10


@needs_program
def test_ctrl_c_ends_all_processes(tmp_path):
    demo = start(tmp_path)
    while "transitions" not in demo.stdout.readline():
        pass
    started = descendants(demo.pid)
    assert len(started) >= 6  # the server, its monitor, the learner and three actors
    demo.send_signal(signal.SIGINT)
    output, errors = demo.communicate(timeout=60)
    # Processes that start slowly on a busy machine let others wait, which clients log.
    assert [line for line in errors.splitlines() if not line.startswith("still waiting")] == []
    assert demo.returncode == 130
    assert "all processes have ended" in output
    # multiprocessing's own helper ends when it notices the end of its parent.
    wait_until(
        lambda: not started & {(pid, start) for pid, (_, start) in running().items()}, timeout=30, what="the end of all"
    )


def test_the_servers_log_goes_into_a_file(tmp_path):
    program = tmp_path / "reverb"
    program.write_text("#!/bin/sh\necho no port is free >&2\nexit 3\n", encoding="ascii")
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "cartpole.py", "--program", program, "--output", tmp_path / "plots"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (tmp_path / "plots" / "server.log").read_text(encoding="ascii") == "no port is free\n"
    assert done.stderr == "no port is free\ndemo: the server ended with 3 before it could be reached\n"
    assert done.returncode == 1


def test_a_missing_program_is_reported(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "cartpole.py", "--program", tmp_path / "absent"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "the program `reverb` is not here" in done.stderr


def test_the_pace_alternates(agent, monkeypatch):
    pace = agent.Pace(full_speed_seconds=4, real_time_seconds=1, start=100)
    seen = []
    for second in range(100, 111):
        monkeypatch.setattr(agent.time, "monotonic", lambda second=second: second)
        seen.append(pace.is_real_time())
    assert seen == 2 * [False, False, False, False, True] + [False]
    assert not agent.Pace(1, 0, start=0).is_real_time()


def test_the_page_shows_who_waits(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "demo")
    import progress

    replay = {
        "rate_limiter": {"min_diff": 0.0, "max_diff": 10.0}, "cursor": 0.0, "size": 1, "max_size": 10, "inserts": 1,
        "inserts_per_second": 1.0, "samples_per_second": 1.0, "waiting_samples": 1, "waiting_inserts": 0,
        "sample_wait_reason": "too_many_samples", "insert_wait_reason": None,
    }  # fmt: skip
    state = {
        "seconds": 7.0, "task": "task", "headline": "", "evaluations": [100.0], "highest": 500.0, "training_return": 1.0,
        "episodes": 1, "replay": replay, "updates": 1, "loss": 1.0, "stored_bytes": 1, "samples_per_insert": 1.0, "aim": 1.0,
        "is_real_time": True, "actors_waiting": [1.0, 0.0], "actors_waited": 2.0, "learner_waiting": [0.0, 0.99],
        "learner_waited": 3.0,
    }  # fmt: skip
    text = "\n".join(progress.page(state, str))
    sys.modules.pop("progress")
    assert "the learner waits: the actors are behind" in text
    assert "the environments run in real time" in text
    assert re.search(r"actors   █▁ +2\.0 s so far", text)
    assert re.search(r"learner  ▁█ +3\.0 s so far", text)


FAKE_DEMO = r"""
print("starting <1>")
for i in range(3):
    print(f"\x1b[2A" * (i > 0) + f"\x1b[2K\x1b[1mpage {i}\x1b[0m\n\x1b[2K  ▁▂█ {i}", flush=True)
print("SOLVED")
"""


def test_the_recorder_draws_what_the_terminal_shows(tmp_path):
    picture = tmp_path / "demo.svg"
    recorder = [sys.executable, ROOT / "tools" / "record_demo.py", "--output", picture]
    done = subprocess.run([*recorder, sys.executable, "-c", FAKE_DEMO], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    frames = ElementTree.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}g")
    texts = [text.text for text in frames[-1]]
    assert texts == ["starting <1>", "page 2", "▁▂█ 2", "SOLVED"]
    assert [text.get("class") for text in frames[-1]] == [None, "b", None, None]
    failed = subprocess.run([*recorder, sys.executable, "-c", "raise SystemExit(3)"], capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    assert "the command ended with 3" in failed.stderr


FIT = """
import agent
import numpy as np

rng = np.random.default_rng(0)
batch = {
    "observation": rng.normal(size=(64, 4)).astype(np.float32),
    "action": rng.integers(2, size=64),
    "rewards": rng.normal(size=(64, 3)).astype(np.float32),
    "discounts": np.tile(np.float32([0.9, 0.9, 0.0]), (64, 1)),
    "next_observation": np.full((64, 4), 1e6, np.float32),  # after the end: must not matter
}
wanted = batch["rewards"] @ np.float32([1, 0.9, 0.81])
learner = agent.Learner(rng)
for _ in range(800):
    learner.update(batch, np.ones(64))
q = agent.q_values(learner.weights, batch["observation"])[np.arange(64), batch["action"]]
print(np.abs(q - wanted).mean(), np.abs(wanted).mean())
"""


def test_the_network_fits_what_it_is_shown():
    # In a separate process: as in the demo, one thread for small matrices, which NumPy must know at its import.
    path = os.pathsep.join([str(ROOT / "examples" / "demo"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", FIT], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    error, size = map(float, done.stdout.split())
    assert error < 0.1 * size


def test_transitions_of_an_episode(agent, serve):
    """Each step starts a window of three; its discounts are zero after a fall, but not after a timeout."""
    client = serve(reverb.Table.queue("replay", 100)).localhost_client()
    writer = agent.TransitionWriter(client)
    for fell in (True, False):
        for step in range(4):
            discount = 0.0 if fell and step == 3 else agent.GAMMA
            writer.add(np.full(4, step), np.zeros(2), step % 2, 1.0, discount)
        writer.end(np.full(4, 4), np.zeros(2))
    writer.keep_up(threading.Event())
    size = client.server_info()["replay"].current_size
    rows = [sample.data for sample in client.sample("replay", size, emit_timesteps=False)]
    seen = [(int(o[0]), int(n[0]), r.tolist(), float(d.prod() > 0)) for _, d, n, o, r in rows]
    whole, short, shorter = [1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]
    assert seen[:4] == [(0, 3, whole, 1), (1, 4, whole, 0), (2, 4, short, 0), (3, 4, shorter, 0)]
    assert seen[4:] == [(0, 3, whole, 1), (1, 4, whole, 1), (2, 4, short, 1), (3, 4, shorter, 1)]
    writer.close()
