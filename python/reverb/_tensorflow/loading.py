"""Imports TensorFlow on first use, and derives classes from `tf.data.Dataset`."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any, TypeVar

_Function = TypeVar("_Function")

_OLDEST = (2, 15)


def tensorflow(what: str) -> Any:
    """Returns the module tensorflow. ImportError, with the remedy, if it is missing or too old for `what`."""
    try:
        module = importlib.import_module("tensorflow")
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(
            f"reverb.{what} needs TensorFlow, which is not installed in this environment: pip install tensorflow",
            name="tensorflow",
        ) from None
    version = str(getattr(module, "__version__", "0.0"))
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise ImportError(
            f"reverb.{what} needs TensorFlow {'.'.join(map(str, _OLDEST))} or later and found {version}: "
            "pip install --upgrade tensorflow",
            name="tensorflow",
        )
    return module


def unconverted(function: _Function) -> _Function:
    """Marks a function that a graph may call while it is traced: AutoGraph shall call it, and not rewrite it."""
    function.autograph_info__ = None  # type: ignore[attr-defined]
    return function


@functools.cache
def _dataset_class(cls: type[Any], base: type[Any]) -> type[Any]:
    made = type(cls.__name__, (cls, base), {"__doc__": cls.__doc__, "__module__": cls.__module__})
    made.__qualname__ = cls.__qualname__
    return made


class LazyDataset:
    """Base of the dataset classes, which exist without TensorFlow.

    An instance belongs to a class that derives from the one that was called and from `tf.data.Dataset`, so that both
    isinstance() checks succeed.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        made: Any = cls
        return object.__new__(_dataset_class(made, tensorflow(cls.__name__).data.Dataset))

    # The value of tf.data.Dataset's abstract property, and the functions that its operations refer to by name.
    _spec: Any
    _kept: tuple[Any, ...]

    def _become(self, variant: Any, spec: Any, kept: tuple[Any, ...]) -> None:
        """Makes this the dataset of a variant tensor. `kept` lives as long as the dataset."""
        self._spec = spec
        self._kept = kept
        super().__init__(variant)  # type: ignore[call-arg]

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> Any:
        """The types and shapes of the elements."""
        return self._spec
