#!/usr/bin/env bash
# Help and versions. The pages are compared with tests/cli/golden/; UPDATE=1 rewrites them.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

page() {
    local golden=tests/cli/golden/help-$1.txt
    shift
    good "$@"
    if [ -n "${UPDATE:-}" ]; then cp "$out" "$golden"; fi
    that diff "$golden" "$out"
    that test ! -s "$err"
}
page varflash --help
for verb in show run check bench explain build bundle cache info pages tune; do
    page $verb $verb --help
    cp "$out" "$scratch/page"
    good $verb -h
    that cmp "$out" "$scratch/page"
done
good -h
that diff tests/cli/golden/help-varflash.txt "$out"

good --version
has '^varflash [0-9]+\.[0-9]+\.[0-9]+$'
has '^NVRTC '
has '^driver '
good --version --json
that json varflash
that json nvrtc
good check --version

# Every exit code that this folder tests stands on the page.
for code in 0 1 2 3 4 5 6 7 130; do that grep -Eq "^ +$code  " tests/cli/golden/help-varflash.txt; done

run && code=0 || code=$?
that test "$code" = 2 -a ! -s "$out" -a -s "$err"
finish
