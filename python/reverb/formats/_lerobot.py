"""A table of episodes as a dataset of LeRobot (v3.0): an item is an episode, a row of each column a frame.

All columns of an item must have the same number of rows, or some of them one more than the others in all items: the
last observation of an episode, as EpisodeRecorder writes it. It belongs to no frame, and is in
`meta/reverb_last.parquet`, where only import_table() finds it. The parts of a column's name are joined by dots: the
column "state" of the dict "observation" is the feature "observation.state". Arrays stay arrays: images are not encoded
as videos. Priorities, dtypes and structure are in `meta/reverb.json`.

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

from reverb.formats import _lerobot_files, _tables
from reverb.formats._lerobot_files import DataFiles, Statistics, write_tasks
from reverb.formats._tables import Column, Item, Layout, Table

_OWN = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
_DESCRIPTION = "meta/reverb.json"
_LAST_ROWS = "meta/reverb_last.parquet"

OPTIONS = ("fps", "task")


def _libraries() -> tuple[Any, Any]:
    return _tables.require("pyarrow", "pyarrow", "lerobot"), _tables.require("pyarrow.parquet", "pyarrow", "lerobot")


def _feature_names(layout: Layout) -> list[str]:
    names = [column.name.replace("/", ".") for column in layout.columns]
    for column, name in zip(layout.columns, names, strict=True):
        if column.squeezed:
            problem = "has no time, but LeRobot has a value for each frame of an episode"
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
        raise ValueError(
            f"column {column.name!r} of table {layout.table!r} {problem}; export whole episodes, such as those of "
            "reverb.recorders.EpisodeRecorder, or as parquet or npz, which hold every table"
        )
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


def _as_text(text: Any, column: Column) -> str:
    try:
        return bytes(text).decode()
    except UnicodeDecodeError:
        shown = bytes(text)[:40]
        raise ValueError(
            f"column {column.name!r} has the bytes {shown!r}, which are not UTF-8; strings of LeRobot are text. Encode "
            "them (base64), or export as parquet or npz"
        ) from None


def _to_arrow(arrow: Any, column: Column, rows: Any, type: Any) -> Any:
    if column.dtype == "string":
        return arrow.array([_as_text(text, column) for text in rows.reshape(-1)], type)
    made = arrow.array(np.ascontiguousarray(rows).reshape(-1))
    if column.shape in ((), (1,)):
        return made
    if len(column.shape) == 1:
        return arrow.FixedSizeListArray.from_arrays(made, type=type)
    for size in reversed(column.shape):
        offsets = np.arange(0, len(made) + 1, size, dtype=np.int32)
        made = arrow.ListArray.from_arrays(arrow.array(offsets), made)
    return made


def write(path: Path, table: Table, *, fps: int = 10, task: str = "") -> int:
    """Writes the table. Returns the number of episodes."""
    arrow, parquet = _libraries()
    if isinstance(fps, bool) or not isinstance(fps, (int, np.integer)) or fps < 1:
        raise ValueError(f"the option fps of the format lerobot must be a positive integer, got {fps!r}")
    if not isinstance(task, str):
        raise ValueError(f"the option task of the format lerobot must be a str, got {task!r}")
    fps = int(fps)
    layout, items = _tables.first_of(table)
    names = _feature_names(layout)
    task = task or layout.table
    fields = [arrow.field(name, _type(arrow, column)) for name, column in zip(names, layout.columns, strict=True)]
    fields += [arrow.field(name, arrow.from_numpy_dtype(np.dtype(dtype))) for name, dtype in _OWN.items()]
    schema = arrow.schema(fields)
    statistics = {
        name: Statistics(column.shape)
        for name, column in zip(names, layout.columns, strict=True)
        if column.dtype != "string"
    }
    statistics |= {name: Statistics(()) for name in _OWN}
    (path / "meta").mkdir(parents=True)
    files = DataFiles(parquet, path, schema)
    last_rows: Any = None
    longer: list[int] | None = None  # columns with one more row than there are frames
    episodes: list[dict[str, Any]] = []
    priorities = []
    frames = 0
    try:
        for number, item in enumerate(items):
            layout.check(item, "lerobot")
            length, has_more = _count_frames(layout, item, longer)
            if longer is None:
                longer = has_more
            if longer:
                rows = [
                    _to_arrow(arrow, layout.columns[i], item.columns[i][-1:], schema.field(names[i]).type)
                    for i in longer
                ]
                table_of_rows = arrow.Table.from_arrays(
                    rows, schema=arrow.schema([schema.field(names[i]) for i in longer])
                )
                if last_rows is None:
                    last_rows = parquet.ParquetWriter(path / _LAST_ROWS, table_of_rows.schema)
                last_rows.write_table(table_of_rows)
            columns = [array[:length] for array in item.columns]
            own = {
                "timestamp": np.arange(length, dtype=np.float32) / np.float32(fps),
                "frame_index": np.arange(length),
                "episode_index": np.full(length, number),
                "index": np.arange(frames, frames + length),
                "task_index": np.zeros(length, np.int64),
            }
            arrays = [
                _to_arrow(arrow, column, array, schema.field(name).type)
                for name, column, array in zip(names, layout.columns, columns, strict=True)
            ]
            arrays += [arrow.array(values) for values in own.values()]
            for name, values in (*zip(names, columns, strict=True), *own.items()):
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
        if last_rows is not None:
            last_rows.close()
    if episodes:
        place = path / "meta/episodes/chunk-000"
        place.mkdir(parents=True)
        parquet.write_table(arrow.Table.from_pylist(episodes), place / "file-000.parquet")
        stats = {name: each.to_json() for name, each in statistics.items()}
        (path / "meta/stats.json").write_text(json.dumps(stats, indent=4))
    write_tasks(arrow, parquet, path / "meta/tasks.parquet", task)
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
        "chunks_size": _lerobot_files.FILES_PER_CHUNK,
        "data_files_size_in_mb": _lerobot_files.FILE_BYTES >> 20,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": _lerobot_files.DATA_PATH,
        "video_path": None,
        "features": features,
    }
    (path / "meta/info.json").write_text(json.dumps(info, indent=4))
    (path / _DESCRIPTION).write_text(
        layout.to_json(features=names, priorities=priorities, last_rows=[names[i] for i in longer or []])
    )
    return len(episodes)


def _count_frames(layout: Layout, item: Item, longer: list[int] | None) -> tuple[int, list[int]]:
    """Returns the number of frames, and the columns with one more row: those of `longer`, unless it is None."""
    lengths = [len(array) for array in item.columns]
    frames = min(lengths)
    has_more = [i for i, length in enumerate(lengths) if length > frames]
    if max(lengths) > frames + 1 or (longer is not None and has_more != longer):
        named = {column.name: length for column, length in zip(layout.columns, lengths, strict=True)}
        raise ValueError(
            f"item {item.key} of table {layout.table!r} has columns of different lengths, {named}; the format lerobot "
            "needs a value of each column for each frame, and at most one more row, in the same columns of all items, "
            "for the last observation"
        )
    return frames, has_more


def read(path: Path) -> tuple[Layout, int, Iterator[Item]]:
    """Returns the layout, the number of episodes, and the episodes as items."""
    _libraries()
    if not (path / "meta/info.json").is_file():
        raise ValueError(f"{path} is not a dataset of LeRobot: it has no file meta/info.json")
    try:
        info = json.loads((path / "meta/info.json").read_text())
        size = int(info["total_episodes"])
        described = {
            name: (str(feature["dtype"]), tuple(map(int, feature["shape"])))
            for name, feature in info["features"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path / 'meta/info.json'} does not describe a dataset of LeRobot: {error!r}") from None
    if (path / _DESCRIPTION).exists():
        layout, said = Layout.from_json((path / _DESCRIPTION).read_bytes(), str(path / _DESCRIPTION))
        features, priorities = said["features"], said["priorities"]
        longer = said.get("last_rows", [])
        if len(priorities) != size:
            raise ValueError(
                f"{path / _DESCRIPTION} describes {len(priorities)} episodes, but the dataset has {size}; without that "
                "file it is imported as a dataset of another program"
            )
    else:
        layout = _guess(described, path)
        features, priorities, longer = [column.name for column in layout.columns], [1.0] * size, []
    squeezed = (False,) * len(features)

    def items() -> Iterator[Item]:
        count = 0
        last_rows = _last_rows(path, layout, features, longer)
        for columns in _episodes(path, layout, features):
            if count >= size:
                raise ValueError(f"{path} has more episodes than the {size} of its meta/info.json")
            for name, row in next(last_rows).items():
                i = features.index(name)
                columns[i] = np.concatenate([columns[i], row])
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
        opened = _open(parquet, file, [*features, "episode_index"])
        for batch in opened.iter_batches(batch_size=1024, columns=[*features, "episode_index"]):
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


def _last_rows(path: Path, layout: Layout, features: list[str], longer: list[str]) -> Iterator[dict[str, Any]]:
    """Returns the row of each column that has one more than there are frames, for each episode."""
    _, parquet = _libraries()
    columns = dict(zip(features, layout.columns, strict=True))
    file = path / _LAST_ROWS
    if longer:
        if not file.is_file():
            raise ValueError(f"{path} has no file {_LAST_ROWS}, which has the last rows of the columns {longer}")
        for batch in _open(parquet, file, longer).iter_batches(batch_size=64):
            arrays = {name: _from_arrow(columns[name], batch.column(name), file) for name in longer}
            for i in range(len(batch)):
                yield {name: array[i : i + 1] for name, array in arrays.items()}
        raise ValueError(f"{file} has fewer rows than the dataset has episodes")
    while True:
        yield {}


def _open(parquet: Any, file: Path, names: list[str]) -> Any:
    """Opens a file. ValueError if a column is missing."""
    opened = parquet.ParquetFile(file)
    known = opened.schema_arrow.names
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(
            f"{file} has no column {missing[0]!r}, which the dataset describes; it has {', '.join(map(repr, known))}. "
            f"Restore the column, or remove it from meta/info.json and remove {_DESCRIPTION}"
        )
    return opened


def _from_arrow(column: Column, array: Any, file: Path) -> Any:
    """Returns the rows of a feature. ValueError, with both types, unless they have the column's dtype and shape."""
    described = f"{file}: the feature {column.name!r}"
    stored, count = array.type, len(array)
    while hasattr(array, "storage"):  # an extension type of the library datasets
        array = array.storage
    has_nulls = array.null_count > 0
    while hasattr(array, "flatten") and str(array.type).startswith(("list", "fixed_size_list", "large_list")):
        array = array.flatten()
        has_nulls = has_nulls or array.null_count > 0
    if has_nulls:
        raise ValueError(f"{described} has missing values, which a table cannot hold")
    if column.dtype == "string":
        flat = np.empty(len(array), object)
        texts = array.to_pylist()
        found = "string" if all(isinstance(text, str) for text in texts) else str(array.type)
        flat[:] = [text.encode() for text in texts] if found == "string" else None
    else:
        flat = array.to_numpy(zero_copy_only=False)
        found = flat.dtype.name
    if found != column.dtype or len(flat) != count * math.prod(column.shape):
        raise ValueError(
            f"{described} is stored as {stored}, but the dataset describes it as {column.dtype}{list(column.shape)}; "
            f"convert it, or correct meta/info.json and remove {_DESCRIPTION}"
        )
    return flat.reshape(-1, *column.shape)


def _guess(described: dict[str, tuple[str, tuple[int, ...]]], path: Path) -> Layout:
    """Returns the layout of a dataset of another program, from the dtypes and shapes of its features."""
    columns = []
    for name, (dtype, shape) in described.items():
        if name in _OWN:
            continue
        if dtype in ("image", "video"):
            raise ValueError(
                f"{path}: the feature {name!r} is of type {dtype}, which is not imported; convert it to an array"
            )
        columns.append(Column(name, dtype, () if shape == (1,) else shape, False))
    columns.sort(key=lambda column: column.name)
    return Layout("", _tables.encode_nest({column.name: 0 for column in columns}), None, columns)
