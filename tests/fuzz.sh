#!/usr/bin/env bash
# Runs one fuzzer on its kept corpus: tests/fuzz.sh fuzz_NAME SECONDS
#
# Findings and new corpus entries go to build/fuzz/; entries worth keeping are copied to tests/fuzz/corpus/NAME by hand.
set -eu

program=build/fuzz/tests/fuzz/$1
name=${1#fuzz_}
mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
exec "$program" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/fuzz/$name-" \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
