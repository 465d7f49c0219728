#!/usr/bin/env bash
# Runs test programs and adds up what they report.
#
#   tests/run.sh [-j JOBS] [-t SECONDS] LIST      LIST holds "name<tab>command" lines, or "name<tab>command<tab>seconds" with a limit of its own
#
# A program reports with its exit status and, if it has several tests, a line "N passed, N failed" or Check's summary; without one it
# counts as one test. Exit status 77 means skipped, its last line says why; lines "skipped: ..." name parts that this machine cannot test.
# Beyond those, output is shown for failures only. The closing line
# "N passed, N failed" counts tests that really ran; the exit status is 1 if one failed.
set -u

jobs=1
limit=1200
while getopts j:t: option; do
    case $option in
    j) jobs=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
list=${1:?usage: tests/run.sh [-j JOBS] [-t SECONDS] LIST}

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# Prints "passed failed" of one program from its log and exit status.
count() {
    awk -v status="$2" '
        /^[0-9]+ passed, [0-9]+ failed/ { passed = $1; failed = $3; said = 1 }
        /Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
            line = $0
            gsub(/[^0-9 ]/, "", line)
            n = split(line, number, " ")
            checks += number[n - 2]; failures += number[n - 1] + number[n]; check = 1
        }
        END {
            if (!said && check) { passed = checks - failures; failed = failures }
            else if (!said) { passed = status == 0; failed = status != 0 }
            if (status != 0 && failed == 0) failed = 1
            print passed + 0, failed + 0
        }' "$1"
}

# run_one INDEX NAME COMMAND SECONDS
run_one() {
    local log=$results/$1.log limit=$4 status start=$SECONDS passed failed
    timeout -k 10 "$limit" bash -c "$3" > "$log" 2>&1 < /dev/null
    status=$?
    if [ $status = 77 ]; then
        echo "skip   $2: $(tail -n 1 "$log")"
        echo skipped > "$results/$1.count"
        return
    fi
    read -r passed failed < <(count "$log" $status)
    [ $status = 124 ] || [ $status = 137 ] && echo "ran longer than $limit s and was stopped" >> "$log"
    if [ "$failed" = 0 ]; then
        echo "ok     $2: $passed in $((SECONDS - start)) s"
        grep '^skipped: ' "$log" | sort -u | sed 's/^/       | /'
    else
        {
            echo "FAILED $2: $failed of $((passed + failed)), exit status $status: $3"
            tail -n 60 "$log" | sed 's/^/       | /'
        }
    fi
    echo "$passed $failed" > "$results/$1.count"
}

index=0
while IFS=$'\t' read -r name command seconds; do
    name=${name# }
    [ -n "$name" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    index=$((index + 1))
    run_one $index "$name" "$command" "${seconds:-$limit}" &
done < "$list"
wait

# A program without a count was lost: that is a failure too.
passed=0 failed=0 skipped=0
for ((i = 1; i <= index; i++)); do
    read -r a b 2> /dev/null < "$results/$i.count" || { a=0 b=1; }
    if [ "$a" = skipped ]; then
        skipped=$((skipped + 1))
    else
        passed=$((passed + a)) failed=$((failed + ${b:-1}))
    fi
done
[ $skipped = 0 ] || echo "$skipped programs skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
