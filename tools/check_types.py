#!/usr/bin/env python3
"""Rejects two definitions of a type with the same qualified name.

    check_types.py               check the repository; non-zero when a name is defined twice
    check_types.py --self-test   check the checker

Two classes of one name in one program violate the one-definition rule. The compiler cannot detect it if no file
includes both, and the linker keeps one copy of each inline member: both classes then share one destructor. Types in an
anonymous namespace and types local to a function are private to their file and are not compared. The .cc file of
a separate program (a test, benchmark, fuzzer or example) is compared with the library and with the headers that
tests share, but not with other such programs, with which it is never linked.
"""

import fnmatch
import pathlib
import re
import sys
from typing import NamedTuple

import checker

ROOTS = ["include", "src", "apps", "benchmarks", "python/bindings", "tests", "examples"]
SUFFIXES = (".h", ".cc", ".inc")
# Each of these files is the main file of a separate program.
PROGRAMS = ("*_test.cc", "*_bench.cc", "*_fuzz.cc", "*_main.cc", "examples/*.cc")


class Definition(NamedTuple):
    name: str
    path: str
    line: int


TOKEN = re.compile(
    r"""
    (?P<skip>//[^\n]*|/\*.*?\*/)
  | (?P<text>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>\d(?:['.]?\w)*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<mark_token>::|\[\[|\]\]|\S)
  | (?P<newline>\n)
    """,
    re.DOTALL | re.VERBOSE,
)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)(?:[^\\\n]|\\\n|\\.)*", re.MULTILINE)
KEYS = ("class", "struct", "union", "enum")
CLOSING = {"(": ")", "<": ">", "[[": "]]"}


def without_directives(text: str) -> str:
    """Blanks preprocessor lines and #else branches: with both branches, braces would not match."""
    result = []
    position = 0
    # For each open #if: whether a branch other than its first is being read.
    branches: list[bool] = []
    for match in DIRECTIVE.finditer(text):
        part = text[position : match.start()]
        result.append(re.sub(r"[^\n]", " ", part) if any(branches) else part)
        result.append(re.sub(r"[^\n]", " ", match.group()))
        position = match.end()
        if match.group(1) in ("if", "ifdef", "ifndef"):
            branches.append(False)
        elif match.group(1) in ("else", "elif") and branches:
            branches[-1] = True
        elif match.group(1) == "endif" and branches:
            branches.pop()
    return "".join(result) + text[position:]


def tokens_of(text: str) -> list[tuple[str, int]]:
    """Returns words and marks with their lines, without comments and directives; a literal becomes ""."""
    found = []
    line = 1
    for match in TOKEN.finditer(without_directives(text)):
        if match["text"] is not None:
            found.append(('""', line))
        elif match["word"] is not None or match["mark_token"] is not None:
            found.append((match.group(), line))
        line += match.group().count("\n")
    return found


def skip_group(words: list[str], begin: int) -> int:
    """Returns the index after the group that opens at `begin`: (...), <...> or [[...]]."""
    opening, closing = words[begin], CLOSING[words[begin]]
    depth = 0
    for i in range(begin, len(words)):
        depth += (words[i] == opening) - (words[i] == closing)
        if depth == 0:
            return i + 1
    return len(words)


def type_name(words: list[str]) -> str | None:
    """Returns the name of the type defined if a brace follows `words`; None if that defines no named type."""
    i = 0
    while i < len(words) and words[i] not in KEYS:
        if words[i] in ("template", "typedef", "static", "inline", "constexpr", "const", "friend", "export"):
            i += 1
        elif words[i] in CLOSING and i > 0:
            i = skip_group(words, i)
        else:
            return None
    if i == len(words):
        return None
    i += 1
    if i < len(words) and words[i - 1] == "enum" and words[i] in ("class", "struct"):
        i += 1
    while i < len(words):  # attributes, alignas(...), MACRO(...) and MACRO in front of the name
        if words[i] == "[[":
            i = skip_group(words, i)
        elif i + 1 < len(words) and words[i + 1] == "(":
            i = skip_group(words, i + 1)
        elif (
            i + 1 < len(words)
            and words[i].isupper()
            and re.match(r"[A-Za-z_]", words[i + 1])
            and words[i + 1] != "final"
        ):
            i += 1
        else:
            break
    begin = i
    while i < len(words):
        if words[i] == "<":
            i = skip_group(words, i)
        elif words[i] == "::" or (re.match(r"[A-Za-z_]", words[i]) and (i == begin or words[i - 1] == "::")):
            i += 1
        else:
            break
    name = "".join(words[begin:i])
    if not name or (i < len(words) and words[i] not in ("final", ":")):
        return None
    return name


def definitions_of(text: str, path: str) -> list[Definition]:
    """Returns the types that other files could conflict with."""
    found = []
    # For each open brace: the name that it adds to the scope, "" for none, None if its contents are ignored.
    scopes: list[str | None] = []
    words: list[str] = []
    start = 1
    for token, line in tokens_of(text):
        if token == "{":
            is_hidden = None in scopes
            scope: str | None = None
            if not is_hidden:
                name = type_name(words)
                if "namespace" in words[:2]:
                    after = words[words.index("namespace") + 1 :]
                    scope = "".join(word for word in after if word != "inline") or None
                elif words[:1] == ["extern"] and len(words) == 2:
                    scope = ""
                elif name is not None:
                    found.append(Definition("::".join(part for part in (*scopes, name) if part), path, start))
                    scope = name
            scopes.append(scope)
            words = []
        elif token == "}":
            if scopes:
                scopes.pop()
            words = []
        elif token == ";" or (token == ":" and words[-1:] and words[-1] in ("public", "private", "protected")):
            words = []
        else:
            if not words:
                start = line
            words.append(token)
    return found


def is_program(path: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in PROGRAMS)


def check_tree(root: pathlib.Path) -> tuple[int, list[str]]:
    """Returns the number of types, and "file:line: problem" for each second definition."""
    definitions = []
    for top in ROOTS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SUFFIXES:
                path = file.relative_to(root).as_posix()
                definitions += definitions_of(file.read_text(encoding="utf-8"), path)
    problems = []
    first: dict[str, Definition] = {}  # by name
    # Shared files first, so that the types of programs are compared with all of them.
    for definition in sorted(definitions, key=lambda definition: is_program(definition.path)):
        known = first.get(definition.name)
        if known is None:
            if not is_program(definition.path):
                first[definition.name] = definition
        elif known.path != definition.path:  # twice in one file: the compiler decides
            problems.append(
                f"{definition.path}:{definition.line}: {definition.name} is also defined at {known.path}:{known.line}; "
                "rename one of them, or move one that only its file uses into an anonymous namespace"
            )
    return len(definitions), sorted(problems)


# The texts of src/a/a.h and src/b/b.cc, and the type that both define (None: no such type).
SELF_TEST = [
    ("namespace reverb { struct A { int x; }; }", "namespace reverb { class A { long y; }; }", "reverb::A"),
    (
        "namespace reverb::internal { class A final : public B { }; }",
        "namespace reverb { namespace internal { struct A {}; } }",
        "A",
    ),
    ("namespace n { enum class A : uint8_t { kOne }; }", "namespace n { enum A { kTwo }; }", "n::A"),
    ("namespace n { template <typename T> class A { }; }", "namespace n { union A { int a; }; }", "n::A"),
    ('namespace n { class CAPABILITY("mutex") A { }; }', "namespace n { struct alignas(64) A { }; }", "n::A"),
    ("namespace n { class REVERB_EXPORT A { }; }", "namespace n { struct [[nodiscard]] A { }; }", "n::A"),
    ("namespace n { class O { public: struct A { }; }; }", "namespace n { struct O::A { int x; }; }", "n::O::A"),
    (
        "namespace n { class O { void F() { if (x) { } } struct A { }; }; }",
        "namespace n { struct O::A { }; }",
        "n::O::A",
    ),
    (
        "namespace n { /* } */ struct A { }; }",
        "namespace n { const char* x = \"}\"; char y = '}'; struct A { }; }",
        "n::A",
    ),
    (
        'namespace n { auto x = R"(} " )"; struct A { }; }',
        "namespace n {\n#define X(a) { \\\n {\nstruct A { }; }",
        "n::A",
    ),
    ("#if X\nnamespace n {\n#else\nnamespace m {\n#endif\nstruct A { }; }", "namespace n { struct A { }; }", "n::A"),
    ('extern "C" { struct A { }; }', "struct A { int x; };", "A"),
    ("namespace n { int x = 1'000; struct A { }; }", "namespace n { inline namespace v { } struct A { }; }", "n::A"),
    ("namespace n { template <> struct H<A> { }; }", "namespace n { template <> struct H<A> { }; }", "n::H<A>"),
    ("// it's\nnamespace n { struct A { }; }", "namespace n { struct A { }; }  // isn't", "n::A"),
    ("namespace n { struct A { }; }", "namespace m { struct A { }; }", None),
    ("namespace n { struct A { }; }", "namespace n { namespace { struct A { }; } }", None),
    ("namespace n { struct A { }; }", "namespace n { struct A; class B { friend struct A; }; }", None),
    ("namespace n { struct A { }; }", "namespace n { void F() { struct A { }; } }", None),
    ("namespace n { struct A { }; }", "namespace n { struct A F() { return {}; } struct A x = { }; }", None),
    ("namespace n { struct A { }; }", "namespace n { class B { struct A { }; }; }", None),
    ("namespace n { template <> struct H<A> { }; }", "namespace n { template <> struct H<B> { }; }", None),
    (
        "namespace n { template <class T> void F(T t) { } }",
        "namespace n { template <class T> int F(T t, int x) { } }",
        None,
    ),
    ("// namespace n { struct A { }; }", "namespace n { struct A { }; }", None),
]
# Two files with the same type: their paths, and whether that is a problem.
SELF_TEST_PATHS = [
    ("src/a/a.h", "apps/b.h", True),
    ("src/a/a.cc", "src/b/b.cc", True),
    ("src/a/a.h", "src/b/b_test.cc", True),
    ("tests/testing/fake.h", "src/a/a_test.cc", True),
    ("src/a/a_testing.h", "src/b/b_testing.h", True),
    ("src/a/a_test.cc", "src/b/b_test.cc", False),
    ("examples/cpp/a.cc", "tests/fuzz/b_fuzz.cc", False),
]


def self_test() -> int:
    failures = []

    def check(files: dict[str, str], expected: str | None) -> None:
        found = checker.check_files(check_tree, files)
        if expected is None and found:
            failures.append(f"{files}: expected no problem, got {found}")
        if expected is not None and not (len(found) == 1 and f"{expected} is also defined at" in found[0]):
            failures.append(f"{files}: expected one problem with {expected!r}, got {found}")

    for first, second, expected in SELF_TEST:
        check({"src/a/a.h": first, "src/b/b.cc": second}, expected)
    for first, second, is_problem in SELF_TEST_PATHS:
        text = "namespace n { struct A { }; }"
        check({first: text, second: text}, "n::A" if is_problem else None)
    return checker.report_self_test(len(SELF_TEST) + len(SELF_TEST_PATHS), failures)


if __name__ == "__main__":
    sys.exit(checker.main(__doc__, check_tree, self_test, "types", "defined twice"))
