#!/usr/bin/env bash
# Every public header compiles alone: as C11 and as C++17, warnings being errors, without a CUDA header in sight.
set -u

read -ra cc <<< "${CC:-gcc}"
read -ra cxx <<< "${CXX:-g++}"
passed=0 failed=0
try() {
    if "$@" > /dev/null; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "failed: $*"
    fi
}

for header in runtime/include/varflash/*.h; do
    include=varflash/$(basename "$header")
    for standard in c11 c17; do
        try "${cc[@]}" -std=$standard -pedantic -Wall -Wextra -Werror -Iruntime/include -include "$include" -fsyntax-only -x c /dev/null
    done
    for standard in c++11 c++17; do
        try "${cxx[@]}" -std=$standard -pedantic -Wall -Wextra -Werror -Iruntime/include -include "$include" -fsyntax-only -x c++ /dev/null
    done
done

echo "$passed passed, $failed failed"
[ $failed = 0 ]
