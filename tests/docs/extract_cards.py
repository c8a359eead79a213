"""Writes the examples in the opening comments of headers as one C++ source, a function for each header.

    extract_cards.py OUTPUT HEADER...
    extract_cards.py --self-test

An example is an indented block of the opening comment in which a line ends with a semicolon; other indented blocks are
lists, tables and formulas. The blocks of one header form one function. `#line` makes compilers report lines of the header.
card_context.h declares the names that examples use without declaring them.
"""

import pathlib
import sys

INDENT = "//   "


def blocks_of(text: str) -> list[tuple[int, list[str]]]:
    """Returns the number of the first line and the lines of each example in the opening comment of a header."""
    blocks: list[tuple[int, list[str]]] = []
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("//"):
            break
        if not line.startswith(INDENT):
            is_open = False
        elif is_open:
            blocks[-1][1].append(line.removeprefix(INDENT))
        else:
            blocks.append((number, [line.removeprefix(INDENT)]))
            is_open = True
    return [(number, lines) for number, lines in blocks if _is_code(lines)]


def _is_code(lines: list[str]) -> bool:
    return not lines[0].startswith("* ") and any(line.split("//")[0].rstrip().endswith(";") for line in lines)


def source_of(headers: dict[str, str]) -> str:
    """Returns the source for headers, given as name and text."""
    parts = [f'#include "reverb/{name}"' for name in headers]
    parts += ['#include "docs/card_context.h"', ""]
    for name, text in headers.items():
        blocks = blocks_of(text)
        if not blocks:
            continue
        parts += [f"[[maybe_unused]] static void ExampleOf_{name.removesuffix('.h')}() {{"]
        parts += ["  using namespace reverb;", "  using namespace card_context;"]
        for number, lines in blocks:
            parts += [f'#line {number} "include/reverb/{name}"', *(f"  {line}" for line in lines)]
        parts += ["}", ""]
    return "\n".join(parts)


def self_test() -> int:
    card = """// a.h — a thing.
//
//   Use(1);
//   Use(2);  // why
//
//   a   a table
//
//   * an item;
//
//   Use(3);
#ifndef A
//   Use(4);
"""
    expected = [(3, ["Use(1);", "Use(2);  // why"]), (10, ["Use(3);"])]
    source = source_of({"a.h": card, "b.h": "// b.h — no example.\n"})
    problems = []
    if blocks_of(card) != expected:
        problems.append(f"expected {expected}, got {blocks_of(card)}")
    if source.count("static void") != 1 or '#line 10 "include/reverb/a.h"\n  Use(3);\n}' not in source:
        problems.append(f"unexpected source:\n{source}")
    for problem in problems:
        print(f"self-test: {problem}")
    return 1 if problems else 0


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    output, *headers = map(pathlib.Path, sys.argv[1:])
    output.write_text(
        source_of({header.name: header.read_text(encoding="utf-8") for header in headers}), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
