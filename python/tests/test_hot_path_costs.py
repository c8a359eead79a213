"""Counts the cost of hot-path calls. Costs are counted, not timed, so that they are the same on every machine.

Three counts for each call: instructions and allocations, by valgrind's callgrind, and Python functions entered. The
server is in the same process, so that the counted thread does all of the work. A change that makes a call exceed its
bound must be revised, or state the new figure in COSTS and the reason in its commit message.
"""

from __future__ import annotations

import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import interpreters
import pytest


class Cost(NamedTuple):
    instructions: int  # as measured; the bound is 1.3 times that
    allocations: int  # as measured; the bound is 1.3 times that plus one: threads contend more on a busy machine
    frames: int  # Python frames; an exact bound


# CPython 3.11, NumPy 2, GCC 12 -O2. The step has a column of 100 floats, one of 6, a float and a bool.
COSTS = {
    "append": Cost(13_400, 7, 0),
    "history": Cost(2_700, 1, 0),
    "create_item": Cost(13_000, 10, 0),
    "insert": Cost(35_200, 29, 0),
    "sample": Cost(35_700, 24, 0),
    "sample one": Cost(40_300, 28, 0),
    "batch of 64": Cost(203_000, 56, 0),
    "update of 64 priorities": Cost(77_000, 15, 0),
    "append of 64 environments": Cost(600_000, 448, 0),
    "items of 64 environments": Cost(441_000, 352, 0),
    "end of no episode": Cost(3_600, 0, 0),
}
SLACK = 1.3
COUNTED_WITH = (3, 11)  # other versions differ a little; one is enough

# operations: the calls, by the names in COSTS, and the number of calls in a round.
OPERATIONS = """
import gc
import os
import sys

import numpy as np

import reverb

gc.disable()
table = reverb.Table(
    "table", reverb.selectors.Uniform(seed=1), reverb.selectors.Fifo(), 1000, reverb.rate_limiters.MinSize(1)
)
server = reverb.Server([table])
client = server.localhost_client()
step = {"obs": np.ones(100, np.float32), "act": np.ones(6, np.float32), "rew": 1.0, "done": False}
writer = client.trajectory_writer(num_keep_alive_refs=2)
writer.append(step)
writer.append(step)
history = writer.history
item = {"obs": history["obs"][-2:], "act": history["act"][-1], "rew": history["rew"][-1], "done": history["done"][-1]}
writer.create_item("table", 1.0, item)
writer.flush()  # from now on the thread that makes items sends them
priorities = {"table": 1.0}
client.insert(step, priorities)
samples = client.sample("table", 10**8, emit_timesteps=False)
other = reverb.Table(
    "batches", reverb.selectors.Uniform(seed=1), reverb.selectors.Fifo(), 1000, reverb.rate_limiters.MinSize(1)
)
batch_server = reverb.Server([other])
batch_client = batch_server.localhost_client()
for _ in range(500):
    batch_client.insert(step, {"batches": 1.0})
batches = batch_client.sample_batches("batches", 64)
keys = next(batches).info.key
values = np.ones(64)
vector = client.vector_writer(num_envs=64, num_keep_alive_refs=2)
vector_step = {
    "obs": np.ones((64, 100), np.float32), "act": np.ones((64, 6), np.float32), "rew": np.ones(64), "done": np.ones(64, bool)
}
vector.append(vector_step)
vector.append(vector_step)
vector_item = {name: column[-1] for name, column in vector.history.items()}
vector.create_items("table", 1.0, vector_item)
vector.flush()
ended = np.zeros(64, bool)

operations = {
    "nothing": (lambda: None, 150),
    "create_item": (lambda: writer.create_item("table", 1.0, item), 150),
    "append": (lambda: writer.append(step), 150),  # the item's steps expire
    "history": (lambda: writer.history["obs"][-2:], 150),
    "insert": (lambda: client.insert(step, priorities), 150),
    "sample": (lambda: next(samples), 150),
    "sample one": (lambda: next(client.sample("table", 1, emit_timesteps=False)), 100),
    "batch of 64": (lambda: next(batches), 40),
    "update of 64 priorities": (lambda: batch_client.update_priorities("batches", keys, values), 40),
    "append of 64 environments": (lambda: vector.append(vector_step), 10),
    "items of 64 environments": (lambda: vector.create_items("table", 1.0, vector_item), 10),
    "end of no episode": (lambda: vector.end_episode(ended), 100),
}
"""

# Makes callgrind write a part at both ends of each round: at getppid(), which nothing else calls.
ROUNDS = 4
COUNTING = f"""
for name, (operation, count) in operations.items():
    for _ in range(100):
        operation()
    for _ in range({ROUNDS}):
        os.getppid()
        for _ in range(count):
            operation()
    os.getppid()
    print(name, count, sep=":", flush=True)
vector.close()
writer.close()
"""

FRAMES = """
for name, (operation, count) in operations.items():
    entered = []
    operation()
    sys.setprofile(lambda frame, event, argument: entered.append(frame.f_code) if event == "call" else None)
    operation()
    sys.setprofile(None)
    # Its own is the first.
    print(name, len(entered) - 1, sep=":")
vector.close()
writer.close()
"""

# Fixes what glibc and NumPy would choose by machine: `rep stosb` counts once for each byte.
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"}


class Count(NamedTuple):
    instructions: int
    allocations: int


def read_part(path: Path) -> Count:
    """Returns the sums of one part. Each name has a number, and is spelled out once in a file."""
    instructions = allocations = 0
    names: dict[str, str] = {}
    callee = ""
    for line in path.read_text().splitlines():
        if named := re.match(r"c?fn=\((\d+)\)(?: (\S+))?", line):
            if named[2]:
                names[named[1]] = named[2].partition("@")[0]
            if line.startswith("cfn="):
                callee = names[named[1]]
        elif line.startswith("calls=") and callee in ALLOCATORS:
            allocations += int(line[len("calls=") :].split()[0])
        elif line.startswith("totals:"):
            instructions = int(line.split()[1])
    return Count(instructions, allocations)


@pytest.fixture(scope="module")
def counts(tmp_path_factory) -> dict[str, tuple[float, float]]:
    """Returns instructions and allocations of each operation, in the round with the fewest.

    This excludes occasional work, such as a log message.
    """
    if sys.version_info[:2] != COUNTED_WITH and not os.environ.get("REVERB_TEST_COSTS"):
        pytest.skip(
            f"costs are counted with CPython {'.'.join(map(str, COUNTED_WITH))}; REVERB_TEST_COSTS=1 does anyway"
        )
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed: instructions and allocations are not counted")
    folder = tmp_path_factory.mktemp("callgrind")
    done = subprocess.run(
        [valgrind, "--tool=callgrind", "--separate-threads=yes", "--dump-before=getppid",
         f"--callgrind-out-file={folder}/part", sys.executable, "-c", OPERATIONS + COUNTING],
        capture_output=True, text=True, timeout=600, env=interpreters.environment(**ENVIRONMENT),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {}
    for i, line in enumerate(done.stdout.splitlines()):
        name, number = line.split(":")
        # Each round is the part that ends with it; one more part ends where the first round begins.
        last = (ROUNDS + 1) * (i + 1)
        rounds = [read_part(folder / f"part.{part}-01") for part in range(last - ROUNDS + 1, last + 1)]
        found[name] = tuple(min(each) / int(number) for each in zip(*rounds, strict=True))
    empty = found.pop("nothing")
    assert 0 < empty[0] < 2000  # checks the counting itself
    assert empty[1] == 0
    return {name: (instructions - empty[0], allocations) for name, (instructions, allocations) in found.items()}


@pytest.mark.parametrize("name", COSTS)
def test_instructions(counts, name):
    instructions, _ = counts[name]
    bound = SLACK * COSTS[name].instructions
    print(f"{name}: {instructions:.0f} instructions, at most {bound:.0f}")
    assert instructions <= bound, f"{name}: {instructions:.0f} instructions, {COSTS[name].instructions} were measured"


@pytest.mark.parametrize("name", COSTS)
def test_allocations(counts, name):
    _, allocations = counts[name]
    most = SLACK * COSTS[name].allocations + 1
    print(f"{name}: {allocations:.1f} allocations, at most {most:.0f}")
    assert allocations <= most


def test_every_operation_has_a_bound(counts):
    assert set(counts) == set(COSTS)


@pytest.fixture(scope="module")
def frames() -> dict[str, int]:
    lines = interpreters.run(OPERATIONS + FRAMES, prelude="").splitlines()
    return {name: int(count) for name, count in (line.split(":") for line in lines)}


@pytest.mark.parametrize("name", COSTS)
def test_python_frames(frames, name):
    assert frames["nothing"] == 0
    assert frames[name] <= COSTS[name].frames, f"{name} enters {frames[name]} functions that are written in Python"
