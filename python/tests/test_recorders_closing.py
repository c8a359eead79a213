"""Tests the ends of recorders: close(), `with` blocks, and errors while an episode ends."""

from __future__ import annotations

import logging
import threading

from conditions import stays_true_for
from conftest import join
import numpy as np
import pytest

import reverb
from reverb.recorders import ParallelRecorder, SequenceRecorder, TransitionRecorder, VectorTransitionRecorder, _recorder


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


def end_with_an_error(recorder, shape, end):
    """Ends an episode whose last item cannot be created."""
    recorder.reset(np.zeros(shape))
    values = np.zeros(shape), np.zeros(shape)
    no = np.zeros(shape, bool)
    recorder.step(*values, np.full(shape, 1.0), no, no)
    with pytest.raises(ValueError, match="negative reward"):
        if end == "step":
            recorder.step(*values, np.full(shape, -0.5), no, ~no)
        else:
            recorder.step(*values, np.full(shape, -0.5), no, no)
            recorder.end_episode() if end == "end_episode" else recorder.reset(np.ones(shape))


@pytest.mark.parametrize("end", ["step", "end_episode", "reset"])
@pytest.mark.parametrize("num_envs", [0, 2])
def test_no_step_crosses_an_end_that_failed(client, end, num_envs):
    options = {"n_step": 2, "discount": 1.0, "priority": positive_only}
    if num_envs:
        recorder = VectorTransitionRecorder(client, "queue", num_envs=num_envs, autoreset="disabled", **options)
    else:
        recorder = TransitionRecorder(client, "queue", **options)
    shape = (num_envs,) if num_envs else ()
    end_with_an_error(recorder, shape, end)
    no = np.zeros(shape, bool)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        recorder.step(np.zeros(shape), np.full(shape, 7.0), np.full(shape, 7.0), no, no)
    recorder.reset(np.full(shape, 5.0))
    recorder.step(np.zeros(shape), np.full(shape, 6.0), np.full(shape, 2.0), ~no, no)
    recorder.close()
    count = max(num_envs, 1)
    assert recorder.num_items == 2 * count
    (batch,) = client.sample_batches("queue", 2 * count, num_batches=1)
    assert batch.data["observation"].tolist() == [0.0] * count + [5.0] * count
    assert batch.data["next_observation"].tolist() == [0.0] * count + [6.0] * count


def test_a_sequence_that_cannot_be_completed(client):
    recorder = SequenceRecorder(
        client, "queue", length=3, priority=lambda item: positive_only({"reward": item["reward"].sum()})
    )
    recorder.reset(0)
    recorder.step(0, 1, -1.0, False, False)
    with pytest.raises(ValueError, match="negative reward"):
        recorder.end_episode()
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        recorder.step(0, 1, 1.0, False, False)
    recorder.close()
    assert recorder.num_items == 0
