"""The Slurm job, in a private cluster where Slurm is installed, and with plain processes in place of Slurm's steps."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

from conftest import PATIENCE, ROOT, run
import pytest
import slurm_cluster

SCRIPT = ROOT / "packaging/slurm/reverb.sbatch"
STAND_INS = pathlib.Path(__file__).parent / "stand_ins"


@pytest.fixture(scope="module", params=["processes", "slurm"])
def slurm(request, tmp_path_factory):
    """The environment of `sbatch`."""
    if request.param == "processes":
        folder = tmp_path_factory.mktemp("steps")
        yield os.environ | {"PATH": f"{STAND_INS}:{os.environ['PATH']}", "STAND_IN_STEPS": str(folder)}
        for record in folder.iterdir():  # steps that a failed test left behind
            for pid in map(int, record.read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        return
    if not slurm_cluster.is_installed():
        pytest.skip("Slurm is not installed, or this is not root; install munge slurmctld slurmd slurm-client")
    cluster = slurm_cluster.Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster.environment
    cluster.cancel()
    cluster.stop()


class Job:
    """One run; `submit` may be called several times, with the same folder."""

    def __init__(self, slurm: dict[str, str], program: pathlib.Path, folder: pathlib.Path):
        self.run = folder / "run"
        self.log = folder / "log"
        self.program = program
        self.environment = slurm | {"REVERB_PROGRAM": str(program), "REVERB_RUN": str(self.run)}

    def submit(self, *, nodes: int = 2, code: int = 0, **settings: object) -> str:
        environment = self.environment | {f"REVERB_{name.upper()}": str(value) for name, value in settings.items()}
        words = ["sbatch", "--wait", f"--nodes={nodes}", f"--output={self.log}", str(SCRIPT)]
        ended = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
        )
        text = self.log.read_text() if self.log.exists() else ""
        assert ended.returncode == code, f"{ended.stdout}{ended.stderr}{text}"
        return text

    def saved(self, server: int) -> dict:
        inspected = run(self.program, "checkpoint", "inspect", self.run / f"checkpoints/{server}", "--json")
        (table,) = json.loads(inspected.stdout)["tables"]
        return table


@pytest.fixture
def job(slurm, program, tmp_path) -> Job:
    return Job(slurm, program, tmp_path)


def insert(program: pathlib.Path) -> str:
    """A shell command that inserts items into the server with the number of the actor."""
    address = 'IFS=, read -ra servers <<< "$REVERB_ADDRESS"; server=${servers[SLURM_PROCID % ${#servers[@]}]}'
    return f"{address}; {program} bench insert --address $server --table replay --seconds 0.1 --rounds 1 > /dev/null"


def wait_for_items(program: pathlib.Path) -> str:
    """A shell command that takes one sample of each server."""
    return (
        f'for server in ${{REVERB_ADDRESS//,/ }}; do {program} sample "$server" replay --timeout 50 > /dev/null; done'
    )


def test_runs_servers_actors_and_a_learner_and_saves_the_tables(job, program):
    log = job.submit(servers=2, actors=3, actor=insert(program), learner=f"{wait_for_items(program)}; echo learned")
    addresses = re.search(r"2 server\(s\) at (\S+); 3 actor\(s\)", log).group(1).split(",")
    assert len(set(addresses)) == 2
    assert "learned" in log
    assert "the learner ended with exit code 0" in log
    sizes = [job.saved(server)["size"] for server in range(2)]
    assert min(sizes) > 0
    # A second job continues with these tables.
    log = job.submit(servers=2, actors=1, actor="true", learner=wait_for_items(program))
    assert [job.saved(server)["size"] for server in range(2)] == sizes
    for server in range(2):
        assert "loaded " in (job.run / f"servers/{server}.log").read_text()


def test_actors_that_do_not_end_are_stopped(job, program):
    actor = "trap 'echo actor stopped; exit 0' TERM; while true; do sleep 0.1; done"  # until the job ends
    log = job.submit(actors=2, actor=actor, learner="echo learned")
    assert "learned" in log
    assert job.saved(0)["size"] == 0


def test_the_exit_code_is_that_of_the_learner(job):
    log = job.submit(code=7, actor="true", learner="exit 7")
    assert "the learner ended with exit code 7" in log
    assert job.saved(0)["size"] == 0, "the tables were saved nevertheless"


def test_failures_end_the_job_and_are_named(job, program):
    forever = "while true; do sleep 0.1; done"  # until the job ends
    log = job.submit(code=1, actors=1, actor="exit 3", learner=forever)
    assert "an actor failed with exit code 3" in log
    log = job.submit(code=1, serve="--table a:wrong", actor="true", learner="true")
    assert "a server ended before it was ready" in log
    assert 'no selector "wrong"' in (job.run / "servers/0.log").read_text()
    log = job.submit(code=1, nodes=1, servers=2, actor="true", learner="true")
    assert "REVERB_SERVERS=2: more than the 1 nodes of the job; pass --nodes=2 to sbatch" in log
    stop = f"kill -KILL $(cat {job.run}/pid)"
    wrapper = job.run.parent / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho $$ > {job.run}/pid\nexec {program} "$@"\n')
    wrapper.chmod(0o755)
    log = job.submit(code=1, program=wrapper, actor="true", learner=f"{stop}; {forever}")
    assert "a server ended during the run" in log


def test_before_the_time_limit_the_tables_are_saved(slurm, program, tmp_path):
    """Slurm sends SIGTERM to the script (--signal=B:TERM), here sent by the learner."""
    assert re.search(r"^#SBATCH --signal=B:TERM@\d+$", SCRIPT.read_text(), re.MULTILINE)
    script = tmp_path / "script"
    script.write_text(
        SCRIPT.read_text().replace("set -euo pipefail", f"set -euo pipefail; echo $$ > {tmp_path}/pid", 1)
    )
    job = Job(slurm, program, tmp_path)
    learner = f"{wait_for_items(program)}; kill -TERM $(cat {tmp_path}/pid); while true; do sleep 0.1; done"
    environment = job.environment | {"REVERB_ACTOR": insert(program), "REVERB_LEARNER": learner}
    words = ["sbatch", "--wait", "--nodes=1", f"--output={job.log}", str(script)]
    ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, timeout=2 * PATIENCE, check=False)
    assert ended.returncode == 128 + signal.SIGTERM, job.log.read_text()
    assert "ending the run" in job.log.read_text()
    assert job.saved(0)["size"] > 0


def test_outside_slurm_it_says_what_is_missing():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    ended = run("bash", SCRIPT, code=1, env=environment)
    assert "SLURM_JOB_ID" in ended.stderr
    assert "sbatch" in ended.stderr


def has_package() -> bool:
    return subprocess.run([sys.executable, "-c", "import reverb"], capture_output=True, check=False).returncode == 0


def test_the_example_of_an_actor_and_a_learner(job):
    if not has_package():
        pytest.skip("the Python package is not built; make test-packaging builds it")
    train = f"{sys.executable} {ROOT}/packaging/slurm/train.py"
    log = job.submit(servers=2, actors=2, actor=f"{train} actor", learner=f"{train} learner --batches 50 --actors 2")
    assert re.search(r"learner: took \d+ batches with items of the actors \[0, 1\]", log)
    assert sum(job.saved(server)["size"] for server in range(2)) > 0
