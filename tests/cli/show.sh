#!/usr/bin/env bash
# show: every kernel on every kind of architecture, what it prints, and that the head of a text reproduces it.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

for arch in sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_120; do
    for kernel in fwd bwd schedule; do
        good show $kernel --arch $arch --head-dim 72 --dtype fp16 --causal
        has "^extern \"C\" __global__|__global__"
        hasnt '^#line'
    done
done

for kernel in bwd_pre bwd_post; do
    good show $kernel --arch sm_100 --head-dim 72
done
good show bwd_pre_sm90 --arch sm_90a --head-dim 72
bad 2 "'bwd_post' is no kernel of this variant" show bwd_post --arch sm_90a --head-dim 72
good show bwd_sm90 --arch sm_90a --head-dim 72

# Without --arch: sm_80. The text names the command that reproduces it.
good show fwd --head-dim 72 --window -3,inf --softcap 15
cp "$out" "$scratch/text"
spec=$(sed -n "s|^//   varflash show --spec '\(.*\)'|\1|p" "$out")
that test -n "$spec"
good show --spec "$spec"
that cmp "$out" "$scratch/text"
good show fwd_sm80 --head-dim 72 --window -3,inf --softcap 15
that cmp "$out" "$scratch/text"
good show fwd --seqlens-q 64 --head-dim 72 --window -3,inf --softcap 15 --arch sm_80
has 'mask=window softcap=1'

# Problem files
echo '{"seqlens_q": [64], "head_dim": 40, "causal": true}' > "$scratch/problem.json"
good show bwd "$scratch/problem.json"
has 'head_dim=40 .*mask=causal'

good show fwd --lines
has '^#line [0-9]+ "templates/fwd_sm80.cu"'

good show fwd --set tile_m=64 --set warps=4 --budget
has '^knobs +.*tile_m=64 .*warps=4'
has '^shared memory +[0-9]+ bytes'
good show bwd --deterministic --budget
has 'deterministic=1'
good show fwd --json
that test "$(json kernel)" = fwd_sm80
that test "$(json budget.threads)" -ge 32
that json source
bad 3 'tile_m=17 is not allowed' show fwd --set tile_m=17
bad 3 'does not have tile' show fwd --set tile=64
bad 3 'every multiple of 8 from 8 to 256' show fwd --head-dim 63
bad 3 'nothing below sm_80' show fwd --arch sm_70
bad 3 'is not an architecture' show fwd --arch volta
bad 5 'kernel=nope is not a kernel' show --spec 'kernel=nope arch=sm_80'

VARFLASH_NVRTC=$scratch/none bad 5 'VARFLASH_NVRTC=.*cannot be used' show fwd --ptx
if has_compiler; then
    good show schedule --ptx
    has '^\.visible \.entry vf_schedule'
    good show fwd --head-dim 64 --log
    has 'spill stores 0 bytes'
    good show schedule --arch sm_90a --cubin "$scratch/schedule.cubin"
    that test "$(head -c 4 "$scratch/schedule.cubin")" = $'\x7fELF'
    that test ! -s "$out"
    good show schedule --log --json
    that json report.registers
    bad 6 '/none/x: No such file' show schedule --cubin "$scratch/none/x"
else
    echo 'skipped: PTX, report and cubin, which need NVRTC'
fi
finish
