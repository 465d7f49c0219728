# harness.bash - what the tests of the command share. Sourced; run a test with VARFLASH=path/to/varflash, from anywhere.
#
#   good ARGS...              must exit 0; stdout is left in $out, stderr in $err (files)
#   bad CODE PATTERN ARGS...  must exit CODE with nothing on stdout and one line on stderr that matches PATTERN (extended)
#   has PATTERN               stdout of the last command has a line that matches
#   that COMMAND...           must succeed; for everything else
#
# The closing line is "N passed, N failed".
# shellcheck shell=bash

: "${VARFLASH:?is not set: path of the command}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
scratch=$(mktemp -d)
out=$scratch/out err=$scratch/err
passed=0 failed=0
# The machine's own settings must not decide a test; the cache may stay where the build has it.
unset VARFLASH_BUNDLES VARFLASH_CACHE_SIZE VARFLASH_CONFIG VARFLASH_DUMP VARFLASH_JIT VARFLASH_LOG VARFLASH_NVRTC VARFLASH_SOURCE VARFLASH_TRACE
export VARFLASH_SYSTEM_CACHE=$scratch/none VARFLASH_CACHE_DIR=${VARFLASH_CACHE_DIR:-$scratch/cache} XDG_CONFIG_HOME=$scratch/config NO_COLOR=1

finish() {
    rm -rf "$scratch"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/    /' "$err" | head -5
}

run() {
    timeout 120 "$VARFLASH" "$@" > "$out" 2> "$err" < /dev/null
}

good() {
    local code=0
    run "$@" || code=$?
    if [ $code = 0 ]; then pass; else fail "varflash $*: exit code $code, not 0"; fi
}

bad() {
    local wanted=$1 pattern=$2 code=0
    shift 2
    run "$@" || code=$?
    if [ $code != "$wanted" ]; then
        fail "varflash $*: exit code $code, not $wanted"
    elif [ -s "$out" ] || [ "$(wc -l < "$err")" != 1 ]; then
        fail "varflash $*: more than one sentence on stderr"
    elif ! grep -Eq -- "$pattern" "$err"; then
        fail "varflash $*: stderr does not match $pattern"
    else
        pass
    fi
}

that() {
    if "$@" > /dev/null 2>&1; then pass; else fail "$*"; fi
}

has() { that grep -Eq -- "$1" "$out"; }
hasnt() { that test -z "$(grep -E -- "$1" "$out")"; }

# A value of the JSON text on stdout, by its path: json devices.0.name
json() { lua5.4 tests/cli/json.lua "$@" < "$out"; }

# NVRTC is there?
has_compiler() { "$VARFLASH" show schedule --log > /dev/null 2>&1; }
