#!/usr/bin/env bash
# Makes a fresh checkout ready: Debian packages, .venv with the locked libraries, this package, a kernel for guests,
# a newer containerd, Prometheus and Helm for tests, what packages are built from.
# Does nothing, and needs no network, when nothing is missing.
#
#   PYTHON=python3.12 .ci/setup.sh     another interpreter than the distribution's, or the first one that is new enough
#   CRIPROXY_NO_APT=1 .ci/setup.sh     never install Debian packages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022 # what it installs is for all users, whatever the umask of the caller is

readonly LOCK=.ci/requirements.lock PIP_LOCK=.ci/pip.lock

# The distribution's Python comes before another one in PATH: it is compiled with profiles, which those that people
# build rarely are, and without them criproxy adds a fifth more to a call.
readonly DISTRIBUTION=/usr/bin/python3
readonly PYTHONS="${PYTHON:-$DISTRIBUTION python3 python3.14 python3.13 python3.12 python3.11}"

# Two commands may be given at once, and each sets up first: one after the other.
exec 9<.ci/setup.sh
flock 9
say() { printf 'setup: %s\n' "$*" >&2; }

# ------------------------------------------------------------------ Debian packages

has_browser() { command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null; }
has_static_busybox() { [[ -x /bin/busybox ]] && ! ldd /bin/busybox >/dev/null 2>&1; }
is_x86_64() { [[ $(uname -m) == x86_64 ]]; }

lacks_venv_module() {
    [[ ! -x .venv/bin/python && -z ${PYTHON:-} ]] || return 1
    if is_new_enough "$DISTRIBUTION"; then ! makes_venvs "$DISTRIBUTION"; else ! find_python >/dev/null; fi
}

has_compiler() { printf '#include <stdio.h>\n' | gcc -E -xc - >/dev/null 2>&1; }

missing_packages() {
    command -v containerd >/dev/null && command -v ctr >/dev/null || echo containerd
    command -v runc >/dev/null || echo runc
    has_static_busybox || echo busybox-static
    has_browser || echo chromium-headless-shell # for tests/page
    command -v systemd-analyze >/dev/null || echo systemd
    command -v umoci >/dev/null || echo umoci
    command -v kubectl >/dev/null || echo kubernetes-client # for tests/cli/kubectl
    command -v dpkg-parsechangelog >/dev/null || echo dpkg-dev
    has_compiler || printf '%s\n' gcc libc6-dev # for the made-up NVML of tests/deviceplugin
    command -v openssl >/dev/null || echo openssl # certificates for tests/agent
    ! is_x86_64 || command -v qemu-system-x86_64 >/dev/null || echo qemu-system-x86
    ! lacks_venv_module || echo python3-venv
}

# Packages that bring a daemon must not start it: the tests run private ones.
without_starting_services() {
    local guard=/usr/sbin/policy-rc.d status=0
    if [[ -e $guard ]]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod 755 "$guard"
    "$@" || status=$?
    rm -f "$guard"
    return "$status"
}

may_use_apt() { [[ $(id -u) == 0 && -z ${CRIPROXY_NO_APT:-} ]] && command -v apt-get >/dev/null; }

apt_install() {
    apt-get update -qq </dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" </dev/null >/dev/null
}

install_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || return 0
    if may_use_apt; then
        say "installing Debian packages: ${missing[*]}"
        without_starting_services apt_install "${missing[@]}" || say "apt-get failed"
        mapfile -t missing < <(missing_packages)
        ((${#missing[@]})) || return 0
    fi
    say "missing: ${missing[*]}. What needs them is skipped with that reason. On Debian, as root: apt-get install ${missing[*]}"
}

# ------------------------------------------------------------------ Python

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
makes_venvs() { is_new_enough "$1" && "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
    local python
    for python in $PYTHONS; do
        if makes_venvs "$python"; then
            echo "$python"
            return
        fi
    done
    return 1
}

# What is installed through a link changes the checkout that it leads to, which would import criproxy from here.
is_not_linked() {
    [[ -L .venv ]] || return 0
    say ".venv is a symbolic link to $(readlink -f .venv), and nothing is installed through it: another checkout may use" \
        "that. To get a .venv of its own for this checkout, remove the link and run this again"
    return 1
}

make_venv() {
    .venv/bin/python -c '' 2>/dev/null && return
    is_not_linked || return
    local python
    if ! python=$(find_python); then
        say "no Python 3.11 or newer with its venv module (tried $PYTHONS). On Debian, as root: apt-get install python3-venv"
        return 1
    fi
    say "creating .venv with $("$python" --version) of $(command -v "$python")"
    "$python" -m venv --clear .venv
}

# What is installed is as wanted if the stamp says so: of this place, this interpreter and these files.
stamp() { { pwd && .venv/bin/python --version && cat "$@"; } | sha256sum | cut -d' ' -f1; }

unless_stamped() {
    local name=$1 wanted file
    wanted=$(stamp "$2")
    file=.venv/.$name.stamp
    shift 2
    [[ -f $file && $(<"$file") == "$wanted" ]] && return
    is_not_linked || return
    say "installing $name"
    rm -f "$file"
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check "$@" </dev/null
    printf '%s' "$wanted" >"$file"
}

# ------------------------------------------------------------------ the kernel of the guests in lab/vm

fetch_guest_kernel() {
    is_x86_64 && may_use_apt || return 0
    .venv/bin/python -m lab.vm --fetch || say "no kernel for guests. What needs them is skipped with that reason"
}

# ------------------------------------------------------------------ the newer containerd of tests/e2e

fetch_runtime() {
    is_x86_64 && may_use_apt || return 0
    .venv/bin/python -m tests.runtimes --fetch 1.7 || say "no containerd 1.7. What needs it is skipped with that reason"
}

# ------------------------------------------------------------------ Prometheus, for tests/deploy

fetch_prometheus() {
    may_use_apt || return 0
    .venv/bin/python -m tests.deploy.prometheus || say "no Prometheus. What needs it is skipped with that reason"
}

# ------------------------------------------------------------------ Helm, for the tests of the chart

fetch_helm() {
    is_x86_64 || return 0
    .venv/bin/python -m tests.packaging.helm || say "no Helm. What needs it is skipped with that reason"
}

# ------------------------------------------------------------------ what packages are built from

fetch_sources() {
    PYTHONPATH=packaging .venv/bin/python -m packager fetch || say "the Debian package or the image cannot be built"
}

install_packages
make_venv
# Debian's pip needs five times as long as this one to choose files from an index that has many of each library.
unless_stamped pip "$PIP_LOCK" --require-hashes --requirement "$PIP_LOCK"
unless_stamped libraries "$LOCK" --require-hashes --requirement "$LOCK"
unless_stamped criproxy pyproject.toml --no-deps --no-build-isolation --editable .
fetch_guest_kernel
fetch_runtime
fetch_prometheus
fetch_helm
fetch_sources
