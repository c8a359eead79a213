"""Writes the steps of many environments, one of each in a call."""

from __future__ import annotations

from reverb import _core

__all__ = ["VectorColumn", "VectorWriter"]

VectorColumn = _core.VectorColumn
VectorWriter = _core.VectorWriter
