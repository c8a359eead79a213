"""Tests the thread that prepares batches ahead for reverb.torch and reverb.jax; needs neither."""

from __future__ import annotations

import gc
import threading

import conditions
from conftest import join, make_table
import interpreters
import numpy as np
import pytest

import reverb
from reverb import _prefetch
from reverb._prefetch import Prefetcher, keep
from reverb.replay_sample import PaddedBatch, ReplaySample, SampleInfo


def threads_named(name):
    return [thread for thread in threading.enumerate() if thread.name == name]


class Source:
    """Counts; errors[n] is raised in place of n."""

    def __init__(self, end, errors=()):
        self.taken = 0
        self.end = end
        self.errors = dict(errors)
        self.is_closed = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.taken == self.end:
            raise StopIteration
        number, self.taken = self.taken, self.taken + 1
        if number in self.errors:
            raise self.errors[number]
        return number

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize("depth", [1, 3])
def test_elements_come_prepared_and_in_order(depth):
    threads = []

    def prepare(number):
        threads.append(threading.current_thread())
        return number * 10

    def finish(number):
        assert threading.current_thread() is threading.main_thread()
        return number + 1

    prefetcher = Prefetcher(Source(7), prepare, depth, finish=finish)
    assert list(prefetcher) == [1, 11, 21, 31, 41, 51, 61]
    assert list(prefetcher) == []
    assert threading.main_thread() not in threads


def test_takes_as_many_ahead_as_asked_for():
    source = Source(100)
    prefetcher = Prefetcher(source, keep, 3)
    assert source.taken == 0, "nothing is taken before the first next()"
    assert next(prefetcher) == 0
    conditions.wait_until(lambda: source.taken == 4)
    assert conditions.stays_true_for(0.05, lambda: source.taken == 4)
    prefetcher.close()


def test_errors_are_raised_in_their_place_and_do_not_end_it():
    prefetcher = Prefetcher(Source(4, {1: KeyError("one"), 3: OSError("three")}), keep, 2)
    assert next(prefetcher) == 0
    with pytest.raises(KeyError, match="one"):
        next(prefetcher)
    assert next(prefetcher) == 2
    with pytest.raises(OSError, match="three"):
        next(prefetcher)
    with pytest.raises(StopIteration):
        next(prefetcher)


def test_nothing_is_taken_after_an_error_before_the_next_call():
    source = Source(9, {1: KeyError("one")})
    prefetcher = Prefetcher(source, keep, 4)
    assert next(prefetcher) == 0
    with pytest.raises(KeyError, match="one"):
        next(prefetcher)
    assert conditions.stays_true_for(0.05, lambda: source.taken == 2)
    assert next(prefetcher) == 2
    conditions.wait_until(lambda: source.taken == 7)
    prefetcher.close()


def test_an_error_leaves_no_other_consumer_waiting():
    """One thread gets the error and does not come back; the other one gets the rest."""
    proceed = threading.Event()

    class FailsOnce(Source):
        def __next__(self):
            proceed.wait(60)
            return super().__next__()

    prefetcher = Prefetcher(FailsOnce(3, {0: KeyError("zero")}), keep, 2)
    outcomes = []

    def take_all():
        try:
            outcomes.append(list(prefetcher))
        except KeyError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=take_all, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    conditions.wait_until(lambda: prefetcher._feed._num_waiting == 2)
    proceed.set()
    join(*threads)
    (rest,) = [each for each in outcomes if isinstance(each, list)]
    assert rest == [1, 2]


def test_an_error_while_preparing_is_raised_by_next():
    prefetcher = Prefetcher([1, 0, 2], lambda number: 4 // number, 1)
    assert next(prefetcher) == 4
    with pytest.raises(ZeroDivisionError):
        next(prefetcher)
    assert list(prefetcher) == [2]


@pytest.mark.parametrize("how", ["close", "with", "drop"])
def test_ending_it_closes_the_source_and_ends_the_thread(how):
    source = Source(100)
    prefetcher = Prefetcher(source, keep, 2, name=f"ends-by-{how}")
    next(prefetcher)
    assert threads_named(f"ends-by-{how}")
    if how == "with":
        with prefetcher:
            pass
    elif how == "close":
        prefetcher.close()
        prefetcher.close()
        assert list(prefetcher) == []
    del prefetcher
    gc.collect()
    assert source.is_closed
    conditions.wait_until(lambda: not threads_named(f"ends-by-{how}"))


def test_closing_it_ends_waits_for_samples(serve, connect):
    """Both the thread that waits for the table and a consumer that waits for the thread end."""
    client = connect(serve(make_table()))
    prefetcher = Prefetcher(client.sample_batches("table", 2), keep, 2, name="waits")
    outcome = []
    consumer = threading.Thread(target=lambda: outcome.extend(prefetcher), daemon=True)
    consumer.start()
    conditions.wait_for_waiters(client, 1)
    prefetcher.close()
    join(consumer)
    assert outcome == []
    conditions.wait_until(lambda: not threads_named("waits"))
    conditions.wait_for_waiters(client, 0)


def test_a_generator_that_runs_may_be_closed():
    started, proceed = threading.Event(), threading.Event()

    def generate():
        yield 0
        started.set()
        proceed.wait(60)
        yield 1

    prefetcher = Prefetcher(generate(), keep, 2, name="generator")
    assert next(prefetcher) == 0
    assert started.wait(60)
    prefetcher.close()
    proceed.set()
    conditions.wait_until(lambda: not threads_named("generator"))
    assert list(prefetcher) == []


def test_a_timeout_is_raised_and_the_next_call_goes_on(server):
    client = server.localhost_client()
    prefetcher = Prefetcher(client.sample_batches("queue", 1, timeout=0.01), keep, 1)
    with pytest.raises(reverb.DeadlineExceededError):
        next(prefetcher)
    client.insert(np.int64(5), {"queue": 1.0})

    def batch():
        try:
            return next(prefetcher)
        except reverb.DeadlineExceededError:
            return None

    assert conditions.wait_until(batch).data[0].item() == 5


def test_threads_share_it():
    prefetcher = Prefetcher(range(200), keep, 4)
    taken = []
    threads = [threading.Thread(target=lambda: taken.extend(prefetcher), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert sorted(taken) == list(range(200))


def test_use_in_a_forked_child_is_refused():
    out = interpreters.run(
        """
from reverb._prefetch import Prefetcher, keep
prefetcher = Prefetcher(iter(range(10)), keep, 2)
assert next(prefetcher) == 0
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    try:
        next(prefetcher)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert next(prefetcher) == 1
""",
        PYTHONWARNINGS="ignore::DeprecationWarning",
    )
    assert '"spawn"' in out


def test_a_program_may_end_while_the_thread_waits():
    out = interpreters.run("""
from reverb._prefetch import Prefetcher, keep
server = make_server()
local, remote = connect(server, "in_process"), connect(server, "grpc")
local.insert(1, {"table": 1.0})
for client in (local, remote):
    prefetcher = Prefetcher(client.sample_batches("table", 1), keep, 2)
    next(prefetcher)
waits = [Prefetcher(client.sample_batches("queue", 1), keep, 2) for client in (local, remote)]
for each in waits:
    threading.Thread(target=list, args=(each,), daemon=True).start()
conditions.wait_for_waiters(remote, 2)
print("done")
""")
    assert out == "done\n"


def test_only_the_data_of_a_batch_is_mapped():
    info = SampleInfo([1], [0.5], [2], [1.0], [1])
    batch = _prefetch.map_data(ReplaySample(info, 3), str)
    assert batch == ReplaySample(info, "3")
    assert batch.info is info
    padded = PaddedBatch(info, 3)
    padded.lengths = 4
    mapped = _prefetch.map_data(padded, str)
    assert (type(mapped), mapped.data, mapped.lengths) == (PaddedBatch, "3", "4")
    assert _prefetch.map_data({"x": 1}, str) == "{'x': 1}"


# --- Small elements ---


def test_small_elements_need_no_thread_and_large_ones_get_it():
    source, threads, large = Source(20), [], []

    def prepare(number):
        threads.append(threading.current_thread().name)
        return number

    def start_threads(rest):
        return Prefetcher(rest, prepare, 2, name="rv-large")

    elements = _prefetch.Adaptive(source, prepare, lambda: bool(large), start_threads)
    assert [next(elements) for _ in range(5)] == list(range(5))
    assert source.taken == 5, "nothing is taken ahead"
    large.append(True)
    assert list(elements) == list(range(5, 20))
    assert set(threads[:6]) == {threading.current_thread().name}
    assert set(threads[6:]) == {"rv-large"}


@pytest.mark.parametrize("is_large", [False, True])
def test_closing_ends_the_source_of_adaptive_elements(is_large):
    source = Source(20)
    with _prefetch.Adaptive(source, keep, lambda: is_large, lambda rest: Prefetcher(rest, keep, 2)) as elements:
        assert [next(elements), next(elements)] == [0, 1]
    assert source.is_closed
