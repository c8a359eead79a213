"""Row tables do not have the faults of comparable buffers: rows without tags, polling, starved and lost rows."""

from __future__ import annotations

from collections import Counter
import os
import random
import subprocess
import sys
import textwrap
import threading

import conditions
import numpy as np
import processes
import pytest
import transports

import reverb

REMOTE = [transport for transport in transports.ALL if transport != "in_process"]


@pytest.fixture(name="server")
def fixture_server():
    server = reverb.Server([reverb.RowTable("rollouts", consumers=["stage", "train"])])
    yield server
    server.stop()


@pytest.mark.parametrize("transport", transports.ALL)
def test_a_row_is_never_claimed_without_its_tags(server, transport):
    """A consumer that claims without pause sees each row with all that its write contained."""
    count = 400

    def produce(worker):
        rows = transports.connect(server, transport).rows("rollouts")
        for first in range(0, count, 4):
            keys = [f"{worker}/{first + i}" for i in range(4)]
            tags = [{"reward": first + i, "split": "math"} for i in range(4)]
            rows.put(keys, {"x": [np.arange(3)] * 4}, tags=tags, version=first)

    producers = [threading.Thread(target=produce, args=(worker,)) for worker in range(2)]
    for producer in producers:
        producer.start()
    rows = transports.connect(server, transport).rows("rollouts")
    seen = 0
    while seen < 2 * count:
        # A condition on a tag makes the tags part of what is waited for; none must not let rows pass earlier.
        where = "reward >= 0" if seen % 2 else None
        with rows.claim("train", 8, at_least=1, needs=["x"], where=where, timeout=60) as batch:
            for key, tags, version in zip(batch.keys, batch.tags, batch.versions, strict=True):
                number = int(key.split("/")[1])
                assert tags == {"reward": number, "split": "math"}
                assert version == number - number % 4
            seen += len(batch)
    for producer in producers:
        producer.join(60)


def _wake_ups(pid):
    """Returns how often the threads of a process have run so far."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))
    return total


@pytest.mark.parametrize("transport", REMOTE)
def test_a_claim_that_waits_does_not_poll(server, transport):
    program = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        import reverb, transports
        client = reverb.Client("localhost:{server.port}", **transports.OPTIONS[{transport!r}])
        assert client.rows("rollouts").claim("train", 1, needs=["late"], timeout=60).keys == ["a"]
    """)
    rows = server.localhost_client().rows("rollouts")
    rows.put(["a"], {"x": [1]})
    with subprocess.Popen([sys.executable, "-c", program]) as waiter:
        conditions.wait_until(lambda: rows.info()["waiting_claims"] == 1)
        before = _wake_ups(waiter.pid)
        assert conditions.stays_true_for(1.0, lambda: waiter.poll() is None)
        # One that polls every 20 ms, a tenth of the interval that others use, wakes up 50 times.
        assert _wake_ups(waiter.pid) - before < 40
        rows.put(["a"], {"late": [1]})
        assert waiter.wait(60) == 0
    assert rows.info()["claimed"] == 1


@pytest.mark.parametrize("transport", REMOTE)
def test_a_client_that_ends_leaves_the_service(server, transport):
    """Neither closing a client nor the end of its process, in order or not, takes rows or calls of others along."""
    rows = transports.connect(server, transport).rows("rollouts")
    claimed = []
    waiter = threading.Thread(target=lambda: claimed.append(rows.claim("train", 2, needs=["x"], timeout=60).keys))
    waiter.start()
    conditions.wait_until(lambda: rows.info()["waiting_claims"] == 1)
    for end in ("del client, rows", "sys.exit()", "os._exit(0)", "os.kill(os.getpid(), 9)"):
        program = textwrap.dedent(f"""
            import os, sys
            sys.path[:0] = {sys.path!r}
            import reverb, transports
            client = reverb.Client("localhost:{server.port}", **transports.OPTIONS[{transport!r}])
            rows = client.rows("rollouts")
            rows.put([{end!r}], {{"y": [1]}})
            {end}
        """)
        ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode
        assert ended == (-9 if "kill" in end else 0)
        assert rows.info()["waiting_claims"] == 1
    rows.put(["a", "b"], {"x": [1, 2]})
    waiter.join(60)
    assert claimed == [["a", "b"]]
    assert rows.info()["rows"] == 6


@pytest.mark.parametrize("order", ["fifo", "version", "ready"])
def test_older_rows_are_not_starved(order):
    """However many rows arrive and come back, claims take the oldest one first."""
    server = reverb.Server([reverb.RowTable("rollouts", consumers=["train"], order=order)])
    rows = server.localhost_client().rows("rollouts")
    random.seed(order)
    waiting: list[int] = []
    number = 0
    for _ in range(300):
        for _ in range(random.randrange(4)):
            rows.put([f"{number:06}"], {"x": [number]}, version=number)
            waiting.append(number)
            number += 1
        if not waiting:
            continue
        batch = rows.claim("train", random.randint(1, 5), at_least=1, timeout=60)
        taken = [int(key) for key in batch.keys]
        assert taken == waiting[: len(taken)]
        if random.random() < 0.5:
            batch.release()
        else:
            batch.ack()
            del waiting[: len(taken)]
    server.stop()


def test_a_large_claim_is_not_starved_by_small_ones(server):
    """Claims are served in the order in which they began to wait: small ones do not take what a large one waits for."""
    rows = server.localhost_client().rows("rollouts")
    order = []

    def claim(name, count):
        with rows.claim("train", count, needs=["x"], timeout=60):
            order.append(name)

    threads = []
    for name, count in (("large", 8), ("small", 1)):
        threads.append(threading.Thread(target=claim, args=(name, count)))
        threads[-1].start()
        conditions.wait_until(lambda: rows.info()["waiting_claims"] == len(threads))
    for number in range(8):
        assert order == []
        rows.put([str(number)], {"x": [number]})
    conditions.wait_until(lambda: order == ["large"])
    rows.put(["last"], {"x": [8]})
    for thread in threads:
        thread.join(60)
    assert order == ["large", "small"]


# --- A campaign of kills ---


def _consume(results, stop, port, transport, consumer, log, seed):
    """Claims and acknowledges rows forever, and appends a line for each event after it has happened."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    rows = reverb.Client(f"localhost:{port}", **transports.OPTIONS[transport]).rows("rollouts")
    random.seed(seed)
    while True:
        batch = rows.claim(consumer, random.randint(1, 6), at_least=1, needs=["x"], lease=1.5)
        for key, value in zip(batch.keys, batch["x"], strict=True):
            assert value.tolist() == [int(key)] * 3
            os.write(file, f"claim {consumer} {key}\n".encode())
        for key in batch.keys:
            choice = random.random()
            if choice < 0.1:
                batch.release([key])
            elif batch.ack([key]).settled == 1:
                os.write(file, f"ack {consumer} {key}\n".encode())


def test_no_row_is_lost_or_repeated_when_consumers_are_killed(server, tmp_path):
    """Kills consumers at random times. Every row is consumed, and none is handed out after its acknowledgement."""
    kills = 60 if os.environ.get("REVERB_TEST_LONG") else 8
    log = tmp_path / "events"
    log.touch()
    rows = server.localhost_client().rows("rollouts")
    random.seed(int(os.environ.get("REVERB_TEST_SEED", "1")))
    created = 0
    with processes.pool(grace=0) as pool:

        def start(number):
            return pool.start(
                _consume, server.port, REMOTE[number % 2], ("stage", "train")[number // 2 % 2], os.fspath(log), created
            )

        workers = [start(number) for number in range(4)]
        for kill in range(kills):
            target = created + 40
            while created < target:
                rows.put([str(created)], {"x": [np.full(3, created)]})
                created += 1
            # Kills while rows are claimed, not only while workers start or wait.
            size = log.stat().st_size
            conditions.wait_until(lambda size=size: log.stat().st_size > size, what="an event")
            victim = kill % 4
            workers[victim].kill()
            workers[victim].join(60)
            workers[victim] = start(victim)
        conditions.wait_until(lambda: rows.info()["rows"] == 0, timeout=120, what="the consumption of all rows")
        info = rows.info()
    assert info["created"] == info["consumed"] == created
    acknowledged: set[tuple[str, str]] = set()
    claims: Counter = Counter()
    for line in log.read_text().splitlines():
        event, consumer, key = line.split()
        if event == "claim":
            claims[consumer, key] += 1
            assert (consumer, key) not in acknowledged, f"{line}: after its acknowledgement"
        else:
            assert (consumer, key) not in acknowledged, f"{line}: twice"
            acknowledged.add((consumer, key))
    # What a victim acknowledged and did not log: at most one row each.
    assert 2 * created - len(acknowledged) <= kills
    # A victim may die before it logs its claim, so that rows can lack that line.
    assert sum(claims.values()) >= len(acknowledged)
