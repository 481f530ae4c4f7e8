# Shared by the scripts of tools/: announced steps, Debian packages, the virtual environment. To be sourced by bash.
set -euo pipefail
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv_python=$root/.venv/bin/python
script=$(realpath -s --relative-to="$root" "$0")  # for messages
cd "$root"

# The clock of the outermost script goes on in those it calls.
export LOWTIDE_TOOLS_STARTED=${LOWTIDE_TOOLS_STARTED:-$EPOCHREALTIME}

seconds_since() {  # START, a value of EPOCHREALTIME; prints seconds with one decimal
  local tenths=$(((${EPOCHREALTIME/./} - ${1/./}) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

step() { printf '[%6s s] %s\n' "$(seconds_since "$LOWTIDE_TOOLS_STARTED")" "$*"; }

fail() {
  printf '%s: error: %s\n' "$script" "$*" >&2
  exit 1
}

# Installs what third_party/debian-packages.txt lists and this machine lacks.
need_debian_packages() {
  local list=third_party/debian-packages.txt package missing=() as_root=()
  if ! command -v dpkg-query >/dev/null; then
    step "Debian packages: not a Debian system, so not checked; the equivalents of $list are needed"
    return
  fi
  while read -r package _; do
    [[ -z $package || $package == \#* ]] && continue
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) == 'install ok installed' ]] || missing+=("$package")
  done <"$list"
  if ((${#missing[@]} == 0)); then
    step "Debian packages: all present"
    return
  fi
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || fail "Debian packages are missing; as root run: apt-get install ${missing[*]}"
    as_root=(sudo -n)
  fi
  step "Debian packages: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  # Without network an older package index may still do, so a failed update alone does not stop.
  "${apt[@]}" update || step "Debian packages: the package index could not be updated; trying the one at hand"
  "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install ${missing[*]}: see its message above"
}

is_python_3_11() {
  "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

need_venv() {
  local candidate
  if [[ -x $venv_python ]] && is_python_3_11 "$venv_python"; then
    return
  fi
  for candidate in python3 python3.11 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && is_python_3_11 "$candidate"; then
      step ".venv: creating with $(command -v "$candidate")"
      "$candidate" -m venv --clear .venv
      return
    fi
  done
  fail "no Python 3.11 with venv: install Debian 12's python3 and python3-venv"
}

# Installs the wheels of a requirements file; a stamp in .venv makes the second call quick.
need_wheels() {
  local requirements=third_party/$1 stamp=.venv/.lowtide/$1.sha256 wanted
  wanted=$(cat third_party/requirements*.txt third_party/constraints.txt | sha256sum)
  if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
    step "wheels of $1: up to date"
    return
  fi
  step "wheels of $1: installing into .venv"
  "$venv_python" -m pip install --quiet --disable-pip-version-check -r "$requirements" ||
    fail "pip could not install $requirements: see its message above"
  mkdir -p "${stamp%/*}"
  printf '%s' "$wanted" >"$stamp"
  step "wheels of $1: installed"
}

need_tool() {  # COMMAND, DEBIAN-PACKAGE
  command -v "$1" >/dev/null || fail "$1 is missing: install it (Debian: apt-get install $2)"
}

# How many compilers may run at once: one a core, and 2 GiB of memory for each, which a LibTorch unit can take.
compile_jobs() {
  local cores kib limit
  cores=$(nproc)
  kib=$(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max ]]; then
    limit=$(</sys/fs/cgroup/memory.max)
    [[ $limit == max || $((limit / 1024)) -ge $kib ]] || kib=$((limit / 1024))
  fi
  local by_memory=$((kib / (2 << 20)))
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

# Configures and builds one preset; arguments after the preset go to the configuration.
build_preset() {
  local preset=$1 jobs launcher=()
  jobs=$(compile_jobs)
  # ccache sees through precompiled headers only if told that their macros and times may be trusted.
  if command -v ccache >/dev/null; then
    launcher=('-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache')
  fi
  step "configure $preset"
  cmake --preset "$preset" --log-level=WARNING "${launcher[@]}" "${@:2}" >/dev/null ||
    fail "cmake could not configure preset $preset: see its message above"
  step "compile $preset with $jobs jobs"
  cmake --build --preset "$preset" --parallel "$jobs" || fail "preset $preset does not build: see the first error above"
}
