"""Tests the ends of recorders: close(), `with` blocks, and errors while an episode ends."""

from __future__ import annotations

import logging
import threading

from conditions import stays_true_for
from conftest import join
import pytest

import reverb
from reverb.recorders import ParallelRecorder, TransitionRecorder, _recorder


class BrokenEnvironmentError(Exception):
    pass


@pytest.fixture
def client(serve):
    return serve(reverb.Table.queue("queue", 1000), reverb.Table.queue("small", 1)).localhost_client()


@pytest.fixture
def short_timeout_after_errors(monkeypatch):
    monkeypatch.setattr(_recorder, "_TIMEOUT_AFTER_ERROR", 0.5)


def positive_only(item):
    """A priority function that fails for some items."""
    if item["reward"] < 0:
        raise ValueError("negative reward")
    return 1.0


def test_an_exception_in_the_block_of_a_full_queue(client, caplog, short_timeout_after_errors):
    with (
        caplog.at_level(logging.WARNING, "reverb"),
        pytest.raises(BrokenEnvironmentError),
        TransitionRecorder(client, "small") as recorder,
    ):
        recorder.reset(0)
        for t in range(4):
            recorder.step(t, t, 0.0, False, False)
        raise BrokenEnvironmentError
    assert recorder.num_items == 4
    text = "table 'small' has not accepted the last 3 items of this recorder within 0.5 s; they were discarded"
    assert f"closing a recorder after BrokenEnvironmentError: {text}" in caplog.text


def test_an_exception_in_the_block_and_one_at_its_end(client, caplog):
    with (
        caplog.at_level(logging.WARNING, "reverb"),
        pytest.raises(BrokenEnvironmentError),
        TransitionRecorder(client, "queue", n_step=2, priority=positive_only) as recorder,
    ):
        recorder.reset(0)
        recorder.step(0, 0, 1.0, False, False)
        recorder.step(0, 0, -0.5, False, False)
        raise BrokenEnvironmentError
    assert "closing a recorder after BrokenEnvironmentError: negative reward" in caplog.text
    assert client.server_info()["queue"].current_size == recorder.num_items == 1


def test_an_exception_in_the_block_of_several_agents(client, caplog, short_timeout_after_errors):
    with (
        caplog.at_level(logging.WARNING, "reverb"),
        pytest.raises(BrokenEnvironmentError),
        ParallelRecorder(lambda agent: TransitionRecorder(client, "small")) as recorder,
    ):
        agents = ("a", "b")
        recorder.reset(dict.fromkeys(agents, 0))
        for t in range(3):
            recorder.step(*[dict.fromkeys(agents, value) for value in (t, t + 1, 0.0, False, False)])
        raise BrokenEnvironmentError
    assert caplog.text.count("closing a recorder after BrokenEnvironmentError: table 'small' has not accepted") == 2


def test_the_end_of_a_block_has_the_timeout_of_the_recorder(client):
    with (
        pytest.raises(reverb.DeadlineExceededError, match="table 'small' has not accepted the last 2 items"),
        TransitionRecorder(client, "small", timeout=1.0) as recorder,
    ):
        recorder.reset(0)
        for t in range(3):
            recorder.step(t, t, 0.0, False, False)
    recorder.close()  # was closed


@pytest.mark.parametrize("error", [reverb.DeadlineExceededError, KeyboardInterrupt])
def test_blocks_do_not_wait_after_errors_of_reverb_and_interrupts(client, error):
    with pytest.raises(error), TransitionRecorder(client, "small", timeout=None) as recorder:
        recorder.reset(0)
        for t in range(3):
            recorder.step(t, t, 0.0, False, False)
        raise error
    with pytest.raises(RuntimeError, match=r"close\(\) has been called"):
        recorder.reset(0)


def test_closing_waits_for_finished_items_also_if_the_last_ones_fail(client):
    recorder = TransitionRecorder(client, "small", n_step=2, priority=positive_only)
    recorder.reset(0)
    for t in range(3):
        recorder.step(t, t, 1.0, False, False)
    recorder.step(3, 3, -0.5, False, False)
    raised = []

    def close():
        try:
            recorder.close(timeout=60)
        except ValueError as error:
            raised.append(str(error))

    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    assert stays_true_for(0.1, thread.is_alive), "it waits for the items that are not in the queue yet"
    items = [sample.data for sample in client.sample("small", 3, emit_timesteps=False, timeout=60)]
    join(thread)
    assert raised == ["negative reward"]
    assert len(items) == recorder.num_items == 3
