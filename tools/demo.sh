#!/usr/bin/env bash
# make demo: the main job of varflash, from nothing. Packages, build, kernels, forward and backward on a packed batch, check.
#
# The input, tools/demo/packed.safetensors, holds four sequences, one of them empty, 4 query and 2 key heads of 72 channels, and six rows
# of NaN after the last sequence. Results go to build/demo/. Without a GPU the CPU backend computes; without NVRTC no kernel is compiled.
set -eu
cd "$(dirname "$0")/.."

title() { printf '\n== %s\n' "$*"; }
varflash=build/varflash
out=build/demo

title 'packages'
tools/deps.sh build

title 'build'
"${MAKE:-make}" --no-print-directory -j "$(nproc)" BUILD=build WERROR=0 $varflash build/demo-judge
mkdir -p $out

title 'kernels: generated, and compiled to cubin where NVRTC is'
kernel() {
    local name=$1 arch=$2 status=0
    shift 2
    $varflash show "$name" --arch "$arch" --head-dim 72 --dtype fp16 --causal > $out/"$name"_"$arch".cu
    printf '%-24s %6d lines' $out/"$name"_"$arch".cu "$(wc -l < $out/"$name"_"$arch".cu)"
    $varflash show "$name" --arch "$arch" --head-dim 72 --dtype fp16 --causal --cubin $out/"$name"_"$arch".cubin > /dev/null 2> $out/log || status=$?
    if [ $status = 0 ]; then
        printf '   %s: %d bytes\n' $out/"$name"_"$arch".cubin "$(stat -c %s $out/"$name"_"$arch".cubin)"
    else
        printf '   not compiled\n'
        cat $out/log >&2
        [ $status = 5 ] # NVRTC is missing: that is no failure of the demo
    fi
}
kernel fwd sm_80
kernel bwd sm_80

title 'forward and backward of tools/demo/packed.safetensors, causal'
$varflash run --in tools/demo/packed.safetensors --out $out/result.safetensors --causal --backward

title 'checked against attention and its gradients in float64'
build/demo-judge tools/demo/packed.safetensors $out/result.safetensors --causal
printf '\nright. Results: %s; next: make check, %s --help, README.md\n' $out/result.safetensors $varflash
