#!/usr/bin/env bash
# Implements `make docs`: creates an environment with MkDocs (build/venv-docs), builds the Python extension if necessary
# (the reference contains its docstrings), draws the pictures, and builds the site (build/docs/site).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The version of CPython that the extension beside the Python files was built for.
built=$(find python/reverb -name '_core.cpython-*.so' -printf '%f\n' | sed -nE 's/.*cpython-3([0-9]+)-.*/3.\1/p' | sort | tail -n 1)
if [[ -z $built ]]; then
  built=$(tools/python.sh versions | tail -n 1)
  echo "docs: building the Python extension for CPython $built"
  tools/python.sh develop "$built"
fi

# Uses that version: others cannot import the extension.
python=build/venv-docs/bin/python
tools/venv.sh build/venv-docs "$(tools/python.sh interpreter "$built")" 'mkdocs>=1.6,<2' 'mkdocs-material>=9.5,<10' numpy

python3 docs/pictures/make.py
python3 tools/check_docs.py
NO_MKDOCS_2_WARNING=1 PYTHONPATH=python "$python" tools/docs/build.py
