#!/usr/bin/env bash
# Implements `make test-page`: tests the page of the admin port, tests/browser, in Chromium, with the program in build/dev and the
# Python package. Sets up Playwright in build/page; Chromium is the distribution's.
#
#   tools/page.sh [-- ARGUMENT...]     the arguments go to pytest
#   tools/page.sh --installed          runs only if Chromium and build/page are there, with the package in build/venv-3.x
#   tools/page.sh --pictures           draws the pictures of docs/operations.md again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

installed_only=0
pictures=0
case ${1:-} in
  --installed) installed_only=1; shift ;;
  --pictures) pictures=1; shift ;;
esac
[[ ${1:-} != -- ]] || shift

if ((installed_only)) && { [[ ! -f build/page/complete ]] || [[ -z ${CHROMIUM:-} && -z $(command -v chromium) ]]; }; then
  echo "page: left out: make test-page installs what it needs and tests it"
  exit 0
fi

version=${PYTHON_VERSION:-$(tools/python.sh versions | tail -n 1)}
python=$(tools/python.sh interpreter "$version")
if ((installed_only == 0)) && [[ -z ${CHROMIUM:-} ]] && ! command -v chromium > /dev/null; then
  [[ -z ${REVERB_SKIP_SETUP:-} ]] || { echo "page: needs chromium; install it, or set CHROMIUM" >&2; exit 1; }
  echo "page: installing chromium"
  sudo=()
  [[ $EUID -eq 0 ]] || sudo=(sudo)
  "${sudo[@]}" apt-get install -y --no-install-recommends chromium
fi
tools/venv.sh build/page "$python" 'pytest>=8' 'playwright>=1.49' numpy pillow
if ((installed_only)); then
  packages=$("build/venv-$version/bin/python" -c 'import pathlib, reverb; print(pathlib.Path(reverb.__file__).parents[1])')
else
  tools/python.sh develop "$version"
  packages=$PWD/python
fi
cmake --build build/dev --target reverb_program > /dev/null

# Runs in the folder of the tests: its helpers are modules there. tests/faults has `program`, python/tests has `conditions`.
export PYTHONPATH=$packages:$PWD/tests/faults:$PWD/python/tests
if ((pictures)); then
  exec build/page/bin/python tests/browser/pictures.py "$@"
fi
mkdir -p build/test-results
cd tests/browser
exec ../../build/page/bin/python -m pytest -q -p no:cacheprovider -c ../../pyproject.toml --rootdir . -o testpaths=. \
  -o faulthandler_timeout=600 --junitxml ../../build/test-results/page.xml "$@"
