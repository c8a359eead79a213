"""Prepares the elements of an iterator ahead, in a background thread; used by reverb.torch and reverb.jax."""

from __future__ import annotations

import atexit
import collections
from collections.abc import Callable, Iterable, Iterator
import contextlib
import os
import threading
from typing import Any
import weakref

from reverb.replay_sample import ReplaySample

# Bounds how long the end of the interpreter waits for each thread.
_EXIT_TIMEOUT = 2.0  # seconds


def map_data(batch: Any, function: Callable[[Any], Any]) -> Any:
    """Returns the batch with function(data) in place of its data; `info`, which the host needs, stays as it is.

    The same applies to the attributes of a batch, such as the `lengths` of a PaddedBatch. Anything other than a
    ReplaySample is data itself.
    """
    if not isinstance(batch, ReplaySample):
        return function(batch)
    mapped = type(batch)(batch.info, function(batch.data))
    for name, value in getattr(batch, "__dict__", {}).items():
        setattr(mapped, name, function(value))
    return mapped


def keep(element: Any) -> Any:
    """Returns its argument."""
    return element


class Direct(Iterator[Any]):
    """Iterates over prepare(element) for the elements of a source, in the caller's thread.

    Not a generator: after an error of the source, such as a timeout, the following next() goes on.
    """

    def __init__(self, source: Iterable[Any], prepare: Callable[[Any], Any]) -> None:
        self._source = iter(source)
        self._prepare = prepare

    def __iter__(self) -> Direct:
        return self

    def __next__(self) -> Any:
        return self._prepare(next(self._source))

    def close(self) -> None:
        """Closes the source, and ends a wait of sample_batches() in another thread."""
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


class Adaptive(Iterator[Any]):
    """Iterates over prepare(element) in the caller's thread, until is_large() says to go on with threads.

    For sources that read ahead themselves, and elements so small that a hand-over between threads, with the GIL, costs
    more than it hides.
    """

    def __init__(
        self,
        source: Iterator[Any],
        prepare: Callable[[Any], Any],
        is_large: Callable[[], bool],
        start_threads: Callable[[Iterator[Any]], Prefetcher],
    ) -> None:
        """`is_large` is asked about the element that was prepared last."""
        self._direct = Direct(source, prepare)
        self._source = source
        self._is_large = is_large
        self._start_threads = start_threads
        self._prefetcher: Prefetcher | None = None

    def __iter__(self) -> Adaptive:
        return self

    def __next__(self) -> Any:
        if self._prefetcher is not None:
            return next(self._prefetcher)
        element = next(self._direct)
        if self._is_large():
            self._prefetcher = self._start_threads(self._source)
        return element

    def close(self) -> None:
        """Closes the source; see Prefetcher.close()."""
        (self._prefetcher or self._direct).close()

    def __enter__(self) -> Adaptive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Prefetcher(Iterator[Any]):
    """Iterates over prepare(element) for the elements of a source, at most `depth` of them ahead.

    The thread starts with the first next(). An error of the source is raised in its place. The next() after it
    continues with what the source returns then; nothing is taken ahead in between. Threads may share a Prefetcher.
    close(), or dropping it, ends the thread and closes the source, so that a wait of sample_batches() ends too;
    elements that were prepared ahead are dropped.
    """

    def __init__(
        self,
        source: Iterable[Any],
        prepare: Callable[[Any], Any],
        depth: int,
        *,
        finish: Callable[[Any], Any] = keep,
        name: str = "rv-prefetch",
    ) -> None:
        """`prepare` runs in the background thread, `finish` in the thread that calls next()."""
        self._finish = finish
        self._feed = _Feed(iter(source), prepare, depth)
        self._name = name
        self._start_lock = threading.Lock()
        self._process = 0
        self._finalizer = weakref.finalize(self, self._feed.stop)

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Any:
        if self._process != os.getpid():
            self._start()
        element, error = self._feed.take()
        if error is not None:
            raise error
        return self._finish(element)

    def close(self) -> None:
        """Ends the thread, closes the source and drops what was prepared. Later calls of next() raise StopIteration."""
        self._finalizer()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        with self._start_lock:
            if self._process == os.getpid():
                return
            if self._process != 0:
                raise RuntimeError(
                    "this iterator prefetched in a thread when the process was created by fork(), which does not copy "
                    'threads; create it in the new process, or start processes with multiprocessing\'s "spawn" method'
                )
            # The thread refers to the feed only: dropping the Prefetcher ends it.
            thread = threading.Thread(target=self._feed.run, name=self._name, daemon=True)
            thread.start()
            _stop_at_exit(self._feed, thread)
            self._process = os.getpid()


def ahead(source: Iterable[Any]) -> Prefetcher:
    """Returns the elements as they are, taken one ahead, so that taking and preparing them do not wait for each other.

    Each element must have memory of its own.
    """
    return Prefetcher(source, keep, 1, name="rv-sample")


_running: weakref.WeakKeyDictionary[_Feed, threading.Thread] = weakref.WeakKeyDictionary()
_running_lock = threading.Lock()


def _stop_at_exit(feed: _Feed, thread: threading.Thread) -> None:
    """Ends the thread before the interpreter does, which would abort the process in the C++ code of a framework."""
    with _running_lock:
        if not _running:
            # Again, so that it runs before functions that a framework has registered meanwhile.
            atexit.unregister(_stop_all)
            atexit.register(_stop_all)
        _running[feed] = thread


def _stop_all() -> None:
    running = list(_running.items())
    for feed, _ in running:
        feed.stop()
    for _, thread in running:
        thread.join(_EXIT_TIMEOUT)


class _Feed:
    """What the thread and its consumers share."""

    def __init__(self, source: Iterator[Any], prepare: Callable[[Any], Any], depth: int) -> None:
        self._source = source
        self._prepare = prepare
        self._depth = depth
        lock = threading.Lock()
        self._wakes_producer = threading.Condition(lock)
        self._wakes_consumers = threading.Condition(lock)
        # Guarded by the lock.
        self._ready: collections.deque[tuple[Any, BaseException | None]] = collections.deque()
        self._num_waiting = 0  # consumers
        self._has_failed = False  # the last entry was an error, and no consumer has asked for another one since
        self._has_ended = False

    def run(self) -> None:
        """Fills the queue; the function of the thread."""
        while self._await_room():
            entry: tuple[Any, BaseException | None]
            try:
                entry = (self._prepare(next(self._source)), None)
            except StopIteration:
                self._end()
                return
            except BaseException as error:  # noqa: BLE001  # raised by next() in the consumer's thread
                entry = (None, error)
            self._add(entry)
            del entry

    def take(self) -> tuple[Any, BaseException | None]:
        """Waits for an entry and returns it. StopIteration at the end."""
        with self._wakes_producer:
            self._num_waiting += 1
            try:
                if self._has_failed:
                    self._wakes_producer.notify()
                while not self._ready and not self._has_ended:
                    self._wakes_consumers.wait()
            finally:
                self._num_waiting -= 1
            if not self._ready:
                raise StopIteration
            self._wakes_producer.notify()
            return self._ready.popleft()

    def stop(self) -> None:
        """Drops the entries, and ends waits of the thread and of consumers."""
        with self._wakes_producer:
            self._ready.clear()
        self._end()
        close = getattr(self._source, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # a generator that is running in the thread
                close()

    def _await_room(self) -> bool:
        """Waits until an entry may be prepared. After an error, a consumer has to ask first. False at the end."""
        with self._wakes_producer:
            while not self._has_ended:
                if len(self._ready) < self._depth and (self._num_waiting > 0 or not self._has_failed):
                    return True
                self._wakes_producer.wait()
            return False

    def _add(self, entry: tuple[Any, BaseException | None]) -> None:
        with self._wakes_producer:
            if self._has_ended:
                return
            self._has_failed = entry[1] is not None
            self._ready.append(entry)
            self._wakes_consumers.notify()

    def _end(self) -> None:
        with self._wakes_producer:
            self._has_ended = True
            self._wakes_producer.notify_all()
            self._wakes_consumers.notify_all()
