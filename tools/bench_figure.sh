#!/usr/bin/env bash
# Implements `make bench-figure`: creates an environment with dm-reverb (build/venv-dm-reverb, about 2 GB of TensorFlow),
# measures both in turn (build/bench-python.json), and draws the picture in the README.
#
#   BENCH_ARGS="--tables hot --seconds 0.3 --rounds 2"   a short run
#   DM_REVERB=/path/to/python                            an interpreter with dm-reverb installed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dm_reverb=${DM_REVERB:-}
if [[ -z $dm_reverb ]]; then
  dm_reverb=$PWD/build/venv-dm-reverb/bin/python
  # Its wheels are for CPython up to 3.11.
  interpreter=$(tools/python.sh interpreter 3.11 || tools/python.sh interpreter 3.10) ||
    { echo "bench-figure: dm-reverb needs CPython 3.10 or 3.11, which was not found" >&2; exit 1; }
  echo "bench-figure: dm-reverb and TensorFlow will be installed into build/venv-dm-reverb if necessary"
  tools/venv.sh build/venv-dm-reverb "$interpreter" 'dm-reverb[tensorflow]==0.14.0' 'numpy<2' 'setuptools<80'
  "$dm_reverb" -c 'import reverb' > /dev/null
fi

"${MAKE:-make}" --no-print-directory bench-python "DM_REVERB=$dm_reverb" "BENCH_ARGS=--json ${BENCH_ARGS:---tables hot}" \
  > build/bench-python.json
note="$(nproc) cores of $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(. /etc/os-release && echo "$PRETTY_NAME"); \
dm-reverb 0.14.0; commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d). Median of both sides in turn."
python3 benchmarks/python/plot.py build/bench-python.json docs/pictures/comparison.svg --note "$note"
