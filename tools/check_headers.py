#!/usr/bin/env python3
"""Checks that every header of include/ and src/ compiles alone: that it includes what it uses.

    check_headers.py [--jobs N] [HEADER...]

A header that the source file of its name includes first compiles alone if that file compiles, which is left to the build
(libraries have no precompiled header). The others are compiled here, by $CXX or g++. All need an include guard.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src")
FLAGS = ["-std=c++20", "-fsyntax-only", "-Iinclude", "-Isrc", "-Itests", "-x", "c++", "-"]


def name_of(header: pathlib.Path) -> str:
    """Returns the header as #include names it."""
    return header.relative_to(header.parts[0]).as_posix()


def guard_problem(header: pathlib.Path) -> str:
    """Returns what is wrong with the include guard; empty if nothing is."""
    guard = "REVERB_" + re.sub(r"[/.]", "_", re.sub(r"^reverb/", "", name_of(header))).upper() + "_"
    directives = re.findall(r"^#\s*\w+.*", (ROOT / header).read_text(), re.MULTILINE)
    if [line.split("//")[0].strip() for line in directives[:2]] == [f"#ifndef {guard}", f"#define {guard}"]:
        return ""
    return f"{header}: does not begin with the include guard {guard}\n"


def is_first_of_its_source(header: pathlib.Path) -> bool:
    source = ROOT / header.with_suffix(".cc")
    if not source.exists():
        return False
    first = re.search(r'^#\s*include\s+["<]([^">]+)', source.read_text(), re.MULTILINE)
    return first is not None and first[1] == name_of(header)


def check(compiler: str, header: pathlib.Path) -> str:
    """Returns the compiler's errors for `header`; empty if there are none."""
    source = f'#include "{name_of(header)}"\n'
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
    # Named headers are compiled in any case.
    alone = arguments.headers or [header for header in headers if not is_first_of_its_source(header)]
    complaints = [text for text in map(guard_problem, headers) if text]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        complaints += [text for text in pool.map(lambda header: check(compiler, header), alone) if text]
    for text in complaints:
        print(text)
    print(f"{len(headers)} headers, {len(alone)} compiled here, {len(complaints)} problems")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
