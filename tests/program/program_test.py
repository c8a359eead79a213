#!/usr/bin/env python3
"""Drives the program `reverb` as a user would: command lines, files, signals, a terminal.

    program_test.py --program build/dev/apps/reverb --client build/dev/tests/program/program_client \\
                    --source . [Suite[.test_name]]...

A suite is a class of one of the files suite_*.py beside this one.
"""

import argparse
import pathlib
import sys
import unittest

import frame
from suite_access import Access
from suite_admin import AdminAccess, AdminPort
from suite_bench import Bench
from suite_checkpoints import Checkpoints
from suite_doctor import Doctor
from suite_info import Info, Watch
from suite_items import Change, Items
from suite_logs import Logs, Reload
from suite_memory import Memory, MemoryLimit
from suite_notify import Notify
from suite_rows import RowTables
from suite_serve import Config, Serve
from suite_shells import Shells
from suite_storage import Storage
from suite_tables import Tables
from suite_top import Top
from suite_usage import Pages, Usage

__all__ = [
    "Access", "AdminAccess", "AdminPort", "Bench", "Change", "Checkpoints", "Config", "Doctor", "Info", "Items", "Logs", "Memory", "MemoryLimit", "Notify", "Pages",
    "Reload", "RowTables", "Serve", "Shells", "Storage", "Tables", "Top", "Usage", "Watch",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--static", default="0", choices=["0", "1"], help="1: the program needs libc alone")
    arguments, rest = parser.parse_known_args()
    frame.program, frame.client, frame.source = arguments.program, arguments.client, arguments.source
    frame.is_static = arguments.static == "1"
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
