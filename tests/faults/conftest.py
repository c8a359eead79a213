"""What the tests of faults share. `make test-faults` sets up what they need and runs them."""

from __future__ import annotations

import contextlib
import os
import pathlib

from program import ServerProgram
from proxy import Proxy
import pytest

import reverb

ROOT = pathlib.Path(__file__).resolve().parents[2]
IS_LONG = os.environ.get("REVERB_TEST_LONG", "") not in ("", "0")
SEED = int(os.environ.get("REVERB_TEST_SEED", "1"))


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("REVERB_PROGRAM", ROOT / "build/dev/apps/reverb"))
    assert path.exists(), f"{path} does not exist; build it with make build, or set REVERB_PROGRAM"
    return path.resolve()


@pytest.fixture
def start_server(program, tmp_path):
    """start_server(*tables) starts a process that serves them, and is ready."""
    with contextlib.ExitStack() as stack:
        count = 0

        def start(*tables: str, **options) -> ServerProgram:
            nonlocal count
            count += 1
            server = ServerProgram(program, tables, tmp_path / f"server-{count}", **options)
            stack.callback(server.close)
            server.await_ready()
            return server

        yield start


@pytest.fixture
def make_proxy():
    """make_proxy(server) starts a proxy in front of a server."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(Proxy(server.port))


@pytest.fixture
def server(start_server):
    """A process that serves a log and a queue."""
    return start_server("log:uniform:fifo:100000", "queue:queue:1000")


@pytest.fixture
def proxy(server, make_proxy):
    """A proxy in front of `server`."""
    return make_proxy(server)


def connect(proxy, **options) -> reverb.Client:
    """Returns a client that reaches the server through the proxy."""
    return reverb.Client(proxy.address, in_process=False, local=False, **options)
