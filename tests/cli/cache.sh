#!/usr/bin/env bash
# cache: what lies in the folders, damage, pruning; and what a process does without a compiler.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"
export VARFLASH_CACHE_DIR=$scratch/cache

bad 2 'takes one of' cache
bad 2 'takes one of' cache shrink
bad 2 'takes one of' cache list more
good cache path
has "^$scratch/cache$"
good cache path --json
that test "$(json folder)" = "$scratch/cache"
good cache list
has '^0 entries'
good cache clear
good cache verify
VARFLASH_CACHE_DIR=$scratch/err bad 6 'not a folder' cache path # a file

if has_compiler; then
    good build --spec 'kernel=schedule arch=sm_80'
    good cache list
    has 'kernel=schedule arch=sm_80'
    good cache list --filter 'arch=sm_99'
    has '^0 entries, 0.0 MB'
    good cache list --json
    has '"kernel":.*"kernel=schedule arch=sm_80"'
    that test "$(json 0.fault)" = null
    good cache verify
    entry=$(find "$scratch/cache" -name '*.vfk' | head -n 1)
    printf 'x' | dd of="$entry" bs=1 seek=500 conv=notrunc status=none
    run cache verify && code=0 || code=$?
    that test "$code" = 1
    has 'FAULT: is damaged'
    good build --spec 'kernel=schedule arch=sm_80' # mends it
    good cache verify
    # What was not used for a while goes, and so do leftovers of a killed process.
    touch -d '10 days ago' "$entry" "$scratch/cache/.$(basename "$entry").1-2-3.tmp"
    good cache prune --max-age 30
    that test -e "$entry"
    good cache prune --max-age 5 --json
    that test "$(json removed)" -ge 1
    that test ! -e "$entry"
    that test -z "$(find "$scratch/cache" -name '*.tmp')"
    good build --spec 'kernel=schedule arch=sm_80'
    good cache prune --max-size 100
    that test -e "$entry"
    good cache prune --max-size 0
    that test ! -e "$entry"
    # Asked for by name, a kernel is built whatever VARFLASH_JIT says: it is what the error of a miss tells to do.
    VARFLASH_JIT=off VARFLASH_CACHE_DIR=$scratch/ahead good build --spec 'kernel=schedule arch=sm_80'
    VARFLASH_CACHE_DIR=$scratch/ahead good cache list --filter kernel=schedule
    has 'kernel=schedule'
    # The system's folder serves without being written to.
    VARFLASH_CACHE_DIR=$scratch/system good build --spec 'kernel=schedule arch=sm_80'
    chmod -R a-w "$scratch/system"
    export VARFLASH_SYSTEM_CACHE=$scratch/system
    good cache list
    has '\(system\) kernel=schedule'
    good build --spec 'kernel=schedule arch=sm_80' --verbose
    that test -z "$(grep 'compiling kernel=schedule' "$err")"
    good cache path --json
    that test "$(json system)" = "$scratch/system"
    chmod -R u+w "$scratch/system"
fi
finish
