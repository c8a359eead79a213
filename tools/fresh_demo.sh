#!/usr/bin/env bash
# Runs a short `make demo` as on a fresh machine: in a clean copy of the sources, with an empty home directory, without the
# caller's environment variables, with the distribution's Python and pip, and with an incomplete Python environment of an
# interrupted set-up. Shares only the compiler cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$PWD/build/fresh
rm -rf "$work"
mkdir -p "$work/copy" "$work/home"

# Copies all files that git tracks or would track. A source archive has no git: copies all except build/.
if [[ -e .git ]]; then
  git ls-files -z --cached --others --exclude-standard
else
  find . -path ./build -prune -o -type f -print0
fi | tar --create --null --files-from=- --ignore-failed-read 2> /dev/null | tar --extract --directory "$work/copy"

# Simulates an interrupted set-up: an interpreter without pip.
mkdir -p "$work/copy/build"
/usr/bin/python3 -m venv --without-pip "$work/copy/build/venv-demo"

clean=(env -i "HOME=$work/home" PATH=/usr/sbin:/usr/bin:/sbin:/bin)
cache=${CCACHE_DIR:-$(ccache -k cache_dir 2> /dev/null || true)}
[[ -z $cache ]] || clean+=("CCACHE_DIR=$cache")
log=$work/demo.log
# So few updates rarely solve the task: checks the closing line of the demo instead of its exit code.
"${clean[@]}" make -C "$work/copy" demo 'DEMO_ARGS=--updates 400 --actors 2' 2>&1 | tee "$log" || true
grep -qE 'SOLVED in [0-9]+' "$log" || { echo "fresh demo: the demo did not run to its end" >&2; exit 1; }
rm -rf "$work"
