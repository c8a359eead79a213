#!/usr/bin/env bash
# Runs python/tests/test_coexist.py with other libraries in the same process: TensorFlow, Torch, JAX, gRPC and several
# versions of protobuf, each in a separate environment build/coexist-*.
#
#   tools/coexist.sh               all of them
#   tools/coexist.sh torch grpcio  only these
#   tools/coexist.sh --list        their names and contents
#   tools/coexist.sh --prepare     create the environments, run nothing
#
# PYTHON is the interpreter to use (default python3). Tests python/reverb, with an extension built for that
# interpreter, or the wheel WHEEL. Preloads the installed allocators of tools/packages.txt. Skips and reports
# environments that cannot be created (no wheels for this Python, no network); they are not failures.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

python=${PYTHON:-python3}

# name: arguments of pip. The oldest and the newest TensorFlow in use differ in whether they export gRPC and protobuf; the
# versions of protobuf are the last of each implementation.
declare -A contents=(
  [tf-2.15]="tensorflow-cpu==2.15.* numpy<2 ml_dtypes"
  [tf-2.21]="tensorflow-cpu==2.21.* numpy ml_dtypes"
  [torch]="torch numpy ml_dtypes"
  [jax]="jax numpy"
  [grpcio]="grpcio grpcio-status protobuf numpy"
  [grpcio-old]="grpcio==1.54.* protobuf==3.20.* numpy"
  [protobuf-4]="protobuf==4.25.* dm-tree numpy"
  [all]="tensorflow-cpu==2.21.* torch jax grpcio dm-tree numpy ml_dtypes"
)
order=(tf-2.15 tf-2.21 torch jax grpcio grpcio-old protobuf-4 all)

prepare_only=0
chosen=()
for argument in "$@"; do
  case $argument in
    --list)
      for name in "${order[@]}"; do printf '%-12s %s\n' "$name" "${contents[$name]}"; done
      exit 0
      ;;
    --prepare) prepare_only=1 ;;
    *)
      if [[ -z ${contents[$argument]:-} ]]; then
        echo "coexist: no environment \"$argument\"; there are: ${order[*]}" >&2
        exit 2
      fi
      chosen+=("$argument")
      ;;
  esac
done
[[ ${#chosen[@]} -gt 0 ]] || chosen=("${order[@]}")

suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
if [[ -z ${WHEEL:-} && $prepare_only -eq 0 && ! -e python/reverb/_core$suffix ]]; then
  echo "coexist: python/reverb has no extension for $("$python" -V); build it, or give a WHEEL" >&2
  exit 2
fi

# prepare NAME: creates build/coexist-NAME unless it exists with the same contents.
prepare() {
  # shellcheck disable=SC2086  # several words
  tools/venv.sh "build/coexist-$1" "$python" pytest ${contents[$1]}
}

mkdir -p build/test-results
lines=()
failed=0
for name in "${chosen[@]}"; do
  printf '\n=== %s (%s)\n' "$name" "${contents[$name]}"
  if ! prepare "$name"; then
    lines+=("$(printf '%-12s skipped: could not be installed' "$name")")
    continue
  fi
  if [[ $prepare_only -eq 1 ]]; then
    lines+=("$(printf '%-12s ready' "$name")")
    continue
  fi
  log=build/coexist-$name/test.log
  path=python
  if [[ -n ${WHEEL:-} ]]; then
    path=
    "build/coexist-$name/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$WHEEL" || exit
  fi
  # "all" only adds the combinations of the others.
  tests=()
  [[ $name != all ]] || tests=(-k "test_between_two or test_with_all_of_them")
  if PYTHONPATH=$path "build/coexist-$name/bin/python" -m pytest -q -p no:cacheprovider python/tests/test_coexist.py \
    "${tests[@]}" --junit-xml "build/test-results/coexist-$name.xml" 2>&1 | tee "$log"; then
    verdict=ok
  else
    verdict=FAILED
    failed=1
  fi
  lines+=("$(printf '%-12s %-7s %s' "$name" "$verdict" "$(tail -n 1 "$log")")")
done

printf '\n=== summary\n'
printf '%s\n' "${lines[@]}"
exit "$failed"
