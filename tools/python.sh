#!/usr/bin/env bash
# Builds and tests the Python package in separate environments, one for each version of CPython: build/venv-3.11 etc.
#
#   tools/python.sh versions            the supported versions that are installed
#   tools/python.sh interpreter 3.11    the path of that interpreter
#   tools/python.sh install 3.11        build and install the package and the requirements of its tests
#   tools/python.sh test 3.11 [...]     run the tests of the installed package, in parallel; arguments go to pytest
#   tools/python.sh develop 3.11        build the extension in build/dev, next to the Python files:
#                                       PYTHONPATH=python build/venv-3.11/bin/python -m pytest python/tests
#   tools/python.sh test-tree 3.11 [...]  run the tests against these files instead of the installed package
#   tools/python.sh types               mypy and pyright over small programs that use the package
#   tools/python.sh lint                ruff and mypy, and the above
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

supported=(3.10 3.11 3.12 3.13)

# Prints the interpreter of a version: pyenv's newest, or the one on the path. Ignores shims without an interpreter.
interpreter() {
  local version=$1 found
  for found in "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$version".*/bin/python3 "$(command -v "python$version" || true)"; do
    if [[ -x $found ]] && "$found" -c 'import ensurepip, venv' 2> /dev/null; then
      printf '%s\n' "$found"
      return 0
    fi
  done
  return 1
}

venv() {
  local version=$1 python
  python=$(interpreter "$version") || { echo "python.sh: CPython $version with venv was not found" >&2; exit 1; }
  # The oldest version is tested with the oldest NumPy that the package allows.
  local numpy=numpy
  [[ $version != 3.10 ]] || numpy='numpy==1.26.*'
  tools/venv.sh "build/venv-$version" "$python" "$numpy" \
    'scikit-build-core>=0.10' 'nanobind>=2.4' pytest pytest-xdist hypothesis ml_dtypes attrs dm-tree protobuf gymnasium dm-env pettingzoo pyarrow jsonschema prometheus-client pyyaml
}

lint_venv() {
  local version
  version=$("$0" versions | tail -n 1)
  tools/venv.sh build/venv-lint "$(interpreter "$version")" ruff mypy basedpyright numpy typing_extensions
}

# run_pytest VERSION [PYTHON OPTION...] -- ARGUMENT...: runs in build/. A test that hangs prints its stacks and ends the run.
run_pytest() {
  local version=$1 options=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  mkdir -p test-results
  timeout 1500 "venv-$version/bin/python" "${options[@]}" -m pytest -o faulthandler_timeout=300 -n "${JOBS:-$(nproc)}" \
    ../python/tests -c ../pyproject.toml --rootdir .. --junitxml "test-results/python-$version.xml" "$@"
}

export CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
CXX=${CXX:-$(tools/cxx.sh)}
export CXX

case "${1:-}" in
  versions)
    for version in "${supported[@]}"; do
      if interpreter "$version" > /dev/null; then echo "$version"; fi
    done
    ;;
  interpreter)
    interpreter "$2"
    ;;
  install)
    venv "$2"
    "build/venv-$2/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
      --force-reinstall .
    "build/venv-$2/bin/python" -c 'import reverb; print("reverb", reverb.__version__, "in", reverb.__path__[0])'
    ;;
  test)
    version=$2
    shift 2
    # Runs in another folder, so that Python finds the installed package.
    cd build
    "venv-$version/bin/python" -P -c '' 2> /dev/null && safe=-P || safe=
    run_pytest "$version" $safe -- "$@"
    ;;
  test-tree)
    version=$2
    shift 2
    cd build
    PYTHONPATH=$PWD/../python run_pytest "$version" -- "$@"
    ;;
  develop)
    venv "$2"
    # Forgets the headers and the nanobind of another version.
    cmake --preset dev -U '*Python_*' -U nanobind_DIR -DREVERB_PYTHON=ON "-DPython_EXECUTABLE=$PWD/build/venv-$2/bin/python" > /dev/null
    cmake --build build/dev --target _core
    ;;
  types)
    lint_venv
    build/venv-lint/bin/python tools/check_typing.py
    ;;
  lint)
    lint_venv
    build/venv-lint/bin/ruff check python examples benchmarks/python
    build/venv-lint/bin/ruff format --check --quiet python/reverb examples benchmarks/python
    build/venv-lint/bin/mypy
    build/venv-lint/bin/python tools/check_typing.py
    ;;
  *)
    echo "usage: tools/python.sh versions | interpreter VERSION | install VERSION | test VERSION [...] | test-tree VERSION [...] | develop VERSION | types | lint" >&2
    exit 2
    ;;
esac
