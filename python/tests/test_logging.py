"""What the library has to say goes through logging, on threads of Python."""

import logging
import subprocess
import sys

import pytest

import reverb


def test_a_long_wait_is_said(serve, caplog):
    server = serve(reverb.Table.queue("queue", 1))
    client = server.localhost_client()
    with caplog.at_level(logging.WARNING, "reverb"), pytest.raises(reverb.DeadlineExceededError):
        next(client.sample("queue", timeout=2.3))
    assert any(record.name == "reverb" and "queue" in record.getMessage() for record in caplog.records)


# In a process of its own: any thread that waits may be the one that hands over a message.
CALL_BACK = """
import logging, reverb

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
    writer.flush(timeout_ms=2300)
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
