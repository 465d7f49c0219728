#!/usr/bin/env bash
# run: files of tensors in and out, on the CPU backend.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

demo=tools/demo/packed.safetensors
good run --in $demo --out "$scratch/a" --causal --backward --backend cpu --threads 1
has_tensors() { for name in "$@"; do that grep -aq "\"$name\":" "$scratch/a"; done; }
has_tensors o lse dq dk dv
that grep -q 'wrote ' "$err"
that test ! -s "$out"
good run --in $demo --out "$scratch/b" --causal --backward --backend cpu --threads 3
that cmp "$scratch/a" "$scratch/b"
good run --in $demo --out "$scratch/b" --backend cpu --window -1,2 --quiet --json
that test ! -s "$err"
that test "$(json backend)" = cpu
that test "$(json tensors)" = 2
that test "$(json tensors.lse.dtype)" = fp32

# A file from a header and data.
file() {
    local header=$1 size=${#1} i
    {
        for ((i = 0; i < 8; i++)); do
            # shellcheck disable=SC2059
            printf "\\x$(printf %02x $((size >> 8 * i & 255)))"
        done
        printf %s "$header"
        cat
    } > "$scratch/in"
}
entry() { printf '"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' "$@"; }

# One query and one key: o is the row of v, bit for bit, and lse the logit, which is 0.
values='\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\xc0\x00\x00\x80\x40\x00\x00\xa0\x40\x00\x00\xc0\x40\x00\x00\xe0\x40\x00\x00\x00\x41'
one() { head -c 64 /dev/zero; printf %b "$values"; }
qkv="$(entry q F32 1,1,8 0 32),$(entry k F32 1,1,8 32 64),$(entry v F32 1,1,8 64 96)"
lengths="$(entry cu_seqlens_q I32 2 96 104),$(entry cu_seqlens_k I32 2 96 104)"
{ one; printf '\0\0\0\0\1\0\0\0'; } | file "{$qkv,$lengths}"
bad 6 'overlap|cover|lies|twice' run --in "$scratch/in" --out "$scratch/c" --backend cpu
lengths="$(entry cu_seqlens_q I32 2 96 104),$(entry cu_seqlens_k I32 2 104 112)"
{ one; printf '\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0'; } | file "{$qkv,$lengths}"
good run --in "$scratch/in" --out "$scratch/c" --backend cpu
printf %b "$values" > "$scratch/row"
head -c 4 /dev/zero >> "$scratch/row"
tail -c 36 "$scratch/c" > "$scratch/results"
that cmp "$scratch/row" "$scratch/results"

# What a file may get wrong
bad 6 "has no tensor 'dout'" run --in "$scratch/in" --out "$scratch/d" --backend cpu --backward
{ one; printf '\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0'; } | file "{$qkv,$lengths}"
bad 2 'cu_seqlens_q' run --in "$scratch/in" --out "$scratch/d" --backend cpu
one | file "{$(entry q F32 1,1,8 0 32),$(entry k F32 1,1,8 32 64)}"
bad 6 '.' run --in "$scratch/in" --out "$scratch/d" --backend cpu
head -c 64 /dev/zero | file "{$(entry q F32 1,1,8 0 32),$(entry k F32 1,1,8 32 64)}"
bad 6 "has no tensor 'v'" run --in "$scratch/in" --out "$scratch/d" --backend cpu
one | file "{$(entry q F32 8 0 32),$(entry k F32 1,1,8 32 64),$(entry v F32 1,1,8 64 96)}"
bad 6 "tensor 'q' has 1 dimension" run --in "$scratch/in" --out "$scratch/d" --backend cpu
one | file "{$(entry q F32 1,1,9 0 32),$(entry k F32 1,1,8 32 64),$(entry v F32 1,1,8 64 96)}"
bad 6 . run --in "$scratch/in" --out "$scratch/d" --backend cpu
one | file "{$(entry q F99 1,1,8 0 32),$(entry k F32 1,1,8 32 64),$(entry v F32 1,1,8 64 96)}"
bad 6 . run --in "$scratch/in" --out "$scratch/d" --backend cpu
# Shapes whose products only a zero keeps small.
huge=1125899906842624
for shape in "$huge,$huge,0" "0,$huge,8"; do
    one | file "{$(entry q F32 "$shape" 0 0),$(entry k F32 "0,1,$huge" 32 32),$(entry v F32 "0,1,$huge" 64 64)}"
    bad 7 'more bytes than there are addresses' run --in "$scratch/in" --out "$scratch/d" --backend cpu
done
one | file '{"q": 3}'
bad 6 . run --in "$scratch/in" --out "$scratch/d" --backend cpu
one | file 'not JSON'
bad 6 . run --in "$scratch/in" --out "$scratch/d" --backend cpu
: > "$scratch/in"
bad 6 . run --in "$scratch/in" --out "$scratch/d" --backend cpu
bad 6 'header of [0-9]+ bytes' run --in README.md --out "$scratch/d" --backend cpu
bad 6 "$scratch/none" run --in "$scratch/none" --out "$scratch/d" --backend cpu
that test ! -e "$scratch/d"
bad 6 "$scratch/none/d" run --in $demo --out "$scratch/none/d" --backend cpu
good info --json
if [ "$(json driver.version)" = null ]; then bad 4 'no CUDA driver' run --in $demo --out "$scratch/d" --backend cuda; fi
finish
