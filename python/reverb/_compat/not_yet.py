"""Placeholders for the TensorFlow classes, which are not available yet."""

from __future__ import annotations

from typing import Any, NoReturn

_INSTEAD = (
    "use Client.sample(), which yields NumPy arrays, and wrap it with tf.data.Dataset.from_generator() where "
    "a dataset is needed"
)


def refuse(what: str, instead: str = _INSTEAD) -> NoReturn:
    """Raises NotImplementedError with the alternative."""
    raise NotImplementedError(f"reverb.{what} is not available in this version: {instead}")


class Unavailable:
    """Base of classes that exist for isinstance() and annotations, but cannot be instantiated yet."""

    _INSTEAD = _INSTEAD

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        refuse(cls.__name__, cls._INSTEAD)
