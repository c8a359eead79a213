"""Tests the fields of server_info() beyond dm-reverb's: bytes, rates, waiting clients and their reasons."""

import copy
import os
import pickle
import threading

from conditions import wait_for_waiters
from conftest import join, make_table
import numpy as np
import pytest
import transports

import reverb
from reverb import reverb_types

STEP = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8)  # does not compress


class InBackground(threading.Thread):
    def __init__(self, work):
        super().__init__(daemon=True)
        self.work = work
        self.start()

    def run(self):
        self.work()

    def finish(self):
        join(self)


def test_is_a_dict_of_tables(client):
    info = client.server_info()
    assert isinstance(info, dict)
    assert sorted(info) == ["queue", "table"]
    assert info == dict(info)
    with pytest.raises(KeyError):
        info["nowhere"]


def test_can_be_copied_and_pickled(client):
    client.insert(STEP, {"table": 1.0})
    info = client.server_info()
    for twin in (copy.copy(info), copy.deepcopy(info), pickle.loads(pickle.dumps(info))):
        assert twin == info
        assert (twin.stored_bytes, twin.waiters) == (info.stored_bytes, ())


def test_bytes(connect):
    with reverb.Server([make_table(), make_table("other")], max_bytes=10**6) as server:
        client = connect(server)
        assert client.server_info().stored_bytes == 0
        client.insert(STEP, {"table": 1.0, "other": 1.0})
        info = client.server_info()
        assert STEP.nbytes < info.stored_bytes < 1.2 * STEP.nbytes
        assert info.live_bytes >= info.stored_bytes
        assert (info.max_bytes, info.chunks) == (10**6, 1)
        # Data that both tables refer to is stored once.
        assert [info[name].referenced_bytes for name in ("table", "other")] == [info.stored_bytes] * 2


def test_memory(connect):
    with reverb.Server([make_table()], memory_limit=64 * 2**20) as server:
        client = connect(server)
        client.insert(STEP, {"table": 1.0})
        info = client.server_info()
        assert info.memory["limit"] == 64 * 2**20
        assert info.memory["stored"] == info.stored_bytes
        assert info.stored_bytes <= info.memory["used"] < 64 * 2**20
        parts = ("stored", "parked", "waiting", "in_transit", "receiving", "replies", "index", "sessions")
        assert set(info.memory) == {"limit", "used", *parts}


def test_the_memory_is_bounded_by_default(client):
    limit = client.server_info().memory["limit"]
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < limit <= 0.8 * machine


def test_no_bound_on_bytes(client):
    assert client.server_info().max_bytes is None


def test_no_client_waits(client, server):
    info = client.server_info()
    assert info.waiters == ()
    for table in (info["table"], server.tables[0].info):
        assert (table.waiting_inserts, table.waiting_samples) == (0, 0)
        assert (table.insert_wait_reason, table.sample_wait_reason) == (None, None)
        assert table.longest_wait_seconds == 0


@pytest.mark.parametrize("transport", transports.ALL)
def test_who_waits_to_sample_and_why(serve, transport):
    table = make_table(limiter=reverb.rate_limiters.MinSize(2))
    server = serve(table)
    client = transports.connect(server, transport, name="learner")
    learner = InBackground(lambda: next(client.sample("table", timeout=60)))
    info = wait_for_waiters(client, 1)
    (waiter,) = info.waiters
    assert (waiter.table, waiter.operation, waiter.reason) == ("table", "sample", "min_size")
    assert (waiter.client, waiter.count) == ("learner", 1)
    assert waiter.seconds >= 0
    assert (waiter.address == "") == (transport == "in_process")
    for each in (info["table"], table.info):
        assert (each.waiting_samples, each.sample_wait_reason) == (1, "min_size")
        assert (each.waiting_inserts, each.insert_wait_reason) == (0, None)
        assert each.longest_wait_seconds > 0
    for _ in range(2):
        client.insert(0, {"table": 1.0}, timeout=60)
    learner.finish()


def test_who_waits_to_insert_and_why(serve, connect):
    server = serve(reverb.Table.queue("queue", 1))
    client = connect(server)
    client.insert(0, {"queue": 1.0})
    actor = InBackground(lambda: client.insert(0, {"queue": 1.0}, timeout=60))
    info = wait_for_waiters(client, 1)
    (waiter,) = info.waiters
    assert (waiter.operation, waiter.reason, waiter.client) == ("insert", "too_many_inserts", "")
    assert (info["queue"].waiting_inserts, info["queue"].insert_wait_reason) == (1, "too_many_inserts")
    next(client.sample("queue", timeout=60))
    actor.finish()


def test_a_full_store_is_a_reason(connect):
    with reverb.Server([make_table()], max_bytes=15_000) as server:
        client = connect(server)
        client.insert(STEP, {"table": 1.0})

        def insert():
            for _ in range(2):
                client.insert(STEP, {"table": 1.0}, timeout=60)

        actor = InBackground(insert)
        info = wait_for_waiters(client, 1)
        assert info.waiters[0].reason == "memory"
        assert info["table"].insert_wait_reason == "memory"
        while actor.is_alive():
            client.reset("table")
            actor.join(timeout=0.05)
        actor.finish()


def test_what_the_limiter_and_the_remover_have_done(serve, connect):
    limiter = reverb.rate_limiters.SampleToInsertRatio(2.0, min_size_to_sample=1, error_buffer=100)
    server = serve(make_table(max_size=3, limiter=limiter), reverb.Table.queue("queue", 10))
    client = connect(server)
    for _ in range(5):
        client.insert(0, {"table": 1.0, "queue": 1.0})
    next(client.sample("table"))
    next(client.sample("queue"))
    info = client.server_info()
    assert (info["table"].cursor, info["table"].evictions, info["table"].expirations) == (9.0, 2, 0)
    assert (info["queue"].evictions, info["queue"].expirations) == (0, 1)
    assert info["table"].inserts_per_second >= 0
    assert info["table"].samples_per_second >= 0


def test_what_changes_by_the_moment_is_no_part_of_a_comparison(client):
    client.insert(STEP, {"table": 1.0})
    info = client.server_info()["table"]
    twin = copy.copy(info)
    twin.referenced_bytes += 1
    twin.waiting_samples += 1
    twin.samples_per_second += 1
    assert twin == info
    # They are not serialized either, because the message is dm-reverb's.
    assert reverb_types.TableInfo.from_serialized_proto(info.to_serialized_proto()) == info


def test_names_of_any_script(serve):
    server = serve(make_table(limiter=reverb.rate_limiters.MinSize(2)))
    client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False, name="ähem 🙂")
    learner = InBackground(lambda: next(client.sample("table", timeout=60)))
    assert wait_for_waiters(client, 1).waiters[0].client == "ähem 🙂"
    for _ in range(2):
        client.insert(0, {"table": 1.0}, timeout=60)
    learner.finish()
    with pytest.raises((TypeError, ValueError)):
        reverb.Client("localhost:1", name="\udc80")
