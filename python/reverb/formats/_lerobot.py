"""A table of episodes as a dataset of LeRobot (v3.0): an item is an episode, a row of each column a frame.

All columns of an item must have the same number of rows. The parts of a column's name are joined by dots: the column
"state" of the dict "observation" is the feature "observation.state". Arrays stay arrays: images are not encoded as
videos. Priorities, dtypes and structure are in `meta/reverb.json`.

Datasets of other programs can be read too if they have no images and videos: items have a column for each feature, and
a priority of 1.
"""

from __future__ import annotations

from collections.abc import Iterator
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from reverb.formats import _tables
from reverb.formats._tables import Column, Item, Layout, Table

_OWN = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
_FILE_BYTES = 100 << 20
_FILES_PER_CHUNK = 1000
_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_DESCRIPTION = "meta/reverb.json"


def _libraries() -> tuple[Any, Any]:
    return _tables.require("pyarrow", "pyarrow", "lerobot"), _tables.require("pyarrow.parquet", "pyarrow", "lerobot")


def _feature_names(layout: Layout) -> list[str]:
    names = [column.name.replace("/", ".") for column in layout.columns]
    for column, name in zip(layout.columns, names, strict=True):
        if column.squeezed:
            problem = "has no time; LeRobot has a value for each frame"
        elif column.dtype == "bfloat16" or column.dtype.startswith("complex"):
            problem = f"is of dtype {column.dtype}, which LeRobot does not have"
        elif math.prod(column.shape) == 0 or len(column.shape) > 5:
            problem = f"has rows of shape {list(column.shape)}; LeRobot has one to five dimensions, none of them 0"
        elif column.dtype == "string" and column.shape not in ((), (1,)):
            problem = "has several strings in a row; LeRobot has one"
        elif name in _OWN or name == "task" or names.count(name) > 1:
            problem = f"would be the feature {name!r}, which is not free"
        else:
            continue
        raise ValueError(f"column {column.name!r} of table {layout.table!r} {problem}")
    return names


def _type(arrow: Any, column: Column) -> Any:
    made = arrow.string() if column.dtype == "string" else arrow.from_numpy_dtype(np.dtype(column.dtype))
    if column.shape in ((), (1,)):
        return made
    if len(column.shape) == 1:
        return arrow.list_(made, column.shape[0])
    for _ in column.shape:
        made = arrow.list_(made)
    return made


def _to_arrow(arrow: Any, column: Column, rows: Any, type: Any) -> Any:
    if column.dtype == "string":
        return arrow.array([bytes(text).decode() for text in rows.reshape(-1)], type)
    made = arrow.array(np.ascontiguousarray(rows).reshape(-1))
    if column.shape in ((), (1,)):
        return made
    if len(column.shape) == 1:
        return arrow.FixedSizeListArray.from_arrays(made, type=type)
    for size in reversed(column.shape):
        offsets = np.arange(0, len(made) + 1, size, dtype=np.int32)
        made = arrow.ListArray.from_arrays(arrow.array(offsets), made)
    return made


class _Statistics:
    """Minimum, maximum, mean and standard deviation of each element of a row."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape or (1,)
        self._count = 0
        self._min = np.full(self._shape, np.inf)
        self._max = np.full(self._shape, -np.inf)
        self._sum = np.zeros(self._shape)
        self._squares = np.zeros(self._shape)

    def add(self, rows: Any) -> None:
        """Adds the rows of an episode."""
        values = np.asarray(rows, np.float64).reshape(-1, *self._shape)
        self._count += len(values)
        self._min = np.minimum(self._min, values.min(axis=0))
        self._max = np.maximum(self._max, values.max(axis=0))
        self._sum += values.sum(axis=0)
        self._squares += np.square(values).sum(axis=0)

    def to_json(self) -> dict[str, Any]:
        """Returns what stats.json has for a feature."""
        mean = self._sum / self._count
        deviation = np.sqrt(np.maximum(self._squares / self._count - np.square(mean), 0))
        numbers = {"min": self._min, "max": self._max, "mean": mean, "std": deviation}
        return {**{name: array.tolist() for name, array in numbers.items()}, "count": [self._count]}


class _DataFiles:
    """Writes frames to files of about _FILE_BYTES."""

    def __init__(self, parquet: Any, path: Path, schema: Any) -> None:
        self._parquet, self._path, self._schema = parquet, path, schema
        self._writer: Any = None
        self._number = -1
        self._bytes = 0

    def write(self, table: Any) -> tuple[int, int]:
        """Writes an episode. Returns the numbers of its chunk and file."""
        if self._writer is None or self._bytes >= _FILE_BYTES:
            self.close()
            self._number += 1
            self._bytes = 0
            chunk, file = divmod(self._number, _FILES_PER_CHUNK)
            path = self._path / _DATA_PATH.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._parquet.ParquetWriter(path, self._schema)
        self._writer.write_table(table)
        self._bytes += table.nbytes
        return divmod(self._number, _FILES_PER_CHUNK)

    def close(self) -> None:
        """Completes the last file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def write(path: Path, table: Table, *, fps: int = 10, task: str = "") -> int:
    """Writes the table. Returns the number of episodes."""
    arrow, parquet = _libraries()
    if fps < 1:
        raise ValueError(f"fps ({fps}) must be a positive integer")
    layout, items = _tables.first_of(table)
    names = _feature_names(layout)
    task = task or layout.table
    fields = [arrow.field(name, _type(arrow, column)) for name, column in zip(names, layout.columns, strict=True)]
    fields += [arrow.field(name, arrow.from_numpy_dtype(np.dtype(dtype))) for name, dtype in _OWN.items()]
    schema = arrow.schema(fields)
    statistics = {
        name: _Statistics(column.shape)
        for name, column in zip(names, layout.columns, strict=True)
        if column.dtype != "string"
    }
    statistics |= {name: _Statistics(()) for name in _OWN}
    (path / "meta").mkdir(parents=True)
    files = _DataFiles(parquet, path, schema)
    episodes: list[dict[str, Any]] = []
    priorities = []
    frames = 0
    try:
        for number, item in enumerate(items):
            layout.check(item, "lerobot")
            lengths = {column.name: len(array) for column, array in zip(layout.columns, item.columns, strict=True)}
            if len(set(lengths.values())) != 1:
                raise ValueError(
                    f"item {item.key} of table {layout.table!r} has columns of different lengths, {lengths}; the "
                    "format lerobot needs a value of each column for each frame"
                )
            length = next(iter(lengths.values()))
            own = {
                "timestamp": np.arange(length, dtype=np.float32) / np.float32(fps),
                "frame_index": np.arange(length),
                "episode_index": np.full(length, number),
                "index": np.arange(frames, frames + length),
                "task_index": np.zeros(length, np.int64),
            }
            arrays = [
                _to_arrow(arrow, column, array, schema.field(name).type)
                for name, column, array in zip(names, layout.columns, item.columns, strict=True)
            ]
            arrays += [arrow.array(values) for values in own.values()]
            for name, values in (*zip(names, item.columns, strict=True), *own.items()):
                if name in statistics:
                    statistics[name].add(values)
            chunk, file = files.write(arrow.Table.from_arrays(arrays, schema=schema))
            episodes.append(
                {
                    "episode_index": number,
                    "tasks": [task],
                    "length": length,
                    "data/chunk_index": chunk,
                    "data/file_index": file,
                    "dataset_from_index": frames,
                    "dataset_to_index": frames + length,
                    "meta/episodes/chunk_index": 0,
                    "meta/episodes/file_index": 0,
                }
            )
            priorities.append(item.priority)
            frames += length
    finally:
        files.close()
    if episodes:
        place = path / "meta/episodes/chunk-000"
        place.mkdir(parents=True)
        parquet.write_table(arrow.Table.from_pylist(episodes), place / "file-000.parquet")
        stats = {name: each.to_json() for name, each in statistics.items()}
        (path / "meta/stats.json").write_text(json.dumps(stats, indent=4))
    _write_tasks(arrow, parquet, path / "meta/tasks.parquet", task)
    features = {
        name: {"dtype": column.dtype, "shape": list(column.shape or (1,)), "names": None}
        for name, column in zip(names, layout.columns, strict=True)
    }
    features |= {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in _OWN.items()}
    info = {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": len(episodes),
        "total_frames": frames,
        "total_tasks": 1,
        "chunks_size": _FILES_PER_CHUNK,
        "data_files_size_in_mb": _FILE_BYTES >> 20,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": _DATA_PATH,
        "video_path": None,
        "features": features,
    }
    (path / "meta/info.json").write_text(json.dumps(info, indent=4))
    (path / _DESCRIPTION).write_text(layout.to_json(features=names, priorities=priorities))
    return len(episodes)


def _write_tasks(arrow: Any, parquet: Any, path: Path, task: str) -> None:
    """Writes the tasks, as pandas writes a table whose index is "task"."""
    described = {
        "index_columns": ["task"],
        "column_indexes": [
            {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
        ],
        "columns": [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
            for name, kind, dtype in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
        ],
        "pandas_version": "2.0.0",
    }
    table = arrow.table({"task_index": arrow.array([0], arrow.int64()), "task": [task]})
    parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(described)}), path)


def read(path: Path) -> tuple[Layout, int, Iterator[Item]]:
    """Returns the layout, the number of episodes, and the episodes as items."""
    _libraries()
    if not (path / "meta/info.json").is_file():
        raise ValueError(f"{path} is not a dataset of LeRobot: it has no file meta/info.json")
    info = json.loads((path / "meta/info.json").read_text())
    size = int(info["total_episodes"])
    if (path / _DESCRIPTION).exists():
        layout, said = Layout.from_json((path / _DESCRIPTION).read_bytes(), str(path / _DESCRIPTION))
        features, priorities = said["features"], said["priorities"]
        if len(priorities) != size:
            raise ValueError(
                f"{path / _DESCRIPTION} describes {len(priorities)} episodes, but the dataset has {size}; without that "
                "file it is imported as a dataset of another program"
            )
    else:
        layout = _guess(info, path)
        features, priorities = [column.name for column in layout.columns], [1.0] * size
    squeezed = (False,) * len(features)

    def items() -> Iterator[Item]:
        count = 0
        for columns in _episodes(path, layout, features):
            if count >= size:
                raise ValueError(f"{path} has more episodes than the {size} of its meta/info.json")
            yield Item(count, priorities[count], 0, 0, columns, squeezed)
            count += 1
        if count != size:
            raise ValueError(f"{path} has {count} episodes, its meta/info.json says {size}")

    return layout, size, items()


def _episodes(path: Path, layout: Layout, features: list[str]) -> Iterator[list[Any]]:
    """Returns the columns of each episode."""
    _, parquet = _libraries()
    current: int | None = None
    parts: list[list[Any]] = []

    def joined() -> list[Any]:
        return [np.concatenate(each) for each in zip(*parts, strict=True)]

    for file in sorted((path / "data").glob("*/*.parquet")):
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=1024, columns=[*features, "episode_index"]):
            numbers = batch.column("episode_index").to_numpy()
            arrays = [
                _from_arrow(column, batch.column(name), file)
                for name, column in zip(features, layout.columns, strict=True)
            ]
            borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
            for begin, end in itertools.pairwise(borders):
                if begin == end:
                    continue
                if current is not None and numbers[begin] != current:
                    yield joined()
                    parts = []
                current = int(numbers[begin])
                parts.append([array[begin:end] for array in arrays])
    if parts:
        yield joined()


def _from_arrow(column: Column, array: Any, file: Path) -> Any:
    while hasattr(array, "storage"):  # an extension type of the library datasets
        array = array.storage
    while hasattr(array, "flatten") and str(array.type).startswith(("list", "fixed_size_list", "large_list")):
        array = array.flatten()
    if array.null_count:
        raise ValueError(f"{file}: the feature {column.name!r} has missing values, which a table cannot hold")
    if column.dtype == "string":
        flat = np.empty(len(array), object)
        flat[:] = [text.encode() for text in array.to_pylist()]
    else:
        flat = array.to_numpy(zero_copy_only=False).astype(column.dtype, copy=False)
    return flat.reshape(-1, *column.shape)


def _guess(info: dict[str, Any], path: Path) -> Layout:
    """Returns the layout of a dataset of another program."""
    columns = []
    for name, feature in info["features"].items():
        if name in _OWN:
            continue
        if feature["dtype"] in ("image", "video"):
            raise ValueError(
                f"{path}: the feature {name!r} is of type {feature['dtype']}, which is not imported; convert it to an "
                "array"
            )
        shape = tuple(feature["shape"])
        columns.append(Column(name, feature["dtype"], () if shape == (1,) else shape, False))
    columns.sort(key=lambda column: column.name)
    return Layout("", _tables.encode_nest({column.name: 0 for column in columns}), None, columns)
