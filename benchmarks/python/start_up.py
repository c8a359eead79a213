"""What it costs to begin: the time to import the package, and the memory after the first insert and sample.

Run in a fresh process. The server is in the same process, so its memory is counted too.
"""

from __future__ import annotations

import json
import pathlib
import time


def resident_megabytes() -> float:
    """Of this process, as the kernel counts it."""
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


began = time.perf_counter()
import reverb  # noqa: E402

imported = time.perf_counter() - began

import numpy as np  # noqa: E402

server = reverb.Server([reverb.Table.queue("queue", 10)])
client = reverb.Client(f"localhost:{server.port}")
client.insert({"x": np.zeros(100, np.float32)}, {"queue": 1.0})
next(client.sample("queue"))
print(json.dumps({"import_s": imported, "resident_mb": resident_megabytes()}))
server.stop()
