"""Data in and out: tables of checkpoints and servers as files of other formats, and back.

| format | path | holds | needs |
| --- | --- | --- | --- |
| "parquet" | a file | any table; an item is a row, in constant memory | pyarrow |
| "npz" | a file | any table; an array for each column, in memory for the table | NumPy |
| "minari" | a folder | episodes of observations, actions, rewards and ends | minari[hdf5], pillow |
| "lerobot" | a folder | episodes: columns have a value for each frame; some may have one more, at the end | pyarrow |

All keep the structure, dtypes and lengths of items and their priorities. None keeps what only a server has: keys and
times of insertion are in the files, but imported items get new ones, and rows that items share are written for each
of them. All items of a table must have the same columns, dtypes and shapes; lengths may differ.

>>> import os, tempfile, numpy as np, reverb
>>> folder = tempfile.mkdtemp()
>>> with reverb.Server([reverb.Table.queue("queue", 10)]) as server:
...     client = server.localhost_client()
...     for step in range(3):
...         client.insert({"x": np.float32(step), "y": [step]}, priorities={"queue": 1.0 + step})
...     reverb.formats.export_table(client, os.path.join(folder, "data.npz"), table="queue", format="npz")
3
>>> path = reverb.formats.import_table(os.path.join(folder, "data.npz"), os.path.join(folder, "new"), format="npz")
>>> [(item.priority, item.data) for item in reverb.checkpoints.read(path, "queue")][2]
(3.0, {'x': array([2.], dtype=float32), 'y': [array([2])]})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import importlib
import os
from pathlib import Path
import shutil
from typing import Any
import uuid

from reverb import _core, checkpointers, checkpoints, item_selectors, rate_limiters
from reverb import client as client_module
from reverb import server as server_module
from reverb.formats import _servers, _tables
from reverb.formats._tables import Item, Layout, Table

__all__ = ["FORMATS", "export_table", "import_table", "options_of"]

# The name of each format, and the module that implements it.
FORMATS: dict[str, str] = {
    "parquet": "_parquet",
    "npz": "_npz",
    "minari": "_minari",
    "lerobot": "_lerobot",
}


def export_table(
    source: str | os.PathLike[str] | client_module.Client,
    path: str | os.PathLike[str],
    *,
    format: str,
    table: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Writes the items of a table to a file or folder. Returns their number.

    Items of a server are read without sampling them, while it goes on: those that are inserted or removed meanwhile may
    be there or not. A client of several servers exports the items of all of them. `path` appears when it is complete.

    Args:
        source: a checkpoint, or a folder of checkpoints (the latest), or a Client.
        path: what to write; it must not exist.
        format: "parquet", "npz", "minari" or "lerobot".
        table: the name of the table; None if there is only one.
        options: of the format. For "minari": "names", a dict from Minari's names (observations, actions, rewards,
            terminations, truncations) to those of columns. For "lerobot": "fps" and "task".

    Raises:
        ValueError: if the format cannot hold the table; the text says why.
        ImportError: if a library that the format needs is not installed; the text has the command that installs it.
        FileExistsError: if `path` exists.
        RuntimeError: if there is no such checkpoint or table, or the checkpoint is damaged.
    """
    write: Callable[..., int] = _module(format).write
    chosen = _check_options(format, options)
    target = Path(path)
    if target.exists() or target.is_symlink():
        raise FileExistsError(f"{target} exists; an export is written to a new place")
    if isinstance(source, _core.Client):
        opened = _servers.open_table(source, table)
    else:
        opened = _open_checkpoint(source, table)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.writing-{uuid.uuid4().hex}")
    try:
        count = write(temporary, opened, **chosen)
        temporary.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()
        raise
    return count


def import_table(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | client_module.Client,
    *,
    format: str,
    table: str | None = None,
) -> str | int:
    """Writes the items of a file or folder to a table of a server, or to a new checkpoint.

    A new checkpoint has one table, with a Uniform sampler, a Fifo remover and room for the items; load it with
    `Restore(selectors="given", ...)` for other settings. Writing it needs memory for the table.

    Args:
        path: what export_table() or another program has written.
        target: a folder without checkpoints, created if necessary, or a Client of a server that has the table. Several
            servers get the items in turn.
        format: "parquet", "npz", "minari" or "lerobot".
        table: the name of the table; None: as it was when it was exported.

    Returns:
        The path of the checkpoint, or the number of items that were inserted.

    Raises:
        ValueError: if the files are not of that format, or hold what a table cannot.
        ImportError: if a library that the format needs is not installed.
        FileNotFoundError: if there is no such path.
    """
    read: Callable[[Path], tuple[Layout, int, Iterator[Item]]] = _module(format).read
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist")
    layout, size, items = read(source)
    name = table or layout.table or source.name.split(".")[0] or "table"
    if isinstance(target, _core.Client):
        for each in _servers.split(target):
            _tables.choose(name, sorted(each.server_info()), each.server_address)
        return _servers.insert(target, name, layout, items)
    root = Path(target)
    if root.exists() and checkpoints.find(root):
        raise FileExistsError(f"{root} has checkpoints; import to a new folder")
    made = server_module.Table(
        name,
        sampler=item_selectors.Uniform(),
        remover=item_selectors.Fifo(),
        max_size=max(size, 1),
        rate_limiter=rate_limiters.MinSize(1),
        signature=layout.decoded_signature(),
    )
    with server_module.Server([made], checkpointer=checkpointers.DefaultCheckpointer(str(root))) as server:
        client = server.localhost_client()
        _servers.insert(client, name, layout, items)
        return client.checkpoint()


def options_of(format: str) -> Sequence[str]:
    """Returns the names of the options that export_table() accepts for a format."""
    options: Sequence[str] = _module(format).OPTIONS
    return options


def _module(format: str) -> Any:
    if format not in FORMATS:
        raise ValueError(f"there is no format {format!r}; there are {', '.join(sorted(FORMATS))}")
    return importlib.import_module(f"reverb.formats.{FORMATS[format]}")


def _check_options(format: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    if options is None:
        return {}
    known = options_of(format)
    if not isinstance(options, Mapping):
        raise TypeError(
            f"options must be a dict such as {{'fps': 20}}, got {options!r} of type {type(options).__name__}"
        )
    for name in options:
        if name not in known:
            has = f"it has {', '.join(map(repr, known))}" if known else "it has none"
            raise ValueError(f"the format {format} has no option {name!r}; {has}")
    return dict(options)


def _open_checkpoint(path: str | os.PathLike[str], table: str | None) -> Table:
    reader = _core.CheckpointReader(os.fspath(path))
    infos = {info["name"]: info for info in reader.info()["tables"]}
    name = _tables.choose(table, infos, str(path))
    items = (Item(*item) for item in reader.items(name, [], 0, None))
    return Table(name, infos[name]["current_size"], infos[name]["structure"], infos[name]["signature"], items)
