# Sourced by tools/check.sh and tools/test.sh: runs stages one after the other or two at a time, and prints a summary. A
# stage that fails only skips the stages that need it; the summary names every failure. Keeps the output of each stage in
# build/test-logs.
#
#   stage NAME COMMAND...                runs a stage
#   needs FIRST stage NAME COMMAND...    skips it if FIRST failed
#   begin_stage NAME COMMAND...          runs it concurrently, two at a time; await_stages waits for them
#   run_ctest PRESET [LABELS [PREFIX...]]  every test of that build with one of the labels (a regular expression; "" = all)
#   summarize                            lists the slowest tests and a line per stage; fails if a stage failed
#
# The list of slowest tests includes runners that write JUnit XML to $results/<name>.xml.
set -uo pipefail

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

# Adds a line to the summary, with the closing line of ctest or pytest, if there is one.
note() {
  local name=$1 seconds=$2 closing
  names+=("$name")
  closing=$(grep -E '^[0-9]+% tests passed|^=* ?[0-9]+ (passed|failed).*' "$logs/${name// /-}.log" | tail -n 1)
  lines+=("$(printf '%-7s %5d s  %-20s %s' "${outcome[$name]}" "$seconds" "$name" "$closing")")
}

# Runs a stage concurrently with others, two at a time. `await_stages` shows its output and records its outcome.
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

# needs STAGE stage NAME...: runs the second stage only if the first succeeded.
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

# run_ctest PRESET [LABELS [PREFIX...]]: runs all tests of that build, or those with a matching label. A GoogleTest
# program is one test of ctest; it writes its cases to $results/PRESET.
run_ctest() {
  local preset=$1 labels=${2:-}
  shift $(($# < 2 ? $# : 2))
  GTEST_OUTPUT=xml:$results/$preset/ "$@" ctest --preset "$preset" --parallel "$jobs" --no-tests=error \
    ${labels:+--label-regex "$labels"} --output-junit "$results/$preset.xml"
}

# ThreadSanitizer of GCC 12 supports at most 28 random address bits; newer kernels use more.
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

summarize() {
  local name failed=()
  printf '\n=== slowest tests\n'
  python3 tools/slowest_tests.py --count 10 "$results"

  printf '\n=== summary (%d s)\n' "$SECONDS"
  printf '%s\n' "${lines[@]}"
  for name in "${names[@]}"; do
    [[ ${outcome[$name]} == ok ]] || failed+=("$name")
  done
  if [[ ${#failed[@]} -gt 0 ]]; then
    python3 tools/slowest_tests.py --failed "$results"
    printf 'FAILED:'
    printf ' [%s]' "${failed[@]}"
    printf '; logs in build/test-logs\n'
    return 1
  fi
  printf 'all good\n'
}
