#!/usr/bin/env bash
# Implements `make test-packaging`: tests packaging/ and docs/deployment.md, with the program in build/dev and Helm, the
# models of Kubernetes and the Python package, which it sets up in build/tools, build/packaging and build/dev.
#
#   tools/packaging.sh [-- ARGUMENT...]     the arguments go to pytest
#   tools/packaging.sh --installed          sets up only what takes seconds; tests that need more are skipped
#
# Tests the image if buildah and a local image debian:12-slim are there (`debootstrap --variant=minbase bookworm FOLDER`
# makes one where no registry can be reached), and the Slurm job in a private cluster if Slurm is installed and this is root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A version that Go 1.24 and newer can build.
helm_version=v3.19.0
installed_only=0
[[ ${1:-} != --installed ]] || { installed_only=1; shift; }
[[ ${1:-} != -- ]] || shift

version=$(tools/python.sh versions | tail -n 1)
python=$(tools/python.sh interpreter "$version")
tools/venv.sh build/packaging "$python" 'pytest>=8' pyyaml 'kubernetes>=37' numpy
if ((installed_only == 0)); then
  if [[ ! -x build/tools/helm ]] && ! command -v helm > /dev/null; then
    command -v go > /dev/null || { echo "packaging: needs helm, or Go to build it; install one of them" >&2; exit 1; }
    echo "packaging: building helm $helm_version into build/tools; this takes minutes"
    GOBIN=$PWD/build/tools go install "helm.sh/helm/v3/cmd/helm@$helm_version"
  fi
  suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  [[ -e python/reverb/_core$suffix ]] || tools/python.sh develop "$version"
fi
cmake --build build/dev --target reverb_program > /dev/null

# Runs in the folder of the tests: its helpers are modules there.
export PYTHONPATH=$PWD/python
cd tests/packaging
exec ../../build/packaging/bin/python -m pytest -q -p no:cacheprovider -c ../../pyproject.toml --rootdir . -o testpaths=. "$@"
