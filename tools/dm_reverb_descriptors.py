#!/usr/bin/env python3
"""Writes the descriptors of proto/dm_reverb that the Python package ships; --check only compares.

Needs `protoc` or the package grpcio-tools, which includes it.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto" / "dm_reverb"
TARGET = ROOT / "python" / "reverb" / "_compat" / "descriptors.binpb"


def protoc() -> list[str] | None:
    """Returns the command, or None if there is none."""
    if shutil.which("protoc"):
        return ["protoc"]
    if importlib.util.find_spec("grpc_tools"):
        return [sys.executable, "-m", "grpc_tools.protoc"]
    return None


def compile_descriptors(command: list[str]) -> bytes:
    """Returns the serialized FileDescriptorSet of all files, each after its imports."""
    files = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        subprocess.run(
            [*command, f"-I{SOURCES}", "--include_imports", f"--descriptor_set_out={out}", *files], check=True
        )
        return out.read_bytes()


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if the shipped descriptors are out of date"
    )
    check = parser.parse_args().check
    command = protoc()
    if command is None:
        print("no protoc: install protobuf-compiler or grpcio-tools", file=sys.stderr)
        return 2
    made = compile_descriptors(command)
    if not check:
        TARGET.write_bytes(made)
        return 0
    if TARGET.read_bytes() == made:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is out of date: run tools/dm_reverb_descriptors.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
