#!/usr/bin/env bash
# The library without a generator (make runtime-only) is small, has no Lua, no templates and no NVRTC to look for, and finds its kernels
# in a bundle that the whole one built.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
build=${BUILD:-build}
passed=0 failed=0
try() {
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "failed: $what"
    fi
}

${MAKE:-make} --no-print-directory BUILD="$build" runtime-only > /dev/null
library=$build/runtime-only/libvarflash.so
try 'at most 300 KB' test "$(stat -Lc %s "$library")" -le 300000
try 'no Lua inside' eval "! strings -n 4 '$library' | grep -q 'Lua 5'"
try 'no template inside' eval "! strings -n 8 '$library' | grep -q '__global__'"

# What a call would get, for an architecture of which there is no device here.
cat > "$folder/ask.c" << 'END'
#include <stdio.h>
#include <varflash/varflash.h>

int main(void) {
    vf_context *context = NULL;
    vf_forward_args args = {
        .q = {NULL, VF_BFLOAT16, 3, {100, 2, 64}, {128, 64, 1}},
        .k = {NULL, VF_BFLOAT16, 3, {100, 2, 64}, {128, 64, 1}},
        .v = {NULL, VF_BFLOAT16, 3, {100, 2, 64}, {128, 64, 1}},
        .o = {NULL, VF_BFLOAT16, 3, {100, 2, 64}, {128, 64, 1}},
        .problem = {.cu_seqlens_q = {NULL, VF_INT32, 1, {3}, {1}}, .cu_seqlens_k = {NULL, VF_INT32, 1, {3}, {1}}}};
    static char text[1 << 16];
    size_t length = 0;
    vf_status status = vf_open(NULL, &context);
    if (!status) status = vf_explain_forward(context, &args, "sm_80", text, sizeof text, &length);
    puts(status ? vf_last_error() : text);
    vf_close(context);
    return status;
}
END
read -ra cc <<< "${CC:-gcc}"
"${cc[@]}" -std=c11 -Iruntime/include "$folder/ask.c" -o "$folder/ask" "$library" -Wl,-rpath,"$(dirname "$(readlink -f "$library")")"
export HOME=$folder VARFLASH_CACHE_DIR=$folder/cache VARFLASH_SYSTEM_CACHE=$folder/none
unset VARFLASH_BUNDLES VARFLASH_CONFIG VARFLASH_SOURCE
VARFLASH_NVRTC=/nonexistent "$folder/ask" > "$folder/without" && code=0 || code=$?
try 'without a bundle: no compiler' test "$code" = 6
try 'and the command that builds one' grep -q "varflash build --spec 'pass=" "$folder/without"

if "$build/varflash" show schedule --log > /dev/null 2>&1; then
    "$build/varflash" build -q --arch sm_80 --pass fwd --head-dim 64 --dtype bf16 --mask full -o "$folder/kernels.vfb"
    export VARFLASH_NVRTC=/nonexistent VARFLASH_BUNDLES=$folder/kernels.vfb
    try 'with a bundle: the variant' eval "'$folder/ask' > '$folder/said'"
    try 'equal to what the generator says' eval "'$build/varflash' explain --arch sm_80 --json --seqlens-q 50,50 --heads-q 2 --head-dim 64 --dtype bf16 |
        grep -o 'kernel=fwd_[^\"]*' | diff - <(grep -o 'kernel=fwd_[^\"]*' '$folder/said')"
else
    echo 'skipped: a bundle for the library without a generator: there is no NVRTC'
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
