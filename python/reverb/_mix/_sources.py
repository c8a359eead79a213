"""Where the items of mixed batches come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reverb import _core, checkpoints
from reverb._mix._parts import Part


class Source:
    """Keeps items that were fetched and not used yet."""

    # Sources of a higher rank are fetched from later. Fetching from a client may remove items from their table, and
    # from an iterator uses up what it has: neither must be in vain because another source ends.
    fetch_rank = 0
    # Whether the arrays of its batches are used by nothing else, so that they may be passed on.
    owns_arrays = True

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: list[Part] = []
        self._fetched = 0  # items so far

    def __str__(self) -> str:
        return self._name

    def _more(self, n: int) -> Any:
        """Returns a batch of up to n items, or more; None at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the source."""

    def fetch(self, n: int) -> bool:
        """Makes sure that n items are held. Returns whether there are so many."""
        have = sum(part.size for part in self._held)
        while have < n:
            batch = self._more(n - have)
            if batch is None:
                return False
            part = Part(batch, self)
            if part.size > 0:
                self._held.append(part)
            self._fetched += part.size
            have += part.size
        return True

    def held(self, n: int) -> list[Part]:
        """Returns the first n held items. REQUIRES: they are held."""
        taken: list[Part] = []
        for i, part in enumerate(self._held):
            if n == 0:
                break
            if part.size > n:
                self._held[i : i + 1] = part.split(n)
                part = self._held[i]
            taken.append(part)
            n -= part.size
        return taken

    def drop(self, n: int) -> None:
        """Forgets the first n held items, as held() returned them."""
        while n > 0:
            n -= self._held.pop(0).size


class _ClientSource(Source):
    fetch_rank = 2

    def __init__(
        self, name: str, client: Any, table: str, most: int, timeout: float | None, exact: bool, pad: bool
    ) -> None:
        super().__init__(name)
        self._batches = client.sample_batches(table, most, timeout=timeout, exact=exact, pad=pad)

    def _more(self, n: int) -> Any:
        try:
            return self._batches.take(n)
        except StopIteration:
            return None

    def close(self) -> None:
        self._batches.close()


class _ReaderSource(Source):
    def __init__(self, name: str, reader: checkpoints.Reader[Any], repeat: bool, pad: bool) -> None:
        super().__init__(name)
        if len(reader.tables) != 1:
            known = ", ".join(repr(table) for table in reader.tables)
            raise ValueError(f"{name} reads the tables {known or '(none)'}; a source of mix() reads one")
        self._reader = reader
        self._repeat = repeat
        self._pad = pad
        self._pass = 0
        self._take = reader._take(0, pad)

    def _more(self, n: int) -> Any:
        batch = self._take(n)
        if batch is None and self._repeat:
            self._pass += 1
            self._take = self._reader._take(self._pass, self._pad)
            batch = self._take(n)
            if batch is None:
                raise ValueError(f"{self} is empty; there is nothing to repeat")
        return batch


class _IterableSource(Source):
    owns_arrays = False

    def __init__(self, name: str, iterable: Iterable[Any], repeat: bool) -> None:
        super().__init__(name)
        self._iterable = iterable
        self._iterator = iter(iterable)
        self._repeats = repeat and self._iterator is not iterable
        self.fetch_rank = 1 if self._iterator is iterable else 0
        self._fetched_before = 0  # items before the current pass

    def _more(self, n: int) -> Any:
        del n
        while True:
            try:
                return next(self._iterator)
            except StopIteration:
                if not self._repeats:
                    return None
            if self._fetched == self._fetched_before:
                raise ValueError(f"{self} is empty; there is nothing to repeat")
            self._fetched_before = self._fetched
            self._iterator = iter(self._iterable)


def make_source(
    number: int, source: Any, table: str | None, most: int, repeat: bool, timeout: float | None, exact: bool, pad: bool
) -> Source:
    """Returns the source at that position. TypeError if it is none; ValueError for a client without a table."""
    own_table = table
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], _core.Client):
        source, own_table = source
    if isinstance(source, _core.Client):
        if not isinstance(own_table, str):
            raise ValueError(
                f"source {number}, {source!r}, needs a table: give table=, or (client, table) as the source"
            )
        name = f"source {number} (table {own_table!r} of {source.server_address})"
        return _ClientSource(name, source, own_table, most, timeout, exact, pad)
    if isinstance(source, checkpoints.Reader):
        return _ReaderSource(f"source {number} ({', '.join(source.tables)} of {source.path})", source, repeat, pad)
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, Mapping)):
        return _IterableSource(f"source {number} (a {type(source).__name__})", source, repeat)
    raise TypeError(
        f"source {number} is a {type(source).__name__}; it must be a Client, a reader from reverb.checkpoints.read(), "
        "or an iterable of batches"
    )
