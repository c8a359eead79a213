"""Tests what long work shows: a bar of tqdm on a terminal, else log lines, and nothing if it ends soon."""

import logging
import sys
import types

import numpy as np
import pytest

import reverb
from reverb import _progress


class Bar:
    """Stands in for tqdm.tqdm."""

    made: list["Bar"] = []

    def __init__(self, desc, total, unit, unit_scale, leave):
        self.desc, self.total, self.n, self.closed = desc, total, 0, False
        assert (unit, unit_scale, leave) == ("B", True, False)
        Bar.made.append(self)

    def update(self, more):
        self.n += more

    def close(self):
        self.closed = True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_progress, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def terminal(monkeypatch):
    Bar.made = []
    # Not sys.stderr itself, which pytest replaces between a fixture and its test.
    stderr = types.SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(_progress, "sys", types.SimpleNamespace(stderr=stderr))
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))


def test_a_bar_on_a_terminal(clock, terminal):
    with _progress.Progress("loading") as progress:
        progress(10, 1000)
        assert Bar.made == [], "it may end soon"
        clock[0] += 2
        progress(400, 1000)
        (bar,) = Bar.made
        assert (bar.desc, bar.total, bar.n) == ("loading", 1000, 400)
        progress(1000, 1000)
        assert bar.n == 1000
        assert not bar.closed
    assert bar.closed


def test_log_lines_without_a_terminal_or_tqdm(clock, terminal, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # importing it fails
    with caplog.at_level(logging.INFO, "reverb"), _progress.Progress("loading a checkpoint") as progress:
        for done in range(0, 25):
            progress(done * 10**8, 24 * 10**8)
            clock[0] += 1
    assert [record.getMessage() for record in caplog.records] == [
        "loading a checkpoint: 1.0 GB of 2.4 GB (42 %)",
        "loading a checkpoint: 2.0 GB of 2.4 GB (83 %)",
    ]


def test_an_unknown_total(clock, caplog, monkeypatch):
    monkeypatch.setattr(_progress, "sys", types.SimpleNamespace(stderr=None))  # a program without a console
    with caplog.at_level(logging.INFO, "reverb"), _progress.Progress("copying") as progress:
        clock[0] += 10
        progress(512, 0)
    assert [record.getMessage() for record in caplog.records] == ["copying: 512 B"]


def test_the_extension_calls_it(tmp_path, monkeypatch):
    calls: dict[str, list[tuple[int, int]]] = {}

    class Recorder(_progress.Progress):
        def __init__(self, what):
            super().__init__(what)
            self.calls = calls.setdefault(what, [])

        def __call__(self, done, total):
            self.calls.append((done, total))

    monkeypatch.setattr(_progress, "Progress", Recorder)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(tmp_path / "run")
    for _ in range(2):
        table = reverb.Table.queue("queue", 10)
        with reverb.Server([table], checkpointer=checkpointer) as server:
            client = server.localhost_client()
            client.insert(np.arange(100_000), {"queue": 1.0})
            path = client.checkpoint()
    reverb.checkpoints.verify(path)
    reverb.checkpoints.copy(path, tmp_path / "copy")
    for what in ("loading a checkpoint", "verifying a checkpoint", "copying a checkpoint"):
        assert calls[what], what
        done, total = calls[what][-1]
        assert 0 < done <= total, what


def test_an_exception_of_the_callback_does_not_end_the_work(tmp_path, monkeypatch):
    class Broken(_progress.Progress):
        def __call__(self, done, total):
            raise RuntimeError("no bar")

    seen = []
    monkeypatch.setattr(_progress, "Progress", Broken)
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(str(unraisable.exc_value)))
    with reverb.Server(
        [reverb.Table.queue("queue", 10)], checkpointer=reverb.checkpointers.DefaultCheckpointer(tmp_path)
    ) as server:
        client = server.localhost_client()
        client.insert(1.0, {"queue": 1.0})
        path = client.checkpoint()
    reverb.checkpoints.verify(path)
    assert "no bar" in seen
