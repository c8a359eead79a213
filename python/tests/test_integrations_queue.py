"""reverb.integrations.queue: queues between processes, with the interface of queue.Queue."""

from __future__ import annotations

import dataclasses
import os
import pickle
import queue as standard
import random
import socket
import subprocess
import sys
import threading
import time

import conditions
import numpy as np
import processes
import pytest

import reverb
from reverb.integrations import _codec
from reverb.integrations.queue import Empty, Full, Queue, ShutDown


@pytest.fixture(name="make")
def fixture_make():
    """Creates queues, which are closed at the end."""
    made = []

    def make(*arguments, **options):
        made.append(Queue(*arguments, **options))
        return made[-1]

    yield make
    for queue in reversed(made):
        queue.close()


@dataclasses.dataclass
class Rollout:
    prompt: int
    tokens: np.ndarray


NESTS = [
    None,
    True,
    7,
    -(2**70),
    float("inf"),
    "text \ud800 \0",
    b"",
    b"bytes",
    [1, [2.5, "x"], ()],
    {"a": (1, 2), 3: None, (4, 5): [b"y"]},
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.zeros((0, 3), np.float32),
    np.zeros((3, 0)),
    np.array(2.5),
    np.float32(1.5),
    {"tokens": np.arange(5), "mask": np.array([True, False]), "more": [np.ones((2, 2, 2)), 1]},
]


def assert_same(left, right):
    assert type(left) is type(right)
    if isinstance(left, np.ndarray | np.generic):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_array_equal(left, right)
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    else:
        assert left == right


def test_nests_of_arrays_are_not_pickled(make):
    queue = make(allow_pickle=False)
    for nest in NESTS:
        queue.put(nest)
    assert queue.qsize() == len(NESTS)
    for nest in NESTS:
        assert_same(queue.get(timeout=60), nest)
    assert queue.empty()


def test_arrays_are_columns_of_their_own(make):
    queue = make()
    rows = reverb.Client(queue.address).rows(queue.name)
    queue.put({"tokens": np.arange(3), "text": "x"})
    queue.put(Rollout(7, np.arange(1000.0)))
    first, second = (row for row in rows.list() if not row.is_open)
    assert set(first.columns) == {"head", "a0"}
    np.testing.assert_array_equal(rows.get(first.key, ["a0"])["a0"][0], np.arange(3))
    pickled = rows.get(second.key, ["head", "a0"])
    assert len(pickled["head"][0]) < 1000
    assert len(pickled["a0"][0]) == 8000


def test_other_objects_are_pickled(make):
    queue = make()
    queue.put(Rollout(7, np.arange(3)))
    queue.put({1, 2})
    queue.put(np.array(["a", "b"]))
    queue.put(np.array([1, None]))
    got = queue.get(timeout=60)
    assert got.prompt == 7
    np.testing.assert_array_equal(got.tokens, np.arange(3))
    got.tokens[0] = 5  # its memory is its own
    assert queue.get(timeout=60) == {1, 2}
    assert queue.get(timeout=60).tolist() == ["a", "b"]
    assert queue.get(timeout=60).tolist() == [1, None]


def test_pickles_can_be_excluded(make):
    strict = make(allow_pickle=False)
    with pytest.raises(TypeError, match="type Rollout .* must be pickled, which allow_pickle=False excludes"):
        strict.put(Rollout(1, np.zeros(1)))
    lax = make(address=strict.address, name=strict.name)
    lax.put({1})
    lax.put("next")
    with pytest.raises(ValueError, match="the object is pickled"):
        strict.get(timeout=60)
    assert strict.get(timeout=60) == "next"


def test_an_object_that_contains_itself(make):
    queue = make()
    loop: list = []
    loop.append(loop)
    queue.put(loop)
    got = queue.get(timeout=60)
    assert got[0] is got


@pytest.mark.parametrize("count", [1, 5, 63, 64, 65, 300])
def test_any_number_of_arrays(make, count):
    queue = make()
    arrays = [np.full((i % 3, 2), i, np.float32) for i in range(count)]
    queue.put(arrays)
    queue.put("next")
    assert_same(queue.get(timeout=60), arrays)
    assert queue.get(timeout=60) == "next"


def test_the_description_survives_random_nests():
    random.seed(7)

    def build(depth):
        kind = random.randrange(8 if depth > 0 else 5)
        if kind == 0:
            return random.choice([None, True, 1, 2.5, "x", b"y"])
        if kind in (1, 2):
            return np.asarray(np.random.default_rng(kind).normal(size=random.choice([(), (0,), (2,), (2, 0, 3)])))
        if kind == 3:
            return np.int8(random.randrange(100))
        if kind == 4:
            return random.random()
        children = [build(depth - 1) for _ in range(random.randrange(4))]
        return {5: children, 6: tuple(children), 7: dict(enumerate(children))}[kind]

    for _ in range(300):
        value = build(4)
        head, arrays = _codec.encode(value, allow_pickle=False)
        assert_same(_codec.decode(head, arrays, allow_pickle=False), value)
    with pytest.raises(ValueError, match="is not an object of a queue"):
        _codec.decode(b"x", [], allow_pickle=True)


def test_items_come_in_order(make):
    queue = make()
    for number in range(100):
        queue.put(number)
    assert [queue.get(timeout=60) for _ in range(100)] == list(range(100))


def test_an_empty_queue_raises_empty(make):
    queue = make()
    assert Empty is standard.Empty
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(timeout=0.01)
    with pytest.raises(Empty):
        queue.get(False, 60)
    with pytest.raises(ValueError, match="'timeout' must be a non-negative number"):
        queue.get(timeout=-1)


def test_a_full_queue_raises_full(make):
    queue = make(2)
    assert Full is standard.Full
    queue.put(1)
    assert not queue.full()
    queue.put(2)
    assert queue.full()
    with pytest.raises(Full):
        queue.put_nowait(3)
    with pytest.raises(Full):
        queue.put(3, timeout=0.01)
    assert queue.get() == 1
    queue.put_nowait(3)
    assert [queue.get(), queue.get()] == [2, 3]


def test_bytes_bound_a_queue_too(make):
    queue = make(maxbytes=2**20)
    array = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8)
    for _ in range(3):
        queue.put(array)
    with pytest.raises(Full):
        queue.put(array, timeout=0)
    assert queue.get().nbytes == array.nbytes
    queue.put(array, timeout=60)
    with pytest.raises(ValueError, match="the one at an address has its own max_bytes"):
        Queue(maxbytes=1, address="localhost:1")


def test_a_put_wakes_a_get_and_a_get_wakes_a_put(make):
    queue = make(1)
    rows = reverb.Client(queue.address).rows(queue.name)
    got = []
    getter = threading.Thread(target=lambda: got.append(queue.get(timeout=60)))
    getter.start()
    conditions.wait_until(lambda: rows.info()["waiting_claims"] == 1)
    queue.put("a")
    getter.join(60)
    assert got == ["a"]
    queue.put("b")
    putter = threading.Thread(target=queue.put, args=("c",), kwargs={"timeout": 60})
    putter.start()
    conditions.wait_until(lambda: rows.info()["waiting_writes"] == 1)
    assert queue.get() == "b"
    putter.join(60)
    assert queue.get_nowait() == "c"


def test_a_wait_makes_one_request(make, monkeypatch):
    queue = make()
    claims = []
    claim = reverb.Rows.claim
    monkeypatch.setattr(reverb.Rows, "claim", lambda *a, **k: claims.append(1) or claim(*a, **k))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("sleeps"))
    with pytest.raises(Empty):
        queue.get(timeout=0.3)
    assert len(claims) == 1


def test_queues_of_one_server(make):
    one = make()
    other = make(address=one.address, name="other")
    same = make(address=one.address, name=one.name)
    one.put(1)
    other.put(2)
    assert same.get() == 1
    assert other.get() == 2
    with pytest.raises(RuntimeError, match="exists already, with other settings"):
        Queue(5, address=one.address, name=one.name)


def test_shutdown_lets_getters_finish(make):
    queue = make()
    other = pickle.loads(pickle.dumps(queue))
    queue.put(1)
    queue.put(2)
    queue.shutdown()
    with pytest.raises(ShutDown):
        queue.put(3)
    with pytest.raises(ShutDown):
        other.put(3)
    assert queue.qsize() == 2
    assert [other.get(), queue.get()] == [1, 2]
    for handle in (queue, other, queue, other):
        with pytest.raises(ShutDown):
            handle.get()
    queue.shutdown()
    assert queue.qsize() == 0


def test_shutdown_wakes_all_getters(make):
    queue = make()
    ended = []

    def get():
        try:
            pickle.loads(pickle.dumps(queue)).get(timeout=60)
        except ShutDown:
            ended.append(1)

    threads = [threading.Thread(target=get) for _ in range(5)]
    for thread in threads:
        thread.start()
    conditions.wait_until(lambda: queue._info()["waiting_claims"] == 5)
    queue.shutdown()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 5


def test_a_put_that_waited_during_the_shutdown(make):
    queue = make(1)
    queue.put(1)
    raised = []

    def put():
        try:
            queue.put(2, timeout=60)
        except ShutDown:
            raised.append(1)

    thread = threading.Thread(target=put)
    thread.start()
    conditions.wait_until(lambda: queue._info()["waiting_writes"] == 1)
    queue.shutdown()
    assert queue.get() == 1
    thread.join(60)
    with pytest.raises(ShutDown):
        queue.get()
    assert raised == [1]


def test_an_immediate_shutdown_ends_all_calls(make):
    queue = make(1)
    queue.put(1)
    raised = []

    def put():
        try:
            queue.put(2)
        except ShutDown:
            raised.append(1)

    thread = threading.Thread(target=put)
    thread.start()
    conditions.wait_until(lambda: queue._info()["waiting_writes"] == 1)
    queue.shutdown(immediate=True)
    thread.join(60)
    assert raised == [1]
    with pytest.raises(ShutDown):
        queue.get()


def test_closing_a_handle_leaves_the_queue(make):
    queue = make()
    other = pickle.loads(pickle.dumps(queue))
    other.put(1)
    other.close()
    other.close()
    for call in (other.get, other.qsize, lambda: other.put(1), lambda: pickle.dumps(other)):
        with pytest.raises(ValueError, match="is closed"):
            call()
    assert queue.get(timeout=60) == 1


def test_an_item_that_is_not_finished_comes_back(make):
    queue = make(redeliver=True)
    queue.put(1)
    queue.put(2)
    with pytest.raises(ValueError, match="too many times"):
        queue.task_done()
    with pickle.loads(pickle.dumps(queue)) as other:
        assert other.get(timeout=60) == 1
        assert queue.get(timeout=60) == 2
        queue.task_done()
    assert queue.get(timeout=60) == 1  # closing the other handle gave it back
    queue.task_done()
    assert queue._info()["rows"] == 1


def test_a_lease_that_is_too_short_is_named(make):
    queue = make(redeliver=True, lease=0.05)
    queue.put(1)
    assert queue.get(timeout=60) == 1
    conditions.wait_until(lambda: queue._info()["expired"] == 1)
    with pytest.raises(RuntimeError, match="Pass a longer lease"):
        queue.task_done()
    assert queue.get(timeout=60) == 1


def _work(results, stop, queue, hold):
    while True:
        try:
            item = queue.get()
        except ShutDown:
            results.put("end")
            return
        results.put(item)
        if hold:
            stop.wait(60)
        queue.task_done()


def test_processes_share_a_queue(make):
    queue = make(10)
    with processes.pool() as pool:
        for _ in range(3):
            pool.start(_work, queue, False)
        for number in range(50):
            queue.put(number, timeout=60)
        queue.shutdown()
        taken = pool.take(53)
    assert sorted(item for item in taken if item != "end") == list(range(50))
    assert taken.count("end") == 3


def test_a_getter_that_is_killed_loses_nothing_with_redeliver(make):
    queue = make(redeliver=True, lease=1.0)
    queue.put("a")
    queue.put("b")
    with processes.pool(grace=0) as pool:
        worker = pool.start(_work, queue, True)
        assert pool.take(1) == ["a"]
        worker.kill()
        worker.join(60)
    assert sorted([queue.get(timeout=60), queue.get(timeout=60)]) == ["a", "b"]


def test_what_a_killed_getter_had_got_is_consumed_otherwise(make):
    queue = make(lease=0.5)
    queue.put("a")
    queue.put("b")
    with processes.pool(grace=0) as pool:
        worker = pool.start(_work, queue, True)
        assert pool.take(1) == ["a"]
        worker.kill()
        worker.join(60)
    assert queue.get(timeout=60) == "b"
    assert queue._info()["rows"] == 1


def test_a_child_of_fork_uses_the_queue_of_its_parent(make):
    queue = make()
    child = os.fork()
    if child == 0:
        try:
            queue.put({"from": "child", "array": np.arange(3)}, timeout=60)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert queue.get(timeout=60)["array"].tolist() == [0, 1, 2]


def test_versions_of_python_without_shutdown_have_the_exception_too():
    code = (
        f"import queue, sys; sys.path[:0] = {sys.path!r}; vars(queue).pop('ShutDown', None)\n"
        "from reverb.integrations.queue import Queue, ShutDown\n"
        "with Queue() as made:\n"
        "    made.shutdown()\n"
        "    try:\n"
        "        made.get()\n"
        "    except ShutDown as error:\n"
        "        print(type(error).__module__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("reverb.integrations.queue\n", "")


def test_a_server_for_other_machines_is_named_by_its_host(make):
    assert make().address.startswith("localhost:")
    queue = make(host="")
    assert queue.address.startswith(f"{socket.gethostname()}:")
    queue.put(1)
    assert queue.get(timeout=60) == 1
