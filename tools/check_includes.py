#!/usr/bin/env python3
"""Holds the direction of the house: which folder may include which, and which library shows up where.

    check_includes.py               check the repository; non-zero when a rule is broken
    check_includes.py --self-test   check the checker
    check_includes.py --table       print the table

The rules are the two tables below. tests/ and benchmarks/ may include anything and are not looked at, save
for benchmarks/e2e, which is part of a program.
A unit test beside the code (*_test.cc, and what tests share in *_testing.h) keeps its folder's rules and
may use the test libraries and tests/ besides. A header named *_internal.h stays inside its folder.
"""

import argparse
import fnmatch
import pathlib
import re
import sys
import tempfile
from typing import NamedTuple

# folder -> what it leans on besides itself. Nothing is inherited: what is not listed may not be
# included. A folder below a listed one belongs to it unless it is listed itself.
FOLDERS = {
    "include/reverb": [],
    "src/base": ["include/reverb"],
    "src/tensor": ["src/base", "include/reverb"],
    "src/core": ["src/tensor", "src/base", "include/reverb"],
    "src/checkpoint": ["src/core", "src/tensor", "src/base", "include/reverb"],
    "src/transport": ["src/tensor", "src/base", "include/reverb"],
    "src/transport/inproc": ["src/transport", "src/base", "include/reverb"],
    "src/transport/grpc": ["src/transport", "src/base", "include/reverb"],
    "src/service": ["src/checkpoint", "src/core", "src/transport", "src/tensor", "src/base", "include/reverb"],
    "src/client": ["src/transport", "src/tensor", "src/base", "include/reverb"],
    "src/server": [
        "src/service",
        "src/transport",
        "src/transport/inproc",
        "src/transport/grpc",
        "src/checkpoint",
        "src/core",
        "src/tensor",
        "src/base",
        "include/reverb",
    ],
    "src/api": [
        "src/server",
        "src/service",
        "src/client",
        "src/checkpoint",
        "src/transport",
        "src/transport/inproc",
        "src/transport/grpc",
        "src/core",
        "src/tensor",
        "src/base",
        "include/reverb",
    ],
    # What `reverb bench` does: a user of the public headers like any other.
    "benchmarks/e2e": ["include/reverb"],
    "apps": ["benchmarks/e2e", "src/server", "src/client", "include/reverb"],
    "python/bindings": ["include/reverb"],
    "examples": ["include/reverb"],
}

# How an include of an outside library begins -> the files that may have it. A `*` matches `/` too.
LIBRARIES = {
    # The benchmark's limit is gRPC with nothing behind it.
    "grpcpp/": ["src/transport/grpc/*", "benchmarks/e2e/limit_grpc.cc"],
    "grpc/": ["src/transport/grpc/*"],
    "google/protobuf/": [],
    "lz4": ["src/tensor/codec_*.cc"],
    "zstd": ["src/tensor/codec_*.cc"],
    "snappy": ["src/tensor/codec_*.cc"],
    "xxhash.h": ["src/tensor/*.cc"],
    "zlib.h": ["src/checkpoint/dm_reverb/tf_record_reader.cc"],
    # The static program has what it needs of Highway itself.
    "hwy/": ["src/core/selectors/*", "apps/reverb/highway_targets.cc"],
    "absl/container/": [
        "src/tensor/*",
        "src/core/*",
        "src/checkpoint/*",
        "src/transport/*",
        "src/service/*",
        "src/client/*",
        "src/server/*",
    ],
    "absl/": [],  # containers only: its mutexes and time are not for ThreadSanitizer, its Status is not ours
    "nanobind/": ["python/bindings/*"],
    "Python.h": ["python/bindings/*"],
    "CLI/": ["apps/*"],
    "toml++/": ["apps/*"],
    "gtest/": [],
    "gmock/": [],
    "benchmark/": [],
}

# What a unit test beside the code may use on top of its folder's rules.
TEST_FILES = ("*_test.cc", "*_testing.h")
TEST_LIBRARIES = ("gtest/", "gmock/")

# Where the checked files lie, and from where their quoted includes are named.
ROOTS = ["include", "src", "apps", "benchmarks/e2e", "python/bindings", "examples"]
INCLUDE_PATH = {"reverb": "include/reverb"}  # every folder of src/ is added under its own name

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class Include(NamedTuple):
    line: int
    quoted: bool
    name: str


def folder_of(path: str) -> str | None:
    """The entry of FOLDERS that `path` belongs to: the longest one that holds it."""
    holders = [folder for folder in FOLDERS if path.startswith(folder + "/")]
    return max(holders, key=len, default=None)


def is_test(path: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in TEST_FILES)


def short(folder: str) -> str:
    return folder.removeprefix("src/")


def includes_of(text: str) -> list[Include]:
    # Comments between /* and */ are blanked, line breaks kept.
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.DOTALL)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            found.append(Include(number, match.group(1) == '"', match.group(2)))
    return found


def target_of(root: pathlib.Path, name: str) -> str | None:
    """The repository path of a quoted include that names one of our own files, else None."""
    first = name.split("/")[0]
    if first in INCLUDE_PATH and "/" in name:
        return f"{INCLUDE_PATH[first]}/{name.partition('/')[2]}"
    if "/" in name and (f"src/{first}" in FOLDERS or (root / "src" / first).is_dir()):
        return f"src/{name}"
    if name.startswith("benchmarks/"):
        return name
    if "/" in name and (root / "tests" / name).exists():
        return f"tests/{name}"
    return None


def check_library(path: str, name: str) -> str | None:
    """What is wrong with `path` including the outside header `name`, or None."""
    library = max((start for start in LIBRARIES if name.startswith(start)), key=len, default=None)
    if library is None:
        return None
    if library in TEST_LIBRARIES and is_test(path):
        return None
    allowed = LIBRARIES[library]
    if any(fnmatch.fnmatch(path, pattern) for pattern in allowed):
        return None
    place = ", ".join(allowed) if allowed else "tests" if library in (*TEST_LIBRARIES, "benchmark/") else "no folder"
    return f"{path} may not include {name}: it belongs in {place} only"


def check_include(root: pathlib.Path, path: str, include: Include) -> str | None:
    folder = folder_of(path)
    if folder is None:
        return f"{path} lies in a folder that tools/check_includes.py does not know; add it to FOLDERS with what it leans on"
    target = target_of(root, include.name) if include.quoted else None
    if target is None:
        problem = check_library(path, include.name)
        if problem is None and include.quoted and (root / path).parent.joinpath(include.name).exists():
            # Beside the including file. Fine in a program; the library names files from its root.
            if path.startswith(("src/", "include/")):
                full = (pathlib.PurePosixPath(path).parent / include.name).as_posix().partition("/")[2]
                return f'{path} names {include.name} relative to itself: write "{full}"'
        return problem

    if (target.startswith("tests/") or is_test(target)) and not is_test(path):
        return f"{path} may not include {include.name}: nothing but tests leans on tests"
    if target.startswith("tests/"):
        return None
    target_folder = folder_of(target)
    if target_folder is None:
        return f"{path} includes {include.name}, of a folder that tools/check_includes.py does not know; add it to FOLDERS"
    if target_folder != folder and target_folder not in FOLDERS[folder]:
        leans = [short(name) for name in FOLDERS[folder]]
        return (
            f"{path} may not include {include.name}: {short(folder)} leans on "
            f"{', '.join(leans) if leans else 'the standard library'} only"
        )
    if include.name.endswith("_internal.h") and target_folder != folder:
        return f"{path} may not include {include.name}: an _internal.h header stays inside {short(target_folder)}"
    return None


def check_tree(root: pathlib.Path) -> tuple[int, list[str]]:
    """The number of files looked at, and "file:line: problem" for each broken rule."""
    problems = []
    files = 0
    for top in ROOTS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc", ".inc"):
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            for include in includes_of(file.read_text(encoding="utf-8")):
                if problem := check_include(root, path, include):
                    problems.append(f"{path}:{include.line}: {problem}")
    return files, problems


def check_table() -> list[str]:
    """Problems of the tables themselves: names that are not there, and circles."""
    problems = []
    for folder, leans in FOLDERS.items():
        problems += [f"{folder} leans on {name}, which is not in the table" for name in leans if name not in FOLDERS]
    done: set[str] = set()

    def visit(folder: str, trail: tuple[str, ...]) -> None:
        if folder in trail:
            problems.append("a circle: " + " -> ".join((*trail[trail.index(folder) :], folder)))
        elif folder not in done:
            for name in FOLDERS.get(folder, []):
                visit(name, (*trail, folder))
            done.add(folder)

    for folder in FOLDERS:
        visit(folder, ())
    return problems


# file, its one line, and a part of the problem that must be reported (None: there must be none).
SELF_TEST = [
    ("src/tensor/a.cc", '#include "tensor/a.h"', None),
    ("src/tensor/b.cc", '#include "base/mutex.h"', None),
    ("src/tensor/c.cc", '#include "reverb/status.h"', None),
    ("src/tensor/d.cc", '#include "core/table.h"', "src/tensor/d.cc may not include core/table.h: tensor leans on base, "),
    ("src/tensor/e.cc", '  #  include "core/table.h"  // why', "may not include core/table.h"),
    ("src/tensor/f.cc", '// #include "core/table.h"', None),
    ("src/tensor/g.cc", '/* old:\n#include "core/table.h"\n*/', None),
    ("src/tensor/codec_lz4.cc", "#include <lz4.h>", None),
    ("src/tensor/codec_snappy.cc", '#include "snappy.h"', None),
    ("src/tensor/delta.cc", "#include <lz4hc.h>", "belongs in src/tensor/codec_*.cc only"),
    ("src/tensor/codec_zstd.h", "#include <zstd.h>", "belongs in src/tensor/codec_*.cc only"),
    ("src/tensor/h.cc", "#include <vector>", None),
    ("src/base/a.cc", '#include "tensor/shape.h"', "base leans on include/reverb only"),
    ("src/base/b.cc", '#include "absl/container/flat_hash_map.h"', "may not include absl/container/flat_hash_map.h"),
    ("src/base/c.cc", '#include "mutex.h"', 'write "base/mutex.h"'),
    ("include/reverb/a.h", '#include "base/mutex.h"', "include/reverb leans on the standard library only"),
    ("include/reverb/b.h", '#include "reverb/status.h"', None),
    ("src/core/a.cc", '#include "absl/container/flat_hash_map.h"', None),
    ("src/core/b.cc", '#include "absl/synchronization/mutex.h"', "belongs in no folder only"),
    ("src/core/c.cc", "#include <grpcpp/grpcpp.h>", "belongs in src/transport/grpc/*, benchmarks/e2e/limit_grpc.cc only"),
    ("src/core/d.cc", '#include "client/writer.h"', "core leans on tensor, base, include/reverb only"),
    ("src/core/e.cc", '#include "hwy/highway.h"', "belongs in src/core/selectors/*, apps/reverb/highway_targets.cc only"),
    ("src/core/selectors/a.cc", '#include "hwy/highway.h"', None),
    ("src/core/selectors/b.cc", '#include "core/chunk.h"', None),
    ("src/core/selectors/c.cc", '#include "core/selectors/heap_internal.h"', None),
    ("src/core/f.cc", '#include "gtest/gtest.h"', "belongs in tests only"),
    ("src/core/f_test.cc", '#include "gtest/gtest.h"', None),
    ("src/core/g_test.cc", '#include "testing/seed.h"', None),
    ("src/core/g.cc", '#include "testing/seed.h"', "nothing but tests leans on tests"),
    ("src/core/k_testing.h", '#include "gtest/gtest.h"', None),
    ("src/core/k_test.cc", '#include "core/k_testing.h"', None),
    ("src/core/k.cc", '#include "core/k_testing.h"', "nothing but tests leans on tests"),
    ("src/core/h_test.cc", '#include "client/writer.h"', "core leans on"),
    ("src/core/i.cc", '#include "tensor/codec_internal.h"', "stays inside tensor"),
    ("src/transport/a.cc", '#include "transport/grpc/channel.h"', "transport leans on tensor, base, include/reverb only"),
    ("src/transport/grpc/a.cc", "#include <grpcpp/generic/async_generic_service.h>", None),
    ("src/transport/grpc/b.cc", '#include "transport/messages.h"', None),
    ("src/transport/grpc/c.cc", '#include "core/table.h"', "transport/grpc leans on"),
    ("src/client/a.cc", '#include "core/table.h"', "client leans on transport, tensor, base, include/reverb only"),
    ("src/service/a.cc", '#include "client/writer.h"', "may not include client/writer.h"),
    ("src/server/a.cc", '#include "transport/grpc/server.h"', None),
    ("src/novel/a.cc", '#include "base/mutex.h"', "does not know; add it to FOLDERS"),
    ("src/core/j.cc", '#include "novel/b.h"', "of a folder that tools/check_includes.py does not know"),
    ("apps/main.cc", '#include "server/server.h"', None),
    ("apps/serve.cc", '#include "flags.h"', None),
    ("apps/info.cc", '#include "core/table.h"', "apps leans on benchmarks/e2e, server, client, include/reverb only"),
    ("apps/reverb/main.cc", '#include "benchmarks/e2e/bench.h"', None),
    ("apps/reverb/other.cc", '#include "benchmarks/reference/flat_table.h"', "does not know; add it to FOLDERS"),
    ("benchmarks/e2e/a.cc", '#include "benchmarks/e2e/b.h"', None),
    ("benchmarks/e2e/b.cc", '#include "client/writer.h"', "benchmarks/e2e leans on include/reverb only"),
    ("python/bindings/a.cc", "#include <nanobind/nanobind.h>", None),
    ("python/bindings/b.cc", '#include "client/writer.h"', "python/bindings leans on include/reverb only"),
]
SELF_TEST_OTHER_FILES = ["src/base/mutex.h", "tests/testing/seed.h", "apps/flags.h", "src/novel/b.h"]


def self_test() -> int:
    problems = check_table()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in [(path, text) for path, text, _ in SELF_TEST] + [(path, "") for path in SELF_TEST_OTHER_FILES]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n", encoding="utf-8")
        _, found = check_tree(root)
        for path, text, expected in SELF_TEST:
            of_file = [problem for problem in found if problem.startswith(path + ":")]
            if expected is None and of_file:
                problems.append(f"{path}: {text}: expected no problem, got {of_file}")
            if expected is not None and not (len(of_file) == 1 and expected in of_file[0]):
                problems.append(f"{path}: {text}: expected one problem with {expected!r}, got {of_file}")
    for problem in problems:
        print(f"self-test: {problem}")
    print(f"self-test: {len(SELF_TEST)} cases, {len(problems)} problems")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    parser.add_argument("--table", action="store_true", help="print the table")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if arguments.table:
        for folder, leans in FOLDERS.items():
            print(f"{folder:<22} {', '.join(short(name) for name in leans) or '(the standard library)'}")
        return 0
    files, problems = check_tree(pathlib.Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem)
    print(f"{files} files, {len(problems)} includes against the rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
