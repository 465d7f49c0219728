#!/usr/bin/env bash
# explain: row, variant and reason for every kind of architecture; every constraint that a problem fails.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

problem=(--seqlens-q "512,17" --heads-q 8 --heads-k 2 --head-dim 72 --backward)
for arch in sm_80 sm_86 sm_87 sm_89 sm_90 sm_90a sm_100 sm_103 sm_110 sm_120 sm_121; do
    good explain "${problem[@]}" --arch $arch
    has "^  request +pass=fwd arch=$arch .*head_dim=72"
    has "^  request +pass=bwd arch=$arch "
    has '^  row +configs/[a-z0-9]+\.json#/rows/[0-9]+$'
    has '^  knobs +family='
    has '^  why +first of the rows'
    has '^    fwd_sm[89]0 +[0-9]+ +[0-9]+ '
    has '^    bwd_p(re|ost)'
done
good explain "${problem[@]}" --arch sm_80 --json
that test "$(json forward.status)" = VF_OK
that test "$(json forward.kernels)" = 2
that test "$(json backward.kernels)" = 4
that json backward.workspace_bytes

# Strides and offsets that keep operands from being moved 16 bytes at a time are named.
good explain --seqlens-q 64 --head-dim 64 --strides q=65,64 --strides k=+1 --arch sm_80
has 'aligned=0'
has '^  note +q has stride 65'
has '^  note +k starts at '

# So is what keeps tensor maps from them, where a row needs these.
good explain --seqlens-q 64 --head-dim 64 --strides q=-64,64 --arch sm_90a
has 'aligned=1'
has '^  knobs +family=sm80 '
has '^  note +configs/h200.json#/rows/0 is passed over: it needs tensor maps, and q has stride -64;'

# Every fault, not the first.
run explain --seqlens-q 3 --heads-q 3 --heads-k 2 --head-dim 264 --arch sm_80 && code=0 || code=$?
that test "$code" = 3
has '^  fails +head_dim: is 264'
has '^  fails +q: has 3 heads and k has 2'
run explain --seqlens-q 3 --heads-q 3 --heads-k 2 --head-dim 264 --arch sm_80 --json || true
that test "$(json forward.faults)" = 3
run explain --seqlens-q 3 --arch sm_70 && code=0 || code=$?
that test "$code" = 3
has 'nothing below sm_80'

# A user's own rows come first; a broken one is named with its place.
echo '{' > "$scratch/config.json"
bad 6 "$scratch/config.json" explain --seqlens-q 3 --arch sm_80 --config "$scratch/config.json"
sed 's/"rows": *\[/&{ "when": {}, "use": { "family": "none" } },/' configs/sm80.json > "$scratch/config.json"
bad 6 "$scratch/config.json#/rows/0" explain --seqlens-q 3 --arch sm_80 --config "$scratch/config.json"

good explain --seqlens-q 3 --backend cpu
has '^  backend +cpu$'
finish
