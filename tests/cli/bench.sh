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
finish
