#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: setup.sh [PACKAGE...]
# Installs the Debian packages that stepbench builds with, and those named, as far as they are missing and this user may;
# otherwise prints the one command to type. Never fails: the build says what it can't do without. SETUP=0 turns it off.
set -u

packages=(
    build-essential # compilers, make
    libopenblas-dev # fast GEMM of the CPU backend
    libgloo-dev     # collectives between CPUs
    libopenmpi-dev  # MPI headers
    libsqlite3-dev  # the report
    libcmocka-dev   # tests
    gnuplot-nox     # figures
    librsvg2-bin    # tests look at the figures with it
    jq              # a test runs the lines of docs/qualify.md
    "$@"
)

say() { echo "setup: $*"; }

if [ "${SETUP:-1}" = 0 ]; then
    say "off (SETUP=0)"
    exit 0
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not Debian or Ubuntu; install by hand what the build reports as missing, as far as you need it"
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
    say "all packages are installed"
    exit 0
fi

if [ "$(id -u)" = 0 ]; then
    root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root=(sudo -n env)
else
    say "missing: ${missing[*]}; continuing without. To install them, type:"
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    exit 0
fi

apt_get() { "${root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

say "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get update >"$log" 2>&1 || say "apt-get update failed ($(tail -n 1 "$log")); using the package lists at hand"
known=()
for package in "${missing[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
        known+=("$package")
    else
        say "this release has no package $package; continuing without"
    fi
done
[ ${#known[@]} -gt 0 ] || exit 0
if apt_get install -y --no-install-recommends "${known[@]}" >"$log" 2>&1; then
    say "installed ${known[*]}"
else
    say "apt-get could not install them; continuing with what is installed. It said:"
    tail -n 5 "$log" | sed 's/^/  /'
fi
