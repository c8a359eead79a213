#!/usr/bin/env bash
# Implements `make lint`: format, clang-tidy over the library's sources, ruff and mypy, include directions, types. clang-tidy
# uses the flags of the clang build; LINT_FILES="src/base/clock.cc ..." restricts it to those files.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

failed=()

echo "=== clang-format ($(clang-format --version | grep -oE '[0-9]+\.[0-9.]+' | head -n 1))"
tools/sources.sh | xargs --no-run-if-empty clang-format --dry-run -Werror || failed+=(clang-format)

# Excludes tests: they favour readability over performance and would double the time.
mapfile -t files < <(printf '%s\n' ${LINT_FILES:-$(tools/sources.sh src | grep '\.cc$' | grep -v '_test\.cc$')})
echo "=== clang-tidy, ${#files[@]} files"
patterns=()
for file in "${files[@]}"; do
  patterns+=("^$PWD/${file//./\\.}\$")   # run-clang-tidy takes regular expressions over absolute paths
done
log=build/clang/clang-tidy.log
cmake -S . -B build/clang > "$log" || { cat "$log"; exit 1; }   # new files join the list of commands
if ! run-clang-tidy -quiet -p build/clang -j "${JOBS:-$(nproc)}" "${patterns[@]}" > "$log" 2>&1; then
  # Without the command lines that it repeats and the count of what it hid in other people's headers.
  grep -vE ' -p=build/clang |warnings generated|^$' "$log"
  failed+=(clang-tidy)
fi

echo "=== Python"
tools/python.sh lint || failed+=(python)

echo "=== include directions, types, tests"
python3 tools/check_includes.py || failed+=(check_includes)
python3 tools/check_types.py || failed+=(check_types)
python3 tools/check_tests.py || failed+=(check_tests)

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "lint FAILED: ${failed[*]}"
  exit 1
fi
echo "lint: all good"
