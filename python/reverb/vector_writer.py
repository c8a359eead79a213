"""Writes one step of many environments per call."""

from __future__ import annotations

from reverb import _core

__all__ = ["VectorColumn", "VectorWriter"]

VectorColumn = _core.VectorColumn
VectorWriter = _core.VectorWriter
