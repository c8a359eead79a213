#!/usr/bin/env python3
"""Speaks the native protocol as another language would: by docs/protocol.md and the proto file alone.

    speak_protocol.py --server build/dev/tests/scenarios/scenario_server --proto proto [unittest arguments]

Exits with 77 (skipped) where Python has no gRPC, or protoc or the library xxhash is missing.
"""

import argparse
import importlib
import pathlib
import sys
import tempfile
import unittest

import protocol_messages

SKIPPED = 77
SUITES = ("suite_protocol", "suite_protocol_mistakes")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--proto", required=True, type=pathlib.Path)
    args, rest = parser.parse_known_args()
    missing = protocol_messages.find_libraries()
    if missing:
        print(f"skipped: {missing}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as temporary:
        protocol_messages.generate(args.proto, pathlib.Path(temporary))
        # These modules need what was generated.
        importlib.import_module("protocol_client").server_program = args.server
        for suite in map(importlib.import_module, SUITES):
            # unittest finds tests in this module, by their short names.
            globals().update({name: value for name, value in vars(suite).items() if name.endswith("Test")})
        program = unittest.main(argv=[sys.argv[0], *rest], verbosity=2, exit=False)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
