#!/usr/bin/env bash
# Runs the GPU tests of a folder, one after the other: build/tests/gpu (make check-gpu), or the bundle that lies beside this script.
#
#   tests/gpu.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "${1:-$here}" && pwd)
list=$(mktemp)
trap 'rm -f "$list"' EXIT
for program in "$folder"/test_*; do
    case $program in *.o | *.d | *.c | *\*) continue ;; esac
    printf 'gpu/%s\t%s\n' "$(basename "$program")" "$program"
done > "$list"
VARFLASH=${VARFLASH:-$folder/varflash} "$here/run.sh" -t 3600 "$list"
