#!/usr/bin/env bash
# Runs a short `make demo` as on a fresh machine: in a clean copy of the sources, with an empty home, without the caller's
# environment, with the distribution's own Python and pip, and with an environment that an interrupted set-up left behind. Only
# the compiler's cache is shared.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$PWD/build/fresh
rm -rf "$work"
mkdir -p "$work/copy" "$work/home"

# What git tracks or would track, as it is now. A source archive has no git: everything but what was built.
if [[ -e .git ]]; then
  git ls-files -z --cached --others --exclude-standard
else
  find . -path ./build -prune -o -type f -print0
fi | tar --create --null --files-from=- --ignore-failed-read 2> /dev/null | tar --extract --directory "$work/copy"

# An environment that an interrupted set-up left: an interpreter without pip.
mkdir -p "$work/copy/build"
/usr/bin/python3 -m venv --without-pip "$work/copy/build/venv-demo"

clean=(env -i "HOME=$work/home" PATH=/usr/sbin:/usr/bin:/sbin:/bin)
cache=${CCACHE_DIR:-$(ccache -k cache_dir 2> /dev/null || true)}
[[ -z $cache ]] || clean+=("CCACHE_DIR=$cache")
log=$work/demo.log
# So few updates do not solve the task, except by luck: the demo's own closing line decides, not its exit code.
"${clean[@]}" make -C "$work/copy" demo 'DEMO_ARGS=--updates 400 --actors 2' 2>&1 | tee "$log" || true
grep -qE 'SOLVED in [0-9]+' "$log" || { echo "fresh demo: the demo did not run to its end" >&2; exit 1; }
rm -rf "$work"
