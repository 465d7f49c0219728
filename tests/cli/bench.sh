#!/usr/bin/env bash
# bench on the CPU backend: what it prints. The numbers themselves belong to the machine.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

good bench --seqlens-q 64,17 --heads-q 2 --head-dim 16 --backward --backend cpu --duration 0.01
has '^device CPU, vector_code [a-z0-9]+, threads [0-9]+$'
has 'forward +[0-9.]+ ms .*TFLOP/s .*GB/s$'
has 'backward +[0-9.]+ ms'
good bench --seqlens-q 64,17 --head-dim 16 --backend cpu --duration 0.01 --json --name short --threads 1
that json ms
that test "$(json name)" = short
that test "$(json where.device)" = CPU
that test "$(json where.threads)" = 1
that test "$(json problem)" = '--name short --seqlens-q 64,17 --head-dim 16'
good bench --suite smoke --filter dims --backend cpu --duration 0.001 --json
that json --lines tflops
good bench --suite list
has '^short  '
echo '{"seqlens_q": [9], "name": "from-file"}' > "$scratch/problem.json"
good bench "$scratch/problem.json" --backend cpu --duration 0.001
has '^from-file '
bad 6 "$scratch/none.json" bench "$scratch/none.json" --backend cpu
run bench --seqlens-q 9 --heads-q 3 --heads-k 2 --backend cpu && code=0 || code=$?
that test "$code" = 2
that grep -q 'must be a multiple' "$err"
good info --json
if [ "$(json driver.version)" = null ]; then
    bad 4 'no CUDA driver' bench --seqlens-q 9 --backend cuda
    bad 4 'no CUDA driver' bench --host
fi

# A page of plots.
good bench --seqlens-q 5,9 --backend cpu --backward --duration 0.01 --json --report "$scratch/page.html"
cp "$out" "$scratch/measured"
has '"times":\[([0-9.e+-]+,){8}[0-9.e+-]+\]'
that grep -q '<svg' "$scratch/page.html"
that grep -q 'backward' "$scratch/page.html"
that test -z "$(grep -E 'src=|href=|<script' "$scratch/page.html")"
run bench --seqlens-q 5,9 --backend cpu --duration 0.01 --report "$scratch/nowhere/page.html" && code=0 || code=$?
that test "$code" = 6

# Two files: equal, slower, faster, noisy, foreign.
record() { # NAME MS FACTOR...
    printf '{"name":"%s","pass":"forward","problem":"--name %s","ms":%s,"spread":0.01,"times":[%s]}\n' "$1" "$1" "$2" "$3"
}
{ record a 1.0 0.999,1.0,1.001; record b 1.0 0.999,1.0,1.001; record c 1.0 0.7,1.0,1.4; record only 1 1,1,1; } > "$scratch/old.json"
{ record a 1.0 0.999,1.0,1.001; record b 0.5 0.499,0.5,0.501; record c 1.1 0.8,1.1,1.5; } > "$scratch/new.json"
good bench --compare "$scratch/old.json" "$scratch/new.json"
has '^a +forward +1\.000 +\[0\.99'
has '^b +forward +0\.500 '
has '^c +forward +1\.100 +\[0\.[0-9]+, [1-9]' # within the noise
has '^3 compared, geometric mean 0\.[0-9]+ of the time, 0 slower'
that grep -q 'only: .*only in the first file\|only, forward: only in the first file' "$err"
{ record a 1.05 1.049,1.05,1.051; record b 1.02 1.019,1.02,1.021; } > "$scratch/new.json"
run bench --compare "$scratch/old.json" "$scratch/new.json" --json && code=0 || code=$?
that test "$code" = 1
has '"name":"a".*"regression":true'
has '"name":"b".*"regression":false' # 2 %
good bench --compare "$scratch/measured" "$scratch/measured"
bad 2 'one file more' bench --compare "$scratch/old.json"
bad 6 'no line of' bench --compare README.md "$scratch/old.json"
bad 6 'cannot be read' bench --compare "$scratch/none" "$scratch/old.json"
record z 1 1,1 > "$scratch/new.json"
run bench --compare "$scratch/old.json" "$scratch/new.json" -q && code=0 || code=$?
that test "$code" = 2
finish
