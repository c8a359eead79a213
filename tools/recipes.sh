#!/usr/bin/env bash
# Implements `make test-recipes`: runs the learners of examples/python/recipes in PyTorch and in JAX, in the environments
# that tools/coexist.sh creates (build/coexist-torch, build/coexist-jax; the former takes several GB).
#
#   tools/recipes.sh          both
#   tools/recipes.sh jax      one of them
#
# PYTHON is the interpreter to use; by default the newest one that python/reverb has an extension for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chosen=("$@")
[[ ${#chosen[@]} -gt 0 ]] || chosen=(torch jax)
if [[ -z ${PYTHON:-} ]]; then
  built=$(find python/reverb -name '_core.cpython-*.so' -printf '%f\n' | sed -nE 's/.*cpython-3([0-9]+)-.*/3.\1/p' | sort -V | tail -n 1)
  if [[ -z $built ]]; then
    built=$(tools/python.sh versions | tail -n 1)
    echo "recipes: building the Python extension for CPython $built"
    tools/python.sh develop "$built"
  fi
  PYTHON=$(tools/python.sh interpreter "$built")
fi
export PYTHON

failed=0
for name in "${chosen[@]}"; do
  printf '\n=== %s\n' "$name"
  tools/coexist.sh --prepare "$name"
  if [[ ! -f build/coexist-$name/complete ]]; then
    echo "recipes: build/coexist-$name could not be created" >&2
    failed=1
    continue
  fi
  REVERB_RECIPES=$name PYTHONPATH=python "build/coexist-$name/bin/python" -m pytest -q -p no:cacheprovider \
    python/tests/test_recipes_algorithms.py --durations=3 || failed=1
done
exit "$failed"
