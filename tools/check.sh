#!/usr/bin/env bash
# Implements `make check`, to run before each commit: include rules, the dev build including the Python extension, unit and
# conformance tests, and the Python tests with the newest CPython. `make test` runs all checks.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
. tools/stages.sh

stage "include directions" python3 tools/check_includes.py
stage "types defined once" python3 tools/check_types.py
stage "tests assert" python3 tools/check_tests.py
stage "documents" python3 tools/check_docs.py
version=$(tools/python.sh versions | tail -n 1)
# The extension is part of the same build, so that the library is compiled once.
build() {
  tools/python.sh develop "$version" && "${MAKE:-make}" build-dev
}
stage "build dev" build
# Side by side: both wait more than they compute.
needs "build dev" begin_stage "test dev" run_ctest dev '^(unit|conformance)$'
needs "build dev" begin_stage "test python $version" tools/python.sh test-tree "$version" -q
await_stages
summarize
