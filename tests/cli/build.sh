#!/usr/bin/env bash
# build and bundle: kernels ahead of time, equal files from equal versions, bundles looked into, objects that link.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

bad 2 'not bundle or object' build --emit elf --arch sm_80 --output x
bad 2 'needs --output' build --emit object --arch sm_80
bad 2 'exclude each other' build --spec 'kernel=schedule arch=sm_80' --pass fwd
bad 2 "head-dim is '64/x'" build --arch sm_80 --head-dim 64/x --dry-run
bad 2 "pass: 'both' is none of fwd,bwd" build --arch sm_80 --pass fwd,both --dry-run
bad 2 "dtype: 'fp8' is none of fp16,bf16" build --arch sm_80 --dtype fp8 --dry-run
bad 2 "mask: 'caus' is none of" build --arch sm_80 --mask caus --dry-run
bad 2 "features: 'softcaps' is none of" build --arch sm_80 --features softcaps --dry-run
bad 6 'nowhere/x.vfb: No such file' build --arch sm_80 -o "$scratch/nowhere/x.vfb"
run build --arch sm_80 --head-dim 64,65 --dry-run && code=0 || code=$?
that test "$code" = 3
that test "$(wc -l < "$err")" = 1 # one reason, many requests
bad 6 'none' build --arch sm_80 --specs "$scratch/none" --dry-run
bad 2 'takes list FILE' bundle
bad 2 'takes list FILE' bundle list
bad 2 'takes list FILE' bundle diff one
bad 6 'cannot be read' bundle list "$scratch/none"
bad 6 'is no bundle' bundle verify README.md

# What would be compiled needs no compiler.
VARFLASH_NVRTC=$scratch/none good build --arch sm_80,sm_90a --head-dim 64 --dtype bf16 --mask causal --dry-run
for arch in sm_80 sm_90a; do
    has "^pass=fwd arch=$arch .*mask=causal .*family="
    has "^kernel=schedule arch=$arch$"
    has "^kernel=check_lengths arch=$arch$"
done
hasnt 'head_dim=128'
good build --arch sm_80 --pass bwd --features deterministic --head-dim 128/64 --dry-run --json
that json variants.0
has 'deterministic=1'
hasnt 'pass=fwd'
printf '# a comment\n\npass=fwd dtype=bf16 head_dim=40 head_dim_v=40 mask=full softcap=0 aligned=1 deterministic=0\n' > "$scratch/specs"
good build --arch sm_80 --specs "$scratch/specs" --dry-run
has 'head_dim=40'
good build --arch sm_80 --suite smoke --dry-run
has '^kernel=fwd_sm80'
echo 'pass=fwd arch=sm_80 dtype=bf16' > "$scratch/specs"
run build --arch sm_80 --specs "$scratch/specs" --dry-run && code=0 || code=$?
that test "$code" = 3

if has_compiler; then
    small=(--arch sm_80 --pass fwd --head-dim 64 --dtype bf16 --mask full)
    good build "${small[@]}" -o "$scratch/a.vfb"
    good bundle verify "$scratch/a.vfb"
    has 'sound$'
    good bundle list "$scratch/a.vfb"
    has '^ *[0-9]+ +[0-9]+ +kernel=fwd_sm80 '
    good bundle list "$scratch/a.vfb" --json
    that test "$(json nvrtc)" != null
    that json variants.0.kernels.0.dynamic_shared_bytes
    that json kernels.0.digest
    that json kernels.0.registers
    # Elsewhere, with nothing to start from and another number of processes: the same bytes.
    (cd / && TMPDIR=$scratch HOME='' XDG_CACHE_HOME='' VARFLASH_CACHE_DIR='' "$VARFLASH" build "${small[@]}" -j 3 -q -o "$scratch/b.vfb") > "$out" 2> "$err"
    that cmp "$scratch/a.vfb" "$scratch/b.vfb"
    that test -z "$(find "$scratch" -maxdepth 1 -name 'varflash-build-*')"
    good bundle diff "$scratch/a.vfb" "$scratch/b.vfb"
    # Who has mapped the old file keeps it: the new one is another, and nothing else is left behind. A link stays one.
    ln "$scratch/b.vfb" "$scratch/mapped.vfb"
    ln -s b.vfb "$scratch/link.vfb"
    good build --spec 'kernel=schedule arch=sm_80' -o "$scratch/link.vfb"
    that test -L "$scratch/link.vfb"
    that cmp "$scratch/a.vfb" "$scratch/mapped.vfb"
    good bundle verify "$scratch/b.vfb"
    that test -z "$(find "$scratch" -maxdepth 1 -name '*.tmp')"
    good build --spec 'kernel=schedule arch=sm_80' -o "$scratch/c.vfb"
    run bundle diff "$scratch/a.vfb" "$scratch/c.vfb" && code=0 || code=$?
    that test "$code" = 1
    has '^- kernel kernel=fwd_sm80 '
    good bundle extract "$scratch/a.vfb" --output "$scratch/images" --filter kernel=fwd_sm80
    that test -s "$(find "$scratch/images" -name 'fwd_sm80-*.cubin' | head -n 1)"
    bad 2 'needs --output' bundle extract "$scratch/a.vfb"
    # Any byte that changes is noticed.
    size=$(stat -c %s "$scratch/a.vfb")
    for at in 9 60 100 300 $((size / 2)) $((size - 5)); do
        cp "$scratch/a.vfb" "$scratch/bad.vfb"
        printf '\377' | dd of="$scratch/bad.vfb" bs=1 seek="$at" conv=notrunc status=none
        cmp -s "$scratch/a.vfb" "$scratch/bad.vfb" && printf '\0' | dd of="$scratch/bad.vfb" bs=1 seek="$at" conv=notrunc status=none
        run bundle verify "$scratch/bad.vfb" && code=0 || code=$?
        that test "$code" != 0
    done
    # The command uses it: no compiler, no cache.
    export VARFLASH_BUNDLES=$scratch/a.vfb VARFLASH_NVRTC=$scratch/none
    good info
    good explain --arch sm_80 --seqlens-q 100 --head-dim 64 --dtype bf16
    VARFLASH_BUNDLES=$scratch/a.vfb:$scratch/err bad 6 'err: is no bundle' info
    unset VARFLASH_BUNDLES VARFLASH_NVRTC
    # As an object in a program.
    if command -v "${CC:-gcc}" > /dev/null; then
        good build "${small[@]}" --emit object -o "$scratch/my-kernels.o"
        cat > "$scratch/main.c" << 'END'
#include "my-kernels.h"
int main(void) { return my_kernels.size > 1000 && my_kernels_bytes[0] == 'v' && my_kernels_bytes[7] == 'e' ? 0 : 1; }
END
        that "${CC:-gcc}" -Wall -Wextra -Werror -Iruntime/include "$scratch/main.c" "$scratch/my-kernels.o" -o "$scratch/main"
        that "$scratch/main"
        that "${CXX:-g++}" -x c++ -Wall -Werror -Iruntime/include "$scratch/main.c" -x none "$scratch/my-kernels.o" -o "$scratch/main"
        that "$scratch/main"
    fi
    # A kernel that cannot be compiled costs that kernel.
    cp -R gen templates "$scratch"
    echo 'this is no CUDA' >> "$scratch/templates/fwd_sm80.cu"
    VARFLASH_SOURCE=$scratch bad 2 'VARFLASH_SOURCE' build "${small[@]}" -o "$scratch/d.vfb"
    VARFLASH_SOURCE=$scratch run build "${small[@]}" --cache-dir "$scratch/other" && code=0 || code=$?
    that test "$code" = 5
    that grep -q 'kernels failed' "$err"
    good cache list --cache-dir "$scratch/other"
    has 'kernel=schedule'
    hasnt 'kernel=fwd_sm80'
fi
finish
