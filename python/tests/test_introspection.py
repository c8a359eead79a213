"""Tests that inspect.signature() and help() describe every public callable, as the stubs do."""

import ast
import functools
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil
import pydoc
import re
import sys
import typing

from conftest import make_table
import pytest

import reverb
from reverb import _core, replay_sample

PACKAGE = pathlib.Path(reverb.__file__).parent
# The rest of these packages is generated, or exists for programs that import dm-reverb's modules.
MODULES = sorted(
    module.name
    for module in pkgutil.iter_modules(reverb.__path__)
    if not module.name.startswith("_")
    and module.name not in ("cc", "server_executable", "platform")
    and (module.name not in ("jax", "ray", "torch") or importlib.util.find_spec(module.name))
)


def stub_of(name):
    return ast.parse((PACKAGE / f"{name}.pyi").read_text(encoding="utf-8"))


def public_callables():
    """Returns every public function, class, method and property of reverb, with its name."""
    found = {name: getattr(reverb, name) for name in reverb.__all__}
    for module_name in MODULES:
        module = importlib.import_module(f"reverb.{module_name}")
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
        found |= {f"{module_name}.{name}": getattr(module, name) for name in names}
    for name, value in list(found.items()):
        if inspect.isclass(value) and value.__module__.startswith("reverb") and not issubclass(value, BaseException):
            for member in dir(value):
                attribute = inspect.getattr_static(value, member)
                if not member.startswith("_") and not is_inherited_from_builtin(value, member):
                    if isinstance(attribute, property):
                        found[f"{name}.{member}"] = attribute
                    elif callable(getattr(value, member)):
                        found[f"{name}.{member}"] = getattr(value, member)
    return {name: value for name, value in found.items() if isinstance(value, property) or callable(value)}


def is_inherited_from_builtin(owner, member):
    """Returns whether a class outside of reverb defines the member: dict, tuple, Message's generated ones."""
    defined_in = next(base for base in owner.__mro__ if member in vars(base))
    return not defined_in.__module__.startswith("reverb") or member in getattr(defined_in, "_fields", ())


def has_no_constructor(value):
    """Returns whether only native code makes objects of the class, or the class is an exception, made from a text."""
    return issubclass(value, BaseException) or not (
        inspect.isfunction(value.__init__) or hasattr(value.__init__, "__nb_signature__")
    )


CALLABLES = public_callables()


def inspect_finds_init():
    """Returns whether inspect.signature() finds the __init__ of a class whose __new__ is native."""
    probe = type("Probe", (), {"__new__": object.__new__, "__init__": lambda self, value: None})
    try:
        return list(inspect.signature(probe).parameters) == ["value"]
    except ValueError:  # CPython 3.10, and the first releases of 3.11, among them that of Debian 12
        return False


INSPECT_FINDS_INIT = inspect_finds_init()


def documentation(value):
    """Returns the docstring without the signature that nanobind puts before it."""
    if hasattr(value, "__nb_signature__"):
        return value.__nb_signature__[0][1]
    text = inspect.getdoc(value) or ""
    if isinstance(value, functools.partial) and text == functools.partial.__doc__:
        return ""
    return re.sub(r"\A\w*\(.*\) -> .*\n*", "", text)


def test_the_walk_finds_native_and_python_names():
    assert len(CALLABLES) > 150
    for name in ("Client.sample", "Client.sample_batches", "VectorWriter.history", "set_wait_log_after",
                 "item_selectors.MinHeap", "checkpoints.read", "TrajectoryColumn.numpy"):  # fmt: skip
        assert name in CALLABLES, name


def test_every_callable_has_a_docstring():
    assert [name for name, value in CALLABLES.items() if not (documentation(value) or "").strip()] == []


def test_every_callable_has_a_signature():
    without = []
    for name, value in CALLABLES.items():
        if isinstance(value, property) or (inspect.isclass(value) and has_no_constructor(value)):
            continue
        try:
            inspect.signature(value)
        except (TypeError, ValueError) as error:
            if INSPECT_FINDS_INIT or "builtin type" not in str(error):
                without.append(f"{name}: {error}")
    assert without == []


# --- Native functions ---


def parameters_of(node):
    """Returns the parameters of a function of a stub: (name, kind, default) each."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    kinds = [inspect.Parameter.POSITIONAL_ONLY] * len(arguments.posonlyargs)
    kinds += [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(arguments.args)
    kinds += [inspect.Parameter.KEYWORD_ONLY] * len(arguments.kwonlyargs)
    return [
        (argument.arg, kind, inspect.Parameter.empty if default is None else ast.literal_eval(default))
        for argument, kind, default in zip(
            [*positional, *arguments.kwonlyargs], kinds, [*defaults, *arguments.kw_defaults], strict=True
        )
    ]


def native_functions():
    """Yields the functions of the stub with the native ones: name, parameters in the stub, function."""
    for node in stub_of("_core").body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node, getattr(_core, node.name)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not any(
                    isinstance(each, ast.Name) and each.id == "property" for each in member.decorator_list
                ):
                    native = getattr(getattr(_core, node.name), member.name)
                    # Type slots such as __getitem__ belong to Python, and so does the name of their parameter.
                    if hasattr(native, "__nb_signature__") and member.name not in ("__eq__", "__hash__"):
                        yield f"{node.name}.{member.name}", member, native


NATIVE = [pytest.param(node, native, id=f"{name}:{node.lineno}") for name, node, native in native_functions()]


@pytest.mark.parametrize(("node", "native"), NATIVE)
def test_native_signatures_are_those_of_the_stub(node, native):
    actual = [(each.name, each.kind, each.default) for each in inspect.signature(native).parameters.values()]
    stubbed = parameters_of(node)
    if any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list):
        # An overload may require what has a default.
        assert [each[:2] for each in stubbed] == [each[:2] for each in actual]
        assert all(mine[2] in (inspect.Parameter.empty, theirs[2]) for mine, theirs in zip(stubbed, actual, strict=True))
    else:
        assert stubbed == actual


def test_bound_methods_leave_out_self(serve):
    client = serve(make_table()).localhost_client()
    assert list(inspect.signature(client.sample).parameters) == list(inspect.signature(reverb.Client.sample).parameters)[1:]
    assert inspect.signature(client.insert).bind([1.0], {"table": 1.0}, timeout=3).arguments["timeout"] == 3
    with pytest.raises(TypeError, match="missing a required argument: 'priorities'"):
        inspect.signature(client.insert).bind([1.0])


@pytest.mark.skipif(not INSPECT_FINDS_INIT, reason="inspect of this Python looks for __new__ only")
def test_signatures_of_native_classes():
    assert str(inspect.signature(reverb.selectors.Prioritized)).startswith("(priority_exponent: 'float', *, seed: ")
    assert str(inspect.signature(reverb.selectors.MaxHeap)).startswith("()")
    assert list(inspect.signature(reverb.VectorWriter).parameters)[:3] == ["client", "num_envs", "num_keep_alive_refs"]


def test_help(serve):
    client = serve(make_table()).localhost_client()
    for thing in (reverb.Client, reverb.Client.sample, client.sample):
        text = pydoc.plain(pydoc.render_doc(thing))
        text = re.sub(r"\s*\|?\s+", " ", text)  # newer versions of pydoc break long signatures into lines
        assert re.search(r"sample\( ?(self, )?table: 'str', num_samples: 'int' = 1, \*, emit_timesteps: 'bool' = True,", text)
        assert re.search(r"lease=None\s?\) Returns an iterator over `num_samples` items", text)
    assert "seconds: 'float | None'" in pydoc.plain(pydoc.render_doc(reverb.set_wait_log_after))


def test_classes_that_are_generic_in_the_stub_take_a_subscript():
    natives = (_core.BatchIterator, _core.SampleIterator, _core.TrajectoryWriter, _core.VectorWriter)
    for generic in (reverb.ReplaySample, reverb.SampleInfo, *natives):
        assert typing.get_origin(generic[int]) is generic


# --- Other stubs and overloads ---


def test_the_stub_of_samples():
    classes = {node.name: node for node in stub_of("replay_sample").body if isinstance(node, ast.ClassDef)}
    assert set(classes) == {name for name, value in vars(replay_sample).items() if inspect.isclass(value)
                            and value.__module__ == "reverb.replay_sample" and not name.startswith("_")}  # fmt: skip
    for name in ("SampleInfo", "ReplaySample"):
        value = getattr(replay_sample, name)
        fields = [node.target.id for node in classes[name].body if isinstance(node, ast.AnnAssign)]
        assert tuple(fields) == value._fields
        methods = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        assert methods == {each for each in vars(value) if isinstance(vars(value)[each], classmethod)} - {"_make"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.get_overloads needs Python 3.11")
def test_overloads_have_the_parameters_of_their_function():
    overloads = typing.get_overloads(reverb.Client.sample_batches)
    assert len(overloads) == 4
    for overload in overloads:
        assert list(inspect.signature(overload).parameters) == list(
            inspect.signature(reverb.Client.sample_batches).parameters
        )
