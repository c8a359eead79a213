#!/usr/bin/env bash
# Installs the missing packages of tools/packages.txt (Debian, Ubuntu and derivatives).
#
#   tools/setup.sh             install missing packages; prints nothing if there are none
#   tools/setup.sh build       only those of the group `build`
#   tools/setup.sh --dry-run   print the packages to install, change nothing
#
# With REVERB_SKIP_SETUP=1 it does nothing, for machines that get the packages from elsewhere.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$here/packages.txt
dry_run=0
group=

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

for argument in "$@"; do
  case $argument in
    --dry-run) dry_run=1 ;;
    -*) fail "unknown option $argument; there is --dry-run" ;;
    *)
      grep -qx "== $argument" "$list" ||
        fail "no group \"$argument\" in tools/packages.txt; there are: $(sed -n 's/^== //p' "$list" | paste -sd ' ')"
      group=$argument
      ;;
  esac
done

[[ -z "${REVERB_SKIP_SETUP:-}" ]] || exit 0
if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  say "apt was not found; assuming that the packages of tools/packages.txt are installed"
  exit 0
fi

# The code name of the release; for derivatives, that of the underlying Ubuntu.
release=$(. /etc/os-release && printf '%s' "${UBUNTU_CODENAME:-${VERSION_CODENAME:-}}")

# wanted: prints the packages of the group, or all, for this release, one per line.
wanted() {
  awk -v release="$release" -v group="$group" '
    { sub(/#.*/, "") }
    $1 == "==" { current = $2; next }
    NF == 0 || (group != "" && current != group) { next }
    NF == 1 || $2 == "[" release "]" { print $1 }' "$list"
}

# missing PACKAGE...: prints the packages that are not installed, one per line.
missing() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2> /dev/null | sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

# For releases that the list does not name: prints the package of the installed clang's sanitizer runtime.
clang_runtime() {
  local version
  [[ -z $group || $group == check ]] || return 0
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

# Runs directly as root; otherwise with sudo, if it needs no password or can ask for it.
if [[ $(id -u) -eq 0 ]]; then
  as_root=(env)
elif command -v sudo > /dev/null && { sudo -n true 2> /dev/null || [[ -t 0 ]]; }; then
  as_root=(sudo env)
else
  fail "missing packages, and no permission to install them (neither root nor usable sudo). As root, run:

  apt-get update && ${install[*]}

and then the same make command again."
fi

as_root+=(DEBIAN_FRONTEND=noninteractive)
apt_options=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq)

say "installing ${#absent[@]} packages: ${absent[*]}"
"${as_root[@]}" apt-get "${apt_options[@]}" update ||
  say "apt-get update reported a problem; continuing with the existing package lists"
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
