"""The native classes under dm-reverb's names. New code uses the names of `reverb`."""

from reverb._compat import pybind as _pybind
from reverb._compat.pybind import *  # noqa: F403

__all__ = _pybind.__all__
