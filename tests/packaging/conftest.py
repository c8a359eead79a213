"""What the tests of packaging/ share. `make test-packaging` sets up what they need and runs them."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; a test that waits this long has failed

# Programs inherit it: if the tests run under nohup, servers would ignore it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def run(*words: object, code: int = 0, **options) -> subprocess.CompletedProcess:
    """Runs a command and checks its exit code."""
    options = {"cwd": ROOT, "timeout": PATIENCE, "stdin": subprocess.DEVNULL} | options
    ended = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)
    assert ended.returncode == code, f"{words} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
    return ended


def short_bench(address: str) -> tuple[str, ...]:
    """Returns the arguments of the program that insert some items into the table replay."""
    return ("bench", "insert", "--address", address, "--table", "replay", "--seconds", "0.1", "--rounds", "1")


def wait_until(what: str, happens) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)  # polls the condition


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("REVERB_PROGRAM", ROOT / "build/dev/apps/reverb"))
    assert path.exists(), f"{path} does not exist; build it with make build, or set REVERB_PROGRAM"
    return path.resolve()


@pytest.fixture(scope="session")
def helm() -> str:
    found = shutil.which("helm", path=f"{ROOT / 'build/tools'}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("helm is not installed; make test-packaging installs it")
    return found
