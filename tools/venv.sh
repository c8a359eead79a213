#!/usr/bin/env bash
# Makes a Python environment, unless it is there and complete.
#
#   tools/venv.sh FOLDER INTERPRETER REQUIREMENT...
#
# FOLDER/complete is written last and records the interpreter and the requirements. Without it, or when it differs,
# the environment is made anew: one whose set-up was interrupted never has to be removed by hand.
set -euo pipefail

(($# >= 2)) || { echo "usage: tools/venv.sh FOLDER INTERPRETER REQUIREMENT..." >&2; exit 2; }
folder=$1
interpreter=$2
shift 2

wanted=$(printf '%s\n' "$("$interpreter" -c 'import sys; print(sys.executable, sys.version)')" "$@")
if [[ -x $folder/bin/python && -f $folder/complete && $(< "$folder/complete") == "$wanted" ]]; then exit 0; fi

rm -rf "$folder"
"$interpreter" -m venv "$folder"
# The distributions' pip may be too old for what the other scripts use: -C and repeated --config-settings came with 23.1.
# It has to be replaced first, since it resolves the rest.
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=23.1'
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --prefer-binary "$@"
printf '%s' "$wanted" > "$folder/complete"
