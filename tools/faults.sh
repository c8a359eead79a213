#!/usr/bin/env bash
# Implements `make test-faults`: tests/faults with the program in build/dev and the Python package. REVERB_TEST_LONG=1 runs the
# long campaign.
#
#   tools/faults.sh [-- ARGUMENT...]     with python/reverb and the extension next to it; the arguments go to pytest
#   tools/faults.sh --installed          with the package that is installed in build/venv-3.x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

installed=0
[[ ${1:-} != --installed ]] || { installed=1; shift; }
[[ ${1:-} != -- ]] || shift

version=${PYTHON_VERSION:-$(tools/python.sh versions | tail -n 1)}
if ((installed == 0)); then
  tools/python.sh develop "$version"
  export PYTHONPATH=$PWD/python
fi
cmake --build build/dev --target reverb_program > /dev/null

# Runs in the folder of the tests: its helpers are modules there.
mkdir -p build/test-results
cd tests/faults
exec "../../build/venv-$version/bin/python" -m pytest -q -p no:cacheprovider -c ../../pyproject.toml --rootdir . \
  -o testpaths=. -o faulthandler_timeout=600 --junitxml ../../build/test-results/faults.xml "$@"
