#!/usr/bin/env bash
# Implements `make test`: every check, build and test. tools/stages.sh defines stages; to add one, add a line
# `stage NAME COMMAND...`.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
. tools/stages.sh

stage "include rules" python3 tools/check_includes.py --self-test
stage "include directions" python3 tools/check_includes.py
stage "type rules" python3 tools/check_types.py --self-test
stage "types defined once" python3 tools/check_types.py
stage "test rules" python3 tools/check_tests.py --self-test
stage "tests assert" python3 tools/check_tests.py
stage "documents" python3 tools/check_docs.py
stage "headers alone" python3 tools/check_headers.py --jobs "$jobs"
stage "build dev" "${MAKE:-make}" build-dev
needs "build dev" stage "test dev" run_ctest dev
# Without inlining the linker keeps one copy of each inline function, which reveals violations of the one-definition rule.
if [[ -n ${REVERB_TEST_LONG:-} ]]; then
  stage "build debug" "${MAKE:-make}" build-debug
  needs "build debug" stage "test debug" run_ctest debug
  # The linker compares the types of all files: -Wodr, as an error. The program only: every link optimises the whole library again.
  stage "build lto" "${MAKE:-make}" build-lto
  needs "build dev" stage "soak" "${MAKE:-make}" soak
fi
# Without tests, except in long runs: the lock analysis is for the library.
clang=clang-library
[[ -z ${REVERB_TEST_LONG:-} ]] || clang=clang
stage "build clang" "${MAKE:-make}" "build-$clang"
stage "build asan" "${MAKE:-make}" build-asan
needs "build asan" stage "test asan" run_ctest asan
stage "build tsan" "${MAKE:-make}" build-tsan
needs "build tsan" stage "test tsan" run_ctest tsan '' "${steady_addresses[@]}"

# The oldest and the newest CPython run all tests; the others run the tests that depend on the interpreter. Long runs
# execute all tests with all versions.
mapfile -t pythons < <(tools/python.sh versions)
for version in 3.10 3.11 3.12 3.13; do
  if [[ " ${pythons[*]} " == *" $version "* ]]; then
    selection=()
    if [[ $version != "${pythons[0]}" && $version != "${pythons[-1]}" && -z ${REVERB_TEST_LONG:-} ]]; then
      selection=(-k 'not scenarios and not properties and not hostile and not docs and not demo and not moving')
    fi
    stage "build python $version" tools/python.sh install "$version"
    needs "build python $version" stage "test python $version" tools/python.sh test "$version" -q "${selection[@]}"
  else
    lines+=("$(printf '%-7s %5d s  %-20s CPython %s was not found' absent 0 "test python $version" "$version")")
  fi
done
needs "build python ${pythons[-1]}" stage "faults" tools/faults.sh --installed
needs "build dev" stage "packaging" tools/packaging.sh --installed
needs "build python ${pythons[-1]}" stage "page" tools/page.sh --installed
stage "frameworks" tools/frameworks.sh --installed
stage "python types" tools/python.sh types
wheel_of_newest() {
  tools/wheel.sh build "${pythons[-1]}" && tools/wheel.sh test "${pythons[-1]}"
}
stage "wheel" wheel_of_newest
stage "fresh demo" tools/fresh_demo.sh

summarize
