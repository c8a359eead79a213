"""Waits that last are logged: when, with what reason, and how often."""

from __future__ import annotations

import logging

import pytest

import reverb
from reverb import errors


@pytest.fixture
def wait_log(caplog):
    """Lines about waits, which begin after a tenth of a second."""
    caplog.set_level(logging.WARNING, logger="reverb")
    reverb.set_wait_log_after(0.1)
    yield lambda: [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
    reverb.set_wait_log_after(2.0)


def give_up(call):
    with pytest.raises(errors.DeadlineExceededError):
        call()


def test_one_line_with_the_reason_however_often_it_waits(serve, connect, wait_log):
    client = connect(serve(reverb.Table.queue("a_queue_that_stays_empty", 10)))
    samples = client.sample("a_queue_that_stays_empty", 5, timeout=0.3)
    for _ in range(3):
        give_up(lambda: next(samples))
    (line,) = wait_log()
    assert "a_queue_that_stays_empty" in line
    assert "rate limiter" in line


def test_a_server_that_is_not_there(wait_log):
    client = reverb.Client("localhost:1")
    give_up(lambda: client.server_info(0.4))
    (line,) = wait_log()
    assert "localhost:1 to answer Info" in line
    assert "could not be reached" in line


def test_none_says_nothing(serve, connect, wait_log):
    reverb.set_wait_log_after(None)
    client = connect(serve(reverb.Table.queue("another_empty_queue", 10)))
    give_up(lambda: next(client.sample("another_empty_queue", timeout=0.3)))
    assert wait_log() == []
