#!/usr/bin/env bash
# Prints the C++ compiler for the GCC builds: $CXX if that is set, g++ if it is new enough (12), else
# the newest versioned g++ that is here.
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
