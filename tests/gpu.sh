#!/usr/bin/env bash
# Runs the GPU tests, one after the other: the suites of the command, and the test programs of a folder, build/tests/gpu (make check-gpu) or the
# bundle that lies beside this script.
#
#   tests/gpu.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here}
export VARFLASH=${VARFLASH:-$here/varflash}
status=0
"$VARFLASH" check --suite smoke --filter basic --served --backend cuda > /dev/null 2>&1 || status=$?
if [ "$status" -eq 4 ]; then
    echo "skipped: no device (varflash info says why)"
    exit 0
fi
list=$(mktemp)
trap 'rm -f "$list"' EXIT
suite() { printf 'gpu/%s\t%s check --backend cuda --suite %s\n' "$1" "$VARFLASH" "$2" >> "$list"; }
suite smoke "smoke --invariance --spoil"
suite faults "faults-small"
suite repeat-empty "faults --filter E1 --served --repeat 1000"
suite repeat-deterministic "faults --filter R1 --served --repeat 1000"
suite wide "faults --filter W1-dout --served --contiguous"
suite sweep "sweep:1:2000 --served --precompile"
for program in "$folder"/test_*; do
    case $program in *.o | *.d | *.c | *\*) continue ;; esac
    printf 'gpu/%s\t%s\n' "$(basename "$program")" "$program" >> "$list"
done
"$here/run.sh" -t 3600 "$list"
