#!/usr/bin/env bash
# What `make test` runs, in stages. A stage that fails does not stop the others, only those that need
# it; the end names every failure. Each stage's output is kept in build/test-logs.
#
# To add a stage: one `stage <name> <command...>` line below; `needs <name>` in front of it skips it
# when that stage failed. A runner that writes JUnit XML to $results/<name>.xml is counted among the
# slowest tests.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

jobs=${JOBS:-$(nproc)}
logs=$PWD/build/test-logs
results=$PWD/build/test-results
rm -rf "$logs" "$results"
mkdir -p "$logs" "$results"

declare -A outcome=()   # stage -> ok, FAILED or skipped
names=()
lines=()

stage() {
  local name=$1 start=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  if "$@" 2>&1 | tee "$logs/${name// /-}.log"; then outcome[$name]=ok; else outcome[$name]=FAILED; fi
  note "$name" $((SECONDS - start))
}

# A line of the summary, with the closing line of ctest or pytest, if there is one.
note() {
  local name=$1 seconds=$2 closing
  names+=("$name")
  closing=$(grep -E '^[0-9]+% tests passed|^=* ?[0-9]+ (passed|failed).*' "$logs/${name// /-}.log" | tail -n 1)
  lines+=("$(printf '%-7s %5d s  %-20s %s' "${outcome[$name]}" "$seconds" "$name" "$closing")")
}

# Runs a stage beside others, two at a time. Its output is shown, and its outcome known, after `await_stages`.
begun=()
begin_stage() {
  local name=$1
  shift
  while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
  printf '\n=== %s (beside others)\n' "$name"
  (
    start=$SECONDS
    if "$@" > "$logs/${name// /-}.log" 2>&1; then echo ok; else echo FAILED; fi > "$logs/${name// /-}.outcome"
    echo $((SECONDS - start)) >> "$logs/${name// /-}.outcome"
  ) &
  begun+=("$name")
}
await_stages() {
  local name result seconds
  wait
  for name in "${begun[@]}"; do
    { read -r result; read -r seconds; } < "$logs/${name// /-}.outcome"
    outcome[$name]=$result
    printf '\n=== %s\n' "$name"
    tail -n 60 "$logs/${name// /-}.log"
    note "$name" "$seconds"
  done
  begun=()
}

# needs STAGE stage NAME...: runs the second stage only when the first was good.
needs() {
  local first=$1
  shift
  if [[ ${outcome[$first]} == ok ]]; then
    "$@"
  else
    outcome[$2]=skipped
    names+=("$2")
    lines+=("$(printf '%-7s %5d s  %-20s needs "%s"' skipped 0 "$2" "$first")")
  fi
}

# run_ctest PRESET [PREFIX...]: every test of that build.
run_ctest() {
  local preset=$1
  shift
  "$@" ctest --preset "$preset" --parallel "$jobs" --no-tests=error --output-junit "$results/$preset.xml"
}

# ThreadSanitizer's run-time of GCC 12 cannot live with more than 28 random address bits, which newer
# kernels use.
steady_addresses=()
random_bits=$(cat /proc/sys/vm/mmap_rnd_bits 2> /dev/null || echo 0)
if [[ $random_bits -gt 28 ]] && setarch "$(uname -m)" -R true 2> /dev/null; then
  steady_addresses=(setarch "$(uname -m)" -R)
fi

export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}

CXX=$(tools/cxx.sh)
export CXX

stage "include rules" python3 tools/check_includes.py --self-test
stage "include directions" python3 tools/check_includes.py
stage "type rules" python3 tools/check_types.py --self-test
stage "types defined once" python3 tools/check_types.py
stage "documents" python3 tools/check_docs.py
stage "headers alone" python3 tools/check_headers.py --jobs "$jobs"
stage "build dev" "${MAKE:-make}" build-dev
needs "build dev" stage "test dev" run_ctest dev
# Without inlining the linker chooses one copy of each inline function, which shows what breaks the one-definition rule.
if [[ -n ${REVERB_TEST_LONG:-} ]]; then
  stage "build debug" "${MAKE:-make}" build-debug
  needs "build debug" stage "test debug" run_ctest debug
fi
# Without tests, save for the long ones: the lock analysis is about the library.
clang=clang-library
[[ -z ${REVERB_TEST_LONG:-} ]] || clang=clang
stage "build clang" "${MAKE:-make}" "build-$clang"
stage "build asan" "${MAKE:-make}" build-asan
needs "build asan" stage "test asan" run_ctest asan
stage "build tsan" "${MAKE:-make}" build-tsan
needs "build tsan" stage "test tsan" run_ctest tsan "${steady_addresses[@]}"

# The oldest and the newest CPython run everything; those between them what their interpreter can make a difference
# to. The long tests run everything everywhere.
mapfile -t pythons < <(tools/python.sh versions)
for version in 3.10 3.11 3.12 3.13; do
  if [[ " ${pythons[*]} " == *" $version "* ]]; then
    selection=()
    if [[ $version != "${pythons[0]}" && $version != "${pythons[-1]}" && -z ${REVERB_TEST_LONG:-} ]]; then
      selection=(-k 'not scenarios and not properties and not hostile and not docs and not demo and not moving')
    fi
    stage "build python $version" tools/python.sh install "$version"
    # They wait more than they work: while one version is tested the next is built.
    needs "build python $version" begin_stage "test python $version" tools/python.sh test "$version" -q "${selection[@]}"
  else
    lines+=("$(printf '%-7s %5d s  %-20s no CPython %s here' absent 0 "test python $version" "$version")")
  fi
done
await_stages
stage "fresh demo" tools/fresh_demo.sh

printf '\n=== slowest tests\n'
python3 tools/slowest_tests.py --count 10 "$results"

printf '\n=== summary (%d s)\n' "$SECONDS"
printf '%s\n' "${lines[@]}"
failed=()
for name in "${names[@]}"; do
  [[ ${outcome[$name]} == ok ]] || failed+=("$name")
done
if [[ ${#failed[@]} -gt 0 ]]; then
  python3 tools/slowest_tests.py --failed "$results"
  printf 'FAILED:'
  printf ' [%s]' "${failed[@]}"
  printf '; logs in build/test-logs\n'
  exit 1
fi
printf 'all good\n'
