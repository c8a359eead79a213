#!/usr/bin/env bash
# Prints the C++ compiler for the GCC builds: $CXX if set, g++ if it is version 12 or newer, else the newest installed
# g++ with a version in its name.
set -u
if [[ -n "${CXX:-}" ]]; then
  echo "$CXX"
  exit
fi
major=$(g++ -dumpversion 2> /dev/null | cut -d. -f1)
if [[ "${major:-0}" -lt 12 ]]; then
  for version in 15 14 13 12; do
    command -v "g++-$version" && exit
  done
fi
echo g++
