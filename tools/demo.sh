#!/usr/bin/env bash
# Runs the demo, examples/demo, in a separate environment: build/venv-demo contains the package, with the program `reverb`,
# Gymnasium and Matplotlib. Builds the package in build/demo.
#
#   tools/demo.sh [...]     set up what is missing or out of date, then run the demo; arguments go to it
#   tools/demo.sh --setup   only set up
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=build/venv-demo/bin/python
program=build/venv-demo/bin/reverb
stamp=build/venv-demo/installed   # newer than everything installed

# Returns whether a source of the installed files has changed since.
is_stale() {
  [[ -x $python && -x $program && -f $stamp ]] || return 0
  [[ -n $(find CMakeLists.txt pyproject.toml tools/demo.sh tools/venv.sh apps cmake include proto python/bindings \
    python/reverb src -newer "$stamp" -type f ! -name '*.so' ! -name '*.pyc' -print -quit) ]]
}

set_up() {
  local version log=build/demo-setup.log start=$SECONDS
  version=$(tools/python.sh versions | tail -n 1)
  [[ -n $version ]] || { echo "demo: no CPython 3.10 or newer with venv was found" >&2; exit 1; }
  mkdir -p build
  echo "demo: setting up in build/venv-demo: CPython $version, Gymnasium, Matplotlib, and this package, which is compiled;"
  echo "demo: that takes some minutes the first time, and no time afterwards (log: $log)"
  if ! install_all "$version" 2>&1 | tee "$log" | show_progress; then
    tail -n 30 "$log" >&2
    echo "demo: setting up failed; the above is the end of $log" >&2
    exit 1
  fi
  echo "demo: set up in $((SECONDS - start)) s"
}

# Shows the progress of the compilation: on a terminal in one line, otherwise a line for each tenth.
show_progress() {
  local line terminal=0 tenth=0
  [[ ! -t 1 ]] || terminal=1
  while IFS= read -r line; do
    [[ $line =~ ^\ *\[([0-9]+)/([0-9]+)\] ]] || continue
    if ((terminal)); then
      printf '\rdemo: compiling, %d of %d files ' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    elif ((10 * BASH_REMATCH[1] / BASH_REMATCH[2] > tenth)); then
      tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
      printf 'demo: compiling, %d of %d files\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    fi
  done
  if ((terminal)); then printf '\r\033[K'; fi
}

# Called in a condition, where `set -e` has no effect: each command handles its failure.
install_all() {
  local version=$1 begin
  begin=$(mktemp) || return
  tools/venv.sh build/venv-demo "$(tools/python.sh interpreter "$version")" numpy gymnasium matplotlib \
    'scikit-build-core>=0.10' 'nanobind>=2.4' || return
  CXX=${CXX:-$(tools/cxx.sh)} || return
  export CXX CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
  "$python" -m pip install --disable-pip-version-check --verbose --no-build-isolation --no-deps --force-reinstall \
    --config-settings build-dir=build/demo . || return
  # Files that changed meanwhile must be newer than the stamp.
  touch -r "$begin" "$stamp"
  rm -f "$begin"
}

if is_stale; then set_up; fi
[[ ${1:-} != --setup ]] || exit 0
exec "$python" examples/demo/cartpole.py --program "$program" "$@"
