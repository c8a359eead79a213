"""Shows the progress of work that takes long: a bar if tqdm is installed and there is a terminal, else log lines."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import time
from typing import Any

__all__ = ["Progress"]

# Work that ends sooner shows nothing.
_QUIET_SECONDS = 1.0
_LOG_INTERVAL = 10.0


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


class Progress:
    """A callable for the extension, which calls it with the bytes that are done and their total; 0 if unknown.

    Use it in a `with` statement: leaving it removes the bar.
    """

    def __init__(self, what: str) -> None:
        """`what` names the work: "loading a checkpoint"."""
        self._what = what
        self._start = time.monotonic()
        self._logged = self._start
        self._is_quiet = True
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._is_quiet and now - self._start >= _QUIET_SECONDS:
            self._is_quiet = False
            self._bar = self._make_bar(total)
        if self._bar is not None:  # the truth of a tqdm is about its total
            self._bar.total = total or None
            self._bar.update(done - self._bar.n)
        elif now - self._logged >= _LOG_INTERVAL:
            self._logged = now
            share = f" of {_size(total)} ({100 * done / total:.0f} %)" if total else ""
            logging.getLogger("reverb").info("%s: %s%s", self._what, _size(done), share)

    def _make_bar(self, total: int) -> Any:
        """Returns a bar, or None: without tqdm, or without a terminal."""
        if not (sys.stderr is not None and hasattr(sys.stderr, "isatty") and sys.stderr.isatty()):
            return None
        with contextlib.suppress(ImportError):
            tqdm: Any = importlib.import_module("tqdm")
            return tqdm.tqdm(desc=self._what, total=total or None, unit="B", unit_scale=True, leave=False)
        return None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
