"""Tests the log lines of long waits: when, with which reason, and how often."""

from __future__ import annotations

import logging

from conditions import next_in_time, wait_that_names_its_reason
import pytest

import reverb
from reverb import errors


@pytest.fixture
def wait_log(caplog):
    """Returns the lines about waits, which start after a tenth of a second."""
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
    reverb.set_wait_log_after(None)
    wait_that_names_its_reason(lambda: next(samples))  # the server has answered
    reverb.set_wait_log_after(0.1)
    for _ in range(3):
        give_up(lambda: next(samples))
    (line,) = wait_log()
    assert "a_queue_that_stays_empty" in line
    assert "holds 0 of 10 items; samples wait: too few items to sample" in line


def test_a_timeout_explains_the_rate_limiter(serve, connect):
    limiter = reverb.rate_limiters.SampleToInsertRatio(2.0, min_size_to_sample=2, error_buffer=4.0)
    table = reverb.Table("replay", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 100, limiter)
    client = connect(serve(table))
    client.insert(0, {"replay": 1.0})
    samples = client.sample("replay", 100, timeout=0.1)
    error = wait_that_names_its_reason(lambda: next(samples))
    assert error.code == "DEADLINE_EXCEEDED"
    assert error.detail == "RATE_LIMITED"
    assert 'table "replay" holds 1 of 100 items; samples wait: too few items to sample' in str(error)
    assert "samples_per_insert=2, min_size_to_sample=2, min_diff=0, max_diff=8" in str(error)
    assert "1 inserts and 0 samples so far, cursor 2" in str(error)
    client.insert(0, {"replay": 1.0})
    for _ in range(4):
        next_in_time(samples)
    error = wait_that_names_its_reason(lambda: next(samples))
    assert "samples wait: too many samples per insert" in str(error)
    assert "2 inserts and 4 samples so far, cursor 0" in str(error)
    error = wait_that_names_its_reason(lambda: next(client.sample("replay", timeout=0.1)))
    assert "samples wait: too many samples per insert" in str(error)
    error = wait_that_names_its_reason(lambda: next(client.sample_batches("replay", 2, timeout=0.1)))
    assert "samples wait: too many samples per insert" in str(error)


def test_a_server_that_is_not_there(wait_log):
    client = reverb.Client("localhost:1")
    give_up(lambda: client.server_info(0.4))
    (line,) = wait_log()
    assert "localhost:1 to answer Info" in line
    assert "could not be reached" in line


def test_none_disables_the_log(serve, connect, wait_log):
    reverb.set_wait_log_after(None)
    client = connect(serve(reverb.Table.queue("another_empty_queue", 10)))
    give_up(lambda: next(client.sample("another_empty_queue", timeout=0.3)))
    assert wait_log() == []
