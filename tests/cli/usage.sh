#!/usr/bin/env bash
# What is wrong with a command line: each exits 2 with one sentence, and nothing is done.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

bad 2 "'tun' is not a verb; did you mean 'tune'" tun
bad 2 "'chek' is not a verb; did you mean 'check'" chek
bad 2 "'frobnicate' is not a verb; 'varflash --help'" frobnicate
bad 2 "'' is not a verb" ''
bad 2 "'-x' is not a verb" -x
for verb in show run check bench explain info; do
    bad 2 "$verb: --frobnicate is not an option; 'varflash $verb --help'" $verb --frobnicate
    bad 2 "$verb: -z is not an option" $verb -z
    bad 2 "$verb: --jsn is not an option; did you mean --json" $verb --jsn
    bad 2 "$verb: --json takes no value" $verb --json=1
    bad 2 "$verb: --config needs a value: --config FILE" $verb --config
    bad 2 "$verb: --config is '', but must not be empty" $verb --config ''
done

# Suggestions
bad 2 'did you mean --head-dim\?' check --headdim 64
bad 2 'did you mean --seqlens-q\?' check --seqlens 64
bad 2 'did you mean --causal\?' show fwd --casual
bad 2 'did you mean --softcap\?' show fwd --soft-cap 3
bad 2 'did you mean --backend\?' bench --bakend cpu

# Options of other verbs
bad 2 'run: --ptx is an option of other verbs only' run --ptx
bad 2 'run: --head-dim is an option of other verbs only' run --head-dim 64
bad 2 'check: --in is an option of other verbs only' check --in x
bad 2 'info: --causal is an option of other verbs only' info --causal

# Values of the command's own options
bad 2 "check: --backend is 'gpu', but must be auto, cuda or cpu" check --seqlens-q 3 --backend gpu
bad 2 "check: --repeat is '-1', but must be a number from 0" check --seqlens-q 3 --repeat -1
bad 2 "check: --repeat is 'x'" check --seqlens-q 3 --repeat x
bad 2 "check: --repeat is '99999999999999999999'" check --seqlens-q 3 --repeat 99999999999999999999
bad 2 "bench: --duration is '0', but must be a positive" bench --seqlens-q 3 --duration 0
bad 2 "bench: --duration is 'nan'" bench --seqlens-q 3 --duration nan
bad 2 'resume is 2, but there are problems 1 to 1' check --seqlens-q 3 --backend cpu --resume 2
bad 2 'resume is 0' check --seqlens-q 3 --backend cpu --resume 0

# Values of a problem
bad 2 'seqlens-q is missing' check
bad 2 'seqlens-q is missing' explain --head-dim 64
bad 2 "seqlens-q: '3x' is no list" check --seqlens-q 3x
bad 2 "seqlens-q: '-' is no list" check --seqlens-q -
bad 2 'seqlens-q needs a value' check --seqlens-q
bad 2 'seqlens-q: is given twice' check --seqlens-q 3 --seqlens-q 4
bad 2 'an earlier list has 1' check --seqlens-q 3 --seqlens-k 4,5
bad 2 "heads-q: '0' is not a whole number" check --seqlens-q 3 --heads-q 0
bad 2 "head-dim: 'x' is not" check --seqlens-q 3 --head-dim x
bad 2 "dtype: 'int8' is none of" check --seqlens-q 3 --dtype int8
bad 2 "window: '3' is not LEFT,RIGHT" check --seqlens-q 3 --window 3
bad 2 "window: '3,x' is not LEFT,RIGHT" check --seqlens-q 3 --window 3,x
bad 2 "softcap: '-1' is not" check --seqlens-q 3 --softcap -1
bad 2 "scale: 'inf' is not" check --seqlens-q 3 --scale inf
bad 2 "strides: 'x=1,2' names no tensor" check --seqlens-q 3 --strides x=1,2
bad 2 "poison: 'x' is none of" check --seqlens-q 3 --poison x
bad 2 'causal takes no value' check --seqlens-q 3 --causal=1
bad 2 'dlse is part of the backward' check --seqlens-q 3 --dlse

# Arguments
bad 2 'a KERNEL .* or --spec SPEC is needed' show
bad 2 'a KERNEL .* or --spec SPEC is needed' show fwd --spec 'kernel=schedule arch=sm_80'
bad 2 'budget needs a kernel by name' show --spec 'kernel=schedule arch=sm_80' --budget
bad 2 "'nope' is no kernel of this variant, which has schedule, fwd_sm80" show nope
bad 2 'in FILE and --out FILE are needed' run
bad 2 "run: takes no argument, but got 'x'" run x
bad 2 "info: takes no argument, but got 'x'" info x
bad 2 "suite: 'nope' is none of smoke, " check --suite nope
bad 2 "suite: 'nope' is none of smoke, " bench --suite nope
bad 2 'exclude each other' check --suite smoke x.json
bad 2 'no problem whose name contains zzz' check --suite smoke --filter zzz
bad 2 'seqlens-q cannot be given together with a file or a suite' check --suite smoke --seqlens-q 3
bad 2 'host measures launches, which the CPU backend has none of' bench --host --backend cpu

# A value may begin with a minus, after a blank or a = sign; -- ends the options.
good explain --seqlens-q 9 --arch sm_80 --window -3,1
has 'mask=window'
good explain --seqlens-q 9 --arch sm_80 --window=-3,1
has 'mask=window'
bad 6 '^varflash: --json: ' check -- --json
finish
