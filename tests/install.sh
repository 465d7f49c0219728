#!/usr/bin/env bash
# The installed tree is usable: every C program in README.md and docs/ compiles against it through pkg-config, as C and as C++, with the
# shared and with the static library, and prints what its comment "prints:" says. Only vf_* is visible.
set -eu

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
read -ra cc <<< "${CC:-gcc}"
read -ra cxx <<< "${CXX:-g++}"
passed=0 failed=0
try() {
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "failed: $what"
    fi
}

prefix=/opt/varflash
${MAKE:-make} --no-print-directory BUILD="${BUILD:-build}" install DESTDIR="$tree" PREFIX=$prefix > /dev/null
library=$tree$prefix/lib
export PKG_CONFIG_PATH=$library/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tree LD_LIBRARY_PATH=$library

# The ```c blocks with a main function, each in a file of its own.
awk -v out="$tree/example" '
    /^```c$/ { text = ""; inside = 1; next }
    /^```$/ && inside { inside = 0; if (text ~ /int main\(/) { printf "%s", text > (out n ".c"); n++ }; next }
    inside { text = text $0 "\n" }' README.md docs/*.md

prints_what_it_says() {
    local said
    said=$("$1")
    [ "$said" = "$(sed -n 's|^// prints: ||p' "$2")" ] || { echo "$said" && false; }
}

flags() { pkg-config "$@" varflash; }

for example in "$tree"/example*.c; do
    # shellcheck disable=SC2046 # lists of flags
    {
        "${cc[@]}" -std=c11 -Wall -Werror "$example" -o "$tree/c" $(flags --cflags --libs)
        "${cc[@]}" -std=c11 "$example" -o "$tree/c_static" $(flags --cflags) "$library/libvarflash.a" $(flags --static --libs | sed 's/-lvarflash//')
        "${cxx[@]}" -x c++ -std=c++20 -Wall -Werror "$example" -x none -o "$tree/cxx" $(flags --cflags --libs)
    }
    for program in c c_static cxx; do
        try "$(basename "$example") as $program" prints_what_it_says "$tree/$program" "$example"
    done
done

only_public() { ! nm "$@" | awk '$2 ~ /[A-Z]/ && $2 != "U" && $2 != "w" && $3 !~ /^(vf_|VARFLASH_)/' | grep .; }
try 'the shared library exports vf_* alone' only_public -D --defined-only "$library/libvarflash.so"
try 'the static library shows vf_* alone' only_public -g --defined-only "$library/libvarflash.a"
try 'the shared library has a versioned name' eval "readelf -d '$library/libvarflash.so' | grep -q 'soname: .libvarflash.so.[0-9]'"
try 'the shared library is smaller than 2 MB' test "$(stat -Lc %s "$library/libvarflash.so")" -lt 2000000
try 'the unstable header stays at home' test ! -e "$tree$prefix/include/varflash/varflash_dev.h"
share=$tree$prefix/share
for page in man/man1/varflash.1 man/man3/varflash.3 man/man3/vf_forward.3 bash-completion/completions/varflash \
    zsh/site-functions/_varflash fish/vendor_completions.d/varflash.fish; do
    try "$page is there" test -s "$share/$page"
done
if command -v dpkg-deb > /dev/null; then
    package=$(${MAKE:-make} --no-print-directory BUILD="${BUILD:-build}" deb | tail -n 1)
    mkdir "$tree/deb"
    try 'the package unpacks' dpkg-deb -x "$package" "$tree/deb"
    try 'its command runs' eval "'$tree/deb/usr/bin/varflash' --version > '$tree/version'"
    try 'its manual is packed' eval "gzip -t '$tree'/deb/usr/share/man/man?/*.gz"
else
    echo 'skipped: the Debian package: dpkg-deb is not here'
fi
try 'the command runs' eval "'$tree$prefix/bin/varflash' --version > '$tree/version'"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
