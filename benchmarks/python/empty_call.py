"""What nothing at all costs over gRPC on this machine, now: the reference of single calls."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDS = ("bench", "release", "dev")


def find_program() -> str | None:
    """The program `reverb`, whose `bench latency` measures an empty call; the environment's REVERB_PROGRAM first."""
    named = os.environ.get("REVERB_PROGRAM")
    candidates = [named] if named else [str(ROOT / "build" / build / "apps" / "reverb") for build in BUILDS]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def measure(program: str, seconds: float) -> float:
    """Microseconds (p50) of an empty call through gRPC's generic callback API, between two processes."""
    command = [program, "bench", "latency", "--seconds", str(max(0.1, seconds)), "--rounds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return float(json.loads(done.stdout.splitlines()[0])["empty_call_p50_us"])
