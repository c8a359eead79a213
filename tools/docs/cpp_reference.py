"""Writes the C++ reference, a page per public header: its opening comment, then every declaration with its comment."""

from __future__ import annotations

import pathlib
import re


def write(include: pathlib.Path, folder: pathlib.Path) -> list[tuple[str, str]]:
    """Writes the pages and returns the title and file of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for header in sorted(include.glob("*.h")):
        (folder / f"{header.stem}.md").write_text(page(header), encoding="utf-8")
        written.append((f"reverb/{header.name}", f"{header.stem}.md"))
    return written


def page(header: pathlib.Path) -> str:
    """Returns a header as Markdown."""
    lines = header.read_text(encoding="utf-8").splitlines()
    card = []
    for line in lines:
        if not line.startswith("//"):
            break
        card.append(line[2:].removeprefix(" "))
    title, _, opening = card[0].partition(" — ")
    parts = [f"# reverb/{title}", "", f"<!-- Generated from include/reverb/{header.name} by tools/docs. -->", ""]
    parts += [*_comment([opening[:1].upper() + opening[1:], *card[1:]]), ""]
    parts += ["```text", f'#include "reverb/{header.name}"', "```", ""]
    for name, comment, code in declarations(lines[len(card) :]):
        parts += [f"## {name}", "", *_comment(comment), "", "```cpp", *code, "```", ""]
    return "\n".join(parts).rstrip() + "\n"


def declarations(lines: list[str]) -> list[tuple[str, list[str], list[str]]]:
    """Returns the top-level declarations of namespace reverb: name, comment, code without private parts."""
    found: list[tuple[str, list[str], list[str]]] = []
    comment: list[str] = []
    inside = False
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("namespace reverb {"):
            inside = True
        elif line.startswith("}  // namespace reverb") and "internal" not in line:
            inside = False
        elif re.match(r"namespace (internal|\w+::internal) \{", line):
            while not lines[i].startswith("}  // namespace internal"):
                i += 1
            comment = []
        elif inside and line.startswith("//"):
            text = line[2:].removeprefix(" ")
            comment = [] if text.startswith("---") else [*comment, text]
        elif inside and not line.strip():
            comment = []
        elif inside and line.startswith("#"):
            comment = []
        elif inside:
            code = [line]
            while not _is_complete(code):
                i += 1
                code.append(lines[i])
            if not re.match(r"(class|struct|enum class) \w+;$", line):  # a forward declaration
                name = _name(code)
                if found and found[-1][0] == name:
                    found[-1][2].extend(["", *(f"// {text}" for text in comment), *code])
                else:
                    found.append((name, comment, _without_private(code)))
            comment = []
        i += 1
    return found


def _is_complete(code: list[str]) -> bool:
    text = re.sub(r"//.*", "", "\n".join(code))
    depth = text.count("{") - text.count("}") + text.count("(") - text.count(")")
    return depth == 0 and re.search(r"[;}]\s*$", text) is not None


def _name(code: list[str]) -> str:
    text = re.sub(r"//.*", "", " ".join(code))
    text = re.sub(r"template <[^{]*?>\s", "", text, count=1)
    if match := re.match(r"(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s+)?(\w+)", text):
        return match.group(1)
    if match := re.match(r"using (\w+) =", text):
        return match.group(1)
    if match := re.search(r"(operator\S+|\w+)\s*\(", text):
        return match.group(1)
    if match := re.search(r"(\w+)\s*=", text):
        return match.group(1)
    return text.split("(")[0].split()[-1]


def _without_private(code: list[str]) -> list[str]:
    kept, skip = [], False
    for line in code:
        if re.match(r"\s*private:", line):
            skip = True
        elif re.match(r"\s*(public|protected):|^\}", line):
            skip = False
        if not skip:
            kept.append(line)
    if len(kept) > 1 and not kept[-2].strip():
        del kept[-2]
    return kept


def _comment(lines: list[str]) -> list[str]:
    """Returns a comment as Markdown: indented parts become code blocks, stars become lists."""
    out: list[str] = []
    block: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("  ") and not re.match(r"\s+\* ", line):
            block.append(line)
            continue
        if block:
            least = min(len(text) - len(text.lstrip()) for text in block)
            out += ["", "```text", *(text[least:] for text in block), "```", ""]
            block = []
        out.append(re.sub(r"^\s+\* ", "- ", line).replace("<", "&lt;"))
    return out
