"""Runs the Python blocks of the README and of docs/ as printed, page by page."""

import importlib
import json
import os
from pathlib import Path
import re
import subprocess
import sys
import textwrap

import pytest

import reverb

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks_of(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def program_of(page):
    """Returns the blocks of a page as one program, with the line numbers of the page, so that errors show where they are."""
    text = page.read_text(encoding="utf-8")
    return "".join(
        "\n" * (text.count("\n", 0, match.start(1)) - text.count("\n", 0, before)) + match.group(1)
        for before, match in zip(
            [0, *(match.end(1) for match in BLOCK.finditer(text))], BLOCK.finditer(text), strict=False
        )
    )


PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if blocks_of(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_run(page, tmp_path):
    program = program_of(page)
    if "import gymnasium" in program:
        pytest.importorskip("gymnasium")
    if re.search(r"^import (tensorflow|torch|jax)\b", program, re.MULTILINE):
        pytest.skip("make test-frameworks runs this page")
    file = tmp_path / f"{page.stem}_page.py"  # asyncio.py would hide the module
    file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", file],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_expected_pages_are_found():
    names = {page.name for page in PAGES}
    assert {"README.md", "quick_start.md", "concepts.md", "python.md", "why_does_it_wait.md", "tuning.md"} <= names
    assert {"rows.md", "integrations.md"} <= names


def test_the_recipes_page_shows_lines_of_the_programs():
    programs = [
        path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "python" / "recipes").glob("*.py")
    ]
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 7
    for block in blocks:
        indented = [textwrap.indent(block, " " * indent) for indent in (4, 8, 12)]
        assert any(lines in program for lines in indented for program in programs), block


def test_the_readme_is_short():
    """Readers start with its examples, so these must be short."""
    (python,) = blocks_of(ROOT / "README.md")
    (cpp,) = re.findall(
        r"^```cpp\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert sum(bool(line.strip()) for line in python.splitlines()) <= 15
    assert sum(bool(line.strip()) for line in cpp.splitlines()) <= 15


def test_the_pictures_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "pictures" / "make.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_the_architecture_page_names_existing_functions():
    """docs/architecture.md goes from file to file: the functions that it names exist in the files that it names."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = text[text.index("## Through the house") : text.index("## Where this differs")]
    file, checked = None, 0
    for journey in walk.split("### ")[1:]:
        assert 5 <= sum(line.startswith("| [") for line in journey.splitlines()) <= 10, journey[:40]
    for line in walk.splitlines():
        if not line.startswith("| ") or line.startswith(("| where", "| ---")):
            continue
        where = line.split(" | ")[0]
        if link := re.search(r"\]\(\.\./([^)]+)\)", where):
            file = (ROOT / link.group(1)).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+(?:::\w+)?)`", where):
            assert all(part in file for part in name.split("::")), line
            checked += 1
    assert checked > 25


def test_the_comparison_is_drawn_from_records(tmp_path):
    def record(row, figure, ours, theirs, ratio):
        return {"row": row, "title": f"title of {row}", "tables": "hot", "figure": figure, "unit": "µs",
                "ours": ours, "dm_reverb": theirs, "ratio": ratio}  # fmt: skip

    lines = [
        "a line of something else",
        json.dumps(record("quick", "p50_us", [1.0, 2.0, 3.0], [20.0, 20.0, 20.0], 10.0)),
        json.dumps(record("slow", "p50_us", [4.0], [2.0], 0.5)),
        json.dumps(record("tail", "p99_us", [4.0], [2.0], 0.5)),
        json.dumps(record("alone", "p50_us", [4.0], [], None)),
    ]
    (tmp_path / "records.json").write_text("\n".join(lines), encoding="utf-8")
    plot = [sys.executable, ROOT / "benchmarks" / "python" / "plot.py"]
    subprocess.run([*plot, tmp_path / "records.json", tmp_path / "it.svg", "--note", "a < b"], check=True, timeout=60)
    picture = (tmp_path / "it.svg").read_text(encoding="utf-8")
    assert "10.0\u00d7</tspan>  2 / 20 µs" in picture
    assert "0.5\u00d7</tspan>  4 / 2 µs" in picture
    assert "a &lt; b" in picture
    assert "title of tail" not in picture
    assert "title of alone" not in picture

    (tmp_path / "records.json").write_text(lines[-1], encoding="utf-8")
    failed = subprocess.run(
        [*plot, tmp_path / "records.json", tmp_path / "no.svg"], capture_output=True, text=True, timeout=60
    )
    assert failed.returncode == 1
    assert "no row that was measured on both sides" in failed.stderr


@pytest.fixture
def tools(monkeypatch):
    """Returns the modules in tools/docs, which create the reference pages of the site."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    return lambda name: importlib.import_module(name)


def test_the_reference_has_all_public_headers_and_what_they_define(tools, tmp_path):
    pages = tools("cpp_reference").write(ROOT / "include" / "reverb", tmp_path)
    assert len(pages) == len(list((ROOT / "include" / "reverb").glob("*.h")))
    for header in (ROOT / "include" / "reverb").glob("*.h"):
        page = (tmp_path / f"{header.stem}.md").read_text(encoding="utf-8")
        public = re.sub(
            r"namespace internal \{.*?\}  // namespace internal",
            "",
            header.read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
        for name in re.findall(r"^(?:class|struct|enum class) (?:\[\[\w+\]\] )?(\w+)[^;\n]*\{", public, re.MULTILINE):
            assert f"## {name}\n" in page, header.name
        assert "private:" not in page


def test_the_reference_has_all_that_the_package_exports(tools, tmp_path):
    tools("python_reference").write(tmp_path)
    text = "\n".join(page.read_text(encoding="utf-8") for page in tmp_path.glob("*.md"))
    for name in reverb.__all__:
        if isinstance(getattr(reverb, name), type):
            assert f"## {name}\n" in text
    assert "### Client.sample\n" in text
    assert "### TrajectoryWriter.create_item\n\n```text\ncreate_item(table: str, " in text


def test_the_site_has_no_repeated_menu_entries_and_needs_no_other_site(tools, tmp_path, monkeypatch):
    check = tools("check_site")
    monkeypatch.setattr(check.shutil, "which", lambda name: None)  # no browser
    pages = [f"page{i}.html" for i in range(20)]

    def problems(links, head='<script src="iframe-worker.js"></script>'):
        menu = "".join(f'<a href="{page}" class="md-nav__link">\n<span>About {page}</span></a>' for page in links)
        (tmp_path / "index.html").write_text(f'{head}<nav class="md-nav--primary">{menu}</nav>', encoding="utf-8")
        return check.problems(tmp_path)

    assert problems(pages) == ["search/search_index.js is not a script that defines __index"]
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.js").write_text('var __index = {"docs": []}', encoding="utf-8")
    assert problems(pages) == []
    assert problems([*pages, "page3.html"]) == [
        "the menu of the site has the name 'About page3.html' 2 times",
        "the menu of the site has the page 'page3.html' 2 times",
    ]
    (found,) = problems(pages, '<script src="iframe-worker.js"></script><script src="https://other.org/x.js"></script>')
    assert found.startswith("index.html loads something from another site")
    assert len(problems(pages, "")) == 1
    assert "at least 20" in problems(pages[:3])[0]


def test_the_guarantees_name_tests_that_exist():
    page = ROOT / "docs" / "guarantees.md"
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"))
    table, _, tests = text.partition("## Tests")
    named = dict(re.findall(r"^\| ([WSU]\d+) \| (.*) \|$", tests, re.MULTILINE))
    used = re.findall(r"\b[WSU]\d+\b", table.partition("| --- |")[2].partition("## The campaign")[0])
    assert set(used) == set(named)
    count = 0
    for label, cell in named.items():
        for part in cell.split("; "):
            link = re.match(r"\[[^]]*\]\(([^)]*)\)(.*)", part)
            if link is None:
                assert "the campaign (W2)" in part, f"{label} names no test: {part}"
                continue
            file = (page.parent / link.group(1)).read_text(encoding="utf-8")
            names = re.findall(r"`([^`]*)`", link.group(2))
            assert names, f"{label} names no test of {link.group(1)}"
            for name in names:
                pattern = rf"^def {name}\(" if name.startswith("test_") else rf"^TEST\w*\(\w+, {name}\)"
                assert re.search(pattern, file, re.MULTILINE), f"{label}: {link.group(1)} has no test {name}"
                count += 1
    assert count > 40
