"""The samplers behind the iterators of datasets.

TensorFlow creates an iterator by open_stream(), calls take() for each batch of elements, and calls close_stream() when
it destroys the iterator. take() waits for a short time only: TensorFlow cannot interrupt Python, and learns between
two calls that the iterator is no longer needed.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import time
from typing import Any
import weakref

import numpy as np

from reverb import _core, _specs, errors
from reverb._tensorflow import checks
from reverb._tensorflow.arguments import Part, Settings
from reverb.client import Client

_log = logging.getLogger("reverb")

# How long take() waits for samples: the time that a dropped iterator may take to end.
_SLICE = 0.1
# How long an iterator waits for the signature of its table before it goes on without.
_SIGNATURE_TIMEOUT = 30.0

_clients: weakref.WeakValueDictionary[str, Client] = weakref.WeakValueDictionary()
_clients_lock = threading.Lock()


def client_of(server_address: str) -> Client:
    """Returns the client for an address, which all datasets of the process share."""
    with _clients_lock:
        client = _clients.get(server_address)
        if client is None:
            client = _clients[server_address] = Client(server_address)
        return client


class Stream:
    """The sampler of one iterator. Threads: one at a time, except for close()."""

    def __init__(self, settings: Settings, server_address: str, table: str) -> None:
        self._settings = settings
        self._specs = [
            _specs.TensorSpec(shape, dtype) for shape, dtype in zip(settings.shapes, settings.dtypes, strict=True)
        ]
        self._table = table
        self._client = client_of(server_address)
        self._sampler = _core.SampleStream(
            self._client,
            table,
            settings.max_samples,
            settings.max_in_flight,
            settings.num_workers,
            settings.rate_limiter_timeout,
            settings.batch_size,
        )
        self._is_checked = False
        self._waits_since: float | None = None  # for the signature

    def take(self) -> tuple[list[Any], list[Any]] | None:
        """Returns the info and the columns of a batch; None if nothing has arrived within a slice of time.

        StopIteration at the end; ValueError for samples that do not fit; RuntimeError as for Client.sample().
        """
        if not self._is_checked and not self._check_signature():
            return None
        batch = self._sampler.take(_SLICE)
        if batch is None:
            return None
        info, columns, squeezed = batch
        if self._settings.part is Part.TIMESTEP:
            info, columns = checks.split_into_timesteps(info, columns, squeezed)
        elif self._settings.part is Part.FIRST_STEP:
            pairs = zip(columns, squeezed, strict=True)
            columns = [column if is_squeezed else column[:, 0] for column, is_squeezed in pairs]
        checks.check_columns(self._specs, self._table, columns)
        return info, columns

    def close(self) -> None:
        """Ends the sampler, also for a thread in take()."""
        self._sampler.close()

    def _check_signature(self) -> bool:
        """Returns whether the iterator can go on: the signature fits, or cannot be had."""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        try:
            tables = self._client.server_info(_SLICE)
        except errors.DeadlineExceededError:
            if now - self._waits_since < _SIGNATURE_TIMEOUT:
                return False
            _log.warning(
                "the server at %s did not report its tables within %g s; samples of table %r are not checked against "
                "its signature",
                self._client.server_address,
                _SIGNATURE_TIMEOUT,
                self._table,
            )
        else:
            if self._table not in tables:
                _log.warning(
                    "the server at %s has no table %r; it has: %s",
                    self._client.server_address,
                    self._table,
                    ", ".join(sorted(tables)),
                )
            elif tables[self._table].signature is not None:
                checks.check_signature(self._settings, self._table, tables[self._table].signature)
        self._is_checked = True
        return True


_streams: dict[int, Stream] = {}
_numbers = itertools.count(1)


def open_stream(settings: Settings, server_address: bytes, table: bytes) -> Any:
    """Creates a stream and returns its number."""
    number = next(_numbers)
    _streams[number] = Stream(settings, server_address.decode(), table.decode())
    return np.int64(number)


def take(number: Any) -> tuple[list[Any], list[Any]] | None:
    """Returns the next batch of a stream; see Stream.take(). StopIteration if the stream was closed."""
    stream = _streams.get(int(number))
    if stream is None:
        raise StopIteration
    return stream.take()


def close_stream(number: Any) -> Any:
    """Ends a stream. Returns 0, since TensorFlow needs a result."""
    stream = _streams.pop(int(number), None)
    if stream is not None:
        stream.close()
    return np.int64(0)


def num_open() -> int:
    """Returns the number of streams whose iterators exist."""
    return len(_streams)


@atexit.register
def _close_all() -> None:
    # TensorFlow's threads would call an interpreter that is gone.
    while _streams:
        _, stream = _streams.popitem()
        stream.close()
