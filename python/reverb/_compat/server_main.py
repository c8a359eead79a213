"""Runs a server from the command line.

    python -m reverb.server_executable.server_main --config="port: 8000 tables { table_name: 'queue' ... }"

The config is the text form of a ReverbServerConfig message. Needs the protobuf package.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import sys


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until interrupted. Returns 1 without a config."""
    parser = argparse.ArgumentParser(prog="reverb_server", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--config", help="text form of a ReverbServerConfig message")
    config_text = parser.parse_args(argv).config
    if config_text is None:
        print("reverb_server: --config is needed", file=sys.stderr)
        return 1

    from google.protobuf import text_format

    from reverb import server
    from reverb._compat import server_from_proto
    from reverb.server_executable import reverb_config_pb2

    config = text_format.Parse(config_text, reverb_config_pb2.ReverbServerConfig())
    running = server.Server(tables=server_from_proto.tables_from_proto(config.tables), port=config.port or None)
    print(f"reverb_server: listening on port {running.port}", file=sys.stderr)
    running.wait()
    return 0
