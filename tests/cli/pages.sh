#!/usr/bin/env bash
# pages: the manual page and the completions have every verb and option that --help has, and the shells take them.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

bad 2 'takes one of' pages
bad 2 'takes one of' pages tcsh
for page in man bash zsh fish; do
    good pages $page
    cp "$out" "$scratch/$page"
done

"$VARFLASH" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | grep -v '^$' > "$scratch/verbs"
that test "$(wc -l < "$scratch/verbs")" -ge 10
sed 's/\\-/-/g' "$scratch/man" > "$scratch/plain"
missing=0
while read -r verb; do
    grep -q "^\.SS varflash $verb" "$scratch/man" || missing=$((missing + 1))
    "$VARFLASH" "$verb" --help | sed -n 's/^  .*--\([a-z0-9-]*\).*/\1/p' > "$scratch/options"
    that test -s "$scratch/options"
    grep "^        $verb:\*)" "$scratch/bash" > "$scratch/bash-$verb"
    sed -n "/^        $verb) _arguments/,/;;\$/p" "$scratch/zsh" > "$scratch/zsh-$verb"
    grep "seen_subcommand_from $verb'" "$scratch/fish" > "$scratch/fish-$verb"
    while read -r option; do
        grep -qF -- "--$option\\fR" "$scratch/plain" || missing=$((missing + 1))
        grep -q -- " --${option}[ ']" "$scratch/bash-$verb" || missing=$((missing + 1))
        grep -q -- "'--$option\[" "$scratch/zsh-$verb" || missing=$((missing + 1))
        grep -q -- " -l $option " "$scratch/fish-$verb" || missing=$((missing + 1))
    done < "$scratch/options"
    # And no more.
    that test "$(grep -o -- ' --[a-z]' "$scratch/bash-$verb" | wc -l)" = "$(wc -l < "$scratch/options")"
    that test "$(grep -c -- "'--" "$scratch/zsh-$verb")" = "$(wc -l < "$scratch/options")"
    that test "$(grep -c -- ' -l ' "$scratch/fish-$verb")" = "$(wc -l < "$scratch/options")"
done < "$scratch/verbs"
that test $missing = 0
# Each variable and exit code.
while read -r name; do that grep -q "^\.B $name$" "$scratch/man"; done < <(sed -n 's/.*VARIABLE([a-z_]*, "\([A-Z_]*\)".*/\1/p' runtime/fs.h)
for code in 0 1 2 3 4 5 6 7 130; do that grep -q "^\.B $code$" "$scratch/man"; done

# What bash completes: WORDS... -> the candidates for the last.
complete_in_bash() {
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _varflash; echo "${COMPREPLY[*]}"' - "$scratch/bash" "$@"
}
that test "$(complete_in_bash varflash exp)" = explain
that test "$(complete_in_bash varflash cache pr)" = prune
that test "$(complete_in_bash varflash build --dry)" = --dry-run
that test "$(complete_in_bash varflash bundle list READM | head -n 1)" = README.md
that test "$(PATH=$(dirname "$VARFLASH"):$PATH complete_in_bash varflash check --suite smo)" = smoke
for shell in zsh fish; do
    if command -v $shell > /dev/null; then that $shell -n "$scratch/$shell"; else echo "skipped: completions of $shell: it is not here"; fi
done

# Section 3: every function of the header, and nothing that groff warns of.
lua5.4 tools/man3.lua runtime/include/varflash/varflash.h > "$scratch/man3"
while read -r name; do that grep -q "$name(" "$scratch/man3"; done < <(lua5.4 tools/man3.lua --names runtime/include/varflash/varflash.h)
that test "$(lua5.4 tools/man3.lua --names runtime/include/varflash/varflash.h | wc -l)" = "$(grep -c '^VF_API' runtime/include/varflash/varflash.h)"
if command -v groff > /dev/null; then
    for page in man man3; do
        groff -man -ww -Tutf8 "$scratch/$page" 2> "$err" > /dev/null
        that test ! -s "$err"
    done
fi
finish
