"""The coroutines of reverb.integrations: AsyncQueue, and the async_ forms of kv."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import pickle
import threading

import conditions
import numpy as np
import processes
import pytest

from reverb.integrations import kv
from reverb.integrations.queue import AsyncQueue, Empty, Full, Queue, ShutDown


@pytest.fixture(name="make")
def fixture_make():
    """Creates queues, which are closed at the end."""
    made = []

    def make(*arguments, **options):
        made.append(AsyncQueue(*arguments, **options))
        return made[-1]

    yield make
    for queue in reversed(made):
        queue.close()


def waiting(queue, kind="waiting_claims"):
    return queue._queue._info()[kind]


async def until(condition):
    """Lets other tasks run until the condition is true."""
    while not condition():
        await asyncio.sleep(0.005)  # polls the condition


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def test_items_come_in_order(make):
    queue = make(maxsize=3)

    async def main():
        async def produce():
            for number in range(50):
                await queue.put({"number": number, "array": np.arange(number)})

        producer = asyncio.create_task(produce())
        for number in range(50):
            item = await queue.get()
            assert item["number"] == number
            assert item["array"].tolist() == list(range(number))
        await producer
        assert queue.empty()
        await queue.put([np.zeros(2)] * 20)  # more arrays than an item had before
        assert len(await queue.get()) == 20

    run(main())


def test_calls_that_do_not_wait(make):
    queue = make(maxsize=1)
    queue.put_nowait(1)
    assert queue.full()
    assert queue.qsize() == 1
    with pytest.raises(Full):
        queue.put_nowait(2)
    assert queue.get_nowait() == 1
    with pytest.raises(Empty):
        queue.get_nowait()
    assert repr(queue).startswith("AsyncQueue(1, address='localhost:")


def test_many_waiters_need_no_threads(make):
    queue = make()

    async def main():
        await queue.put(0)
        await queue.get()
        before = threading.active_count()
        getters = [asyncio.create_task(queue.get()) for _ in range(200)]
        await until(lambda: waiting(queue) == 200)
        assert threading.active_count() == before
        for number in range(200):
            await queue.put(number)
        assert sorted(await asyncio.gather(*getters)) == list(range(200))

    run(main())


def test_a_cancelled_get_takes_nothing(make):
    queue = make()

    async def main():
        for _ in range(20):
            getter = asyncio.create_task(queue.get())
            await until(lambda: waiting(queue) == 1)
            getter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await getter
            await until(lambda: waiting(queue) == 0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(queue.get(), 0.01)
        await queue.put(1)
        assert await queue.get() == 1

    run(main())


def test_no_item_is_lost_whenever_a_get_is_cancelled(make):
    queue = make(lease=1.0)

    async def main():
        got = []
        for number in range(100):
            getter = asyncio.create_task(queue.get())
            await queue.put(number)
            for _ in range(number % 7):
                await asyncio.sleep(0)
            getter.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                got.append(await getter)
        while len(got) < 100:
            got.append(await queue.get())
        assert sorted(got) == list(range(100))
        assert queue.empty()

    run(main())


def test_a_cancelled_put_ends_its_wait(make):
    queue = make(maxsize=1)

    async def main():
        await queue.put(1)
        putter = asyncio.create_task(queue.put(2))
        await until(lambda: waiting(queue, "waiting_writes") == 1)
        putter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putter
        await until(lambda: waiting(queue, "waiting_writes") == 0)
        assert await queue.get() == 1
        assert queue.empty()

    run(main())


def test_shutdown_ends_all_getters(make):
    queue = make()

    async def main():
        await queue.put(1)
        queue.shutdown()
        assert await queue.get() == 1
        with pytest.raises(ShutDown):
            await queue.get()
        with pytest.raises(ShutDown):
            await queue.put(2)

    run(main())
    other = make()

    async def wake():
        getters = [asyncio.create_task(other.get()) for _ in range(5)]
        await until(lambda: waiting(other) == 5)
        other.shutdown()
        ended = await asyncio.gather(*getters, return_exceptions=True)
        assert [type(each) for each in ended] == [ShutDown] * 5

    run(wake())


def test_items_that_are_not_finished_come_back(make):
    queue = make(redeliver=True, lease=0.5)

    async def main():
        await queue.put("a")
        await queue.put("b")
        assert await queue.get() == "a"
        assert await queue.get() == "b"
        await queue.task_done()
        with pytest.raises(RuntimeError, match="use asyncio.wait_for"):
            queue.get_nowait()
        return asyncio.current_task()

    run(main())

    async def again():
        with pytest.raises(ValueError, match="too many times"):
            await queue.task_done()
        assert await queue.get() == "b"
        await queue.task_done()

    run(again())


def _echo(results, stop, queue, answers):
    for _ in range(20):
        answers.put(queue.get())
    results.put("done")


def test_queues_of_processes_and_of_coroutines_are_the_same(make):
    queue = make()
    answers = AsyncQueue(address=queue.address, name="answers")
    copy = pickle.loads(pickle.dumps(queue))
    assert copy.name == queue.name

    async def main():
        with processes.pool() as pool:
            pool.start(_echo, Queue(address=queue.address), Queue(address=queue.address, name="answers"))
            for number in range(20):
                await queue.put(number)
            assert [await answers.get() for _ in range(20)] == list(range(20))
            assert pool.take(1) == ["done"]

    run(main())
    conditions.wait_until(answers.empty)
    answers.close()


def test_a_handle_closes_with_its_block():
    async def main():
        async with AsyncQueue() as queue:
            await queue.put(1)
        with pytest.raises(ValueError, match="is closed"):
            await queue.get()

    run(main())


@pytest.mark.skipif(importlib.util.find_spec("tensordict") is not None, reason="results are TensorDicts")
def test_kv(monkeypatch):
    kv.init()

    async def main():
        meta = await kv.async_kv_batch_put(["a", "b"], "p", {"x": [np.arange(2), np.arange(3)]}, [{"t": 1}, {"t": 2}])
        assert meta.keys == ["a", "b"]
        data = await kv.async_kv_batch_get(["b", "a"], "p", "x")
        assert [row.tolist() for row in data["x"]] == [[0, 1, 2], [0, 1]]
        assert list(await kv.async_kv_batch_get("a", "p")) == ["x"]
        assert await kv.async_kv_list() == {"p": {"a": {"t": 1}, "b": {"t": 2}}}
        await kv.async_kv_clear("a", "p")
        assert await kv.async_kv_list("p") == {"p": {"b": {"t": 2}}}
        with pytest.raises(KeyError, match='no samples "a"'):
            await kv.async_kv_batch_get("a", "p", "x")
        with pytest.raises(KeyError, match="there is no partition"):
            await kv.async_kv_batch_get("a", "q", "x")

    run(main())
    kv.close()
