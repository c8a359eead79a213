#!/usr/bin/env bash
# Runs python/tests/test_formats*.py with the libraries whose formats reverb.formats reads and writes, in an environment of
# its own, build/formats. The ordinary tests skip what is not installed.
#
# PYTHON is the interpreter to use (default python3). Tests python/reverb, with an extension built for that interpreter
# (make python-dev).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
if [[ ! -e python/reverb/_core$suffix ]]; then
  echo "formats: python/reverb has no extension for $("$python" -V); build it with make python-dev" >&2
  exit 2
fi
# jax: Minari needs it to write a dataset with its own collector, which a test does.
tools/venv.sh build/formats "$python" 'pytest>=8' hypothesis ml_dtypes pyarrow 'minari[hdf5]>=0.5.4' pillow jax gymnasium \
  'lerobot[dataset]'
# Libraries warn about each other; the ordinary tests make warnings errors.
PYTHONPATH=python build/formats/bin/python -m pytest -o filterwarnings=default python/tests/test_formats*.py "$@"
