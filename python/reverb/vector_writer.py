"""Writes one step of many environments per call."""

from __future__ import annotations

from reverb import _core

__all__ = ["VectorColumn", "VectorColumnHistory", "VectorWriter"]

VectorColumn = _core.VectorColumn
VectorColumnHistory = _core.VectorColumnHistory
VectorWriter = _core.VectorWriter
