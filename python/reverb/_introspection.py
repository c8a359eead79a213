"""Signatures of the native functions, for inspect.signature() and help()."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

# nanobind's names for values of any type.
_UNTYPED = frozenset(("object", "object | None"))


def signature_of(function: Any) -> inspect.Signature:
    """Returns the signature of a native function, method or bound method, from nanobind's description of it."""
    text, _, defaults = function.__nb_signature__[0]
    # The description has "name: type = \3" for an argument with the default `defaults[3]`.
    node = ast.parse(re.sub(r"\\(\d+)", r"\1", text) + ": ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    values: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    kinds: list[Any] = [inspect.Parameter.POSITIONAL_ONLY] * len(arguments.posonlyargs)
    kinds += [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(arguments.args)
    kinds += [inspect.Parameter.KEYWORD_ONLY] * len(arguments.kwonlyargs)
    parameters = [
        inspect.Parameter(
            argument.arg,
            kind,
            default=inspect.Parameter.empty if value is None else defaults[ast.literal_eval(value)],
            annotation=_annotation(argument.annotation),
        )
        for argument, kind, value in zip(
            [*positional, *arguments.kwonlyargs], kinds, [*values, *arguments.kw_defaults], strict=True
        )
    ]
    if hasattr(function, "__self__"):
        del parameters[0]
    return inspect.Signature(parameters, return_annotation=_annotation(node.returns))


def description_of(function: Any) -> str | None:
    """Returns the docstring of a native function, without the signature that nanobind puts before it."""
    text: str | None = function.__nb_signature__[0][1]
    return text


def _annotation(node: ast.expr | None) -> Any:
    text = "object" if node is None else ast.unparse(node)
    return inspect.Parameter.empty if text in _UNTYPED else text.replace("reverb._core.", "")
