"""The items that the tests write: each has the number of its writer and its own, and bytes that follow from these."""

from __future__ import annotations

import numpy as np

ROWS = 2  # of an item
PAYLOAD_BYTES = 2000  # long payloads have checksums of their own; those under 1,536 bytes are covered by the message's

_NOISE = np.random.default_rng(1).integers(0, 256, PAYLOAD_BYTES, np.uint8)


def payload(writer: int, number: int) -> np.ndarray:
    """Returns the bytes of a step: every third one compresses."""
    seed = writer * 1_000_003 + number
    if number % 3 == 0:
        return np.full(PAYLOAD_BYTES, seed % 251, np.uint8)
    return np.roll(_NOISE, seed) ^ np.uint8(seed * 37 % 256)


def step(writer: int, number: int) -> dict[str, np.ndarray]:
    """Returns a step to append."""
    return {"bytes": payload(writer, number), "place": np.array([writer, number])}


def check(data: dict[str, np.ndarray]) -> tuple[int, int]:
    """Checks the rows of an item. Returns the numbers of its writer and its last step, which is the item's own."""
    place, rows = data["place"].reshape(-1, 2), data["bytes"].reshape(-1, PAYLOAD_BYTES)
    writer, last = (int(value) for value in place[-1])
    wanted = [[writer, last - back] for back in reversed(range(len(place)))]
    assert place.tolist() == wanted, f"not consecutive steps of one writer: {place.tolist()}"
    for row, (_, number) in zip(rows, wanted, strict=True):
        assert np.array_equal(row, payload(writer, number)), f"step {number} of writer {writer} has other bytes"
    return writer, last


def is_in_queue(number: int) -> bool:
    """Returns whether an item is also written to the queue."""
    return number % 4 == 0


def is_prioritized(number: int) -> bool:
    """Returns whether an item is also written to the prioritized table."""
    return number % 2 == 0
