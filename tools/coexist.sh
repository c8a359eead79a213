#!/usr/bin/env bash
# Runs python/tests/test_coexist.py in environments that hold what users have in the same process:
# TensorFlow, Torch, JAX, gRPC and several protobufs, each an environment of its own in build/coexist-*.
#
#   tools/coexist.sh               all of them
#   tools/coexist.sh torch grpcio  those
#   tools/coexist.sh --list        their names and what is in them
#   tools/coexist.sh --prepare     make the environments, run nothing
#
# PYTHON is the interpreter to use (default python3). What is tested is python/reverb, with an extension that was
# built for that interpreter, or the wheel that WHEEL names.
# The preloaded allocators are those of tools/packages.txt that are installed. An environment that cannot be
# made (a release without wheels for this Python, no network) is skipped by name, and is no failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

python=${PYTHON:-python3}

# name: what pip is given. The oldest and the newest TensorFlow that current programs use differ in whether
# they export their gRPC and protobuf; the protobufs are the last of each of their implementations.
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
  echo "coexist: python/reverb holds no extension for $("$python" -V); build it, or give a WHEEL" >&2
  exit 2
fi

# prepare NAME: makes build/coexist-NAME unless it is there with the same contents.
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
  # What "all" adds to the others is that they are together.
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
