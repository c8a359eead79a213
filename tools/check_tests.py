#!/usr/bin/env python3
"""Refuses tests that cannot fail, and sleeps without a reason.

    check_tests.py               check the repository; non-zero when there is a problem
    check_tests.py --self-test   check the checker

A test must assert something: itself, or in a function that it calls, directly or through others. Such functions are
found by name, in the file of the test, in the headers for tests that it includes (below tests/ and *_testing.h) and in
the modules of its folder that it imports. A test that a crash or an exception fails asserts nothing.

A call that sleeps must give its reason in a comment on the same line. A test that waits for a condition uses the
helpers (wait_until, stays_true_for; test::WaitUntil).
"""

import ast
import pathlib
import re
import sys
from typing import NamedTuple

import check_types
import checker

PYTHON_FOLDERS = [
    "python/tests",
    "python/tests_frameworks",
    "tests/browser",
    "tests/faults",
    "tests/packaging",
    "tests/program",
    "tests/scenarios",
    "tests/wheel",
    "tests/wire",
]
PYTHON_TESTS = ("test_*.py", "suite_*.py")
CPP_ROOTS = ["src", "tests"]
CPP_TESTS = "*_test.cc"
CPP_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
CPP_HELPERS = ("tests/**/*.h", "src/**/*_testing.h")

CPP_ASSERTION = re.compile(r"(EXPECT|ASSERT)_\w+|(ADD_)?FAIL(URE)?(_AT)?|RC_ASSERT")
CPP_TEST_MACROS = ("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P")
CPP_TEST_LINE = re.compile(rf"^(?:{'|'.join(CPP_TEST_MACROS)})\(", re.MULTILINE)
PYTHON_ASSERTION = re.compile(r"assert\w*|fail|raises|warns|deprecated_call")
SLEEP = re.compile(r"\b(time\.sleep|sleep_for|sleep_until|nanosleep|usleep)\(")
REASON = re.compile(r"(#|//)\s*\w+\W+\w+")


class Function(NamedTuple):
    name: str
    line: int
    asserts: bool  # in its own text
    calls: frozenset[str]
    test: str | None = None  # the name of the test, when it is one


def reaches_assertion(function: Function, helpers: dict[str, list[Function]]) -> bool:
    """Whether `function` asserts, itself or in a helper that it calls."""
    seen: set[str] = set()
    todo = [function]
    while todo:
        current = todo.pop()
        if current.asserts:
            return True
        for name in current.calls - seen:
            seen.add(name)
            todo += helpers.get(name, [])
    return False


def by_name(functions: list[Function]) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for function in functions:
        found.setdefault(function.name, []).append(function)
    return found


# --- Python ---


def called_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def python_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    asserts = False
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Assert):
            asserts = True
        elif isinstance(part, ast.Raise) and part.exc is not None:
            raised = part.exc.func if isinstance(part.exc, ast.Call) else part.exc
            asserts = asserts or called_name(raised) == "AssertionError"
        elif isinstance(part, ast.Call):
            name = called_name(part.func)
            asserts = asserts or PYTHON_ASSERTION.fullmatch(name) is not None
            names.add(name)
            # A function that is passed on: run_in_threads(4, check).
            names |= {argument.id for argument in part.args if isinstance(argument, ast.Name)}
    test = node.name if node.name.startswith("test_") else None
    return Function(node.name, node.lineno, asserts, frozenset(names), test)


def python_functions(tree: ast.Module) -> list[Function]:
    """Functions of the module and methods of its classes; a nested function is part of the one around it."""
    found = []
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        found += [python_function(part) for part in inner if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return found


def imported_modules(tree: ast.Module) -> set[str]:
    found = {"conftest"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def check_python(root: pathlib.Path, problems: list[str]) -> int:
    """Returns the number of tests."""
    count = 0
    for folder in PYTHON_FOLDERS:
        trees = {}
        for file in sorted((root / folder).glob("*.py")):
            trees[file] = ast.parse(file.read_text(encoding="utf-8"), str(file))
        functions = {file: python_functions(tree) for file, tree in trees.items()}
        modules = {file.stem: functions[file] for file in trees}
        for file, tree in trees.items():
            if not any(file.match(pattern) for pattern in PYTHON_TESTS):
                continue
            reached = functions[file] + [f for name in imported_modules(tree) for f in modules.get(name, [])]
            helpers = by_name([function for function in reached if function.test is None])
            for function in functions[file]:
                if function.test is None:
                    continue
                count += 1
                if not reaches_assertion(function, helpers):
                    problems.append(f"{file.relative_to(root)}:{function.line}: {function.test} asserts nothing")
    return count


# --- C++ ---


def cpp_functions(text: str) -> list[Function]:
    """Functions and tests that a file defines; a lambda is part of the function around it."""
    found = []
    words: list[str] = []  # since the last statement, outside of functions
    start = 1
    body: list[str] = []  # of the function being read
    depth = 0  # of braces in it; 0 outside of functions
    head: tuple[str, int, str | None] = ("", 0, None)
    # All branches of #if: some tests are skipped in one and assert in the other.
    without_directives = check_types.DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for token, line in check_types.tokens_of(without_directives):
        if depth > 0:
            depth += (token == "{") - (token == "}")
            body.append(token)
            if depth == 0:
                asserts = any(CPP_ASSERTION.fullmatch(word) for word in body)
                # A name without "(" counts too: std::thread thread(Check).
                names = frozenset(word for word in body if word[0].isalpha())
                found.append(Function(head[0], head[1], asserts, names, head[2]))
                words = []
        elif token == "{":
            if "(" in words and "namespace" not in words[:2] and check_types.type_name(words) is None:
                opening = words.index("(")
                name = words[opening - 1] if opening > 0 else ""
                test = None
                if name in CPP_TEST_MACROS:
                    test = "".join(words[opening + 1 : -1]).replace(",", ".")
                head = (name, start, test)
                depth = 1
                body = []
            else:
                words = []
        elif token in (";", "}"):
            words = []
        else:
            if not words:
                start = line
            words.append(token)
    return found


def included_headers(text: str, headers: dict[str, str]) -> set[str]:
    """The names of the headers for tests that `text` includes, also through others."""
    found: set[str] = set()
    todo = [text]
    while todo:
        new = {name for name in CPP_INCLUDE.findall(todo.pop()) if name in headers} - found
        found |= new
        todo += [headers[name] for name in new]
    return found


def check_cpp(root: pathlib.Path, problems: list[str]) -> int:
    """Returns the number of tests."""
    count = 0
    headers: dict[str, str] = {}  # by name in #include, which is relative to src or tests
    for pattern in CPP_HELPERS:
        for file in sorted(root.glob(pattern)):
            headers["/".join(file.relative_to(root).parts[1:])] = file.read_text(encoding="utf-8")
    functions_of = {name: cpp_functions(text) for name, text in headers.items()}
    for top in CPP_ROOTS:
        for file in sorted((root / top).rglob(CPP_TESTS)):
            text = file.read_text(encoding="utf-8")
            functions = cpp_functions(text)
            if len(CPP_TEST_LINE.findall(text)) != sum(function.test is not None for function in functions):
                problems.append(f"{file.relative_to(root)}:1: cannot parse the file; do braces match in every #if?")
            shared = [function for name in included_headers(text, headers) for function in functions_of[name]]
            helpers = by_name([function for function in functions + shared if function.test is None])
            for function in functions:
                if function.test is None:
                    continue
                count += 1
                if not reaches_assertion(function, helpers):
                    problems.append(f"{file.relative_to(root)}:{function.line}: {function.test} asserts nothing")
    return count


# --- Sleeps ---


def check_sleeps(root: pathlib.Path, problems: list[str]) -> None:
    files = [file for folder in PYTHON_FOLDERS for file in (root / folder).glob("*.py")]
    files += [file for file in (root / "tests").rglob("*") if file.suffix in (".h", ".cc")]
    files += [file for pattern in ("*_test.cc", "*_testing.h") for file in (root / "src").rglob(pattern)]
    for file in sorted(files):
        # Line by line: programs that tests run in another process are in string literals.
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            sleep = SLEEP.search(line)
            if sleep and not REASON.search(line, sleep.end()):
                problems.append(
                    f"{file.relative_to(root)}:{number}: sleeps without a reason; wait for a condition "
                    "(wait_until, test::WaitUntil), or give the reason in a comment on this line"
                )


def check_tree(root: pathlib.Path) -> tuple[int, list[str]]:
    """The number of tests, and "file:line: problem" for each problem."""
    problems: list[str] = []
    count = check_python(root, problems) + check_cpp(root, problems)
    check_sleeps(root, problems)
    return count, problems


# Files, and the problems expected in them, as parts of the text of each.
PYTHON_TEST = "python/tests/test_a.py"
CPP_TEST = "src/a/a_test.cc"
CHECK = "def check():\n    assert x\n"
CPP_CHECK = "inline void Check() { EXPECT_EQ(1, 1); }"
SELF_TEST: list[tuple[dict[str, str], list[str]]] = [
    ({PYTHON_TEST: "def test_a():\n    f()\n"}, [":1: test_a asserts nothing"]),
    ({PYTHON_TEST: "def test_a():\n    assert f()\n"}, []),
    ({PYTHON_TEST: "def test_a():\n    with pytest.raises(E):\n        f()\n"}, []),
    ({PYTHON_TEST: "class A:\n    def test_a(self):\n        self.b()\n    def b(self):\n        pass\n"}, ["test_a"]),
    ({PYTHON_TEST: "class TestA:\n    def test_a(self):\n        self.assertEqual(1, 1)\n"}, []),
    ({PYTHON_TEST: "def check():\n    assert x\ndef b():\n    check()\ndef test_a():\n    b()\n"}, []),
    ({PYTHON_TEST: "def check():\n    assert x\ndef test_a():\n    run(2, check)\n"}, []),
    ({PYTHON_TEST: "def check():\n    check()\ndef test_a():\n    check()\n"}, ["test_a"]),
    ({PYTHON_TEST: "import h\ndef test_a():\n    h.check()\n", "python/tests/h.py": CHECK}, []),
    ({PYTHON_TEST: "def test_a():\n    h.check()\n", "python/tests/h.py": CHECK}, ["test_a"]),
    ({PYTHON_TEST: "def test_a():\n    # assert\n    f('assert')\n"}, ["test_a"]),
    ({PYTHON_TEST: "def test_a():\n    test_b()\ndef test_b():\n    assert x\n"}, ["test_a"]),
    ({CPP_TEST: "TEST(A, B) { F(); }"}, [":1: A.B asserts nothing"]),
    ({CPP_TEST: "namespace n {\nTEST_F(A, B) {\n  EXPECT_EQ(1, 1);\n}\n}"}, []),
    ({CPP_TEST: "TEST(A, B) { if (x) { F(); } }\nTEST(A, C) { ASSERT_OK(F()); }"}, ["A.B"]),
    ({CPP_TEST: "TEST(A, B) { /* EXPECT_EQ(1, 1); */ F(\"EXPECT_EQ\"); }"}, ["A.B"]),
    ({CPP_TEST: "namespace { void Check(int x) { EXPECT_EQ(x, 1); } }\nTEST(A, B) { Check(1); }"}, []),
    ({CPP_TEST: "class T : public U { protected: void Check() const { FAIL(); } };\nTEST_P(T, B) { Check(); }"}, []),
    ({CPP_TEST: "class T { T() : a_(1) {} void Do() {} };\nTEST_F(T, B) { Do(); }"}, ["T.B"]),
    ({CPP_TEST: '#include "testing/h.h"\nTEST(A, B) { Check(); }', "tests/testing/h.h": CPP_CHECK}, []),
    ({CPP_TEST: '#include "a/a_testing.h"\nTEST(A, B) { Check(); }', "src/a/a_testing.h": CPP_CHECK}, []),
    (
        {
            CPP_TEST: '#include "testing/g.h"\nTEST(A, B) { Check(); }',
            "tests/testing/g.h": '#include "testing/h.h"',
            "tests/testing/h.h": CPP_CHECK,
        },
        [],
    ),
    ({CPP_TEST: "TEST(A, B) { Check(); }", "tests/testing/h.h": CPP_CHECK}, ["A.B"]),
    ({CPP_TEST: "TEST(A, B) {\n#if X\n  GTEST_SKIP();\n#else\n  EXPECT_TRUE(x);\n#endif\n}"}, []),
    ({CPP_TEST: "TEST(A, B) {\n#if X\n  if (x) {\n#else\n  if (y) {\n#endif\n  F(); }\n}"}, ["cannot parse"]),
    ({PYTHON_TEST: "time.sleep(1)\n"}, [":1: sleeps without a reason"]),
    ({PYTHON_TEST: "time.sleep(1)  # simulates work\n"}, []),
    ({PYTHON_TEST: "x = '''\ntime.sleep(1)\n'''\n"}, [":2: sleeps"]),
    ({CPP_TEST: "void F() {\n  std::this_thread::sleep_for(5ms);\n}"}, [":2: sleeps"]),
    ({CPP_TEST: "void F() { std::this_thread::sleep_for(5ms); }  // simulates work"}, []),
    ({"tests/a/process.cc": "void F() { sleep_for(5ms); }  //"}, ["sleeps"]),
]


def self_test() -> int:
    failures = []
    for files, expected in SELF_TEST:
        found = checker.check_files(check_tree, files)
        if len(found) != len(expected) or any(part not in problem for part, problem in zip(expected, found)):
            failures.append(f"{files}: expected {expected}, got {found}")
    return checker.report_self_test(len(SELF_TEST), failures)


if __name__ == "__main__":
    sys.exit(checker.main(__doc__, check_tree, self_test, "tests", "problems"))
