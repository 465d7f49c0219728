#!/usr/bin/env bash
# Installs what building and testing varflash needs, on Debian and Ubuntu. This is the one list of packages.
#
#   tools/deps.sh           everything                     (make deps)
#   tools/deps.sh build     only what building needs       (make demo)
#   tools/deps.sh python    a Python for the tests of the PyTorch package, in build/python-env: 5 GB (make deps-python)
#   tools/deps.sh --list    print the names, install nothing
#
# As root, or with sudo where that asks for no password; else it prints the command and stops. Nothing to install: it does nothing.
set -eu

build_packages='gcc libc6-dev binutils make pkg-config lua5.4 liblua5.4-dev libcjson-dev libzstd-dev'
# Tests: check (unit), clang and its runtime (fuzzers, second compiler), g++ (the header as C++; simulator, with Boost.Context),
# python3-venv (for tools/deps.sh python).
test_packages='check g++ libboost-context-dev clang valgrind python3-venv'
# Lint. clang-format is pinned: other versions lay out some lines differently.
lint_packages='clang-format-14 clang-tidy cppcheck lua-check shellcheck'
# From PyPI, where torch brings CUDA along: not part of everything. Versions that the package was tested with.
python_packages='torch==2.15.* pytest setuptools transformers==5.24.* wheel'

case ${1:-} in
build) packages=$build_packages ;;
python)
    python3 -c 'import ensurepip' 2> /dev/null || {
        echo 'deps: this Python makes no environments: install python3-venv, then go on' >&2
        exit 1
    }
    [ -x build/python-env/bin/python ] || python3 -m venv build/python-env
    # shellcheck disable=SC2086 # a list
    exec build/python-env/bin/python -m pip install --quiet --no-compile --disable-pip-version-check $python_packages
    ;;
'' | --list) packages="$build_packages $test_packages $lint_packages" ;;
*)
    echo "usage: tools/deps.sh [build | python | --list]" >&2
    exit 2
    ;;
esac

if ! command -v apt-get > /dev/null; then
    echo "deps: this is no Debian or Ubuntu. Install what these packages hold, then go on: $packages" >&2
    exit 1
fi

# The sanitizer and fuzzer runtime has the version of the distribution's clang in its name. Where there is no such package (Ubuntu 22.04), it
# comes with clang.
clang_runtime() {
    apt-cache depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/libclang-rt-\1-dev/p' | head -n 1
}
list() { echo "$packages $([ "${1:-}" = build ] || clang_runtime)"; }

if [ "${1:-}" = --list ]; then
    list | xargs -n 1
    exit 0
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]; }

find_missing() {
    missing=
    for package in $(list "${1:-}"); do
        installed "$package" || missing="$missing $package"
    done
}

find_missing "${1:-}"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif sudo -n true 2> /dev/null; then
        as_root='sudo -n'
    else
        echo "deps: these packages are missing; please run" >&2
        echo "    sudo apt-get update && sudo apt-get install$missing" >&2
        exit 1
    fi
    $as_root apt-get update -qq
    find_missing "${1:-}" # again: the lists of packages may have been empty before
    for package in $missing; do
        apt-cache show "$package" > /dev/null 2>&1 && continue
        case " $lint_packages $(clang_runtime) " in
        *" $package "*)
            echo "deps: this distribution has no $package: going on without it"
            missing=${missing/ $package/}
            ;;
        esac
    done
    # shellcheck disable=SC2086 # a list
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
fi

# NVRTC compiles kernels. It is NVIDIA's, not the distribution's, and not needed to build, to test on the CPU or to run there.
nvrtc_is_here() {
    [ -n "${VARFLASH_NVRTC:-}" ] || ldconfig -p 2> /dev/null | grep -q 'libnvrtc\.so' ||
        compgen -G "${CUDA_HOME:-/usr/local/cuda}/lib64/libnvrtc.so.*" > /dev/null
}
if ! nvrtc_is_here; then
    cat << 'EOF'
deps: NVRTC (libnvrtc.so.12 or .13) was not found here. The CPU backend works without it; to generate and compile kernels, either
    install NVIDIA's CUDA toolkit, or only the library, with pip:
        python3 -m pip install --target ~/.local/share/nvrtc nvidia-cuda-nvrtc-cu12
        export VARFLASH_NVRTC=~/.local/share/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
EOF
fi
echo 'deps: all there'
