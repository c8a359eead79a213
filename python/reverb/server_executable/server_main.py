"""Runs a server: `python -m reverb.server_executable.server_main --config=...`."""

import sys

from reverb._compat.server_main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
