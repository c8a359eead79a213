"""The fixtures of python/tests, which tools/frameworks.sh puts on the path."""

from __future__ import annotations

import importlib.util
from pathlib import Path

# By its file: this module is called conftest as well.
_spec = importlib.util.spec_from_file_location("shared_fixtures", Path(__file__).parents[1] / "tests" / "conftest.py")
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)

join = _shared.join
make_table = _shared.make_table
run_in_threads = _shared.run_in_threads
serve = _shared.serve
server = _shared.server
connect = _shared.connect
client = _shared.client
writer = _shared.writer
