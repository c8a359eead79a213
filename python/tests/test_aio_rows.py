"""Row tables with asyncio: reverb.aio."""

import asyncio
import contextlib
import gc
import threading

import numpy as np
import pytest

import reverb
from reverb import aio

pytestmark = pytest.mark.usefixtures("event_loops")

TRANSPORTS = ("in_process", "local", "grpc")


@pytest.fixture(name="server")
def _server():
    server = reverb.Server(
        [reverb.RowTable("rollouts", consumers=["train", "other"]), reverb.RowTable("small", max_rows=1)]
    )
    yield server
    server.stop()


@pytest.fixture(name="client", params=TRANSPORTS)
def _client(request, server):
    return aio.Client(
        f"localhost:{server.port}",
        in_process=request.param == "in_process",
        local=request.param == "local",
        name="learner",
    )


def run(main):
    """Runs a coroutine; a test that hangs ends."""
    return asyncio.run(asyncio.wait_for(main, 60))


async def until(condition):
    """Waits until an awaitable condition is true."""
    while not await condition():
        await asyncio.sleep(0.005)


def put(rows, *keys):
    return rows.put(list(keys), {"tokens": [np.arange(index + 1) for index in range(len(keys))]})


def test_every_call(client):
    async def main():
        rows = client.rows("rollouts")
        assert rows.table == "rollouts"
        assert await put(rows, "a", "b") == (2, [], 0)
        await rows.put(["a"], {"reward": [1.5]}, tags=[{"split": "math"}])
        batch = await rows.claim("train", 2, needs=["tokens"], lease=30.0)
        assert batch.keys == ["a", "b"]
        assert batch["tokens"][1].tolist() == [0, 1]
        assert (await batch.extend(20.0)).settled == 2
        assert (await batch.ack(["a"])).settled == 1
        assert (await batch.release()).settled == 1
        async with await rows.claim("train", 1) as again:
            assert again.keys == ["b"]
        assert (await rows.get(["a", "x"], ["reward"]))["reward"][0] == 1.5
        assert [row.key for row in await rows.list("split == 'math'")] == ["a"]
        await rows.set_version(3)
        assert (await rows.info())["version"] == 3
        async with await rows.reserve(2) as slots:
            assert len(slots) == 2
            await rows.put(["c"], {"tokens": [[1]]}, reservation=slots, open=True)
        await rows.put(["c"], {"tokens": [[2]]}, append=True)
        await rows.requeue("c")
        assert (await rows.claim("resume", 1)).keys == ["c"]
        assert await rows.close(["c"]) == []
        assert await rows.abort(["gone"]) == ["gone"]
        assert await rows.delete(["c"]) == 1
        assert await rows.delete(where="true") == 2
        with pytest.raises(ValueError, match="either keys or a condition"):
            await rows.delete()
        with pytest.raises(ValueError, match="write == to compare"):
            await rows.list("reward = 1")
        with pytest.raises(reverb.DeadlineExceededError, match="waits for 1 row"):
            await rows.claim("train", 1, timeout=0)
        with pytest.raises(RuntimeError, match="no consumer"):
            await rows.claim("nobody", 1)

    run(main())


def test_a_write_wakes_the_claim(client):
    async def main():
        rows = client.rows("rollouts")
        claim = asyncio.create_task(rows.claim("train", 2, needs=["tokens"]))
        await until(lambda: _waiting(rows, 1))
        await put(rows, "a", "b")
        assert (await claim).keys == ["a", "b"]

    run(main())


async def _waiting(rows, count):
    return (await rows.info())["waiting_claims"] == count


@pytest.mark.parametrize("how", ["cancel", "timeout", "wait_for"])
def test_a_cancelled_claim_is_gone_at_the_server(client, how):
    async def main():
        rows = client.rows("rollouts")
        if how == "cancel":
            claim = asyncio.create_task(rows.claim("train", 1))
            await until(lambda: _waiting(rows, 1))
            claim.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claim
        else:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(rows.claim("train", 1), 0.05)
        await until(lambda: _waiting(rows, 0))
        # The row that comes now is for the next one.
        await put(rows, "a")
        assert (await rows.claim("train", 1, timeout=0)).keys == ["a"]

    run(main())


def test_no_row_is_lost_when_it_becomes_ready_as_the_claim_is_cancelled(client):
    async def main():
        rows = client.rows("rollouts")
        for attempt in range(100):
            claim = asyncio.create_task(rows.claim("train", 1, lease=3600.0))
            await asyncio.sleep(0)
            write = asyncio.create_task(put(rows, str(attempt)))
            for _ in range(attempt % 7):
                await asyncio.sleep(0)
            claim.cancel()
            await write
            try:
                batch = await claim
            except asyncio.CancelledError:
                batch = await rows.claim("train", 1, timeout=60)
            assert batch.keys == [str(attempt)]
            await batch.ack()

    run(main())


def test_a_result_that_was_delivered_to_a_cancelled_task_is_given_back(client):
    async def main():
        rows = client.rows("rollouts")
        claim = asyncio.create_task(rows.claim("train", 1, lease=3600.0))
        await until(lambda: _waiting(rows, 1))
        operations = aio._operations_of(asyncio.get_running_loop())
        deliver = operations._deliver
        futures = dict(operations._futures)
        client.client.rows("rollouts").put(["a"], {"x": [1]})  # blocks the event loop
        while not any(future.done() for future in futures.values()):
            deliver()
        claim.cancel()  # the result is there, and the task has not run yet
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert (await rows.claim("train", 1, timeout=60)).keys == ["a"]

    run(main())


def test_a_cancelled_reservation_and_put(client):
    async def main():
        small = client.rows("small")
        await put(small, "a")
        write = asyncio.create_task(put(small, "b"))
        await until(lambda: _info_is(small, waiting_writes=1))
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        await until(lambda: _info_is(small, waiting_writes=0))

    run(main())


async def _info_is(rows, **expected):
    info = await rows.info()
    return all(info[name] == value for name, value in expected.items())


def test_a_thousand_waiting_claims_have_no_threads(client):
    async def main():
        rows = client.rows("rollouts")
        await rows.info()
        claims = [asyncio.create_task(rows.claim("train", 1)) for _ in range(10)]
        await until(lambda: _waiting(rows, 10))
        before = _threads()
        claims += [asyncio.create_task(rows.claim("train", 1)) for _ in range(990)]
        await until(lambda: _waiting(rows, 1000))
        # gRPC changes the number of its threads a little, whatever the number of calls.
        assert _threads() <= before + 8
        await put(rows, *[str(index) for index in range(1000)])
        batches = await asyncio.gather(*claims)
        assert {batch.keys[0] for batch in batches} == {str(index) for index in range(1000)}

    run(main())


def _threads():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def test_async_iteration(client):
    async def main():
        rows = client.rows("rollouts")
        await put(rows, *"abcdef")
        seen = []
        async with contextlib.aclosing(rows.batches("train", 2, needs=["tokens"])) as batches:
            async for batch in batches:
                seen += batch.keys
                if len(seen) == 4:
                    await batch.ack()
                    break
        assert seen == list("abcd")
        with pytest.raises(RuntimeError, match="my own"):
            async with contextlib.aclosing(rows.batches("train", 2)) as batches:
                async for _ in batches:
                    raise RuntimeError("my own")
        # It was released.
        assert (await rows.claim("train", 2, timeout=60)).keys == ["e", "f"]

    run(main())


def test_a_loop_that_is_closed_with_operations_in_flight(client, server):
    for _ in range(3):
        loop = asyncio.new_event_loop()
        rows = client.rows("rollouts")
        claim = loop.create_task(rows.claim("train", 1, lease=3600.0))
        loop.run_until_complete(until(lambda rows=rows: _waiting(rows, 1)))
        loop.close()
        claim._log_destroy_pending = False
        del claim, loop
        gc.collect()
        run(until(lambda: _waiting(client.rows("rollouts"), 0)))
    # What is done when nobody looks is given back.
    run(put(client.rows("rollouts"), "a"))
    assert run(client.rows("rollouts").claim("train", 1, timeout=60)).keys == ["a"]


def test_loops_of_several_threads(client):
    results = []

    def work(index):
        async def main():
            rows = client.rows("rollouts")
            await put(rows, f"{index}/0", f"{index}/1")
            for _ in range(2):
                async with await rows.claim("train", 1) as batch:
                    results.append(batch.keys[0])

        run(main())

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(f"{index}/{row}" for index in range(4) for row in range(2))


def test_a_server_that_stops_ends_the_wait(client, server):
    async def main():
        rows = client.rows("rollouts")
        claim = asyncio.create_task(rows.claim("train", 1, timeout=60))
        await until(lambda: _waiting(rows, 1))
        await asyncio.get_running_loop().run_in_executor(None, server.stop)
        with pytest.raises(Exception, match="closed|stopp|no connection|no answer|abort"):
            await claim

    run(main())


def test_an_unreachable_server():
    async def main():
        rows = aio.Client("localhost:1", reconnect_timeout=1.0).rows("rollouts")
        with pytest.raises(RuntimeError, match="could not be reached"):
            await rows.info()
        with pytest.raises(reverb.DeadlineExceededError, match="no answer"):
            await aio.Client("localhost:1").rows("rollouts").info(timeout=0.2)
        call = asyncio.create_task(aio.Client("localhost:1").rows("rollouts").claim("train", 1))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(main())


def test_a_batch_larger_than_a_reply(client):
    async def main():
        rows = client.rows("rollouts")
        data = np.zeros(5 * 2**20, np.uint8)
        await rows.put([str(index) for index in range(9)], {"tokens": [data] * 9})
        batch = await rows.claim("train", 9, needs=["tokens"])
        assert batch["tokens"].lengths.tolist() == [len(data)] * 9

    run(main())
