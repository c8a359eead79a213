"""The files of a dataset of LeRobot: frames, statistics, tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FILE_BYTES = 100 << 20
FILES_PER_CHUNK = 1000
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


class Statistics:
    """Minimum, maximum, mean and standard deviation of each element of a row."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape or (1,)
        self._count = 0
        self._min = np.full(self._shape, np.inf)
        self._max = np.full(self._shape, -np.inf)
        self._mean = np.zeros(self._shape)
        self._squares = np.zeros(self._shape)  # sum of squared differences from the mean

    def add(self, rows: Any) -> None:
        """Adds the rows of an episode."""
        values = np.asarray(rows, np.float64).reshape(-1, *self._shape)
        self._min = np.minimum(self._min, values.min(axis=0))
        self._max = np.maximum(self._max, values.max(axis=0))
        # Relative to the mean, because differences of large squares would be lost in rounding.
        mean, count = values.mean(axis=0), len(values)
        total = self._count + count
        difference = mean - self._mean
        self._squares += np.square(values - mean).sum(axis=0) + np.square(difference) * (self._count * count / total)
        self._mean += difference * (count / total)
        self._count = total

    def to_json(self) -> dict[str, Any]:
        """Returns what stats.json has for a feature."""
        deviation = np.sqrt(self._squares / self._count)
        numbers = {"min": self._min, "max": self._max, "mean": self._mean, "std": deviation}
        return {**{name: array.tolist() for name, array in numbers.items()}, "count": [self._count]}


class DataFiles:
    """Writes frames to files of about FILE_BYTES."""

    def __init__(self, parquet: Any, path: Path, schema: Any) -> None:
        self._parquet, self._path, self._schema = parquet, path, schema
        self._writer: Any = None
        self._number = -1
        self._bytes = 0

    def write(self, table: Any) -> tuple[int, int]:
        """Writes an episode. Returns the numbers of its chunk and file."""
        if self._writer is None or self._bytes >= FILE_BYTES:
            self.close()
            self._number += 1
            self._bytes = 0
            chunk, file = divmod(self._number, FILES_PER_CHUNK)
            path = self._path / DATA_PATH.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._parquet.ParquetWriter(path, self._schema)
        self._writer.write_table(table)
        self._bytes += table.nbytes
        return divmod(self._number, FILES_PER_CHUNK)

    def close(self) -> None:
        """Completes the last file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def write_tasks(arrow: Any, parquet: Any, path: Path, task: str) -> None:
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
