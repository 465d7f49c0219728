#!/usr/bin/env bash
# Runs the GPU tests: suites of the command, and the test programs of a folder, build/tests/gpu (make check-gpu) or the bundle that lies beside
# this script. Each part has a time limit of its own: a kernel that hangs costs its part, not the others.
#
#   tests/gpu.sh [-l] [-j JOBS] [-d FOLDER] [PART...]      -l: the long parts too; PART: these parts only; "list" prints them
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$here jobs=3 long=
while getopts lj:d: option; do
    case $option in
    l) long=1 ;;
    j) jobs=$OPTARG ;;
    d) folder=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
varflash=${VARFLASH:-$here/varflash}
export VARFLASH_CACHE_DIR=${VARFLASH_CACHE_DIR:-$folder/cache}

list=$(mktemp)
trap 'rm -f "$list"' EXIT

wanted=" $* " # names of parts, or none
[ "$wanted" != " list " ] || wanted="  " long=1

# part DEFAULT|LONG NAME SECONDS COMMAND
part() {
    case $wanted in
    "  ") [ "$1" = DEFAULT ] || [ -n "$long" ] || return 0 ;;
    *" $2 "*) ;;
    *) return 0 ;;
    esac
    printf 'gpu/%s\t%s\t%s\n' "$2" "$4" "$3" >> "$list"
}

check="$varflash check --backend cuda --served --suite"
every="$varflash check --backend cuda --precompile --suite"

# The slow ones first, so that all jobs are busy to the end.
part DEFAULT repeat 300 "$folder/test_repeat"
part DEFAULT sweep 200 "$check sweep:1:600 --precompile"
part DEFAULT wide 240 "$folder/test_wide"
part DEFAULT streams 150 "$folder/test_streams"
part DEFAULT invariance 150 "$folder/test_invariance"
part DEFAULT counts 120 "$check faults --filter W4"
part DEFAULT lengths 120 "$check faults --filter W5"
part DEFAULT faults 200 "$check faults-small --precompile"
part DEFAULT broken 90 "$check faults --filter E2 && $check faults --filter J6"
part DEFAULT softcap 90 "$check faults --filter K4"
part DEFAULT smoke 200 "$every smoke --invariance --spoil"
part LONG variants 900 "$every faults-small"
part LONG sweep-long 900 "$check sweep:2:4000 --precompile"
part LONG large 900 "$check faults-large"

if [ "${1:-}" = list ]; then
    awk -F '\t' '{ printf "%-12s at most %3d s   %s\n", substr($1, 5), $3, $2 }' "$list"
    exit 0
fi
[ -s "$list" ] || { echo "gpu.sh: no such part: $*"; exit 2; }

status=0
timeout -k 5 60 "$varflash" check --backend cuda --served --suite smoke --filter empty > /dev/null 2>&1 || status=$?
if [ "$status" -eq 4 ]; then
    echo "skipped: no device (varflash info says why)"
    exit 0
fi
"$here/run.sh" -j "$jobs" "$list"
