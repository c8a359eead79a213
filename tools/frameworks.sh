#!/usr/bin/env bash
# Implements `make test-frameworks`: runs python/tests_frameworks with TensorFlow, PyTorch, JAX and Ray, each in a
# separate environment build/framework-*.
#
#   tools/frameworks.sh                    all of them
#   tools/frameworks.sh tensorflow torch   only these
#   tools/frameworks.sh --installed        those whose environment exists; names the others
#   tools/frameworks.sh --list             their names, interpreters and packages
#   tools/frameworks.sh --prepare jax      create the environment and the extension, run nothing
#   tools/frameworks.sh jax -- -k device   the arguments after -- go to pytest
#   tools/frameworks.sh --bench torch jax  run benchmarks/python/frameworks.py instead; arguments after -- go to it
#
# A framework NAME-VERSION runs the tests of NAME, python/tests_frameworks/test_NAME_*.py. Tests python/reverb, with an
# extension that is built next to it for each interpreter. Skips frameworks whose interpreter is not installed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# name: the version of CPython, then the arguments of pip. The oldest TensorFlow is the one that dm-reverb 0.14 needs.
declare -A contents=(
  [tensorflow-2.15]="3.11 tensorflow-cpu==2.15.1 numpy<2 ml_dtypes dm-tree"
  [tensorflow]="3.13 tensorflow-cpu numpy ml_dtypes dm-tree"
  [torch]="3.13 torch tensordict torchrl numpy ml_dtypes"
  [jax]="3.13 jax grain numpy"
  [ray]="3.11 ray numpy"
)
order=(tensorflow-2.15 tensorflow torch jax ray)

prepare_only=0
installed_only=0
bench=0
chosen=()
passed_on=()
while (($# > 0)); do
  case $1 in
    --list)
      for name in "${order[@]}"; do printf '%-16s CPython %s\n' "$name" "${contents[$name]}"; done
      exit 0
      ;;
    --prepare) prepare_only=1 ;;
    --installed) installed_only=1 ;;
    --bench) bench=1 ;;
    --)
      shift
      passed_on=("$@")
      break
      ;;
    *)
      if [[ -z ${contents[$1]:-} ]]; then
        echo "frameworks: no framework \"$1\"; there are: ${order[*]}" >&2
        exit 2
      fi
      chosen+=("$1")
      ;;
  esac
  shift
done
[[ ${#chosen[@]} -gt 0 ]] || chosen=("${order[@]}")

# prepare NAME: creates build/framework-NAME and the extension, unless they exist.
prepare() {
  local version=${contents[$1]%% *} packages=${contents[$1]#* } python suffix
  python=$(tools/python.sh interpreter "$version") || return
  # shellcheck disable=SC2086  # several words
  tools/venv.sh "build/framework-$1" "$python" 'pytest>=8' $packages || return
  suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  [[ -e python/reverb/_core$suffix ]] || tools/python.sh develop "$version"
}

mkdir -p build/test-results
lines=()
failed=0
for name in "${chosen[@]}"; do
  if [[ $installed_only -eq 1 && ! -f build/framework-$name/complete ]]; then
    lines+=("$(printf '%-16s left out: tools/frameworks.sh %s installs and tests it' "$name" "$name")")
    continue
  fi
  printf '\n=== %s (CPython %s)\n' "$name" "${contents[$name]}"
  if ! prepare "$name"; then
    lines+=("$(printf '%-16s FAILED: the environment could not be created' "$name")")
    failed=1
    continue
  fi
  if [[ $prepare_only -eq 1 ]]; then
    lines+=("$(printf '%-16s ready' "$name")")
    continue
  fi
  if [[ $bench -eq 1 ]]; then
    PYTHONPATH=$PWD/python "build/framework-$name/bin/python" benchmarks/python/frameworks.py --with "${name%%-*}" \
      "${passed_on[@]}" && verdict=measured || { verdict=FAILED && failed=1; }
    lines+=("$(printf '%-16s %s' "$name" "$verdict")")
    continue
  fi
  log=build/framework-$name/test.log
  # Libraries warn about each other; the ordinary tests make warnings errors. python/tests has the shared helpers.
  if PYTHONPATH=$PWD/python:$PWD/python/tests "build/framework-$name/bin/python" -m pytest -q -p no:cacheprovider \
    --disable-warnings -o filterwarnings=default -o faulthandler_timeout=300 python/tests_frameworks/test_"${name%%-*}"_*.py \
    --junit-xml "build/test-results/framework-$name.xml" "${passed_on[@]}" 2>&1 | tee "$log"; then
    verdict=ok
  else
    verdict=FAILED
    failed=1
  fi
  lines+=("$(printf '%-16s %-7s %s' "$name" "$verdict" "$(tail -n 1 "$log")")")
done

printf '\n=== summary\n'
printf '%s\n' "${lines[@]}"
exit "$failed"
