"""The number of examples of randomised tests: few and always the same ones, or many with REVERB_TEST_LONG=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("REVERB_TEST_LONG", "0") not in ("", "0")


def bounded(max_examples: int, *, long: int | None = None, **others) -> settings:
    """Returns settings: `max_examples`; in a long run `long` (default: 20 times as many) and a random seed."""
    return settings(
        max_examples=(long or 20 * max_examples) if LONG else max_examples,
        derandomize=not LONG,
        database=None,
        deadline=None,  # other programs share the machine
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        **others,
    )
