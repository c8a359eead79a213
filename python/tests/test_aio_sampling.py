"""Samples and other calls of tables of items with asyncio: reverb.aio."""

import asyncio
import contextlib
import threading

import pytest

import reverb
from reverb import aio

pytestmark = pytest.mark.usefixtures("event_loops")


@pytest.fixture(name="server")
def _server():
    replay = reverb.Table(
        "replay", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1)
    )
    server = reverb.Server([reverb.Table.queue("queue", 10_000), replay])
    yield server
    server.stop()


@pytest.fixture(name="client", params=("in_process", "local", "grpc"))
def _client(request, server):
    return aio.Client(
        f"localhost:{server.port}", in_process=request.param == "in_process", local=request.param == "local"
    )


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


async def until(condition):
    while not await condition():
        await asyncio.sleep(0.005)


async def _samplers(client, table, count):
    """Whether so many samplers wait for the table."""
    return (await client.server_info())[table].waiting_samples == count


def test_batches_as_they_come(client):
    async def main():
        batches = client.sample_batches("queue", 2, num_batches=3)
        first = asyncio.ensure_future(anext(batches))
        for step in range(6):
            await client.insert({"x": step}, {"queue": 1.0})
        seen = [(await first).data["x"].tolist()]
        seen += [batch.data["x"].tolist() async for batch in batches]
        assert seen == [[[0], [1]], [[2], [3]], [[4], [5]]]

    run(main())


def test_samples(client):
    async def main():
        for step in range(5):
            await client.insert([step], {"queue": 1.0, "replay": 1.0})
        samples = [sample async for sample in client.sample("queue", 4, emit_timesteps=False)]
        assert [sample.data[0].tolist() for sample in samples] == [[0], [1], [2], [3]]
        async for sample in client.sample("queue"):
            assert sample[0].data[0] == 4
        (found,) = [sample async for sample in client.sample("replay", emit_timesteps=False)]
        key = int(found.info.key[0]) if getattr(found.info.key, "shape", ()) else int(found.info.key)
        await client.update_priorities("replay", [key], [3.0])
        await client.mutate_priorities("replay", deletes=[key])
        assert (await client.server_info())["replay"].current_size == 4
        await client.reset("replay")
        assert (await client.server_info())["replay"].current_size == 0

    run(main())


def test_a_timeout_has_the_reason_and_ends_the_iterator(client):
    async def main():
        with pytest.raises(reverb.DeadlineExceededError, match="Timeout exceeded"):
            await anext(client.sample_batches("queue", 2, timeout=0.05))
        with pytest.raises(ValueError, match="no-such"):
            await anext(client.sample_batches("no-such", 2, timeout=5))

    run(main())


def test_cancelling_ends_the_request_at_the_server(client):
    async def main():
        async def consume():
            async with contextlib.aclosing(client.sample_batches("queue", 2)) as batches:
                async for _ in batches:
                    pass

        task = asyncio.create_task(consume())
        await until(lambda: _samplers(client, "queue", 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: _samplers(client, "queue", 0))
        # Nothing was taken for it.
        await client.insert([1], {"queue": 1.0})
        assert (await client.server_info())["queue"].current_size == 1

    run(main())


def test_leased_batches_are_acknowledged_by_the_next_one(client):
    async def main():
        for step in range(4):
            await client.insert([step], {"queue": 1.0})
        seen = []
        async with contextlib.aclosing(client.sample_batches("queue", 2, lease=60.0)) as batches:
            async for batch in batches:
                seen.append(batch.data[0].tolist())
                if len(seen) == 2:
                    break
        assert seen == [[[0], [1]], [[2], [3]]]
        # The last one was released.
        await until(lambda: _size_is(client, "queue", 2))
        batch = await anext(client.sample_batches("queue", 2, timeout=20))
        assert batch.data[0].tolist() == [[2], [3]]

    run(main())


async def _size_is(client, table, size):
    return (await client.server_info())[table].current_size == size


def test_many_iterators_wait_without_a_thread_each(client):
    async def main():
        iterators = [client.sample_batches("queue", 1, num_batches=1) for _ in range(100)]
        tasks = [asyncio.ensure_future(anext(each)) for each in iterators]
        await until(lambda: _samplers(client, "queue", 100))
        named = [thread for thread in threading.enumerate() if thread.name.startswith("reverb-aio")]
        assert len(named) <= 8
        for step in range(100):
            await client.insert([step], {"queue": 1.0})
        batches = await asyncio.gather(*tasks)
        assert sorted(int(batch.data[0][0][0]) for batch in batches) == list(range(100))

    run(main())


def test_several_servers():
    servers = [reverb.Server([reverb.Table.queue("queue", 100)]) for _ in range(2)]
    client = aio.Client([f"localhost:{server.port}" for server in servers])

    async def main():
        for step in range(4):
            await client.insert([step], {"queue": 1.0})
        seen = [int(sample.data[0][0]) async for sample in client.sample("queue", 4, emit_timesteps=False)]
        assert sorted(seen) == [0, 1, 2, 3]
        with pytest.raises(RuntimeError, match="several servers"):
            client.rows("rollouts")

    run(main())
    for server in servers:
        server.stop()


def test_a_client_that_exists(server):
    client = reverb.Client(f"localhost:{server.port}")
    assert aio.Client(client).client is client
    with pytest.raises(ValueError, match="has its options"):
        aio.Client(client, name="other")
