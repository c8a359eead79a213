#!/usr/bin/env bash
# Sees to it that the packages of tools/packages.txt are installed (Debian, Ubuntu and their kin).
#
#   tools/setup.sh             install what is missing; silent when nothing is
#   tools/setup.sh --dry-run   say what would be installed, change nothing
#
# REVERB_SKIP_SETUP=1 leaves the machine alone, for those who provide the packages otherwise.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$here/packages.txt
dry_run=0

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

case "${1:-}" in
  '') ;;
  --dry-run) dry_run=1 ;;
  *) fail "unknown option $1; use --dry-run or nothing" ;;
esac

[[ -z "${REVERB_SKIP_SETUP:-}" ]] || exit 0
if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  say "no apt here; going on as if all that tools/packages.txt lists were installed"
  exit 0
fi

# The code name of the release; a derivative names the Ubuntu it is made from.
release=$(. /etc/os-release && printf '%s' "${UBUNTU_CODENAME:-${VERSION_CODENAME:-}}")

# wanted: every package of the list that is meant for this release, one a line.
wanted() {
  awk -v release="$release" '
    { sub(/#.*/, "") }
    NF == 0 { next }
    NF == 1 || $2 == "[" release "]" { print $1 }' "$list"
}

# missing PACKAGE...: those that are not installed, one a line.
missing() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2> /dev/null | sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

# On a release that the list does not know by name: the sanitizer run-time of the clang that is installed.
clang_runtime() {
  local version
  grep -q "\[$release\]" "$list" && return
  version=$(clang --version 2> /dev/null | sed -nE '1s/.*version ([0-9]+).*/\1/p')
  [[ -n "$version" ]] || return 0
  compgen -G "/usr/lib/llvm-$version/lib/clang/*/lib/*/libclang_rt.fuzzer*" > /dev/null && return
  apt-cache show "libclang-rt-$version-dev" > /dev/null 2>&1 && echo "libclang-rt-$version-dev"
  return 0
}

mapfile -t packages < <(wanted)
mapfile -t absent < <(missing "${packages[@]}")
if [[ ${#absent[@]} -eq 0 ]]; then
  mapfile -t absent < <(clang_runtime)
fi
[[ ${#absent[@]} -gt 0 ]] || exit 0

install=(apt-get install --yes --no-install-recommends "${absent[@]}")
if [[ $dry_run -eq 1 ]]; then
  say "would install ${#absent[@]} packages: ${absent[*]}"
  exit 0
fi

# As root: directly. Otherwise through sudo, if it is there and can ask for a password or needs none.
if [[ $(id -u) -eq 0 ]]; then
  as_root=(env)
elif command -v sudo > /dev/null && { sudo -n true 2> /dev/null || [[ -t 0 ]]; }; then
  as_root=(sudo env)
else
  fail "missing packages, and no right to install them (neither root nor usable sudo). As root, run:

  apt-get update && ${install[*]}

and then the same make command again."
fi

as_root+=(DEBIAN_FRONTEND=noninteractive)
apt_options=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq)

say "installing ${#absent[@]} packages: ${absent[*]}"
"${as_root[@]}" apt-get "${apt_options[@]}" update ||
  say "apt-get update reported a problem; trying with the lists that are here"
"${as_root[@]}" "${install[@]:0:1}" "${apt_options[@]}" "${install[@]:1}" ||
  fail "apt-get could not install: ${absent[*]}"

mapfile -t runtime < <(clang_runtime)
if [[ ${#runtime[@]} -gt 0 ]]; then
  say "installing ${runtime[*]}"
  "${as_root[@]}" apt-get "${apt_options[@]}" install --yes --no-install-recommends "${runtime[@]}"
fi

mapfile -t absent < <(missing "${packages[@]}")
[[ ${#absent[@]} -eq 0 ]] || fail "still missing after the installation: ${absent[*]}"
say "done"
