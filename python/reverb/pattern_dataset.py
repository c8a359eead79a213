"""PatternDataset: patterns applied to a tf.data.Dataset of steps. Not available yet."""

from __future__ import annotations

from typing import Any, NoReturn

from reverb._compat import not_yet

_WRITE_INSTEAD = (
    "write the steps with Client.structured_writer() to a table of a local Server, and read the items with "
    "Client.sample()"
)


class PatternDataset(not_yet.Unavailable):
    """One element per item that the patterns create. Not available yet: see the error for what to use."""

    _INSTEAD = _WRITE_INSTEAD


def pattern_dataset_with_info(*args: Any, **kwargs: Any) -> NoReturn:
    """Not available yet: see the error for what to use."""
    not_yet.refuse("pattern_dataset.pattern_dataset_with_info", _WRITE_INSTEAD)
