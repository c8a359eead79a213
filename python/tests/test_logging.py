"""Tests that the library logs through logging, on Python's threads."""

import gc
import logging
import subprocess
import sys
import threading

from conditions import wait_until
from conftest import join
import numpy as np
import pytest

import reverb


def test_a_long_wait_is_logged(serve, caplog):
    server = serve(reverb.Table.queue("queue", 1))
    client = server.localhost_client()
    with caplog.at_level(logging.WARNING, "reverb"):
        thread = threading.Thread(target=lambda: next(client.sample("queue", timeout=60)), daemon=True)
        thread.start()
        wait_until(
            lambda: any(record.name == "reverb" and "queue" in record.getMessage() for record in caplog.records)
        )
        client.insert(1, {"queue": 1.0}, timeout=60)
        join(thread)


def test_records_have_the_fields_of_the_library(serve, caplog):
    # Its name is its own: a wait for a table is logged once a minute.
    reverb.set_wait_log_after(0.1)
    try:
        server = serve(reverb.Table.queue("records", 1))
        client = server.localhost_client()
        with caplog.at_level(logging.WARNING, "reverb"):
            with pytest.raises(reverb.DeadlineExceededError):
                next(client.sample("records", timeout=1.0))
        (record,) = [record for record in caplog.records if getattr(record, "reverb_event", None) == "wait"]
        assert record.reverb_table == "records"
    finally:
        reverb.set_wait_log_after(2.0)


# In a separate process: any waiting thread may be the one that passes a message on.
CALL_BACK = """
import logging, reverb

reverb.set_wait_log_after(0.1)
server = reverb.Server([reverb.Table.queue("queue", 1)])
client = server.localhost_client()
writer = client.trajectory_writer(1)

class Handler(logging.Handler):
    def emit(self, record):
        client.server_info()
        try:
            writer.append(1)
        except RuntimeError as error:
            print(error)
        raise ZeroDivisionError("a handler with a fault")

logging.getLogger("reverb").addHandler(Handler())
for i in range(3):
    writer.append(i)
    writer.create_item("queue", 1.0, writer.history[-1])
try:
    writer.flush(timeout_ms=2000)
except reverb.DeadlineExceededError:
    print("timeout")
writer.close()
"""


def test_handlers_may_call_back():
    result = subprocess.run([sys.executable, "-c", CALL_BACK], capture_output=True, text=True, timeout=30)
    first, second = result.stdout.splitlines()
    assert "in the middle of another call" in first
    assert second == "timeout"
    assert "a handler with a fault" in result.stderr
    assert result.returncode == 0


# --- Items that are discarded ---


def trajectory_writer(client):
    writer = client.trajectory_writer(1)
    for i in range(5):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1:])
    return writer


def vector_writer(client):
    writer = client.vector_writer(5, 1)
    writer.append(np.arange(5))
    writer.create_items("queue", 1.0, writer.history[-1])
    return writer


def structured_writer(client):
    pattern = reverb.structured.pattern_from_transform(None, lambda step: step[-1:])
    writer = client.structured_writer([reverb.structured.create_config(pattern, "queue")])
    for i in range(5):
        writer.append(i)
    return writer


def legacy_writer(client):
    writer = client.writer(1, max_in_flight_items=None)
    for i in range(5):
        writer.append(i)
        writer.create_item("queue", 1, 1.0)
    return writer


WRITERS = [trajectory_writer, vector_writer, structured_writer, legacy_writer]


def records(caplog, level=logging.WARNING):
    return [record for record in caplog.records if record.name == "reverb" and record.levelno >= level]


@pytest.mark.parametrize("write", WRITERS)
def test_a_dropped_writer_logs_how_many_items_are_lost(serve, connect, write, caplog):
    client = connect(serve(reverb.Table.queue("queue", 2)))

    def make():
        writer = write(client)
        if write is not legacy_writer:
            writer.flush(3)
        caplog.clear()
        return writer

    with pytest.raises(TypeError, match="int"):  # is pending while the writer is dropped
        int(make())
    gc.collect()
    (record,) = records(caplog)
    assert "dropped" in record.getMessage()
    assert "3 items" in record.getMessage()


@pytest.mark.parametrize("write", WRITERS)
def test_a_dropped_writer_whose_items_are_in_logs_no_loss(serve, connect, write, caplog):
    client = connect(serve(reverb.Table.queue("queue", 5)))
    writer = write(client)
    writer.flush()
    del writer
    gc.collect()
    assert not [record for record in records(caplog) if "items" in record.getMessage()]
    assert client.server_info()["queue"].current_size == 5


@pytest.mark.parametrize("write", [trajectory_writer, vector_writer, structured_writer])
def test_close_reports_how_many_items_are_lost(serve, connect, write, caplog):
    client = connect(serve(reverb.Table.queue("queue", 2)))
    writer = write(client)
    writer.flush(3)
    with caplog.at_level(logging.INFO, "reverb"):
        caplog.clear()
        assert writer.close() == 3
        # A server in this process logs a line of its own.
        assert "closed with 3 items that are not confirmed" in caplog.text
        count = caplog.text.count("closed with")
        assert writer.close() == 0
        del writer
        gc.collect()
        assert caplog.text.count("closed with") == count == 1


# In a separate process: the interrupt must not reach the test runner.
INTERRUPTED = """
import logging, reverb

server = reverb.Server([reverb.Table.queue("queue", 1)])
client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)

class Handler(logging.Handler):
    def emit(self, record):
        raise KeyboardInterrupt  # as Ctrl-C at this point

logging.getLogger("reverb").addHandler(Handler())

def write():
    writer = client.trajectory_writer(1)
    for i in range(3):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1:])
    return writer

try:
    del [write()][0]
    DROPPED
except KeyboardInterrupt:
    print("interrupted")
logging.getLogger("reverb").handlers.clear()
"""


@pytest.mark.parametrize("then", ["for _ in range(1000): len('')", "list(client.sample('queue', 2, timeout=60))"])
def test_an_interrupt_of_a_log_handler_is_not_lost(then):
    code = INTERRUPTED.replace("DROPPED", then)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (result.returncode, result.stdout, result.stderr) == (0, "interrupted\n", "")


def test_close_of_the_legacy_writer_raises_when_items_are_lost(serve, connect):
    writer = legacy_writer(connect(serve(reverb.Table.queue("queue", 2))))
    with pytest.raises(reverb.DeadlineExceededError, match="3 items"):
        writer.close(timeout=1.0)


@pytest.mark.parametrize("write", [trajectory_writer, vector_writer, structured_writer])
def test_close_after_flush_loses_nothing(serve, connect, write, caplog):
    client = connect(serve(reverb.Table.queue("queue", 5)))
    writer = write(client)
    writer.flush()
    assert writer.close() == 0
    assert not records(caplog)
    assert client.server_info()["queue"].current_size == 5


@pytest.mark.parametrize("write", WRITERS)
def test_leaving_a_block_by_an_exception_flushes(serve, connect, write, caplog):
    client = connect(serve(reverb.Table.queue("queue", 5)))
    with pytest.raises(ZeroDivisionError), write(client):
        raise ZeroDivisionError
    gc.collect()
    assert not [record for record in records(caplog) if "items" in record.getMessage()]
    assert client.server_info()["queue"].current_size == 5


@pytest.mark.parametrize("kind", [KeyboardInterrupt, reverb.ReverbError])
@pytest.mark.parametrize("write", [trajectory_writer, vector_writer, structured_writer])
def test_leaving_a_block_by_an_interrupt_does_not_wait_and_logs_what_is_lost(serve, connect, write, kind, caplog):
    client = connect(serve(reverb.Table.queue("queue", 2)))
    with pytest.raises(kind), write(client) as writer:
        writer.flush(3)
        raise kind
    del writer
    gc.collect()
    (record,) = records(caplog)
    assert "3 items" in record.getMessage()


AT_EXIT = """
import reverb

server = reverb.Server([reverb.Table.queue("queue", 1)])
writer = server.localhost_client().trajectory_writer(1)
for i in range(3):
    writer.append(i)
    writer.create_item("queue", 1.0, writer.history[-1:])
writer.flush(2)
"""


def test_a_writer_that_is_dropped_at_exit_logs_what_is_lost():
    result = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=30)
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert "a writer was dropped with 2 items that are not confirmed" in line


def test_a_writer_that_is_dropped_at_exit_heeds_the_level():
    code = AT_EXIT + "\nimport logging; logging.getLogger('reverb').setLevel(logging.ERROR)\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, "")
