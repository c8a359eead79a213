#!/usr/bin/env bash
# Implements `make fuzz`: runs each fuzzer of tests/fuzz for FUZZ_SECONDS. Starts from the stored corpus,
# tests/fuzz/corpus/<name> for <name>_fuzz, copied to build/fuzz/corpus/<name>, which collects new inputs
# across runs. Writes failing inputs to build/fuzz/artifacts.
#
#   FUZZERS="chunk_fuzz ..."   only these
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

seconds=${FUZZ_SECONDS:-60}
build=build/fuzz
artifacts=$build/artifacts

if [[ -n "${FUZZERS:-}" ]]; then
  read -ra fuzzers <<< "$FUZZERS"
else
  mapfile -t fuzzers < <(find tests/fuzz -name '*_fuzz.cc' -printf '%f\n' | sed 's/\.cc$//' | sort)
fi
if [[ ${#fuzzers[@]} -eq 0 ]]; then
  echo "fuzz: no *_fuzz.cc in tests/fuzz" >&2
  exit 1
fi
cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${fuzzers[@]}" || exit 1

mkdir -p "$artifacts"
failed=()
for fuzzer in "${fuzzers[@]}"; do
  name=${fuzzer%_fuzz}
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  if [[ -d tests/fuzz/corpus/$name ]]; then cp -rn "tests/fuzz/corpus/$name/." "$corpus/"; fi
  echo "=== $fuzzer, $seconds s from $(find "$corpus" -type f | wc -l) inputs"
  "$build/tests/fuzz/$fuzzer" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$artifacts/$name-" "$corpus" || failed+=("$fuzzer")
done

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "fuzz FAILED: ${failed[*]}; inputs in $artifacts"
  exit 1
fi
echo "fuzz: ${#fuzzers[@]} fuzzers, $seconds s each, nothing found"
