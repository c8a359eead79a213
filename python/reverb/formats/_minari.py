"""A table of episodes as a dataset of Minari: an item is an episode.

The columns observations, actions, rewards, terminations and truncations of an item (or "observation", "obs", "action",
"reward", "terminated", ...; the option `names` names others) become those of an episode, all others its infos. There
must be one observation more than actions: the last one is what the last action led to. Priorities, names and structure
are in `reverb.json`, beside the folder `data` of Minari. Images are stored without loss.

Datasets of other programs can be read too: items have the columns observation, action, reward, terminated and
truncated, and a priority of 1. Their infos are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from reverb import _tree, checkpoints
from reverb.formats import _tables
from reverb.formats._tables import Column, Item, Layout, Table

_ROLES = {
    "observations": ("observations", "observation", "obs"),
    "actions": ("actions", "action", "act"),
    "rewards": ("rewards", "reward"),
    "terminations": ("terminations", "termination", "terminated", "terminal", "terminals"),
    "truncations": ("truncations", "truncation", "truncated"),
}
_IMPORTED = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "terminations": "terminated",
    "truncations": "truncated",
}
_PACKAGE = "minari[hdf5]>=0.5.4"
_DESCRIPTION = "reverb.json"

OPTIONS = ("names",)


def _minari() -> Any:
    minari = _tables.require("minari", _PACKAGE, "minari")
    _tables.require("h5py", _PACKAGE, "minari")
    _tables.require("PIL", "pillow", "minari")
    return minari


def _find_roles(layout: Layout, names: dict[str, str]) -> dict[str, str]:
    """Returns the key of the columns' dict for each role."""
    nest = layout.nest()
    if not isinstance(nest, dict):
        raise ValueError(
            f"the items of table {layout.table!r} are not dicts; the format minari needs to know which column is what"
        )
    roles = {}
    for role, usual in _ROLES.items():
        candidates = [names[role]] if role in names else [name for name in usual if name in nest]
        if len(candidates) == 1 and candidates[0] in nest:
            roles[role] = candidates[0]
        elif role in names or len(candidates) > 1:
            raise ValueError(
                f"{role} could be the columns {candidates}; the columns of table {layout.table!r} are {sorted(nest)}. "
                f"Say which it is with the option names (--name {role}=COLUMN)"
                if role not in names
                else f"the option names has {names[role]!r} for {role}; the columns of table {layout.table!r} are "
                f"{sorted(nest)}"
            )
    unknown = set(names) - set(_ROLES)
    if unknown:
        raise ValueError(f"the option names has {sorted(unknown)}; Minari has {sorted(_ROLES)}")
    missing = [role for role in ("observations", "actions", "rewards") if role not in roles]
    if not {"terminations", "truncations"} & set(roles):
        missing.append("terminations or truncations")
    if missing:
        raise ValueError(
            f"the format minari needs {', '.join(missing)}; the columns of table {layout.table!r} are {sorted(nest)}. "
            "Say which is what with the option names (--name observations=COLUMN)"
        )
    return roles


def _check_columns(layout: Layout, roles: dict[str, str]) -> None:
    flat = {roles[role] for role in ("rewards", "terminations", "truncations") if role in roles}
    for (path, _), column in zip(_tree.flatten_with_path(layout.nest()), layout.columns, strict=True):
        if column.squeezed:
            problem = "has no time; an episode of Minari has a value for each step"
        elif column.dtype in ("string", "bfloat16") or column.dtype.startswith("complex"):
            problem = f"is of dtype {column.dtype}, which a space of Gymnasium cannot hold"
        elif any(not isinstance(part, int) and (not part or "/" in part) for part in path):
            problem = "has a name that a file of HDF5 cannot hold"
        elif path[0] in flat and (len(path) > 1 or column.shape):
            problem = f"has rows of shape {list(column.shape)}; Minari has one number for each step"
        else:
            continue
        raise ValueError(
            f"column {column.name!r} of table {layout.table!r} {problem}; the formats parquet and npz hold every table"
        )


def _as_minari(nest: Any) -> Any:
    """Returns the nest with dicts for namedtuples and tuples for lists."""
    if isinstance(nest, dict) or _tree.is_namedtuple(nest):
        return {key: _as_minari(child) for key, child in _tree.children(nest)}
    if _tree.is_nested(nest):
        return tuple(_as_minari(child) for child in nest)
    return nest


def _space(spaces: Any, nest: Any) -> Any:
    """Returns the space of a nest of Columns."""
    if isinstance(nest, dict):
        return spaces.Dict({key: _space(spaces, child) for key, child in nest.items()})
    if isinstance(nest, tuple):
        return spaces.Tuple([_space(spaces, child) for child in nest])
    dtype = np.dtype(nest.dtype)
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, nest.shape, dtype.type)
    if dtype.kind == "b":
        return spaces.Box(0, 1, nest.shape, np.uint8)
    limits = np.iinfo(dtype)
    low, high = np.full(nest.shape, limits.min, dtype), np.full(nest.shape, limits.max, dtype)
    return spaces.Box(low, high, nest.shape, dtype.type)


def write(path: Path, table: Table, *, names: Mapping[str, str] | None = None) -> int:
    """Writes the table. Returns the number of episodes."""
    minari = _minari()
    if names is not None and not (
        isinstance(names, Mapping) and all(isinstance(each, str) for pair in names.items() for each in pair)
    ):
        raise ValueError(
            f"the option names of the format minari must be a dict from {', '.join(_ROLES)} to names of columns, got "
            f"{names!r}"
        )
    spaces = importlib.import_module("gymnasium.spaces")
    episode_buffer = importlib.import_module("minari.data_collector").EpisodeBuffer
    minari_storage = importlib.import_module("minari.dataset.minari_storage").MinariStorage
    if "jpeg_encoding" not in inspect.signature(minari_storage.new).parameters:
        raise ImportError(f"the format minari needs {_PACKAGE}, which stores images without loss")
    layout, items = _tables.first_of(table)
    described: Any = {"observations": Column("", "float32", (), False), "actions": Column("", "float32", (), False)}
    roles: dict[str, str] = {}
    if layout.columns:
        roles = _find_roles(layout, dict(names or {}))
        _check_columns(layout, roles)
        columns = _tree.unflatten_as(layout.nest(), layout.columns)
        described = {role: _as_minari(columns[roles[role]]) for role in described}
    (path / "data").mkdir(parents=True)
    storage = minari_storage.new(
        path / "data",
        observation_space=_space(spaces, described["observations"]),
        action_space=_space(spaces, described["actions"]),
        data_format="hdf5",
        jpeg_encoding=False,
    )
    storage.update_metadata({"dataset_id": f"{_dataset_name(layout.table)}-v0", "minari_version": minari.__version__})
    priorities = []
    for number, item in enumerate(items):
        layout.check(item, "minari")
        storage.update_episodes([episode_buffer(id=number, **_episode(layout, roles, item))])
        priorities.append(item.priority)
    (path / _DESCRIPTION).write_text(layout.to_json(roles=roles, priorities=priorities))
    return len(priorities)


def _dataset_name(table: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in table) or "table"


def _episode(layout: Layout, roles: dict[str, str], item: Item) -> dict[str, Any]:
    data = _tree.unflatten_as(layout.nest(), item.columns)
    steps = {len(array) for array in _tree.flatten(data[roles["actions"]])}
    where = f"item {item.key} of table {layout.table!r}"
    if len(steps) != 1:
        raise ValueError(f"{where}: its actions have {sorted(steps)} rows")
    (length,) = steps
    for role, key in roles.items():
        wanted = length + 1 if role == "observations" else length
        for array in _tree.flatten(data[key]):
            if len(array) != wanted:
                raise ValueError(
                    f"{where} has {len(array)} {role} and {length} actions; the format minari needs {wanted}"
                    + (": the last observation is what the last action led to" if role == "observations" else "")
                )
    made = {role: _as_minari(data[key]) for role, key in roles.items()}
    for role in ("terminations", "truncations"):
        made[role] = made[role].astype(bool) if role in made else np.zeros(length, bool)
    made["infos"] = {key: _as_minari(child) for key, child in data.items() if key not in roles.values()}
    return made


def _rows(whole: Any, path: tuple[Any, ...], column: Column, where: str) -> Any:
    """Returns the rows of a column of an episode. ValueError unless they have its dtype and shape."""
    try:
        for part in path:
            whole = whole[part]
    except (KeyError, IndexError, TypeError):
        whole = None
    array = None if whole is None else np.asarray(whole)
    # Flags and single values have a dtype of Minari's own; numbers do not become others.
    if array is None or array.shape[1:] != column.shape or not np.can_cast(array.dtype, column.numpy, "same_kind"):
        found = "is missing" if array is None else f"has rows {array.dtype}{list(array.shape[1:])}"
        raise ValueError(
            f"{where}: column {column.name!r} {found}, expected {column.dtype}{list(column.shape)} in all episodes; if "
            f"{_DESCRIPTION} is out of date, remove it: the dataset is then imported as one of another program"
        )
    return array.astype(column.numpy, copy=False)


def read(path: Path) -> tuple[Layout, int, Iterator[Item]]:
    """Returns the layout, the number of episodes, and the episodes as items."""
    minari = _minari()
    if not (path / "data" / "metadata.json").is_file():
        raise ValueError(f"{path} is not a dataset of Minari: it has no file data/metadata.json")
    dataset = minari.MinariDataset(path / "data")
    size = int(dataset.total_episodes)
    if (path / _DESCRIPTION).exists():
        layout, said = Layout.from_json((path / _DESCRIPTION).read_bytes(), str(path / _DESCRIPTION))
        roles, priorities = said["roles"], said["priorities"]
        if len(priorities) != size:
            raise ValueError(
                f"{path / _DESCRIPTION} describes {len(priorities)} episodes, but the dataset has {size}; without that "
                "file it is imported as a dataset of another program"
            )
    else:
        layout, roles, priorities = _guess(dataset), dict(_IMPORTED), [1.0] * size
    nest = layout.nest()
    paths = [] if nest is None else [each for each, _ in _tree.flatten_with_path(nest)]
    role_of = {key: role for role, key in roles.items()}

    def items() -> Iterator[Item]:
        if size == 0:  # there is no file
            return
        for number, episode in enumerate(dataset.iterate_episodes()):
            columns = []
            for column, (key, *rest) in zip(layout.columns, paths, strict=True):
                whole = getattr(episode, role_of[key]) if key in role_of else episode.infos.get(key)
                columns.append(_rows(whole, tuple(rest), column, f"{path}: episode {number}"))
            squeezed = tuple(column.squeezed for column in layout.columns)
            yield Item(number, priorities[number], 0, 0, columns, squeezed)

    return layout, size, items()


def _guess(dataset: Any) -> Layout:
    """Returns the layout of a dataset of another program, from its first episode."""
    if dataset.total_episodes == 0:
        return Layout("", None, None, [])
    episode = next(iter(dataset.iterate_episodes()))
    nest = {key: getattr(episode, role) for role, key in _IMPORTED.items()}
    columns = []
    for path, leaf in _tree.flatten_with_path(nest):
        array = np.asarray(leaf)
        if array.ndim == 0 or array.dtype.kind in "OUS":
            raise ValueError(f"the column {checkpoints.path_text(path)!r} of the dataset does not consist of numbers")
        columns.append(Column(checkpoints.path_text(path), array.dtype.name, array.shape[1:], False))
    return Layout("", _tables.encode_nest(nest), None, columns)
