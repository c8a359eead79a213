#!/usr/bin/env bash
# Prints our C++ files, one a line: what is formatted and linted. With arguments: those folders only.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
[[ $# -gt 0 ]] || set -- include src apps python/bindings examples tests benchmarks
for folder in "$@"; do
  [[ ! -d "$folder" ]] || find "$folder" -type f \( -name '*.h' -o -name '*.cc' \)
done | sort
