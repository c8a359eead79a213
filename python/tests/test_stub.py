"""Tests that the stub of the extension matches the extension."""

import ast
import pathlib

import reverb
from reverb import _core

STUB = ast.parse((pathlib.Path(reverb.__file__).parent / "_core.pyi").read_text())


def names_of(body):
    names = set()
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names


def test_the_names_of_the_module():
    here = {name for name in vars(_core) if not name.startswith("__")} - {"_Memory"} | {"__version__"}
    assert names_of(STUB.body) == here


def test_the_names_of_the_classes():
    for node in STUB.body:
        if not isinstance(node, ast.ClassDef):
            continue
        native = getattr(_core, node.name)
        stubbed = names_of(node.body)
        assert {name for name in stubbed if not hasattr(native, name)} == set(), node.name
        public = {name for name in vars(native) if not name.startswith("__") and not name.startswith("@")}
        assert public - stubbed == set(), node.name


def test_everything_public_is_documented():
    undocumented = []
    for name in sorted({*reverb.__all__} - {"BoundedTensorSpec", "TensorSpec"}):
        value = getattr(reverb, name)
        if not getattr(value, "__doc__", None):
            undocumented.append(name)
        if isinstance(value, type) and value.__module__.startswith("reverb"):
            for member in dir(value):
                attribute = getattr(value, member)
                if member.startswith("_") or not (callable(attribute) or isinstance(attribute, property)):
                    continue
                if not getattr(attribute, "__doc__", None):
                    undocumented.append(f"{name}.{member}")
    assert undocumented == []
