"""Writes the Python reference from the docstrings of the imported package."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
import textwrap
import types

# Page, title, what it begins with, and what it describes: a module with what it defines, `module:` for its docstring
# alone, or `module:name`.
PAGES: list[tuple[str, str, str, list[str]]] = [
    ("server", "Server, Table", "", ["reverb:Server", "reverb:Table"]),
    ("client", "Client", "", ["reverb:Client", "reverb._core:SampleIterator"]),
    (
        "writers",
        "Writers",
        "Made by a `Client`: `trajectory_writer()`, `vector_writer()`, `structured_writer()`, `writer()`.",
        [
            "reverb:TrajectoryWriter",
            "reverb:TrajectoryColumn",
            "reverb._core:ColumnHistory",
            "reverb:VectorWriter",
            "reverb._core:StructuredWriter",
            "reverb:Writer",
        ],
    ),
    ("recorders", "reverb.recorders", "What turns the steps of environments into items.", ["reverb.recorders"]),
    (
        "structured",
        "reverb.structured",
        "Patterns and conditions for structured writers.",
        ["reverb.structured_writer"],
    ),
    (
        "selectors",
        "reverb.selectors",
        "What picks an item: for handing out, and for eviction.",
        ["reverb.item_selectors:"],
    ),
    ("rate_limiters", "reverb.rate_limiters", "", ["reverb.rate_limiters"]),
    (
        "values",
        "Samples, information, specs, errors",
        "",
        [
            "reverb:ReplaySample",
            "reverb:SampleInfo",
            "reverb:importance_weights",
            "reverb.reverb_types:TableInfo",
            "reverb:TensorSpec",
            "reverb:BoundedTensorSpec",
            "reverb.errors",
        ],
    ),
    ("checkpointers", "reverb.checkpointers", "", ["reverb.checkpointers"]),
    (
        "data",
        "reverb.checkpoints, reverb.mix, reverb.formats",
        "",
        ["reverb.checkpoints", "reverb:mix", "reverb:MixedBatch", "reverb.formats:", "reverb.formats"],
    ),
    (
        "integrations",
        "reverb.integrations",
        "",
        ["reverb.integrations.queue", "reverb.integrations.kv"],  # nemo_rl needs PyTorch
    ),
]


def write(folder: pathlib.Path) -> list[tuple[str, str]]:
    """Writes the pages and returns the title and file of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, title, opening, things in [*PAGES, ("more", "Other names", "", _others())]:
        parts = [f"# {title}", "", "<!-- Made from docstrings by tools/docs. -->", ""]
        if opening:
            parts += [opening, ""]
        for thing in things:
            module_name, _, member = thing.partition(":")
            module = importlib.import_module(module_name)
            if member:
                parts += _describe(member, getattr(module, member))
            elif thing.endswith(":"):
                parts += [_prose(inspect.getdoc(module) or ""), ""]
            else:
                parts += _module(module)
        (folder / f"{name}.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
        written.append((title, f"{name}.md"))
    return written


def _others() -> list[str]:
    """Returns the exported names that no page of the list above describes."""
    package = importlib.import_module("reverb")
    described = {thing.partition(":")[2] for *_, things in PAGES for thing in things}
    return [
        f"reverb:{name}"
        for name in package.__all__
        if name not in described
        and not inspect.ismodule(thing := getattr(package, name))
        and callable(thing)
        and thing.__module__ != "reverb.errors"
    ]


def _module(module: types.ModuleType) -> list[str]:
    parts = [_prose(inspect.getdoc(module) or ""), ""]
    for name in getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]:
        thing = getattr(module, name)
        is_ours = getattr(thing, "__module__", "").startswith(module.__name__)
        if is_ours and (inspect.isclass(thing) or inspect.isfunction(thing)):
            parts += _describe(name, thing)
    return parts


def _describe(name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        return _class(name, thing)
    return [f"## {name}", "", *_signature(name, thing), _prose(_doc(thing)), ""]


def _class(name: str, kind: type) -> list[str]:
    parts = [f"## {name}", ""]
    made_here = kind.__dict__.get("__init__")
    if inspect.isfunction(made_here):
        parts += _signature(name, made_here)
    parts += [_prose(_doc(kind)), ""]
    if inspect.isfunction(made_here) and made_here.__doc__ and not made_here.__doc__.startswith("As "):
        parts += [_prose(_doc(made_here)), ""]
    seen = set()
    for owner in kind.__mro__:
        if owner is object or not owner.__module__.startswith("reverb") or owner.__module__ == "reverb._compat.message":
            continue
        for member, value in vars(owner).items():
            if member.startswith("_") or member in seen:
                continue
            seen.add(member)
            if not (doc := _member_doc(kind, member, value)):
                continue
            parts += [f"### {name}.{member}", ""]
            if not isinstance(value, property):
                parts += _signature(member, getattr(kind, member))
            parts += [_prose(doc), ""]
    return parts


def _member_doc(kind: type, member: str, value: object) -> str:
    if isinstance(value, (property, staticmethod, classmethod)) or callable(value):
        return _doc(getattr(kind, member) if not isinstance(value, property) else value)
    return ""


def _doc(thing: object) -> str:
    """Returns a docstring without the signature line of native functions."""
    doc = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    first, _, rest = doc.partition("\n")
    return rest.strip() if re.match(r"\w+\(.*\)( -> .*)?$", first) else doc


def _signature(name: str, thing: object) -> list[str]:
    native = getattr(thing, "__doc__", None) or ""
    first = native.partition("\n")[0]
    if re.match(r"\w+\(self.*\)( -> .*)?$", first):
        text = re.sub(r"^(\w+)\(self(, )?", rf"{name}(", first).replace("object | None", "Any")
    else:
        try:
            signature = inspect.signature(thing)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return []
        kept = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
        text = name + str(signature.replace(parameters=kept)).replace("'", "")
    if len(text) > 76:
        before, _, after = text.partition("(")
        inside, _, result = after.rpartition(")")
        lines = ",\n    ".join(_split_arguments(inside))
        text = f"{before}(\n    {lines},\n){result}"
    return ["```text", text, "```", ""]


def _split_arguments(text: str) -> list[str]:
    depth, start, parts = 0, 0, []
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def _prose(doc: str) -> str:
    """Returns a docstring as Markdown: examples become blocks, Args and Raises become lists."""
    out: list[str] = []
    lines = doc.splitlines()
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith(">>>"):
            block = []
            while i < len(lines) and lines[i].strip():
                block.append(lines[i])
                i += 1
            out += ["```pycon", *block, "```", ""]
            continue
        if re.fullmatch(r"(Args|Raises|Returns|Yields|Attributes):", line.strip()):
            title = {"Args": "Arguments"}.get(line.strip()[:-1], line.strip()[:-1])
            i += 1
            body = []
            while i < len(lines) and (not lines[i].strip() or lines[i].startswith("    ")):
                body.append(lines[i])
                i += 1
            out += [f"**{title}**", "", *_entries(textwrap.dedent("\n".join(body))), ""]
            continue
        if line.startswith("    ") and (not out or out[-1] == ""):
            block = []
            while i < len(lines) and (not lines[i].strip() or lines[i].startswith("    ")):
                block.append(lines[i][4:])
                i += 1
            while block and not block[-1].strip():
                block.pop()
            out += ["```text", *block, "```", ""]
            continue
        out.append(line)
        i += 1
    return "\n".join(out).strip()


def _entries(text: str) -> list[str]:
    entries: list[str] = []
    for line in text.splitlines():
        if match := re.match(r"(\w+): (.*)", line):
            entries.append(f"- `{match.group(1)}`: {match.group(2)}")
        elif line.strip():
            entries.append(f"  {line.strip()}" if entries else line.strip())
    return entries
