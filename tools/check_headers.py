#!/usr/bin/env python3
"""Checks that every header of include/ and src/ compiles alone: that it includes what it uses.

    check_headers.py [--jobs N] [HEADER...]

The compiler is $CXX, or g++.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src")
FLAGS = ["-std=c++20", "-fsyntax-only", "-Iinclude", "-Isrc", "-Itests", "-x", "c++", "-"]


def check(compiler: str, header: pathlib.Path) -> str:
    """Returns the compiler's errors for `header`; empty if there are none."""
    # Includes the header twice, so that a missing include guard is detected too.
    name = header.relative_to(header.parts[0]).as_posix()
    source = f'#include "{name}"\n#include "{name}"\n'
    run = subprocess.run([compiler, *FLAGS], input=source, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return ""
    return f"{header}: does not compile alone\n{run.stderr}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("headers", nargs="*", type=pathlib.Path, help="relative to the repository; all if none is given")
    arguments = parser.parse_args()

    headers = arguments.headers or sorted(
        path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.h")
    )
    compiler = os.environ.get("CXX") or "g++"
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        complaints = [text for text in pool.map(lambda header: check(compiler, header), headers) if text]
    for text in complaints:
        print(text)
    print(f"{len(headers)} headers, {len(complaints)} that do not compile alone")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
