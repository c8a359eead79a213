"""Python programs in a separate process, for code that may crash, hang or write to stderr.

run("import reverb; print(1)") returns what was printed. A process that ends by a signal, with an error, or not in
time fails the test; the failure names the signal and shows where every thread was.
"""

from __future__ import annotations

import os
from pathlib import Path
import signal
import subprocess
import sys
import textwrap

import pytest

import reverb

# Added to the path of the process: the package under test and the modules of this folder.
_PATHS = [str(Path(reverb.__file__).parent.parent), str(Path(__file__).parent)]

# The first lines of most programs.
PRELUDE = """
import faulthandler, gc, os, signal, sys, threading, time
import numpy as np
import conditions
import reverb
from transports import connect

reverb.set_wait_log_after(None)  # on a busy machine any call may wait for long, which is no error

def make_table(name="table", limiter=None, layout="any", **arguments):
    return reverb.Table(name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), arguments.pop("max_size", 1000),
                        limiter or reverb.rate_limiters.MinSize(1), layout=layout, **arguments)

def make_server(*tables):
    return reverb.Server(list(tables) or [make_table(), reverb.Table.queue("queue", 2, layout="any")])
"""


def environment(**more: str) -> dict[str, str]:
    """Returns this process's environment, with the package on the path and faulthandler enabled."""
    variables = dict(os.environ)
    paths = [*_PATHS, *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(paths), "PYTHONFAULTHANDLER": "1", **more}


def start(code: str, *, prelude: str = PRELUDE, **more_environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(code)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # line() must not read ahead
        env=environment(**more_environment),
    )


def line(process: subprocess.Popen[bytes]) -> str:
    """Returns the next line of output without its newline, or an empty string at the end."""
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")


def finish(process: subprocess.Popen[bytes], *, seconds: float = 60, quiet: bool = True) -> str:
    """Waits for the process and returns its output. With `quiet`, output on stderr is a failure."""
    in_time = True
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        in_time = False
        process.send_signal(signal.SIGABRT)  # faulthandler prints the stack of each thread
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    out, err = out.decode(), err.decode(errors="replace")
    status = process.returncode
    problem = None
    if not in_time:
        problem = f"still running after {seconds} s"
    elif status < 0:
        problem = f"ended by {signal.Signals(-status).name}"
    elif status > 0:
        problem = f"ended with status {status}"
    elif quiet and err:
        problem = "wrote to stderr"
    if problem:
        pytest.fail(f"{problem}\n--- stdout\n{out}\n--- stderr\n{err}", pytrace=False)
    return out


def run(code: str, *, seconds: float = 60, quiet: bool = True, prelude: str = PRELUDE, **more_environment: str) -> str:
    return finish(start(code, prelude=prelude, **more_environment), seconds=seconds, quiet=quiet)
