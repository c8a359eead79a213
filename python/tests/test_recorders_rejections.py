"""Tests that recorders continue after an item that the server has rejected."""

from __future__ import annotations

import logging

from conftest import make_table
import numpy as np
import pytest

import reverb
from reverb.recorders import TransitionRecorder, VectorTransitionRecorder


@pytest.fixture
def client(serve):
    """A client of a table without a signature, which rejects items of another layout than that of its first one."""
    client = serve(make_table("table")).localhost_client()
    with TransitionRecorder(client, "table") as recorder:
        recorder.reset(np.int64(0))
        recorder.step(0, np.int64(1), 1.0, True, False)
    return client


def observations(client):
    return [int(item.data["observation"]) for item in client.peek("table", 100)]


def raise_rejection(recorder, call, observation):
    """Records what the table rejects, until the error arrives."""
    recorder.reset(observation)
    action = np.zeros(np.shape(observation), int)
    values = action, observation, np.zeros(np.shape(observation)), action != 0, action != 0
    with pytest.raises((ValueError, RuntimeError), match='item .* for table "table" was rejected'):
        for _ in range(1000):
            recorder.step(*values)
            if call == "flush":
                recorder.flush()
            elif call == "end_episode":
                recorder.end_episode()
                recorder.reset(observation)


@pytest.mark.parametrize("call", ["step", "flush", "end_episode"])
def test_a_reset_continues_after_a_rejected_item(client, caplog, call):
    recorder = TransitionRecorder(client, "table", n_step=2)
    raise_rejection(recorder, call, np.float64(0.5))
    with caplog.at_level(logging.WARNING, "reverb"):
        recorder.reset(np.int64(10))
    assert "the recorder continues with a new connection after an error of table 'table'" in caplog.text
    for t in range(11, 14):
        recorder.step(0, np.int64(t), 1.0, t == 13, False)
    recorder.close()
    assert observations(client) == [0, 10, 11, 12]


@pytest.mark.parametrize("call", ["step", "flush"])
def test_vector_environments_continue_after_a_rejected_item(client, call):
    recorder = VectorTransitionRecorder(client, "table", num_envs=2, autoreset="disabled", priority=lambda item: 1.0)
    raise_rejection(recorder, call, np.full(2, 0.5))
    with pytest.raises(RuntimeError, match="reset all environments"):
        recorder.reset(np.array([10, 20]), mask=np.array([True, False]))
    recorder.reset(np.array([10, 20]))
    recorder.step(np.zeros(2, int), np.array([11, 21]), np.ones(2), [True, True], [False, False])
    recorder.close()
    assert observations(client) == [0, 10, 20]


def test_an_error_that_does_not_end_the_writer_loses_no_items(client, caplog):
    recorder = TransitionRecorder(client, "table")
    recorder.reset(np.int64(10))
    recorder.step(0, np.int64(11), 1.0, False, False)
    with pytest.raises(ValueError, match=r"column \('observation',\)"):
        recorder.step(0, np.zeros(3, np.int64), 1.0, False, False)
    with caplog.at_level(logging.WARNING, "reverb"):
        recorder.reset(np.int64(20))
    recorder.step(0, np.int64(21), 1.0, True, False)
    recorder.close()
    assert "new connection" not in caplog.text
    assert observations(client) == [0, 10, 20]


def test_closing_reports_a_rejected_item(client):
    recorder = TransitionRecorder(client, "table")
    recorder.reset(0.5)
    recorder.step(0, 1.5, 1.0, False, False)
    with pytest.raises((ValueError, RuntimeError), match="was rejected"):
        recorder.close()
    assert observations(client) == [0]


def test_a_table_that_is_created_later(client):
    recorder = TransitionRecorder(client, "later", validate_items=False)
    recorder.reset(0)
    with pytest.raises(RuntimeError, match='there is no table "later" on this server'):
        for t in range(1000):
            recorder.step(0, t, 1.0, False, False)
    client.create_table(reverb.Table.queue("later", 100))
    recorder.reset(0)
    recorder.step(0, 1, 1.0, True, False)
    recorder.close()
    assert client.server_info()["later"].current_size == 1


def test_the_end_of_a_block_does_not_repeat_its_exception(client, caplog):
    with (
        caplog.at_level(logging.WARNING, "reverb"),
        pytest.raises(ValueError, match="was rejected"),
        TransitionRecorder(client, "table", n_step=2) as recorder,
    ):
        recorder.reset(0.5)
        for _ in range(1000):
            recorder.step(0, 1.5, 1.0, False, False)
    assert "was rejected" not in caplog.text
