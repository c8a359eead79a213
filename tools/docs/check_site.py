"""Finds defects of the built site that MkDocs does not report: repeated menu entries, pages that load something from
other sites, a search that does not work from files. Where Chromium is installed, it searches in it.
"""

from __future__ import annotations

import collections
import html
import pathlib
import re
import shutil
import subprocess
import tempfile

# A query, and a page that has to be among the results.
QUERY = ("importance weights", "how_to.html")


def problems(site: pathlib.Path) -> list[str]:
    """Returns a line for each defect."""
    index = (site / "index.html").read_text(encoding="utf-8")
    return [*_menu(index), *_other_sites(site), *_search_files(site, index), *_search_in_browser(site)]


def _menu(page: str) -> list[str]:
    menu = page[page.index("md-nav--primary") :]
    entries = re.findall(r'<a href="([^"#]*)" class="md-nav__link[^"]*">(.*?)</a>', menu, re.DOTALL)
    names = [" ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split()) for _, text in entries]
    if len(names) < 20:
        return [f"the menu of the site has {len(names)} entries; check_site.py expects at least 20"]
    found = []
    for kind, values in (("name", names), ("page", [href for href, _ in entries])):
        for value, count in collections.Counter(values).items():
            if count > 1:
                found.append(f"the menu of the site has the {kind} {value!r} {count} times")
    return found


def _other_sites(site: pathlib.Path) -> list[str]:
    found = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        for tag in re.findall(
            r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//[^>]*>|<link[^>]*stylesheet[^>]*//[^>]*>', text
        ):
            found.append(f"{page.relative_to(site)} loads something from another site: {tag}")
    return found


def _search_files(site: pathlib.Path, index: str) -> list[str]:
    found = []
    script = site / "search" / "search_index.js"
    if not script.exists() or not script.read_text(encoding="utf-8").startswith("var __index = {"):
        found.append("search/search_index.js is not a script that defines __index")
    if 'src="iframe-worker.js"' not in index:
        found.append("index.html does not load iframe-worker.js, which the search needs without a web server")
    return found


def _search_in_browser(site: pathlib.Path) -> list[str]:
    browser = shutil.which("chromium")
    if browser is None:
        return []
    query, page = QUERY
    url = f"{(site / 'index.html').as_uri()}?q={query.replace(' ', '+')}"
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
             "--virtual-time-budget=20000", "--dump-dom", url],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    results = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', done.stdout)
    if not any(page in result for result in results):
        count = len(results)
        return [f"a search for {query!r} from files finds {count} pages, without {page} (Chromium: {done.returncode})"]
    return []
