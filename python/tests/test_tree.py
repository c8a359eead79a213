"""Tests reverb._tree: nests, flattening, rebuilding; compared with dm-tree where it is installed."""

import array
import collections
import collections.abc
import dataclasses
import types
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from reverb import _tree


class Wheel(NamedTuple):
    speed: Any
    angle: Any


class Pair(collections.abc.Sequence):
    def __init__(self, values):
        self.values = list(values)

    def __getitem__(self, index):
        return self.values[index]

    def __len__(self):
        return len(self.values)


@dataclasses.dataclass
class Record:
    left: int
    right: int


INTEGERS = st.integers()


def nests(leaves=INTEGERS):
    keys = st.text("abcxyz", min_size=1, max_size=2)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=3),
            st.dictionaries(keys, inner, max_size=3).map(collections.OrderedDict),
            st.tuples(inner, inner).map(lambda pair: Wheel(*pair)),
            st.lists(inner, max_size=2).map(collections.deque),
        ),
        max_leaves=12,
    )


@pytest.mark.parametrize(
    "leaf",
    [
        None,
        3,
        2.5,
        "text",
        b"bytes",
        bytearray(b"ab"),
        {1, 2},
        frozenset(),
        np.arange(4),
        np.float32(1),
        Record(1, 2),
    ],
    ids=lambda leaf: type(leaf).__name__,
)
def test_leaves(leaf):
    assert not _tree.is_nested(leaf)
    (only,) = _tree.flatten(leaf)
    assert only is leaf
    assert _tree.flatten_with_path(leaf)[0][0] == ()


@pytest.mark.parametrize(
    ("nest", "expected"),
    [
        ({"b": 1, "a": 2}, [(("a",), 2), (("b",), 1)]),
        (types.MappingProxyType({"b": 1, "a": 2}), [(("a",), 2), (("b",), 1)]),
        (collections.OrderedDict(z=1, a=2), [(("a",), 2), (("z",), 1)]),
        (Wheel(speed=1, angle=(2, 3)), [(("speed",), 1), (("angle", 0), 2), (("angle", 1), 3)]),
        ([], []),
        ([None, [4]], [((0,), None), ((1, 0), 4)]),
        (range(5, 7), [((0,), 5), ((1,), 6)]),
        (array.array("i", [8, 9]), [((0,), 8), ((1,), 9)]),
        (memoryview(b"AB"), [((0,), 65), ((1,), 66)]),
        (collections.deque([1]), [((0,), 1)]),
        (Pair([1, {"x": 2}]), [((0,), 1), ((1, "x"), 2)]),
        ({"k": 7}.values(), [((0,), 7)]),
        ({"k": 7}.items(), [((0, 0), "k"), ((0, 1), 7)]),
        ({3: "c", 1: "a"}, [((1,), "a"), ((3,), "c")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nests(nest, expected):
    assert _tree.is_nested(nest)
    assert _tree.flatten_with_path(nest) == expected
    assert _tree.flatten(nest) == [leaf for _, leaf in expected]


def test_attrs_classes_are_nests_in_declared_order():
    attr = pytest.importorskip("attr")

    @attr.s(auto_attribs=True)
    class Robot:
        wheel: Any
        _arm: Any
        serial: int = attr.ib(default=0, kw_only=True)

    robot = Robot([1, 2], 3, serial=4)
    assert _tree.flatten_with_path(robot) == [
        (("wheel", 0), 1),
        (("wheel", 1), 2),
        (("_arm",), 3),
        (("serial",), 4),
    ]
    assert _tree.map_structure(lambda leaf: leaf * 10, robot) == Robot([10, 20], 30, serial=40)


def test_keys_that_cannot_be_sorted():
    with pytest.raises(TypeError, match="sortable"):
        _tree.flatten({1: "x", "a": 2})


@given(nests())
def test_unflatten_undoes_flatten(nest):
    rebuilt = _tree.unflatten_as(nest, _tree.flatten(nest))
    assert rebuilt == nest
    assert type(rebuilt) is type(nest)


@given(nests())
def test_paths_lead_to_the_leaves(nest):
    for path, leaf in _tree.flatten_with_path(nest):
        node = nest
        for part in path:
            node = getattr(node, part) if isinstance(node, Wheel) else node[part]
        assert node is leaf


def test_rebuilding_keeps_the_kind_and_the_order_of_keys():
    counts = collections.Counter(b=2, a=1)
    default = collections.defaultdict(list, {"q": 1})
    nest = {
        "z": counts,
        "default": default,
        "proxy": types.MappingProxyType({"b": 1}),
        "queue": collections.deque([1]),
    }
    doubled = _tree.map_structure(lambda leaf: leaf * 2, nest)
    assert list(doubled) == list(nest)
    assert doubled["z"] == collections.Counter(b=4, a=2)
    assert doubled["default"].default_factory is list
    assert type(doubled["proxy"]) is types.MappingProxyType
    assert doubled["queue"] == collections.deque([2])


@pytest.mark.parametrize("nest", [range(2), array.array("i", [0, 1]), memoryview(b"\0\1"), {"a": 0, "b": 1}.values()])
def test_what_cannot_hold_other_leaves_is_rebuilt_as_a_list(nest):
    assert _tree.unflatten_as(nest, ["x", None]) == ["x", None]


def test_unflatten_wants_as_many_leaves():
    assert _tree.unflatten_as(0, ["only"]) == "only"
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match="Structure had 2 elements"):
            _tree.unflatten_as({"a": 0, "b": 0}, leaves)
    with pytest.raises(TypeError, match="must be a sequence"):
        _tree.unflatten_as([0], 5)


def test_map_over_several():
    paths = []

    def add(path, first, second):
        paths.append(path)
        return first + second

    result = _tree.map_structure_with_path(add, {"a": [1], "b": 2}, collections.OrderedDict(b=20, a=[10]))
    assert result == {"a": [11], "b": 22}
    assert paths == [("a", 0), ("b",)]


def test_map_refuses_other_structures():
    for first, second in [({"a": 1}, {"b": 1}), ([1], [1, 2]), ({"a": 1}, {"a": [1]})]:
        with pytest.raises(ValueError, match="same nested structure"):
            _tree.map_structure(lambda *leaves: leaves, first, second)
    with pytest.raises(TypeError, match="list and tuple"):
        _tree.map_structure(lambda *leaves: leaves, [1], (1,))
    assert _tree.map_structure(lambda *leaves: leaves, [1], (2,), check_types=False) == [(1, 2)]
    twin = collections.namedtuple("Wheel", "speed angle")
    assert _tree.map_structure(lambda a, b: a + b, Wheel(1, 2), twin(3, 4)) == Wheel(4, 6)
    with pytest.raises(TypeError, match="callable"):
        _tree.map_structure(3, [1])
    with pytest.raises(ValueError, match="at least one"):
        _tree.map_structure(len)


@given(nests(st.one_of(st.integers(), st.none(), st.text(max_size=2))))
def test_agrees_with_dm_tree(nest):
    tree = pytest.importorskip("tree")
    assert _tree.is_nested(nest) == tree.is_nested(nest)
    assert _tree.flatten(nest) == tree.flatten(nest)
    assert _tree.flatten_with_path(nest) == tree.flatten_with_path(nest)
    assert _tree.unflatten_as(nest, tree.flatten(nest)) == tree.unflatten_as(nest, tree.flatten(nest))
    ours = _tree.map_structure_with_path(lambda path, leaf: (path, leaf), nest)
    assert ours == tree.map_structure_with_path(lambda path, leaf: (path, leaf), nest)


def by_the_rules(nest, path=()):
    """Flattens by the results of is_nested() and children()."""
    if not _tree.is_nested(nest):
        return [(path, nest)]
    return [leaf for key, child in _tree.children(nest) for leaf in by_the_rules(child, (*path, key))]


@given(nests(st.one_of(st.integers(), st.none(), st.text(max_size=2))))
def test_flattening_follows_the_rules(nest):
    assert _tree.flatten_with_path(nest) == by_the_rules(nest)
    assert _tree.flatten(nest) == [leaf for _, leaf in by_the_rules(nest)]


@pytest.mark.parametrize(
    "nest",
    [
        range(3),
        array.array("d", [1.5]),
        memoryview(b"AB"),
        bytearray(b"AB"),
        types.MappingProxyType({"b": 1, "a": 2}),
        {"b": 1, "a": 2}.keys(),
        {"b": 1, "a": 2}.items(),
        collections.Counter("hello"),
        collections.UserString("ab"),
        Pair([Pair([]), 2]),
        Record(1, 2),
        {3: "c", 1: "a"},
    ],
    ids=lambda nest: type(nest).__name__,
)
def test_flattening_of_rarer_kinds_follows_the_rules(nest):
    assert _tree.flatten_with_path(nest) == by_the_rules(nest)
    assert _tree.flatten(nest) == [leaf for _, leaf in by_the_rules(nest)]
