"""The transports between a client and a server of the same host, for tests that run over each of them."""

from __future__ import annotations

from typing import Any

import reverb

OPTIONS: dict[str, dict[str, Any]] = {
    "in_process": {},
    "local": {"in_process": False},
    "grpc": {"in_process": False, "local": False},
}
ALL = list(OPTIONS)


def connect(server: reverb.Server, transport: str, **options: Any) -> reverb.Client:
    """Returns a client that reaches the server over this transport."""
    return reverb.Client(f"localhost:{server.port}", **OPTIONS[transport], **options)
