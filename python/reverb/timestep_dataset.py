"""TimestepDataset: the steps of sampled items as a tf.data.Dataset. Not available yet."""

from __future__ import annotations

from typing import Any, NoReturn

from reverb._compat import not_yet


class TimestepDataset(not_yet.Unavailable):
    """One element per step of a sampled item. Not available yet: see the error for what to use."""

    @classmethod
    def from_table_signature(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Not available yet: see the error for what to use."""
        not_yet.refuse(f"{cls.__name__}.from_table_signature", cls._INSTEAD)
