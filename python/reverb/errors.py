"""What can go wrong.

Errors of the native code are Python's own exceptions: ValueError for what can never work, RuntimeError for what
failed this time, IndexError for what does not fit into memory bounds, NotImplementedError. They have two attributes
more: `code`, the name of the status ("NOT_FOUND", "UNAVAILABLE", ...), and `detail`, a word that programs may act
on ("RATE_LIMITED", "TABLE_CLOSED", ...) or None.
"""

from __future__ import annotations

__all__ = ["DeadlineExceededError", "ReverbError", "StepNotAvailableError", "StructureError"]


class ReverbError(Exception):
    """Base of the errors that are Reverb's own."""

    # The name of the status, and a word that programs may act on; set where an error comes from the native code.
    code: str | None = None
    detail: str | None = None


class DeadlineExceededError(ReverbError):
    """A call did not finish in the time it was given."""

    code = "DEADLINE_EXCEEDED"


class StructureError(ValueError, AttributeError, KeyError):
    """A step has a container where earlier ones had a value, or the other way round.

    It belongs to several kinds because programs have learned to expect each of them.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StepNotAvailableError(ValueError, IndexError):
    """A step of a writer's history was asked for that does not exist."""
