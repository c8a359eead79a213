#!/usr/bin/env bash
# Prints the C++ files to format and lint, one per line. With arguments: only those folders.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
[[ $# -gt 0 ]] || set -- include src apps python/bindings examples tests benchmarks
for folder in "$@"; do
  [[ ! -d "$folder" ]] || find "$folder" -type f \( -name '*.h' -o -name '*.cc' \)
done | sort
