#!/usr/bin/env bash
# tune: what it would measure, and what it makes of records; with the simulator (make check), a sweep from end to end.
# shellcheck source=tests/cli/harness.bash
source "$(dirname "$0")/harness.bash"

bad 2 'output FILE is needed' tune --seqlens-q 9
bad 2 "strategy is 'best'" tune --seqlens-q 9 --strategy best --dry-run
bad 2 'arch is for --dry-run' tune --seqlens-q 9 --arch sm_80 -o "$scratch/x"
bad 6 'none' tune --merge "$scratch/none" -o "$scratch/x"

bad 2 "pass: 'both' is none of fwd,bwd" tune --seqlens-q 9 --pass both --arch sm_80 --dry-run
bad 2 'no candidate has tile_m=7 \(--set\)' tune --seqlens-q 9 --arch sm_80 --set tile_m=7 --dry-run

problem=(--seqlens-q 1000 --heads-q 8 --head-dim 128 --dtype bf16 --causal)
good tune "${problem[@]}" --arch sm_80 --dry-run --limit 64
that test "$(wc -l < "$out")" -ge 60
has '\(served now\)$'
has '\(a row\)$'
hasnt 'pass=bwd'
that test "$(sort -u "$out" | wc -l)" = "$(wc -l < "$out")"
good tune "${problem[@]}" --arch sm_80 --dry-run --limit 5 --pass bwd
has '^pass=bwd '
hasnt 'pass=fwd'
good tune "${problem[@]}" --arch sm_80 --dry-run --limit 3 --json
that json --lines knobs
has '"served":true'
good tune "${problem[@]}" --arch sm_80 --dry-run --strategy exhaustive
that test "$(wc -l < "$out")" -gt 200
# Half of them differ from a row that serves in one knob, some of the others from all rows in more. No two are the same kernels.
good tune "${problem[@]}" --arch sm_80 --dry-run --limit 40
grep -o 'blocks_per_sm=.*warps=[0-9]*' "$out" > "$scratch/knobs"
read -ra row < <(grep '(served now)' "$out" | grep -o 'blocks_per_sm=.*warps=[0-9]*')
for word in "${row[@]}"; do sed "s/${word%%=*}=[0-9a-z]*/-/" "$scratch/knobs" | grep -Fxe "$(printf '%s ' "${row[@]}" | sed "s/${word%%=*}=[0-9a-z]*/-/; s/ $//")" || true; done > "$scratch/near"
that test "$(wc -l < "$scratch/near")" -ge $((${#row[@]} + 5)) # the row itself once for each knob
that test "$(wc -l < "$scratch/near")" -lt 40
that test -z "$(sort "$scratch/knobs" | uniq -d)"
# --set narrows what the generator makes; rows stay. Whole words: warps=1 is not warps=16.
good tune "${problem[@]}" --arch sm_80 --dry-run --set warps=1 --set tile_n=32
that test "$(grep -vc '(' "$out")" -gt 3
that test "$(grep -v '(' "$out" | grep -vc 'tile_n=32 warps=1$')" = 0

# The suite: small requests first, all shapes of one together.
good tune --suite tune --filter s2048 --arch sm_90a --dry-run --limit 9
cut -d' ' -f1-8 "$out" | uniq > "$scratch/requests"
that test "$(sort -u "$scratch/requests" | wc -l)" = 20
that test "$(wc -l < "$scratch/requests")" = 20
cut -d' ' -f1-8 "$out" | uniq -c | awk '{ print $1 }' > "$scratch/counts"
that sort -nc "$scratch/counts"

# Rows out of records: the fastest; one numeric class for a request; problems of one size together; failures left out.
record() { # PROBLEM AVERAGE KNOBS NUMERIC STATE MS [SERVED]
    printf '{"name":"","problem":"%s","pass":"fwd","request":"pass=fwd arch=sm_80 dtype=bf16 head_dim=64 head_dim_v=64 mask=full softcap=0 aligned=1 deterministic=0","knobs":"%s","numeric":%s,"row":false,"served":%s,"state":"%s","ms":%s,"low":%s,"high":%s,"times":[%s],"bytes":1e6,"flops":1e9,"average_q":%s,"average_k":%s,"timestamp":"2026-01-01T00:00:00Z","where":{"device":"Test","arch":"sm_80","driver":"13.0","command":"varflash tune x","signature":"%s"}}\n' \
        "$1" "$3" "$4" "${7:-false}" "$5" "$6" "$6" "$6" "$6" "$2" "$2" "$signature"
}
signature=$(lua5.4 gen/cli.lua signature)
knobs() { echo "blocks_per_sm=$3 family=sm80 q_registers=0 stages=1 tile_m=$1 tile_n=$2 warps=4"; }
{
    record short 50 "$(knobs 64 64 1)" 64 correct 1.0 true
    record short 50 "$(knobs 64 32 1)" 32 correct 0.9
    record short 50 "$(knobs 64 64 2)" 64 correct 0.95
    record long 5000 "$(knobs 64 64 1)" 64 correct 10 true
    record long 5000 "$(knobs 128 64 1)" 64 correct 5
    record long 5000 "$(knobs 64 32 1)" 32 correct 9
    record long 5000 "$(knobs 128 32 1)" 32 timeout 1
    record long 5000 "$(knobs 128 48 1)" 48 correctness 1
    record long 5000 "$(knobs 128 64 1)" 64 correct 6 # measured again: this counts
    printf '{"name":"cut'
} > "$scratch/rows.json.journal"
good tune --merge "$scratch/rows.json.journal" -o "$scratch/rows.json" --report "$scratch/page.html"
cp "$scratch/rows.json" "$out"
that test "$(json rows.0.when.avg_q_max)" = 64
that test "$(json rows.0.use.tile_n)" = 64 # 0.95 + 6 beats 0.9 + 9
that test "$(json rows.0.use.blocks_per_sm)" = 2
that test "$(json rows.1.use.tile_m)" = 128
that test -z "$(json rows.1.when.avg_q_max 2> /dev/null)"
that test "$(json rows.1.measured.ms)" = 6
that test "$(json rows.1.measured.served_before_ms)" = 10
that test "$(json rows.1.measured.command)" = 'varflash tune x' # that of the sweep
that grep -q '<svg' "$scratch/page.html"
that test "$(grep -c '<circle.*<title>.*tile_m=' "$scratch/page.html")" = 6 # each candidate that is right
that grep -q '>long fwd<' "$scratch/page.html"
# Roofs are those of the device, where its data sheet is known.
that grep -q "Against the memory's roof" "$scratch/page.html"
sed 's/"device":"Test"/"device":"NVIDIA H200"/' "$scratch/rows.json.journal" > "$scratch/h200.journal"
good tune --merge "$scratch/h200.journal" -o "$scratch/h200.json" --report "$scratch/h200.html"
that grep -q '>4.8 TB/s, 989 TFLOP/s<' "$scratch/h200.html"
cp "$scratch/rows.t4.json" "$out"
that lua5.4 tests/cli/t4.lua < "$out"
that test "$(json results.2.invalidity)" = correct
that test "$(json metadata.device)" = Test
has '"invalidity":	"timeout"'
sed 's/"invalidity":	"timeout"/"invalidity":	"slow"/; s/"runtimes":	\[10\]/"runtimes":	["10"]/; s/"times"/"time"/2' "$scratch/rows.t4.json" > "$scratch/bad.t4.json"
lua5.4 tests/cli/t4.lua < "$scratch/bad.t4.json" > "$out" && code=0 || code=$?
that test "$code" = 1
has "invalidity: 'slow' is no value of it"
has 'runtimes/0: is a string, not a number'
# Shapes that make no rows: what they lose with the row they get. "longer" gets long's, 6 ms to its own best 5.
{
    sed '$d' "$scratch/rows.json.journal"
    for shape in '9000 6 5' '70 3 3'; do
        read -r average first second <<< "$shape"
        record "longer$average" "$average" "$(knobs 128 64 1)" 64 correct "$first" true | sed 's/"name":""/"name":"longer'"$average"'"/'
        record "longer$average" "$average" "$(knobs 64 64 2)" 64 correct "$second" | sed 's/"name":""/"name":"longer'"$average"'"/'
    done
} > "$scratch/held.journal"
good tune --merge "$scratch/held.journal" -o "$scratch/held.json" --held-out longer --report "$scratch/held.html"
has '^longer9000 +fwd +new +6.0000 +5.0000 +20.0 %$'
has '^longer70 +fwd +new +3.0000 +3.0000 +0.0 %$'
that grep -q 'held out: 2 shapes lose 10.0 % to their own best (median), 20.0 % at most' "$err"
that grep -q 'What held-out shapes lose' "$scratch/held.html"
that cmp "$scratch/held.json" "$scratch/rows.json"
good tune --merge "$scratch/held.journal" -o "$scratch/held.json" --held-out each --json
that json median_loss
that test "$(json held_out)" = 2
that grep -q "of 2 shapes the row they get has no time" "$err"
# Rows written by hand get what was measured of the shapes that they serve, and keep all else, lay-out included.
cat > "$scratch/hand.json" << 'END'
{
  "comment": "a: \"quoted\", {}",
  "rows": [
    { "when": { "pass": "bwd" }, "use": { "family": "sm80", "tile_m": 64, "tile_n": 64 } },
    { "when": {}, "use": { "family": "sm80", "tile_m": 64, "tile_n": 64, "warps": 4, "stages": 1, "q_registers": false, "blocks_per_sm": 1 } }
  ]
}
END
sed 's/"served":true/"served":true,"served_by":"configs\/hand.json#\/rows\/1"/' "$scratch/rows.json.journal" > "$scratch/hand.journal"
good tune --merge "$scratch/hand.journal" --rows "$scratch/hand.json" -o "$scratch/measured.json"
has "^ +1 +2 +38.9 % +66.7 % +[-+][0-9.]+ % +blocks_per_sm=. family=sm80"
that cmp <(sed 's/, "measured": .* }\(,*\)$/ }\1/' "$scratch/measured.json") "$scratch/hand.json"
cp "$scratch/measured.json" "$out"
that test "$(json rows.1.measured.shapes)" = 2
that test "$(json rows.1.measured.ms)" = 10
that test "$(json rows.1.measured.device)" = Test
that test "$(grep -c measured "$out")" = 1
good explain --seqlens-q 5000 --head-dim 64 --dtype bf16 --arch sm_80 --config "$scratch/measured.json"
has '^ +2 shapes, 38.9 % behind their own best \(median\), 66.7 % at most$'
good tune --merge "$scratch/hand.journal" --rows "$scratch/measured.json" -o "$scratch/again.json"
that cmp "$scratch/measured.json" "$scratch/again.json"
echo '{}' > "$scratch/no-rows.json"
bad 6 'no file of rows' tune --merge "$scratch/hand.journal" --rows "$scratch/no-rows.json" -o "$scratch/x"
# They are rows that the library takes; flags are written as such.
while read -r flag; do
    that grep -q "\"$flag\"" tools/tune_items.c
done < <(sed -n 's/.*name = "\([a-z_]*\)".*type = "flag".*/\1/p' gen/knobs.lua)
sed -i 's/"device": "Test",//' "$scratch/rows.json"
good explain --seqlens-q 5000 --head-dim 64 --dtype bf16 --arch sm_80 --config "$scratch/rows.json"
has 'rows.json#/rows/1'
has '^  measured +6 ms$'
has '^  rival +.*: \+50.0 %$' # what other sizes had to agree with it kept from winning, or came second
good explain --seqlens-q 50 --head-dim 64 --dtype bf16 --arch sm_80 --config "$scratch/rows.json"
has 'rows.json#/rows/0'
sed 's/"device":"Test"/"device":"Other"/' "$scratch/rows.json.journal" > "$scratch/other.journal"
bad 2 "records of 'Test' and of 'Other'" tune --merge "$scratch/rows.json.journal" "$scratch/other.journal" -o "$scratch/x"
echo '{"x": }' | cat - "$scratch/rows.json.journal" > "$scratch/broken"
bad 6 'no record of' tune --merge "$scratch/broken" -o "$scratch/x"

simulator=$(dirname "$VARFLASH")/varflash-sim
if [ -x "$simulator" ]; then
    VARFLASH=$simulator
    sweep=(tune --seqlens-q 9 --heads-q 1 --head-dim 8 --dtype bf16 --limit 1 --budget 1s --backend sim -j 2 -o "$scratch/tuned.json")
    bad 2 'no CUDA device 1, of 1' "${sweep[@]}" --devices 0,1
    bad 2 'has device 0 twice' "${sweep[@]}" --devices 0,0
    bad 2 "devices is '0,x'" "${sweep[@]}" --devices 0,x
    bad 6 'nowhere/rows.json: No such file' "${sweep[@]}" -o "$scratch/nowhere/rows.json"
    bad 6 'nowhere/page.html: No such file' "${sweep[@]}" --report "$scratch/nowhere/page.html"
    that test ! -e "$scratch/tuned.json.journal"
    good "${sweep[@]}"
    cp "$scratch/tuned.json" "$out"
    that json rows.0.use.tile_m
    that json rows.0.measured.candidates
    that grep -q '"state":"correct"' "$scratch/tuned.json.journal"
    # What is in the journal is not measured again.
    lines=$(wc -l < "$scratch/tuned.json.journal")
    good "${sweep[@]}" --resume
    that test "$(wc -l < "$scratch/tuned.json.journal")" = "$lines"
    # What another device said, or kernels that have changed since, is.
    sed -i 's/"generator":"[0-9a-f]*"/"generator":"0"/' "$scratch/tuned.json.journal"
    good "${sweep[@]}" --resume
    that grep -q ": $lines records of another device, or of kernels as they were, do not count" "$err"
    that test "$(grep -c '"state":"correct"' "$scratch/tuned.json.journal")" -gt 0
    that test "$(grep -c '"generator":"0"' "$scratch/tuned.json.journal")" = 0
    that test "$(grep -c '"generator":"0"' "$scratch/tuned.json.journal.old")" = "$lines"
    # A budget ends the sweep after the shape that is being measured, and says how to go on.
    sizes() { # NAME LENGTHS ...
        while [ $# -gt 1 ]; do
            printf '%s{"name": "%s", "seqlens_q": "%s", "head_dim": 8, "dtype": "bf16"}' "${comma:-}" "$1" "$2"
            shift 2
            comma=,
        done | sed 's/^/[/; s/$/]/'
    }
    sizes small 9 large 70 > "$scratch/two.json"
    sizes small 9 between 33,30 large 70 held 60 > "$scratch/four.json"
    sweep=(--limit 1 --pass fwd --strategy random --backend sim -j 2 -o "$scratch/sizes.json")
    good tune "$scratch/two.json" "${sweep[@]}" --budget 1s
    that grep -q 'the budget is used up; this goes on: .*--resume' "$err"
    that test "$(grep -c '"name":"small".*"finished":true' "$scratch/sizes.json.journal")" -gt 0
    that test "$(grep -c '"name":"large"' "$scratch/sizes.json.journal")" = 0
    good tune "$scratch/two.json" "${sweep[@]}" --resume
    that test "$(grep -c '"name":"large".*"finished":true' "$scratch/sizes.json.journal")" -gt 0
    # Two devices share what there is.
    good tune "$scratch/two.json" --limit 1 --pass fwd --strategy random --backend sim:devices=2 --devices 0,1 --budget 10s -j 2 -o "$scratch/shared.json"
    that grep -q '"ordinal":0' "$scratch/shared.json.journal"
    that grep -q '"ordinal":1' "$scratch/shared.json.journal"
    that grep -q 'devices waited [0-9.]* s for compilers' "$err"
    # Who is slow for smaller and for larger sizes is not tried between them, but one that is slow on one side only is.
    mapfile -t slow < <(sed -n '/"name":"small".*"served":false.*"state":"correct"/s/.*"knobs":"\([^"]*family=sm80[^"]*\)".*/\1/p' "$scratch/sizes.json.journal" | sort -u)
    sed -i "/${slow[0]}/s/\"times\":\[[^]]*/\"times\":[900,900,900/; /\"name\":\"small\".*${slow[1]}/s/\"times\":\[[^]]*/\"times\":[900,900,900/" "$scratch/sizes.json.journal"
    good tune "$scratch/four.json" "${sweep[@]}" --resume --held-out held
    for name in between held; do
        that test "$(grep -c "\"name\":\"$name\".*${slow[0]}" "$scratch/sizes.json.journal")" = 0
        that test "$(grep -c "\"name\":\"$name\".*${slow[1]}" "$scratch/sizes.json.journal")" -gt 0
    done
    that test "$(grep -n '"name":"between"' "$scratch/sizes.json.journal" | head -1 | cut -d: -f1)" -lt \
        "$(grep -n '"name":"held"' "$scratch/sizes.json.journal" | head -1 | cut -d: -f1)"
    sweep=(tune --seqlens-q 9 --heads-q 1 --head-dim 8 --dtype bf16 --limit 1 --budget 1s --backend sim -j 2 -o "$scratch/tuned.json")
    # A candidate that crashes, hangs or is wrong costs itself.
    cp -R gen templates "$scratch"
    awk '/float scale\[M_BLOCKS\]\[2\], lse/ {
        print "//% if stages == 1 then\n*reinterpret_cast<volatile int *>(u64(8)) = 1;"
        print "//% elseif tile_m == 128 then\nreturn;"
        print "//% elseif tile_n == 48 then\nfor (volatile int i = 0;;) i = i;\n//% end" } { print }' \
        templates/fwd_sm80.cu > "$scratch/templates/fwd_sm80.cu"
    echo precious > "$scratch/faults.json.journal"
    VARFLASH_SOURCE=$scratch good "${sweep[@]}" --backend sim:cc=80 --strategy random --timeout 5 --budget 60s -o "$scratch/faults.json"
    that grep -q precious "$scratch/faults.json.journal.old" # not lost for want of --resume
    faults() { grep -c "\"knobs\":\"[^\"]*$1.*\"state\":\"$2\"" "$scratch/faults.json.journal"; }
    that test "$(faults 'stages=1 ' runtime)" -gt 0
    that test "$(faults 'tile_m=128 ' correctness)" -gt 0
    that test "$(faults 'stages=2 tile_m=64 tile_n=48 ' timeout)" = 1
    that test "$(faults 'stages=2 tile_m=64 tile_n=64 ' correct)" = 1
    # An interrupt keeps what there is and names the command that goes on.
    "$VARFLASH" "${sweep[@]}" --limit 16 --budget 60s -o "$scratch/it stopped.json" > "$out" 2> "$err" < /dev/null &
    process=$!
    for ((waited = 0; waited < 600; waited++)); do # until the first of many candidates has been timed
        [ -s "$scratch/it stopped.json.journal" ] && break
        sleep 0.1
    done
    kill -INT $process
    wait $process && code=0 || code=$?
    that test "$code" = 130
    that grep -q "this goes on: varflash tune .* '[^ ]*/it stopped.json' --resume" "$err"
else
    echo 'skipped: a sweep from end to end: the simulator is not built'
fi
finish
