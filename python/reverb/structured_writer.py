"""Patterns and conditions that define which items a StructuredWriter creates from its steps.

    step = {"observation": ..., "action": ...}          # what will be appended: any nest of that structure
    pattern = pattern_from_transform(
        step, lambda ref: {"observations": ref["observation"][-3:], "action": ref["action"][-1]}
    )
    config = create_config(pattern, table="replay", conditions=[Condition.step_index() >= 2])
    writer = client.structured_writer([config])

Positions count from the newest step, which is -1: `ref[-1]` is its value alone, `ref[-3:]` are the last three,
with time as the leading dimension.

Config, ConditionProto and the other values have the attributes and the bytes of the messages in
proto/dm_reverb/reverb/cc/patterns.proto, but need no protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import operator
from typing import Any, NoReturn, TypeAlias

from reverb import _signatures, _specs, _tree
from reverb._compat import structured_value
from reverb._compat.message import Field, Message

# --- Messages ------------------------------------------------------------------------------------------


class PatternNode(Message):
    """The rows of a leaf that form a column of the item. Without `start`: the single row `stop`, squeezed."""

    FIELDS = (
        Field(1, "flat_source_index", "int32"),
        Field(2, "start", "int32", oneof="start_or_none"),
        Field(3, "stop", "int32", oneof="stop_or_none"),
        Field(4, "step", "int32", oneof="step_or_none"),
    )


class ModuloEq(Message):
    """left % mod == eq."""

    FIELDS = (Field(1, "mod", "int32"), Field(2, "eq", "int32"))


class ConditionProto(Message):
    """When an item is created. Built by Condition."""

    PROTO_NAME = "Condition"
    FIELDS = (
        Field(1, "step_index", "bool", oneof="left"),
        Field(2, "steps_since_applied", "bool", oneof="left"),
        Field(3, "buffer_length", "bool", oneof="left"),
        Field(4, "is_end_episode", "bool", oneof="left"),
        Field(9, "flat_source_index", "int32", oneof="left"),
        Field(5, "eq", "int32", oneof="cmp"),
        Field(6, "ge", "int32", oneof="cmp"),
        Field(7, "mod_eq", ModuloEq, oneof="cmp"),
        Field(8, "inverse", "bool"),
    )

    def __bool__(self) -> NoReturn:
        # `0 < x < 5` and `a and b` would silently drop one of the two.
        raise TypeError(
            "a condition is neither true nor false before there are steps: instead of chaining comparisons "
            "or joining them with `and`, list them all in `conditions`"
        )


class ConstantPriorityFn(Message):
    """The same priority for every item."""

    FIELDS = (Field(1, "value", "double"),)


class TDError(Message):
    """w * max|x| + (1 - w) * mean|x| over the rows of the column that comes from a leaf."""

    FIELDS = (Field(1, "max_priority_weight", "double"), Field(2, "flat_source_index", "int32"))


class Priority(Message):
    """The priority of the items of a config."""

    FIELDS = (
        Field(1, "constant_fn", ConstantPriorityFn, oneof="priority_fn"),
        Field(2, "td_error", TDError, oneof="priority_fn"),
    )


class StructuredWriterConfig(Message):
    """One kind of item: its content, its table and its conditions. Built by create_config()."""

    FIELDS = (
        Field(1, "flat", PatternNode, repeated=True),
        Field(2, "pattern_structure", structured_value.StructuredValue),
        Field(3, "table", "string"),
        Field(4, "priority", Priority),
        Field(5, "conditions", ConditionProto, repeated=True),
    )


Config: TypeAlias = StructuredWriterConfig

# A nest of PatternNode; a step with leaves to index; a function from the latter to the former.
Pattern: TypeAlias = Any
ReferenceStep: TypeAlias = Any
PatternTransform: TypeAlias = Callable[[ReferenceStep], Pattern]

# --- Patterns ------------------------------------------------------------------------------------------


class _ReferenceNode:
    """A leaf of a reference step; indexing it returns a PatternNode."""

    __slots__ = ("_flat_source_index",)

    def __init__(self, flat_source_index: int) -> None:
        self._flat_source_index = flat_source_index

    def __getitem__(self, key: int | slice) -> PatternNode:
        if isinstance(key, slice):
            start, stop, step = (_as_index(part) for part in (key.start, key.stop, key.step))
            if start is None:
                raise ValueError(
                    f"Key {key!r} has no start. The number of rows must be known: use [-n:], or [-n] for one."
                )
            return PatternNode(flat_source_index=self._flat_source_index, start=start, stop=stop, step=step)
        index = _as_index(key)
        if index is None:
            raise ValueError("Key must be int or slice, got None.")
        return PatternNode(flat_source_index=self._flat_source_index, stop=index)

    def __iter__(self) -> NoReturn:
        raise TypeError("a leaf of a reference step cannot be iterated over; index it with an int or a slice")

    def __repr__(self) -> str:
        return f"<reference to leaf {self._flat_source_index} of a step>"


def _as_index(key: Any) -> int | None:
    if key is None:
        return None
    try:
        return operator.index(key)
    except TypeError:
        raise ValueError(f"Key must be int or slice, got {type(key).__name__} ({key!r}).") from None


def create_reference_step(step_structure: Any) -> ReferenceStep:
    """Returns the nest with leaves that can be indexed; the original leaves do not matter.

    >>> create_reference_step({"a": 0, "b": 0})["b"][-2:]
    PatternNode(flat_source_index=1, start=-2)
    """
    count = len(_tree.flatten(step_structure))
    return _tree.unflatten_as(step_structure, [_ReferenceNode(i) for i in range(count)])


def pattern_from_transform(step_structure: Any, transform: Callable[[ReferenceStep], Pattern]) -> Pattern:
    """Returns the pattern that `transform` makes of a reference step."""
    return transform(create_reference_step(step_structure))


def create_config(
    pattern: Pattern,
    table: str,
    conditions: Iterable[ConditionProto] = (),
    priority: Priority | None = None,
) -> Config:
    """Returns a config that creates items of `pattern` in `table` at each step where all conditions hold.

    The priority is 1.0 unless one is given, by constant_priority_fn() or td_error().
    """
    nodes = _tree.flatten(pattern)
    for node in nodes:
        if type(node).__name__ != "PatternNode":
            raise TypeError(
                f"the leaves of a pattern must be parts of a reference step such as ref[-1] or ref[-2:], "
                f"got {node!r} of type {type(node).__name__}"
            )
    config = Config(table=table)
    config.flat.extend(nodes)
    structured_value.put_structure(config.pattern_structure, pattern)
    for condition in conditions:
        if isinstance(condition, (_ConditionBuilder, _ModuloBuilder)):
            raise TypeError("a condition must be compared with something, for example `step_index() >= 3`")
        config.conditions.append(condition)
    config.priority.CopyFrom(constant_priority_fn(1.0) if priority is None else priority)
    return config


def as_config(config: Any) -> Config:
    """Returns the config as this module's class, also for generated protobuf classes."""
    if isinstance(config, Config):
        return config
    made = Config()
    made.CopyFrom(config)
    return made


def unpack_pattern(config: Config) -> Pattern:
    """Returns the config's nest of PatternNode; a list if the config has no structure."""
    config = as_config(config)
    nodes = list(config.flat)
    if not config.HasField("pattern_structure"):
        return nodes
    return _tree.unflatten_as(structured_value.structure_of(config.pattern_structure), nodes)


# --- Priorities ----------------------------------------------------------------------------------------


def constant_priority_fn(value: float) -> Priority:
    """Returns a function that gives every item the same priority."""
    # The message is present even if the value is 0, its default.
    priority = Priority()
    priority.constant_fn.SetInParent()
    priority.constant_fn.value = value
    return priority


def td_error(max_priority_weight: float, step_structure: Any, get_field_from_step_fn: Callable[[Any], Any]) -> Priority:
    """Returns a function of TD errors x, which are a field of the steps: w * max|x| + (1 - w) * mean|x|.

    Max and mean are over the rows of the item's column that comes from the field.

    Args:
        max_priority_weight: w, between 0 (the mean alone) and 1 (the maximum alone).
        step_structure: a nest with the structure of the steps.
        get_field_from_step_fn: returns the leaf with the TD error of such a nest.
    """
    count = len(_tree.flatten(step_structure))
    field = get_field_from_step_fn(_tree.unflatten_as(step_structure, list(range(count))))
    if isinstance(field, bool) or not isinstance(field, int) or not 0 <= field < count:
        raise ValueError(f"get_field_from_step_fn must return a leaf of the step it is given, got {field!r}")
    priority = Priority()
    priority.td_error.SetInParent()
    priority.td_error.max_priority_weight = max_priority_weight
    priority.td_error.flat_source_index = field
    return priority


# --- Conditions ----------------------------------------------------------------------------------------


class Condition:
    """Conditions on the newest step. All of those in a config must hold.

    Each function returns a builder to compare with an int by ==, !=, <, <=, > or >=; after `% m`, only by == or !=:

    >>> Condition.step_index() % 3 == 0
    ConditionProto(step_index=True, mod_eq=ModuloEq(mod=3))
    """

    @staticmethod
    def step_index() -> _ConditionBuilder:
        """The index of the step in the episode, from 0."""
        return _ConditionBuilder(step_index=True)

    @staticmethod
    def steps_since_applied() -> _ConditionBuilder:
        """Steps since this config last created an item, including the current one."""
        return _ConditionBuilder(steps_since_applied=True)

    @staticmethod
    def is_end_episode() -> ConditionProto:
        """True only inside end_episode(). Needs no comparison."""
        return ConditionProto(is_end_episode=True, eq=1)

    @staticmethod
    def data(step_structure: Any) -> Any:
        """Returns the nest with a builder for the value of each leaf.

        The leaf must be a bool or an integer of one element; without a value, the condition is false.
        """
        count = len(_tree.flatten(step_structure))
        return _tree.unflatten_as(step_structure, [_ConditionBuilder(flat_source_index=i) for i in range(count)])


class _ConditionBuilder:
    """The left side of a condition."""

    __slots__ = ("_left",)
    __hash__ = None  # type: ignore[assignment]  # == builds a condition

    def __init__(self, **left: Any) -> None:
        self._left = left

    def _build(self, **comparison: Any) -> ConditionProto:
        return ConditionProto(**self._left, **comparison)

    def __mod__(self, mod: int) -> _ModuloBuilder:
        number = _as_operand(mod)
        if number <= 0:
            raise ValueError(f"the modulo of a condition is {number}, it must be > 0")
        return _ModuloBuilder(self, number)

    def __eq__(self, value: int) -> ConditionProto:  # type: ignore[override]
        return self._build(eq=_as_operand(value))

    def __ne__(self, value: int) -> ConditionProto:  # type: ignore[override]
        return self._build(eq=_as_operand(value), inverse=True)

    def __ge__(self, value: int) -> ConditionProto:
        return self._build(ge=_as_operand(value))

    def __gt__(self, value: int) -> ConditionProto:
        return self._build(ge=_as_operand(value) + 1)

    def __lt__(self, value: int) -> ConditionProto:
        return self._build(ge=_as_operand(value), inverse=True)

    def __le__(self, value: int) -> ConditionProto:
        return self._build(ge=_as_operand(value) + 1, inverse=True)


class _ModuloBuilder:
    """The left side of a condition, modulo a number."""

    __slots__ = ("_builder", "_mod")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: _ConditionBuilder, mod: int) -> None:
        self._builder = builder
        self._mod = mod

    def _mod_eq(self, value: Any) -> ModuloEq:
        remainder = _as_operand(value)
        if remainder < 0:
            raise ValueError(f"the remainder of a condition is {remainder}, it must be >= 0")
        return ModuloEq(mod=self._mod, eq=remainder)

    def __eq__(self, value: int) -> ConditionProto:  # type: ignore[override]
        return self._builder._build(mod_eq=self._mod_eq(value))

    def __ne__(self, value: int) -> ConditionProto:  # type: ignore[override]
        return self._builder._build(mod_eq=self._mod_eq(value), inverse=True)

    def _unsupported(self, value: Any) -> NoReturn:
        raise ValueError("after `% m` a condition can only be compared by == or !=")

    __mod__ = __lt__ = __le__ = __gt__ = __ge__ = _unsupported


def _as_operand(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"a condition is compared with an int, not {type(value).__name__}") from None


# --- Signatures ----------------------------------------------------------------------------------------


def infer_signature(configs: Sequence[Config], step_spec: Any) -> Any:
    """Returns the signature of a table whose items `configs` create from steps like `step_spec`.

    Args:
        configs: all for the same table, with patterns of the same structure.
        step_spec: a nest of the structure of the steps; the leaves need a shape and a dtype.

    Returns:
        A nest of TensorSpec (TensorFlow's if it is imported), named by their paths, 'x/y'. A leading dimension
        that differs between configs is unknown.

    Raises:
        ValueError: if there is no config, or the items do not fit one table.
    """
    configs = [as_config(config) for config in configs]
    if not configs:
        raise ValueError("At least one config must be provided.")
    tables = sorted({config.table for config in configs})
    if len(tables) > 1:
        raise ValueError(f"All configs must target the same table but provided configs included {', '.join(tables)}.")
    first = unpack_pattern(configs[0])
    for config in configs[1:]:
        if config.pattern_structure != configs[0].pattern_structure or len(config.flat) != len(configs[0].flat):
            raise ValueError(
                "All configs must have exactly the same pattern_structure. Got "
                f"{_shown(first)} and {_shown(unpack_pattern(config))}."
            )
    leaves = [_specs.as_spec(leaf) for leaf in _tree.flatten(step_spec)]
    merged: list[_specs.TensorSpec] = []
    for i, (path, _) in enumerate(_tree.flatten_with_path(first)):
        name = "/".join(str(part) for part in path)
        merged.append(_merged(path, [_column_spec(config.flat[i], leaves, name) for config in configs]))
    return _signatures.localize(_tree.unflatten_as(first, merged))


def _shown(pattern: Pattern) -> Any:
    return _tree.map_structure(lambda _: None, pattern)


def _column_spec(node: PatternNode, leaves: list[_specs.TensorSpec], name: str) -> _specs.TensorSpec:
    if not 0 <= node.flat_source_index < len(leaves):
        raise ValueError(
            f"the pattern refers to leaf {node.flat_source_index} of a step, but step_spec has {len(leaves)}"
        )
    leaf = leaves[node.flat_source_index]
    shape = leaf.shape
    if node.HasField("start") and shape is not None:
        stride = node.step if node.HasField("step") else 1
        if stride <= 0:
            raise ValueError(f"the pattern has a slice of step {stride}, it must be > 0")
        length = -(-(node.stop - node.start) // stride)
        shape = (max(0, length), *shape)
    return _specs.TensorSpec(shape, leaf.dtype, name)


def _merged(path: _tree.Path, specs: list[_specs.TensorSpec]) -> _specs.TensorSpec:
    first = specs[0]
    dtypes = sorted({spec.dtype.name for spec in specs})
    if len(dtypes) > 1:
        raise ValueError(f"Configs produce trajectories with multiple dtypes at {path}. Got {', '.join(dtypes)}.")
    shapes = {spec.shape for spec in specs}
    if len(shapes) == 1:
        return first
    if None in shapes:
        return _specs.TensorSpec(None, first.dtype, first.name)
    known = [shape for shape in shapes if shape is not None]
    if len({len(shape) for shape in known}) > 1 or len({shape[1:] for shape in known}) > 1:
        listed = ", ".join(str(spec.shape) for spec in specs)
        raise ValueError(f"Configs produce trajectories with incompatible shapes at {path}. Got {listed}.")
    return _specs.TensorSpec((None, *known[0][1:]), first.dtype, first.name)


# --- The native writer ---------------------------------------------------------------------------------


def native_config(config: Any) -> tuple[Any, ...]:
    """Returns the config as plain tuples for the native code: (nodes, table, conditions, priority, structure).

    nodes: (source, start, stop, step), None for absent fields. conditions: (left, source, comparison, modulo, value,
    inverse), where left and comparison are names of oneof members or None. priority: None, a float, or
    (max_priority_weight, source). structure: a tuple with the pattern's nest, empty if it is unknown.
    """
    config = as_config(config)
    nodes = [
        (
            node.flat_source_index,
            *(getattr(node, part) if node.HasField(part) else None for part in ("start", "stop", "step")),
        )
        for node in config.flat
    ]
    conditions = []
    for condition in config.conditions:
        comparison = condition.WhichOneof("cmp")
        modulo, value = 0, 0
        if comparison == "mod_eq":
            modulo, value = condition.mod_eq.mod, condition.mod_eq.eq
        elif comparison is not None:
            value = getattr(condition, comparison)
        left = condition.WhichOneof("left")
        source = condition.flat_source_index if left == "flat_source_index" else 0
        conditions.append((left, source, comparison, modulo, value, condition.inverse))
    priority: Any = None
    kind = config.priority.WhichOneof("priority_fn")
    if kind == "constant_fn":
        priority = config.priority.constant_fn.value
    elif kind == "td_error":
        priority = (config.priority.td_error.max_priority_weight, config.priority.td_error.flat_source_index)
    structure: tuple[Any, ...] = ()
    if config.HasField("pattern_structure"):
        structure = (structured_value.structure_of(config.pattern_structure),)
    return nodes, config.table, conditions, priority, structure


def __getattr__(name: str) -> Any:
    if name == "StructuredWriter":
        from reverb import _core

        return _core.StructuredWriter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
