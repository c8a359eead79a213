#!/usr/bin/env python3
"""Checks the directions of includes: which folder may include which, and which files may use which library.

    check_includes.py               check the repository; non-zero when a rule is broken
    check_includes.py --self-test   check the checker
    check_includes.py --table       print the table

The rules are the two tables below. They allow what is used and nothing else: an entry that no file needs is an
error too, and so is a folder of code that has no entry. tests/ and benchmarks/ may include anything and are not checked.
A unit test beside the code (*_test.cc, and shared code of tests in *_testing.h) follows its folder's rules and
may also use the test libraries and tests/. A header named *_internal.h may only be included in its own folder.
"""

import argparse
import fnmatch
import pathlib
import re
import sys
import tempfile
from typing import NamedTuple

# folder -> the folders that it depends on besides itself. Nothing is inherited: a folder that is not listed may not
# be included. A folder below a listed one belongs to it unless it is listed itself.
FOLDERS = {
    "include/reverb": [],
    "src/base": ["include/reverb"],
    "src/tensor": ["src/base", "include/reverb"],
    # The disk tier: payloads of chunks in files.
    "src/storage": ["src/tensor", "src/base", "include/reverb"],
    "src/core": ["src/storage", "src/tensor", "src/base", "include/reverb"],
    "src/checkpoint": ["src/core", "src/storage", "src/tensor", "src/base", "include/reverb"],
    "src/transport": ["src/tensor", "src/base", "include/reverb"],
    "src/transport/inproc": ["src/transport", "src/base"],
    "src/transport/local": ["src/transport", "src/base", "include/reverb"],
    "src/transport/grpc": ["src/access", "src/transport", "src/base", "include/reverb"],
    # Checks the requests that transports pass on; gRPC needs its certificates.
    "src/access": ["src/transport", "src/tensor", "src/base", "include/reverb"],
    "src/service": ["src/checkpoint", "src/core", "src/transport", "src/tensor", "src/base", "include/reverb"],
    # Text and JSON of public values, for the program and the admin port.
    "src/view": ["include/reverb"],
    # HTTP: metrics, health, JSON and the page. Knows a server only as AdminSource.
    "src/admin": ["src/access", "src/view", "src/base", "include/reverb"],
    "src/client": ["src/transport", "src/tensor", "src/base", "include/reverb"],
    "src/server": [
        "src/service",
        "src/access",
        "src/transport",
        "src/transport/inproc",
        "src/transport/local",
        "src/transport/grpc",
        "src/checkpoint",
        "src/core",
        "src/storage",
        "src/base",
        "include/reverb",
    ],
    "src/api": [
        "src/server",
        "src/admin",
        "src/view",
        "src/access",
        "src/client",
        "src/checkpoint",
        "src/transport",
        "src/transport/inproc",
        "src/transport/local",
        "src/transport/grpc",
        "src/core",
        "src/tensor",
        "src/base",
        "include/reverb",
    ],
    # The workloads of `reverb bench` use the public headers only, like the program.
    "apps/reverb/bench": ["include/reverb"],
    # The JSON of the program is that of the admin port.
    "apps": ["apps/reverb/bench", "src/view", "include/reverb"],
    "python/bindings": ["include/reverb"],
    "examples": ["include/reverb"],
}

# Prefix of an include of an external library -> the files that may use it. A `*` matches `/` too. An empty list
# forbids the library.
LIBRARIES = {
    # limit_grpc.cc measures gRPC by itself, the limit that `reverb bench` compares with.
    "grpcpp/": ["src/transport/grpc/*", "apps/reverb/bench/limit_grpc.cc"],
    "grpc/": ["src/transport/grpc/*"],
    "google/protobuf/": [],
    # The distribution's, which gRPC is linked with.
    "openssl/": ["src/access/*"],
    "boost/": ["src/admin/http_server.cc"],
    "lz4": ["src/tensor/codec_*.cc"],
    "zstd": ["src/tensor/codec_*.cc"],
    "snappy": ["src/tensor/codec_*.cc"],
    "xxhash.h": ["src/tensor/*.cc"],
    "zlib.h": ["src/checkpoint/dm_reverb/tf_record_reader.cc"],
    # The static program defines the functions of Highway that it needs.
    "hwy/": ["src/core/selectors/*", "apps/reverb/highway_targets.cc"],
    "absl/container/": [
        "src/tensor/*",
        "src/core/*",
        "src/checkpoint/*",
        "src/transport/*",
        "src/service/*",
    ],
    # The locks of gRPC are Abseil's: a setting of theirs, and its test.
    "absl/synchronization/": [
        "src/transport/grpc/grpc_internal.cc",
        "src/transport/grpc/grpc_locks_test.cc",
        "apps/reverb/bench/limit_grpc.cc",
    ],
    "absl/": [],  # containers only: ThreadSanitizer does not know its mutexes, and the library has its own Status
    "nanobind/": ["python/bindings/*"],
    "Python.h": [],  # nanobind includes it
    "CLI/": ["apps/*"],
    "toml++/": ["apps/*"],
    "gtest/": [],
    "gmock/": [],
    "benchmark/": [],
}

# What a unit test beside the code may use in addition to its folder's rules.
TEST_FILES = ("*_test.cc", "*_testing.h")
TEST_LIBRARIES = ("gtest/", "gmock/")

# The checked folders, and the first parts of quoted includes that are not folders of src/.
ROOTS = ["include", "src", "apps", "python/bindings", "examples"]
INCLUDE_PATH = {"reverb": "include/reverb", "bench": "apps/reverb/bench"}

UNKNOWN_FOLDER = "tools/check_includes.py does not know this folder; add it to FOLDERS"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class Include(NamedTuple):
    line: int
    quoted: bool
    name: str


def folder_of(path: str) -> str | None:
    """Returns the entry of FOLDERS that `path` belongs to: the longest one that contains it."""
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
    """Returns the repository path of a quoted include that names a file of the repository, else None."""
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


def library_of(name: str) -> str | None:
    """Returns the entry of LIBRARIES that the include `name` belongs to: the longest prefix."""
    return max((start for start in LIBRARIES if name.startswith(start)), key=len, default=None)


def check_library(path: str, name: str) -> str | None:
    """Returns why `path` may not include the external header `name`, or None."""
    library = library_of(name)
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
    assert folder is not None  # check_tree() reports such files
    target = target_of(root, include.name) if include.quoted else None
    if target is None:
        problem = check_library(path, include.name)
        if problem is None and include.quoted and (root / path).parent.joinpath(include.name).exists():
            # Relative to the including file. Allowed in a program; the library names files from its root.
            if path.startswith(("src/", "include/")):
                full = (pathlib.PurePosixPath(path).parent / include.name).as_posix().partition("/")[2]
                return f'{path} names {include.name} relative to itself: write "{full}"'
        return problem

    if (target.startswith("tests/") or is_test(target)) and not is_test(path):
        return f"{path} may not include {include.name}: only tests depend on tests"
    if target.startswith("tests/"):
        return None
    target_folder = folder_of(target)
    if target_folder is None:
        return f"{path} includes {include.name}: {UNKNOWN_FOLDER}"
    if target_folder != folder and target_folder not in FOLDERS[folder]:
        dependencies = [short(name) for name in FOLDERS[folder]]
        return (
            f"{path} may not include {include.name}: {short(folder)} depends on "
            f"{', '.join(dependencies) if dependencies else 'the standard library'} only"
        )
    if include.name.endswith("_internal.h") and target_folder != folder:
        return f"{path} may not include {include.name}: an _internal.h header may only be included in {short(target_folder)}"
    return None


class Usage:
    """Records which entries of the tables the checked files need."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.edges: set[tuple[str, str]] = set()
        self.libraries: set[tuple[str, str]] = set()

    def add(self, root: pathlib.Path, path: str, include: Include) -> None:
        folder = folder_of(path)
        target = target_of(root, include.name) if include.quoted else None
        if target is not None:
            target_folder = folder_of(target)
            if folder and target_folder and folder != target_folder:
                self.edges.add((folder, target_folder))
            return
        if library := library_of(include.name):
            self.libraries |= {(library, pattern) for pattern in LIBRARIES[library] if fnmatch.fnmatch(path, pattern)}

    def unused(self) -> list[str]:
        """Returns a problem for each entry that no file needs."""
        problems = [
            f"{folder} is in FOLDERS and has no files; remove it" for folder in FOLDERS if folder not in self.folders
        ]
        problems += [
            f"{folder} may include {name} and no file of it does; remove {name} from its entry in FOLDERS"
            for folder, dependencies in FOLDERS.items()
            for name in dependencies
            if (folder, name) not in self.edges
        ]
        problems += [
            f"{pattern} may include {library} and no such file does; remove it from LIBRARIES"
            for library, patterns in LIBRARIES.items()
            for pattern in patterns
            if (library, pattern) not in self.libraries
        ]
        return problems


def check_tree(root: pathlib.Path) -> tuple[int, list[str], Usage]:
    """Returns the number of checked files, "file:line: problem" for each broken rule, and the entries in use."""
    problems = []
    files = 0
    usage = Usage()
    for top in ROOTS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc", ".inc"):
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            folder = folder_of(path)
            if folder is None:
                problems.append(f"{path}:1: {UNKNOWN_FOLDER} with its dependencies")
                continue
            usage.folders.add(folder)
            for include in includes_of(file.read_text(encoding="utf-8")):
                usage.add(root, path, include)
                if problem := check_include(root, path, include):
                    problems.append(f"{path}:{include.line}: {problem}")
    return files, problems, usage


def check_table() -> list[str]:
    """Returns problems of the tables themselves: unknown names and cycles."""
    problems = []
    for folder, dependencies in FOLDERS.items():
        problems += [
            f"{folder} depends on {name}, which is not in the table" for name in dependencies if name not in FOLDERS
        ]
    done: set[str] = set()

    def visit(folder: str, trail: tuple[str, ...]) -> None:
        if folder in trail:
            problems.append("a cycle: " + " -> ".join((*trail[trail.index(folder) :], folder)))
        elif folder not in done:
            for name in FOLDERS.get(folder, []):
                visit(name, (*trail, folder))
            done.add(folder)

    for folder in FOLDERS:
        visit(folder, ())
    return problems


# A file, its text, and a part of the expected problem (None: no problem is expected).
SELF_TEST = [
    ("src/tensor/a.cc", '#include "tensor/a.h"', None),
    ("src/tensor/b.cc", '#include "base/mutex.h"', None),
    ("src/tensor/c.cc", '#include "reverb/status.h"', None),
    (
        "src/tensor/d.cc",
        '#include "core/table.h"',
        "src/tensor/d.cc may not include core/table.h: tensor depends on base, ",
    ),
    ("src/tensor/e.cc", '  #  include "core/table.h"  // why', "may not include core/table.h"),
    ("src/tensor/f.cc", '// #include "core/table.h"', None),
    ("src/tensor/g.cc", '/* old:\n#include "core/table.h"\n*/', None),
    ("src/tensor/codec_lz4.cc", "#include <lz4.h>", None),
    ("src/tensor/codec_snappy.cc", '#include "snappy.h"', None),
    ("src/tensor/delta.cc", "#include <lz4hc.h>", "belongs in src/tensor/codec_*.cc only"),
    ("src/tensor/codec_zstd.h", "#include <zstd.h>", "belongs in src/tensor/codec_*.cc only"),
    ("src/tensor/h.cc", "#include <vector>", None),
    ("src/base/a.cc", '#include "tensor/shape.h"', "base depends on include/reverb only"),
    ("src/base/b.cc", '#include "absl/container/flat_hash_map.h"', "may not include absl/container/flat_hash_map.h"),
    ("src/base/c.cc", '#include "mutex.h"', 'write "base/mutex.h"'),
    ("include/reverb/a.h", '#include "base/mutex.h"', "include/reverb depends on the standard library only"),
    ("include/reverb/b.h", '#include "reverb/status.h"', None),
    ("src/core/a.cc", '#include "absl/container/flat_hash_map.h"', None),
    ("src/core/b.cc", '#include "absl/status/status.h"', "belongs in no folder only"),
    (
        "src/core/c.cc",
        "#include <grpcpp/grpcpp.h>",
        "belongs in src/transport/grpc/*, apps/reverb/bench/limit_grpc.cc only",
    ),
    ("src/core/d.cc", '#include "client/writer.h"', "core depends on storage, tensor, base, include/reverb only"),
    (
        "src/core/e.cc",
        '#include "hwy/highway.h"',
        "belongs in src/core/selectors/*, apps/reverb/highway_targets.cc only",
    ),
    ("src/core/selectors/a.cc", '#include "hwy/highway.h"', None),
    ("src/core/selectors/b.cc", '#include "core/chunk.h"', None),
    ("src/core/selectors/c.cc", '#include "core/selectors/heap_internal.h"', None),
    ("src/core/f.cc", '#include "gtest/gtest.h"', "belongs in tests only"),
    ("src/core/f_test.cc", '#include "gtest/gtest.h"', None),
    ("src/core/g_test.cc", '#include "testing/seed.h"', None),
    ("src/core/g.cc", '#include "testing/seed.h"', "only tests depend on tests"),
    ("src/core/k_testing.h", '#include "gtest/gtest.h"', None),
    ("src/core/k_test.cc", '#include "core/k_testing.h"', None),
    ("src/core/k.cc", '#include "core/k_testing.h"', "only tests depend on tests"),
    ("src/core/h_test.cc", '#include "client/writer.h"', "core depends on"),
    ("src/core/i.cc", '#include "tensor/codec_internal.h"', "may only be included in tensor"),
    (
        "src/transport/a.cc",
        '#include "transport/grpc/channel.h"',
        "transport depends on tensor, base, include/reverb only",
    ),
    ("src/transport/grpc/a.cc", "#include <grpcpp/generic/async_generic_service.h>", None),
    ("src/transport/grpc/b.cc", '#include "transport/messages.h"', None),
    ("src/transport/grpc/c.cc", '#include "core/table.h"', "transport/grpc depends on"),
    ("src/client/a.cc", '#include "core/table.h"', "client depends on transport, tensor, base, include/reverb only"),
    ("src/service/a.cc", '#include "client/writer.h"', "may not include client/writer.h"),
    ("src/server/a.cc", '#include "transport/grpc/server.h"', None),
    ("src/novel/a.cc", '#include "base/mutex.h"', "does not know this folder; add it to FOLDERS with"),
    ("src/novel/c.h", "", "does not know this folder"),
    (
        "src/core/j.cc",
        '#include "novel/b.h"',
        "src/core/j.cc includes novel/b.h: tools/check_includes.py does not know this folder",
    ),
    ("apps/main.cc", '#include "server/server.h"', "apps depends on apps/reverb/bench, view, include/reverb only"),
    ("apps/serve.cc", '#include "flags.h"', None),
    ("apps/reverb/main.cc", '#include "bench/bench.h"', None),
    ("apps/reverb/bench/a.cc", '#include "bench/b.h"', None),
    ("apps/reverb/bench/b.cc", '#include "client/sampler.h"', "apps/reverb/bench depends on include/reverb only"),
    ("apps/reverb/bench/limit_grpc.cc", "#include <grpcpp/grpcpp.h>", None),
    ("apps/reverb/bench/c.cc", "#include <CLI/CLI.hpp>", None),
    ("python/bindings/a.cc", "#include <nanobind/nanobind.h>", None),
    ("python/bindings/b.cc", '#include "client/writer.h"', "python/bindings depends on include/reverb only"),
]
# Entries of the tables that the files above use, and some that they do not use: parts of what unused() reports.
SELF_TEST_USED = [
    "src/tensor may include src/base ",
    "src/tensor may include include/reverb ",
    "src/transport/grpc may include src/transport ",
    "apps may include apps/reverb/bench ",
    "src/tensor/codec_*.cc may include lz4 ",
    "apps/reverb/bench/limit_grpc.cc may include grpcpp/ ",
    "src/base is in FOLDERS",
]
SELF_TEST_UNUSED = [
    "src/client may include src/transport and no file of it does; remove src/transport from its entry",
    "src/api may include src/client and no file of it does",
    "apps may include include/reverb and no file of it does",
    "src/checkpoint/dm_reverb/tf_record_reader.cc may include zlib.h and no such file does",
    "src/service/* may include absl/container/ and no such file does",
    "examples is in FOLDERS and has no files",
]
SELF_TEST_OTHER_FILES = ["src/base/mutex.h", "tests/testing/seed.h", "apps/flags.h", "src/novel/b.h"]


def self_test() -> int:
    problems = check_table()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in [(path, text) for path, text, _ in SELF_TEST] + [
            (path, "") for path in SELF_TEST_OTHER_FILES
        ]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n", encoding="utf-8")
        _, found, usage = check_tree(root)
        for path, text, expected in SELF_TEST:
            of_file = [problem for problem in found if problem.startswith(path + ":")]
            if expected is None and of_file:
                problems.append(f"{path}: {text}: expected no problem, got {of_file}")
            if expected is not None and not (len(of_file) == 1 and expected in of_file[0]):
                problems.append(f"{path}: {text}: expected one problem with {expected!r}, got {of_file}")
        unused = usage.unused()
        problems += [
            f"{text!r} is in use and was reported" for text in SELF_TEST_USED if any(text in line for line in unused)
        ]
        problems += [
            f"{text!r} is not in use and was not reported"
            for text in SELF_TEST_UNUSED
            if not any(text in line for line in unused)
        ]
    cases = len(SELF_TEST) + len(SELF_TEST_USED) + len(SELF_TEST_UNUSED)
    for problem in problems:
        print(f"self-test: {problem}")
    print(f"self-test: {cases} cases, {len(problems)} problems")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    parser.add_argument("--table", action="store_true", help="print the table")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if arguments.table:
        for folder, dependencies in FOLDERS.items():
            print(f"{folder:<22} {', '.join(short(name) for name in dependencies) or '(the standard library)'}")
        return 0
    files, problems, usage = check_tree(pathlib.Path(__file__).resolve().parent.parent)
    problems += check_table() + usage.unused()
    for problem in problems:
        print(problem)
    print(f"{files} files, {len(problems)} problems of includes")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
