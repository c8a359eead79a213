"""One implementation for calls that block and for coroutines.

The bridges are written as coroutines that call a client, `await result_of(rows.put(...))`. With `reverb.Rows` the calls
return when they are done, and run_now() runs the coroutine without an event loop. With `reverb.aio` they return
awaitables.
"""

from __future__ import annotations

from collections.abc import Coroutine
import inspect
from typing import Any, TypeVar

__all__ = ["result_of", "run_now"]

T = TypeVar("T")


async def result_of(call: Any) -> Any:
    """Returns the result of a call, and waits for it if it is an awaitable."""
    return await call if inspect.isawaitable(call) else call


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine whose calls all block, and returns its value."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise AssertionError("a call returned an awaitable")
