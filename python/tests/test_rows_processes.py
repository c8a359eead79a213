"""Row tables and processes that die."""

from __future__ import annotations

import conditions
import processes
import pytest
import transports

import reverb

REMOTE = [transport for transport in transports.ALL if transport != "in_process"]


def _claim_and_hold(results, stop, port, transport, lease):
    client = reverb.Client(f"localhost:{port}", **transports.OPTIONS[transport], name="worker")
    batch = client.rows("rollouts").claim("train", 2, needs=["x"], lease=lease)
    results.put(batch.keys)
    stop.wait(60)


@pytest.fixture(name="server")
def fixture_server():
    server = reverb.Server([reverb.RowTable("rollouts", consumers=["train"])])
    yield server
    server.stop()


@pytest.mark.parametrize("transport", REMOTE)
def test_a_consumer_that_is_killed_loses_nothing(server, transport):
    rows = server.localhost_client().rows("rollouts")
    rows.put(["a", "b", "c"], {"x": [1, 2, 3]})
    with processes.pool(grace=0) as pool:
        worker = pool.start(_claim_and_hold, server.port, transport, 1.0)
        assert pool.take(1) == [["a", "b"]]
        worker.kill()
        worker.join(60)
        assert rows.claim("train", 3, timeout=60).keys == ["a", "b", "c"]
    assert rows.info()["expired"] == 2


@pytest.mark.parametrize("transport", REMOTE)
def test_a_claim_ends_with_its_process(server, transport):
    rows = server.localhost_client().rows("rollouts")
    with processes.pool(grace=0) as pool:
        worker = pool.start(_claim_and_hold, server.port, transport, 600.0)
        conditions.wait_until(lambda: rows.info()["waiting_claims"] == 1)
        worker.kill()
        worker.join(60)
        conditions.wait_until(lambda: rows.info()["waiting_claims"] == 0)
    rows.put(["a", "b"], {"x": [1, 2]})
    assert rows.claim("train", 2, timeout=0).keys == ["a", "b"]
