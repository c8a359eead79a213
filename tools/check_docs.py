#!/usr/bin/env python3
"""Checks that every relative link in the repository's Markdown files leads to a file that exists, and
that a link to a heading finds it. Links to other sites are not followed.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
SKIPPED = {"build", ".git", ".cache", ".venv", "node_modules", "shared"}


def documents() -> list[pathlib.Path]:
    return sorted(
        path for path in ROOT.rglob("*.md") if not SKIPPED.intersection(path.relative_to(ROOT).parts)
    )


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in HEADING.findall(text))
    return {name.replace(" ", "-") for name in plain}


def check(path: pathlib.Path) -> list[str]:
    problems = []
    # Keeps the line breaks, so that line numbers stay correct.
    text = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), path.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        target = match.group(1)
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path if not name else path.parent / name
        where = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        if not file.exists():
            problems.append(f"{where}: there is no {target}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            problems.append(f"{where}: {name or path.name} has no heading #{anchor}")
    return problems


def main() -> int:
    pages = documents()
    problems = [problem for page in pages for problem in check(page)]
    for problem in problems:
        print(problem)
    print(f"{len(pages)} documents, {len(problems)} broken links")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
