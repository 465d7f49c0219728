#!/usr/bin/env bash
# check on the CPU backend: what it prints, where problems come from, and what it says about a failure.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

exits() { # CODE ARGS...: like good, for another exit code and any output
    local wanted=$1 code=0
    shift
    run "$@" || code=$?
    if [ $code = "$wanted" ]; then pass; else fail "varflash $*: exit code $code, not $wanted"; fi
}

good check --seqlens-q 0,0,33 --seqlens-k 0,1,65 --heads-q 2 --head-dim 24 --backward --backend cpu
has '^right +1  b3 h2/2 d24 bf16 .* o [0-9.e-]+<[0-9.e-]+ lse .* dq .* dk .* dv '
has '^1 passed, 0 failed$'
that test ! -s "$err"
good check --seqlens-q 33 --head-dim 24 --dtype fp32 --backend cpu --quiet
that test "$(cat "$out")" = '1 passed, 0 failed'
good check --seqlens-q 5,9 --causal --backward --deterministic --backend cpu --repeat 3 --invariance --contiguous --spoil --checked
good check --suite smoke --filter dims --backend cpu
has '^right +[0-9]+  dims '
has '^2 passed, 0 failed$'

# JSON lines
good check --suite smoke --filter dims --backend cpu --json
that json --lines
that json --lines failed
that grep -q '"replay":"varflash check --name dims' "$out"

# Suites and files; options change what they say.
good check --suite list
has '^smoke  '
good check --suite list --json
that json 0.suite
good check --suite sweep-small:7:3 --backend cpu
has '^3 passed, 0 failed$'
echo '[{"seqlens_q": [3, 4], "name": "first"}, {"seqlens_q": [9], "name": "second"}]' > "$scratch/two.json"
good check "$scratch/two.json" --backend cpu --backward --head-dim 16
has 'first .* dv '
has '^2 passed'
good check "$scratch/two.json" --backend cpu --resume 2
hasnt first
has '^right +2  second '
bad 2 'takes one problem, but got 2' explain "$scratch/two.json" --arch sm_80
bad 6 "$scratch/none.json" check "$scratch/none.json"
echo '{"seqlens_q": [3], "nme": 1}' > "$scratch/bad.json"
bad 6 'bad.json: nme: a problem has no such member' check "$scratch/bad.json"
echo '{"seqlens_q": [3' > "$scratch/bad.json"
bad 6 'bad.json: not JSON' check "$scratch/bad.json"
: > "$scratch/bad.json"
bad 6 'bad.json: not JSON' check "$scratch/bad.json"

# A failure names what is wrong and the command that repeats it, which then fails in the same way.
exits 1 check --seqlens-q 3,4 --causal --expect unsupported --backend cpu --repeat 2
has '^WRONG +1 '
has 'accepted, but VF_ERROR_UNSUPPORTED was expected'
has '^0 passed, 1 failed$'
cp "$out" "$scratch/failure"
command=$(sed -n 's/^ *replay: varflash //p' "$out")
that test -n "$command"
# shellcheck disable=SC2086
exits 1 $command
that cmp "$out" "$scratch/failure"
exits 1 check --seqlens-q 3 --heads-q 3 --heads-k 2 --backend cpu
has 'must be a multiple'
exits 3 check --seqlens-q 3 --head-dim 264 --backend cpu
has '^refused '
good check --seqlens-q 3 --head-dim 264 --backend cpu --expect unsupported

# An interrupted sweep says where it stopped, and how to go on.
rm "$out"
"$VARFLASH" check --suite sweep-small:1:100000 --backend cpu > "$out" 2> "$err" &
process=$!
for ((i = 0; i < 100; i++)); do
    if [ -s "$out" ]; then break; fi
    sleep 0.1
done
kill -INT $process
code=0
wait $process || code=$?
that test $code = 130
that grep -Eq 'interrupted; --resume [0-9]+ goes on' "$err"
has '^[0-9]+ passed, 0 failed$'

good check --seqlens-q 3 --precompile --backend cpu
that grep -q 'no kernels to compile' "$err"
if has_compiler; then # a worker compiles its share into the cache
    echo 'kernel=schedule arch=sm_80' > "$scratch/texts"
    "$VARFLASH" check --worker --cache-dir "$scratch/share" < "$scratch/texts" > "$out" 2> "$err"
    that test "$(cat "$out")" = '0 0'
    good cache list --filter kernel=schedule --cache-dir "$scratch/share"
    that test -n "$(ls "$scratch/share")"
fi
bad 2 'takes no value' check --seqlens-q 3 --worker=x
finish
