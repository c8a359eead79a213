"""The commands of the Python package: `python -m reverb export` and `python -m reverb import`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
import re
import sys
from typing import Any

from reverb import client as client_module
from reverb import errors, formats
from reverb.formats import _servers

# As those of the program `reverb`.
_FAILED, _BAD_USAGE, _UNREACHABLE, _NOT_FOUND, _TIMED_OUT = range(1, 6)

_FORMATS = sorted(formats.FORMATS)
_ADDRESS = r"(\[[0-9a-fA-F:.]+\]|[^/:,]+):\d{1,5}"
_ADDRESSES = re.compile(f"{_ADDRESS}(,{_ADDRESS})*")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reverb",
        description="Exports tables to files of other formats, and imports them. The program `reverb` has all other "
        "commands.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    export = commands.add_parser(
        "export",
        help="write the items of a table to a file or folder",
        description="Writes the items of a table of a checkpoint or of a running server to a file (parquet, npz) or "
        "folder (minari, lerobot), and prints their number.",
        epilog="Example: python -m reverb export /data/run7 --table replay --format parquet -o replay.parquet",
    )
    export.add_argument(
        "source", metavar="CHECKPOINT|ADDRESS", help="a checkpoint, a folder of checkpoints, or host:port[,...]"
    )
    export.add_argument("--table", help="its name; needed if there are several")
    export.add_argument("--format", required=True, choices=_FORMATS)
    export.add_argument("-o", "--output", required=True, metavar="PATH", help="what to write; it must not exist")
    export.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="minari: the column of observations, actions, rewards, terminations or truncations, if named otherwise",
    )
    export.add_argument("--fps", type=int, help="lerobot: frames per second (10)")
    export.add_argument("--task", help="lerobot: what is done in the episodes, in words")

    import_ = commands.add_parser(
        "import",
        help="write the items of a file or folder to a checkpoint or a server",
        description="Writes the items of a file or folder to a new checkpoint, and prints its path, or to a table of a "
        "running server, and prints their number.",
        epilog="Example: python -m reverb import replay.parquet --format parquet --to /data/new",
    )
    import_.add_argument("path", metavar="PATH", help="what `export` or another program has written")
    import_.add_argument("--format", required=True, choices=_FORMATS)
    import_.add_argument(
        "--to", required=True, metavar="CHECKPOINT|ADDRESS", help="a folder without checkpoints, or host:port[,...]"
    )
    import_.add_argument("--table", help="its name; as it was when it was exported, unless given")
    for command in (export, import_):
        command.add_argument(
            "--timeout", type=float, default=5.0, metavar="SECONDS", help="how long a server may take to answer (5)"
        )
    return parser


def _place(text: str, timeout: float) -> Any:
    """Returns a path, or a client for an address that answers; several servers must all answer."""
    if os.path.exists(text) or not _ADDRESSES.fullmatch(text):
        return text
    client = client_module.Client(text)
    for each in _servers.split(client):
        each.server_info(timeout=timeout)
    return client


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if arguments.name:
        pairs = [name.partition("=") for name in arguments.name]
        for name, equals, column in pairs:
            if not (name and equals and column):
                raise ValueError(f"--name {name}{equals}{column} must be NAME=COLUMN")
        options["names"] = {name: column for name, _, column in pairs}
    for name in ("fps", "task"):
        if getattr(arguments, name) is not None:
            options[name] = getattr(arguments, name)
    for name in options:
        if name not in formats.options_of(arguments.format):
            raise ValueError(f"the format {arguments.format} has no option --{'name' if name == 'names' else name}")
    return options


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "export":
        source = _place(arguments.source, arguments.timeout)
        count = formats.export_table(
            source, arguments.output, format=arguments.format, table=arguments.table, options=_options(arguments)
        )
        print(f"{count} items")
        return
    target = _place(arguments.to, arguments.timeout)
    done = formats.import_table(arguments.path, target, format=arguments.format, table=arguments.table)
    print(f"{done} items" if isinstance(done, int) else done)


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line. Returns the exit code."""
    arguments = _parser().parse_args(words)
    try:
        _run(arguments)
    except errors.DeadlineExceededError as error:
        return _fail(arguments, error, _UNREACHABLE)
    except (FileNotFoundError, FileExistsError) as error:
        return _fail(arguments, error, _NOT_FOUND if isinstance(error, FileNotFoundError) else _FAILED)
    except (ValueError, TypeError) as error:
        return _fail(arguments, error, _BAD_USAGE)
    except (ImportError, OSError, RuntimeError) as error:
        return _fail(arguments, error, _NOT_FOUND if getattr(error, "code", "") == "NOT_FOUND" else _FAILED)
    return 0


def _fail(arguments: argparse.Namespace, error: Exception, code: int) -> int:
    print(f"reverb {arguments.command}: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
