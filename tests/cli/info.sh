#!/usr/bin/env bash
# info: what is here; what is missing is described and never an error.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

good info
has '^varflash +[0-9.]+, generator '
has '^driver '
has '^NVRTC '
has "^cache +$VARFLASH_CACHE_DIR"
has '^CPU +[a-z0-9]+, [0-9]+ threads$'
has '^configs +configs/'
good info --json
for name in varflash generator backend driver.version driver.missing nvrtc.path cache.folder cpu.threads devices configs environment; do
    that json $name
done
# Each variable that the library reads is listed.
cp "$out" "$scratch/info"
while read -r name; do
    that grep -q "\"$name\"" "$scratch/info"
done < <(sed -n 's/.*VARIABLE([a-z_]*, "\([A-Z_]*\)".*/\1/p' runtime/fs.h)

VARFLASH_NVRTC=$scratch/none good info
has '^NVRTC +.*VARFLASH_NVRTC=.*cannot be used'
VARFLASH_NVRTC=$scratch/none good info --json
that test "$(json nvrtc.version)" = null
that test "$(json nvrtc.missing)" != null
: > "$scratch/file"
VARFLASH_CACHE_DIR=$scratch/file good info
VARFLASH_CONFIG=$scratch/none bad 6 "$scratch/none" info
good info --cache-dir "$scratch/elsewhere"
has "^cache +$scratch/elsewhere"
good info --json
if [ "$(json driver.version)" = null ]; then
    has 'install the NVIDIA driver'
    bad 4 'no CUDA driver' check --seqlens-q 3 --backend cuda
fi

# A full disk is no success.
if [ -c /dev/full ]; then
    "$VARFLASH" info > /dev/full 2> "$err" && code=0 || code=$?
    that test "$code" = 6
    that grep -q 'cannot write to the standard output' "$err"
fi
finish
