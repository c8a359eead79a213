#!/usr/bin/env bash
# What `make check` runs: what to run before each commit. The include rules, the everyday build with the Python extension
# in it, unit and conformance tests, and the Python tests with the newest CPython. `make test` runs the whole.
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
needs "build dev" stage "test dev" run_ctest dev '^(unit|conformance)$'
needs "build dev" stage "test python $version" tools/python.sh test-tree "$version" -q
summarize
