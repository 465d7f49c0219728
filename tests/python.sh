#!/usr/bin/env bash
# Runs the tests of the PyTorch package on the library in $BUILD, with $PYTHON, which must have torch and pytest; else they are skipped.
#
#   tests/python.sh [pytest options]
set -u
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3}
if ! "$python" -c 'import pytest, torch; assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)' 2> /dev/null; then
    echo "$python has no torch >= 2.4 or no pytest: make deps-python gets them"
    exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
PYTHONPATH=tools/python VARFLASH_LIBRARY=$(realpath "${BUILD:-build}/libvarflash.so") "$python" -m pytest -q tools/python "$@" > "$log" 2>&1
status=$?
cat "$log"
# pytest names only the counts that are not zero.
count() { grep -oE "[0-9]+ $1" <<< "$(tail -n 1 "$log")" | cut -d ' ' -f 1; }
passed=$(count passed) failed=$(count failed) errors=$(count error)
echo "${passed:-0} passed, $((${failed:-0} + ${errors:-0})) failed"
exit $status
