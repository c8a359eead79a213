"""Tests a client of several servers in this process: spreading, shares of samples, routing of priorities, loss."""

from __future__ import annotations

import collections
import itertools

import conditions
import numpy as np
import pytest
import transports

import reverb

# Of calls with a timeout to a server that cannot be reached.
FAILURES = (RuntimeError, reverb.errors.DeadlineExceededError)


def make_table(name="replay", sampler=None, **kwargs):
    return reverb.Table(
        name=name,
        sampler=sampler or reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        **kwargs,
    )


@pytest.fixture(params=transports.ALL)
def transport(request):
    return request.param


@pytest.fixture
def cluster(serve, transport):
    """Returns two servers, with a client of each and a client of both."""

    options = transports.OPTIONS[transport]

    def make(**kwargs):
        servers = [serve(make_table(**kwargs)) for _ in range(2)]
        addresses = [f"localhost:{server.port}" for server in servers]
        singles = [reverb.Client(address, **options) for address in addresses]
        return servers, singles, reverb.Client(addresses, **options)

    return make


def test_addresses(serve):
    ports = [serve(make_table()).port for _ in range(2)]
    both = reverb.Client(f"localhost:{ports[0]}, localhost:{ports[1]}")
    assert both.server_address == f"localhost:{ports[0]}, localhost:{ports[1]}"
    with pytest.raises(ValueError, match='address "" has no port'):
        reverb.Client("localhost:1,,localhost:2")


def test_inserts_take_turns_and_writers_are_spread(cluster):
    _, singles, both = cluster()
    for i in range(6):
        both.insert([np.int64(i)], {"replay": 1.0})
    assert [client.server_info()["replay"].current_size for client in singles] == [3, 3]
    assert both.server_info()["replay"].current_size == 6
    for _ in range(20):
        with both.trajectory_writer(1) as writer:
            for i in range(3):
                writer.append([np.int64(i)])
                writer.create_item("replay", 1.0, writer.history[0][-1:])
    sizes = [client.server_info()["replay"].current_size - 3 for client in singles]
    assert sum(sizes) == 60
    assert min(sizes) > 0
    assert all(size % 3 == 0 for size in sizes), "each episode is on one server"


def test_samples_are_those_of_one_table(cluster):
    servers, singles, both = cluster(sampler=reverb.selectors.Prioritized(1.0))
    for server, (client, count) in enumerate(zip(singles, (10, 90), strict=True)):
        with client.trajectory_writer(1) as writer:
            for _ in range(count):
                writer.append([np.int64(server)])
                writer.create_item("replay", 2.0, writer.history[0][-1:])
    seen = collections.Counter()
    batches = both.sample_batches("replay", 50)
    # A server that takes long to answer first is left out until then.
    conditions.wait_until(lambda: np.allclose(next(batches).info.probability, 0.01), what="both servers have answered")
    for batch in itertools.islice(batches, 40):
        seen.update(np.asarray(batch.data).ravel().tolist())
        assert np.allclose(batch.info.probability, 0.01)
        assert (batch.info.table_size == 100).all()
        owners = np.asarray(batch.info.key) >> 48
        assert set(owners.tolist()) <= {server.shard for server in servers}
    assert sum(seen.values()) == 2000
    assert abs(seen[0] - 200) < 80  # six standard deviations
    seen = collections.Counter(int(np.asarray(s.data).ravel()[0]) for s in both.sample("replay", 1000, emit_timesteps=False))
    assert abs(seen[0] - 100) < 60


def test_priorities_go_where_the_item_is(cluster):
    _, singles, both = cluster(sampler=reverb.selectors.MaxHeap())
    for client in singles:
        for _ in range(5):
            client.insert([np.int64(0)], {"replay": 1.0})
    for batch in both.sample_batches("replay", 1, num_batches=4, exact=True):
        both.update_priorities("replay", batch.info.key, np.full(1, 7.0))
    # Keys tell their server, even if they were never sampled.
    known = {item.info.key for item in singles[1].peek("replay", 5)}
    both.mutate_priorities("replay", dict.fromkeys(known, 9.0))
    assert {item.info.priority for item in singles[1].peek("replay", 5)} == {9.0}
    assert {item.info.priority for item in singles[0].peek("replay", 5)} == {1.0, 7.0}
    both.reset("replay")
    assert [client.server_info()["replay"].current_size for client in singles] == [0, 0]


def test_a_server_that_cannot_sample_does_not_delay_others(cluster):
    _, singles, both = cluster()
    singles[0].insert([np.int64(0)], {"replay": 1.0})  # the other server remains empty
    for batch in itertools.islice(both.sample_batches("replay", 4), 50):
        assert batch.data[0].ravel().tolist() == [0] * 4
    batches = list(both.sample_batches("replay", 4, num_batches=10, exact=True))
    assert len(batches) == 10
    assert len(list(both.sample("replay", 20, emit_timesteps=False))) == 20


def test_a_timeout_ends_sampling_only_if_all_servers_block(cluster):
    _, singles, both = cluster()
    with pytest.raises(reverb.errors.DeadlineExceededError):
        next(both.sample_batches("replay", 4, timeout=0.5))
    singles[1].insert([np.int64(1)], {"replay": 1.0})
    batches = both.sample_batches("replay", 4, timeout=30)
    for _ in range(20):
        assert next(batches).data[0].ravel().tolist() == [1] * 4


def test_the_loss_of_a_server(cluster):
    servers, singles, both = cluster()
    for server, client in enumerate(singles):
        client.insert([np.int64(server)], {"replay": 1.0})
    batches = both.sample_batches("replay", 8)
    for _ in range(5):
        next(batches)
    servers[0].stop()
    last = [next(batches) for _ in range(200)][-1]
    assert set(last.data[0].ravel().tolist()) == {1}
    # Updates for the lost server are dropped and counted; the others are executed.
    lost = np.uint64(servers[0].shard) << np.uint64(48)
    left = last.info.key[0]
    both.update_priorities("replay", np.array([lost, left], np.uint64), np.array([5.0, 6.0]))
    assert both.dropped_updates == 1
    assert [item.info.priority for item in singles[1].peek("replay", 1)] == [6.0]
    raising = reverb.Client(both.server_address, lost_updates="raise", **both_options(both))
    with pytest.raises(FAILURES, match="failed, the others have done it"):
        raising.update_priorities("replay", np.array([lost, left], np.uint64), np.array([5.0, 7.0]), timeout=3)
    assert [item.info.priority for item in singles[1].peek("replay", 1)] == [7.0]
    # Calls report each server.
    one_and_other = f"localhost:{servers[1].port}.*localhost:{servers[0].port}"
    with pytest.raises(FAILURES, match=f"1 of the 2 servers.*{one_and_other}"):
        both.reset("replay", timeout=3)
    infos = both.server_infos(timeout=3)
    assert isinstance(infos[f"localhost:{servers[0].port}"], RuntimeError)
    assert infos[f"localhost:{servers[1].port}"]["replay"].current_size == 0
    with pytest.raises(FAILURES, match="1 of the 2 servers do not answer"):
        both.server_info(timeout=3)


def both_options(client):
    return {name: client._made_with[name] for name in ("in_process", "local")}


def test_servers_that_are_set(serve, transport):
    options = transports.OPTIONS[transport]
    servers = [serve(make_table()) for _ in range(2)]
    addresses = [f"localhost:{server.port}" for server in servers]
    client = reverb.Client(addresses[0], servers_may_change=True, **options)
    for i, address in enumerate(addresses):
        reverb.Client(address, **options).insert([np.int64(i)], {"replay": 1.0})
    batches = client.sample_batches("replay", 10)
    assert set(next(batches).data[0].ravel().tolist()) == {0}
    client._set_servers(addresses)
    assert client.num_servers == 2
    conditions.wait_until(lambda: set(next(batches).data[0].ravel().tolist()) == {0, 1})
    client._set_servers(addresses[1:])
    # A batch may consist of one server's items by chance, but hardly five in a row.
    conditions.wait_until(lambda: {value for _ in range(5) for value in next(batches).data[0].ravel().tolist()} == {1})
    with pytest.raises(RuntimeError, match="has one server"):
        reverb.Client(addresses[0], **options)._set_servers(addresses)


def test_shards(tmp_path, serve):
    with pytest.raises(ValueError, match="shard is 0"):
        reverb.Server([make_table()], shard=0)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    with reverb.Server([make_table()], shard=4711, checkpointer=checkpointer) as server:
        client = server.localhost_client()
        client.insert([np.int64(1)], {"replay": 1.0})
        key = next(client.sample("replay"))[0].info.key
        assert key >> 48 == server.shard == 4711
        client.checkpoint()
    with reverb.Server([make_table()], checkpointer=checkpointer) as restored:
        assert restored.shard == 4711, "kept in the checkpoint"
    assert serve(make_table()).shard != serve(make_table()).shard, "random, each with a probability of 1 in 65535"


def test_invalid_addresses():
    for address in ("dns://name", "dns:///name", "dns:///:1", "file://relative"):
        with pytest.raises(ValueError, match="give it as"):
            reverb.Client(address)
    with pytest.raises(ValueError, match='lost_updates must be "drop" or "raise"'):
        reverb.Client("localhost:1", lost_updates="ignore")
