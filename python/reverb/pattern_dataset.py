"""PatternDataset: patterns applied to a tf.data.Dataset of steps. Its place; it is not available yet."""

from __future__ import annotations

from typing import Any, NoReturn

from reverb import _not_yet

_WRITE_INSTEAD = (
    "write the steps with Client.structured_writer() to a table of a local Server, and read the items with "
    "Client.sample()"
)


class PatternDataset(_not_yet.Unavailable):
    """One element per item that the patterns make. Not available yet: see the error for what to use."""

    _INSTEAD = _WRITE_INSTEAD


def pattern_dataset_with_info(*args: Any, **kwargs: Any) -> NoReturn:
    """Not available yet: see the error for what to use."""
    _not_yet.refuse("pattern_dataset.pattern_dataset_with_info", _WRITE_INSTEAD)
