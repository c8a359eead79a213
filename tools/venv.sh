#!/usr/bin/env bash
# Creates a Python environment, unless it exists and is complete.
#
#   tools/venv.sh FOLDER INTERPRETER REQUIREMENT...
#
# Writes FOLDER/complete last, with the interpreter and the requirements. If it is missing or differs, creates the
# environment again, so that an interrupted set-up needs no manual clean-up.
set -euo pipefail

(($# >= 2)) || { echo "usage: tools/venv.sh FOLDER INTERPRETER REQUIREMENT..." >&2; exit 2; }
folder=$1
interpreter=$2
shift 2

wanted=$(printf '%s\n' "$("$interpreter" -c 'import sys; print(sys.executable, sys.version)')" "$@")
if [[ -x $folder/bin/python && -f $folder/complete && $(< "$folder/complete") == "$wanted" ]]; then exit 0; fi

rm -rf "$folder"
"$interpreter" -m venv "$folder"
# The distribution's pip may be too old for the other scripts: they need 23.1 for -C and repeated --config-settings.
# Replaces it first, since it resolves the other requirements.
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=23.1'
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --prefer-binary "$@"
printf '%s' "$wanted" > "$folder/complete"
