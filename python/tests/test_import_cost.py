"""Tests the cost of `import reverb`, the modules it loads, and the symbols that its extension exports."""

from __future__ import annotations

import json
import shutil
import subprocess

import interpreters
import pytest

import reverb

REPORT = """
import json, sys, time
import numpy

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

modules, before, start = set(sys.modules), resident(), time.perf_counter()
import reverb
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "bytes": resident() - before,
    "threads": len(__import__("os").listdir("/proc/self/task")),
    "modules": sorted(set(sys.modules) - modules),
}))
"""

# Packages that importing this one must not load.
FOREIGN = {"absl", "attr", "google", "grpc", "jax", "jaxlib", "keras", "ml_dtypes", "portpicker", "six", "tensorflow",
           "torch", "tree", "wrapt"}  # fmt: skip


@pytest.fixture(scope="module")
def report():
    reports = [json.loads(interpreters.run(REPORT, prelude="", OMP_NUM_THREADS="1")) for _ in range(3)]
    return min(reports, key=lambda each: each["bytes"])


def test_nothing_but_numpy_and_the_standard_library(report):
    packages = {name.partition(".")[0] for name in report["modules"]}
    assert not packages & FOREIGN


def test_memory_over_numpy(report):
    print(f"import reverb: {report['seconds'] * 1e3:.0f} ms, {report['bytes'] / 2**20:.1f} MiB over NumPy")
    assert report["bytes"] <= 40 * 2**20


def test_starts_no_thread():
    counts = [
        json.loads(interpreters.run(code, prelude="", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))
        for code in (
            "import os, numpy; print(len(os.listdir('/proc/self/task')))",
            "import os, numpy, reverb; print(len(os.listdir('/proc/self/task')))",
        )
    ]
    assert counts[0] == counts[1]


def test_a_server_and_a_client_bring_in_nothing_either():
    out = interpreters.run("""
        with make_server() as server:
            for transport in ("in_process", "local", "grpc"):
                client = connect(server, transport)
                client.insert({"x": np.zeros(3)}, {"table": 1.0})
                next(client.sample("table"))
                with client.trajectory_writer(2) as writer:
                    writer.append({"x": 1})
                    writer.create_item("table", 1.0, writer.history["x"][-1:])
                client.server_info()
        print(*{name.partition(".")[0] for name in sys.modules})
        """)
    assert not set(out.split()) & FOREIGN


# --- The extension as the linker sees it ---


def _binutil(name, *arguments):
    tool = shutil.which(name)
    if tool is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout


def test_the_extension_exports_one_symbol():
    symbols = {line.split()[-1] for line in _binutil("nm", "-D", "--defined-only", reverb._core.__file__).splitlines()}
    assert {name.partition("@")[0] for name in symbols} == {"PyInit__core"}


def test_links_neither_grpc_nor_protobuf():
    dynamic = _binutil("readelf", "--dynamic", reverb._core.__file__)
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    for library in needed:
        assert not library.startswith(("libgrpc", "libgpr", "libprotobuf", "libupb", "libssl", "libcrypto", "libcares",
                                       "libpython")), library  # fmt: skip


def test_the_extension_has_no_library_path():
    dynamic = _binutil("readelf", "--dynamic", reverb._core.__file__)
    assert "(TEXTREL)" not in dynamic
    assert "RUNPATH" not in dynamic or "$ORIGIN" in dynamic  # a wheel that contains its libraries
