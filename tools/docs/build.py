#!/usr/bin/env python3
"""Builds the site into build/docs/site: the pages of docs/, the references generated from docstrings and headers, and
the files of the repository that pages link to. `make docs` runs it in an environment with MkDocs (tools/docs.sh).

A broken link within the site or to a file is an error, and so is what check_site.py finds. Links to other sites are not
checked.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import check_site
import cpp_reference
import python_reference
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "docs"
PAGES = WORK / "pages"

# Documents outside docs/, and their names in the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".toml": "toml", ".proto": "protobuf", ".sh": "bash"}


class Site:
    """Prepares the pages of the repository for MkDocs."""

    def __init__(self) -> None:
        self.places = {ROOT / source: target for source, target in ELSEWHERE.items()}
        self.places |= {page: page.name for page in (ROOT / "docs").glob("*.md")}
        self.sources: dict[pathlib.Path, str] = {}

    def stage(self) -> None:
        for source, target in self.places.items():
            text = source.read_text(encoding="utf-8")
            (PAGES / target).write_text(self.relink(text, source, target), encoding="utf-8")
        pictures = shutil.ignore_patterns("*.py", "__pycache__")
        shutil.copytree(ROOT / "docs" / "pictures", PAGES / "pictures", ignore=pictures)
        for name in ("site.css", "iframe-worker.js"):
            shutil.copy(ROOT / "tools" / "docs" / name, PAGES / name)

    def relink(self, text: str, source: pathlib.Path, target: str) -> str:
        """Turns links between files of the repository into links between pages."""
        kept: list[str] = []

        def hide(match: re.Match[str]) -> str:
            kept.append(match.group())
            return f"\0{len(kept) - 1}\0"

        def repair(match: re.Match[str]) -> str:
            link = match.group(2)
            if re.match(r"[a-z]+:", link) or link.startswith("#"):
                return match.group()
            name, mark, anchor = link.partition("#")
            file = pathlib.Path(os.path.normpath(source.parent / name))
            return match.group(1) + self.page_of(file, target, source) + mark + anchor + match.group(3)

        text = LINK.sub(repair, CODE.sub(hide, text))
        return re.sub(r"\0(\d+)\0", lambda match: kept[int(match.group(1))], text)

    def page_of(self, file: pathlib.Path, target: str, source: pathlib.Path) -> str:
        if file in self.places:
            page = self.places[file]
        elif file.suffix == ".svg" and file.is_relative_to(ROOT / "docs"):
            page = file.relative_to(ROOT / "docs").as_posix()
        elif file == ROOT / "README.md":
            page = "index.md"
        elif file.exists():
            page = self.sources.setdefault(file, f"source/{file.relative_to(ROOT).as_posix() or 'root'}.md")
        else:
            raise SystemExit(f"{source.relative_to(ROOT)}: there is no {file.relative_to(ROOT)}")
        return os.path.relpath(PAGES / page, (PAGES / target).parent)

    def show_sources(self) -> None:
        """Writes a page for each file and folder that a page links to."""
        for file, page in self.sources.items():
            path = PAGES / page
            path.parent.mkdir(parents=True, exist_ok=True)
            name = file.relative_to(ROOT).as_posix()
            if file.is_dir():
                listed = subprocess.run(
                    ["git", "ls-files", name], cwd=ROOT, text=True, capture_output=True, check=False
                )
                body = "\n".join(["```text", listed.stdout.strip(), "```"])
            elif file.suffix == ".svg":
                shutil.copy(file, path.parent / file.name)
                body = f"![{name}]({file.name})"
            else:
                language = LANGUAGES.get(file.suffix, "text")
                body = "\n".join([f"````{language}", file.read_text(encoding="utf-8").rstrip(), "````"])
            # Not in the search, whose results should be pages; without a table of contents, which leaves room for code.
            settings = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n\n"
            path.write_text(f"{settings}# {name}\n\nA file of the repository.\n\n{body}\n", encoding="utf-8")


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    PAGES.mkdir(parents=True)
    site = Site()
    site.stage()
    site.show_sources()
    config: dict[str, Any] = yaml.safe_load((ROOT / "tools/docs/mkdocs.yml").read_text(encoding="utf-8"))
    config["docs_dir"], config["site_dir"] = str(PAGES), str(WORK / "site")
    # Pages that are reached by links, not from the menu.
    config["not_in_nav"] = "/source/**"
    listed = set(re.findall(r"[^\s:]+\.md", yaml.safe_dump(config["nav"])))
    for section in config["nav"]:
        if "Inside" in section:  # pages that the menu does not list
            section["Inside"] += sorted(set(site.places.values()) - listed)
        if "Python reference" in section:
            pages = python_reference.write(PAGES / "api/python")
            section["Python reference"] = [{title: f"api/python/{file}"} for title, file in pages]
        if "C++ reference" in section:
            pages = cpp_reference.write(ROOT / "include/reverb", PAGES / "api/cpp")
            section["C++ reference"] = [{title: f"api/cpp/{file}"} for title, file in pages]
    (WORK / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(WORK / "mkdocs.yml")], check=False
    )
    if done.returncode != 0:
        return done.returncode
    if problems := check_site.problems(WORK / "site"):
        print("\n".join(problems), file=sys.stderr)
        return 1
    count = sum(1 for _ in (WORK / "site").rglob("*.html"))
    print(f"{count} pages: build/docs/site/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
