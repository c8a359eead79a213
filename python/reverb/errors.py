"""Exceptions.

Errors of the native code are built-in exceptions: ValueError for invalid arguments, RuntimeError for failures,
IndexError for exceeded memory limits, NotImplementedError. They have two additional attributes: `code`, the name of
the status ("NOT_FOUND", "UNAVAILABLE", ...), and `detail`, a word for programs ("RATE_LIMITED", "TABLE_CLOSED", ...)
or None.
"""

from __future__ import annotations

__all__ = ["DeadlineExceededError", "DecodeError", "ReverbError", "StepNotAvailableError", "StructureError"]


class ReverbError(Exception):
    """Base of Reverb's own exceptions."""

    # The name of the status and a word for programs; set for errors of the native code.
    code: str | None = None
    detail: str | None = None


class DeadlineExceededError(ReverbError):
    """A call did not finish within its timeout."""

    code = "DEADLINE_EXCEEDED"


class DecodeError(ValueError):
    """The bytes are not a message, or not a signature."""


class StructureError(ValueError, AttributeError, KeyError):
    """A step has a container where earlier ones had a value, or vice versa.

    Derives from several exceptions because existing programs catch each of them.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StepNotAvailableError(ValueError, IndexError):
    """The requested step of a writer's history does not exist."""
