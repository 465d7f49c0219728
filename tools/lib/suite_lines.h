// suite_lines.h - problems of the suites, as they would stand on a command line. Data of suite.c alone.
//
// Fault names are those of the kinds in docs/testing.md: W width and launch limits, E empty sequences and rows that see
// nothing, M memory outside the sequences, S strides, K masks heads and dims, R reproducibility, J broken lengths.
#ifndef VF_SUITE_LINES_H
#define VF_SUITE_LINES_H

#include <stddef.h>

// clang-format off
// Together every feature; small enough for compute-sanitizer.
static const char *const smoke_lines[] = {
    "--name basic --seqlens-q 100,1,64,0,65 --seqlens-k 77,2,64,3,0 --heads-q 2 --backward",
    "--name causal-gqa --seqlens-q 129,3,40 --seqlens-k 200,1,40 --heads-q 6 --heads-k 2 --head-dim 128 --causal --backward",
    "--name window-fp16 --seqlens-q 150,20 --seqlens-k 130,50 --heads-q 2 --head-dim 80 --dtype fp16 --window 40,7 --backward",
    "--name softcap --seqlens-q 70,33 --heads-q 2 --head-dim 72 --softcap 8 --causal --backward",
    "--name softcap-window --seqlens-q 70,33 --seqlens-k 33,90 --heads-q 2 --head-dim 40 --softcap 3 --window 10,20 --dlse --backward",
    "--name dims --seqlens-q 65,17 --seqlens-k 80,1 --heads-q 2 --heads-k 1 --head-dim 192 --head-dim-v 128 --causal --backward",
    "--name dims-odd --seqlens-q 65,17 --seqlens-k 80,1 --heads-q 2 --head-dim 56 --head-dim-v 104 --dtype fp16 --backward",
    "--name dim8 --seqlens-q 129 --heads-q 3 --head-dim 8 --causal --backward",
    "--name dim256 --seqlens-q 140,9 --seqlens-k 150,70 --heads-q 2 --heads-k 1 --head-dim 256 --causal --deterministic --backward",
    "--name deterministic --seqlens-q 300,64 --seqlens-k 280,200 --heads-q 4 --heads-k 1 --deterministic --dlse --backward",
    "--name deterministic-window --seqlens-q 300 --seqlens-k 280 --heads-q 2 --window 60,0 --deterministic --backward",
    "--name gaps --seqlens-q 50,30,20 --seqlens-k 60,30,9 --seqused-q 44,30,0 --seqused-k 51,0,9 --rows-q 120 --rows-k 131 --heads-q 2 --dlse --backward",
    "--name keep --seqlens-q 50,30 --seqused-q 44,12 --rows-q 90 --heads-q 2 --fill keep --causal --backward",
    "--name batched --seqlens-q 70x3 --seqlens-k 90x3 --batched --heads-q 2 --causal --backward",
    "--name batched-used --seqlens-q 70x3 --seqlens-k 90x3 --seqused-q 70,0,33 --seqused-k 1,90,64 --batched --heads-q 2 --dlse --backward",
    "--name mixed-forms --seqlens-q 1,5,9 --seqlens-k 90x3 --seqused-k 30,90,64 --batched-k --heads-q 4 --heads-k 2 --causal --backward",
    "--name int64 --seqlens-q 31,0,70 --seqused-k 30,0,70 --int64-lengths --heads-q 2 --backward",
    "--name strides --seqlens-q 40,70 --seqlens-k 90,31 --heads-q 4 --heads-k 2 --strides q=512,64 --strides k=-128,64 --strides v=64,8192 --strides o=264,64 --strides lse=4,1 --strides dout=0,0 --strides dlse=7,1 --strides dq=64,8000 --strides dk=136,64 --strides dv=200,72 --dlse --backward",
    "--name unaligned --seqlens-q 40,70 --seqlens-k 90,31 --heads-q 2 --causal --strides q=131,65+1 --strides k=+3 --strides v=129,64 --strides o=133,66+5 --strides dout=+7 --strides dq=+1 --strides dk=131,65 --strides dv=+2 --backward",
    "--name unaligned-window --seqlens-q 40,70 --seqlens-k 90,31 --heads-q 2 --head-dim 72 --window 11,5 --softcap 5 --strides q=+1 --deterministic --backward",
    "--name no-lse --seqlens-q 70,0,9 --seqlens-k 40,3,50 --rows-q 90 --heads-q 2 --causal --no-lse",
    "--name empty --seqlens-q none --backward",
    "--name shares --seqlens-q 3x1025,0x1100,2,5x3 --seqlens-k 1x1000,2x1120,150x9 --seqused-k 1x999,0,1x1120,149x9 --rows-q 3200 --head-dim 8 --deterministic --backward",
    "--name nothing-seen --seqlens-q 5,9 --seqlens-k 0,0 --rows-q 20 --heads-q 2 --backward",
    NULL,
};

// Faults whose inputs are small.
static const char *const fault_lines[] = {
    "--name E3-no-keys --seqlens-q 5,7 --seqlens-k 0,0 --heads-q 2 --backward",
    "--name E3-no-queries --seqlens-q 0,0 --seqlens-k 5,7 --heads-q 2 --backward",
    "--name E3-no-batch --seqlens-q none --backward",
    "--name E3-no-batch-rows --seqlens-q none --rows-q 5 --rows-k 3 --backward",
    "--name E3-no-slots-q --seqlens-q none --batched-q --rows-q 5 --rows-k 7 --heads-q 2 --backward",
    "--name E3-no-slots-k --seqlens-q none --rows-q 7 --batched-k --rows-k 5 --heads-q 2 --backward",
    "--name E3-no-tokens --seqlens-q 0,0,0 --heads-q 2 --causal --backward",
    "--name E3-no-keys-deterministic --seqlens-q 5,7 --seqlens-k 0,0 --heads-q 2 --deterministic --dlse --backward",
    "--name E4 --seqlens-q 76,34,146 --seqlens-k 1,1,1 --head-dim 32 --dtype fp16 --input-scale 3 --causal --backward",
    "--name E5 --seqlens-q 4 --seqlens-k 2 --causal --backward",
    "--name E6-1e3 --seqlens-q 70,20 --heads-q 2 --window 0,0 --scale 1e3 --backward",
    "--name E6-1e5 --seqlens-q 70,20 --heads-q 2 --window 0,0 --scale 1e5 --backward",
    "--name E6-1e30 --seqlens-q 70,20 --heads-q 2 --window 0,0 --scale 1e30",
    "--name M2-nan --seqlens-q 1x4 --seqlens-k 128x4 --seqused-k 32,64,96,48 --batched --heads-q 8 --backward",
    "--name M2-inf --seqlens-q 1x4 --seqlens-k 128x4 --seqused-k 32,64,96,48 --batched --heads-q 8 --poison inf --backward",
    "--name M2-neginf --seqlens-q 1x4 --seqlens-k 128x4 --seqused-k 32,64,96,48 --batched --heads-q 8 --poison -inf --backward",
    "--name M2-queries --seqlens-q 64x3 --seqlens-k 40x3 --seqused-q 64,1,33 --seqused-k 7,40,0 --heads-q 4 --heads-k 2 --poison inf --causal --backward",
    "--name M3-rows --seqlens-q 21 --rows-q 24 --rows-k 24 --heads-q 16 --heads-k 1 --head-dim 128 --backward",
    "--name M3-used --seqlens-q 24 --seqused-q 21 --seqused-k 21 --heads-q 16 --heads-k 1 --head-dim 128 --causal --backward",
    "--name M4 --seqlens-q 3,4,2 --seqused-q 2,3,1 --seqused-k 2,3,1 --heads-q 2 --backward",
    "--name S1-rows --seqlens-q 5 --batched --heads-q 2 --head-dim 8 --strides dout=0,0,0 --backward",
    "--name S1-mqa --seqlens-q 32x2 --batched --heads-q 4 --heads-k 1 --head-dim 128 --strides dout=128,4096,16384 --backward",
    "--name S2-k --seqlens-q 40,33 --seqlens-k 57,80 --heads-q 2 --strides k=1024,128 --backward",
    "--name S2-v --seqlens-q 40,33 --seqlens-k 57,80 --heads-q 2 --strides v=64,16384 --backward",
    "--name S2-q-dv --seqlens-q 40,33 --seqlens-k 57,80 --heads-q 2 --strides q=192,64 --strides dv=256,64 --backward",
    "--name S2-dk --seqlens-q 40,33 --seqlens-k 57,80 --heads-q 2 --strides dk=64,10000 --strides o=136,64 --backward",
    "--name S3-odd-strides --seqlens-q 40,33 --seqlens-k 57,80 --heads-q 2 --strides q=129,64 --strides k=131,65 --strides v=130,66 --strides dq=133,64 --backward",
    "--name S3-negative --seqlens-q 40,33 --seqlens-k 57,80 --heads-q 2 --strides q=-128,64 --strides k=128,-64 --strides v=-128,-64 --strides dout=-256,64 --backward",
    "--name S6-dq-rows --seqlens-q 40 --heads-q 2 --strides dq=0,64 --expect invalid --backward",
    "--name S6-o-heads --seqlens-q 40 --heads-q 2 --strides o=128,0 --expect invalid",
    "--name S6-dv-overlap --seqlens-q 40 --heads-q 2 --strides dv=128,63 --expect invalid --backward",
    "--name S6-lse --seqlens-q 40 --heads-q 2 --strides lse=1,39 --expect invalid",
    "--name K1 --seqlens-q 1,3,5,2,129,128,1,511 --seqlens-k 3,1,2,5,128,129,513,1 --heads-q 2 --causal --backward",
    "--name K1-full --seqlens-q 1,3,5,2,129,128,1,511 --seqlens-k 3,1,2,5,128,129,513,1 --heads-q 2 --backward",
    "--name K2-empty-band --seqlens-q 70,9 --seqlens-k 20,100 --heads-q 2 --window -5,3 --backward",
    "--name K2-causal-window --seqlens-q 70,9 --seqlens-k 20,100 --heads-q 2 --causal --window 12,40 --backward",
    "--name K2b-used-k --seqlens-q 40,70 --seqlens-k 50,64 --seqused-k 13,64 --heads-q 2 --causal --backward",
    "--name K2b-used-q --seqlens-q 40,70 --seqlens-k 50,64 --seqused-q 13,64 --heads-q 2 --causal --backward",
    "--name K2b-too-many --seqlens-q 40,70 --seqlens-k 50,64 --seqused-k 51,64 --heads-q 2 --causal --backward",
    "--name K3 --seqlens-q 300,10 --seqlens-k 40,100 --heads-q 2 --window 5,100 --max-seqlen-q 300 --max-seqlen-k 100 --backward",
    "--name K5-128-96-full --seqlens-q 65,130 --seqlens-k 33,190 --heads-q 2 --head-dim 128 --head-dim-v 96 --backward",
    "--name K5-192-128 --seqlens-q 65,130 --seqlens-k 33,190 --heads-q 2 --head-dim 192 --head-dim-v 128 --causal --backward",
    "--name K5-64-128 --seqlens-q 65,130 --seqlens-k 33,190 --heads-q 2 --head-dim-v 128 --causal --backward",
    "--name K5-72 --seqlens-q 65,130 --seqlens-k 33,190 --heads-q 2 --head-dim 72 --causal --backward",
    "--name K5-104 --seqlens-q 65,130 --seqlens-k 33,190 --heads-q 2 --head-dim 104 --causal --backward",
    "--name K5-256 --seqlens-q 65,130 --seqlens-k 33,190 --heads-q 2 --head-dim 256 --causal --backward",
    "--name K6-40-4 --seqlens-q 40,9 --seqlens-k 50,70 --heads-q 40 --heads-k 4 --backward",
    "--name K6-96-8 --seqlens-q 40,9 --seqlens-k 50,70 --heads-q 96 --heads-k 8 --head-dim 32 --backward",
    "--name K6-9-3 --seqlens-q 40,9 --seqlens-k 50,70 --heads-q 9 --heads-k 3 --causal --backward",
    "--name K6-21-7 --seqlens-q 40,9 --seqlens-k 50,70 --heads-q 21 --heads-k 7 --head-dim 120 --backward",
    "--name K6-32-2 --seqlens-q 40,9 --seqlens-k 50,70 --heads-q 32 --heads-k 2 --deterministic --backward",
    "--name K6-3-2 --seqlens-q 40,9 --heads-q 3 --heads-k 2 --expect invalid",
    "--name J6-start-q --seqlens-q 40,9 --seqlens-k 50,70 --start-q 3 --heads-q 2 --backward",
    "--name J6-start-k --seqlens-q 40,9 --seqlens-k 50,70 --start-k -3 --heads-q 2 --causal --backward",
    "--name J6-decreasing-q --seqlens-q 40,-9,30 --seqlens-k 50,70,9 --heads-q 2 --backward",
    "--name J6-decreasing-k --seqlens-q 40,9,30 --seqlens-k 50,-70,90 --rows-k 70 --heads-q 2 --deterministic --backward",
    "--name J6-rows-q --seqlens-q 40,9 --seqlens-k 50,70 --rows-q 45 --heads-q 2 --backward",
    "--name J6-rows-k --seqlens-q 40,9 --seqlens-k 50,70 --rows-k 60 --heads-q 2 --causal --backward",
    "--name J6-max-q --seqlens-q 40,9 --seqlens-k 50,70 --max-seqlen-q 39 --heads-q 2 --backward",
    "--name J6-max-k --seqlens-q 40,9 --seqlens-k 50,70 --max-seqlen-k 69 --heads-q 2 --backward",
    "--name J6-absurd --seqlens-q 40,1000000000,-1000000000 --seqlens-k 50,-2000000000,2000000000 --rows-q 60 --rows-k 60 --heads-q 2 --backward",
    "--name J6-used-negative --seqlens-q 40,9 --seqlens-k 50,70 --seqused-q -1,9 --heads-q 2 --backward",
    NULL,
};

// Faults whose inputs are large, at full size,
static const char *const fault_full_lines[] = {
    "--name W1-dout --seqlens-q 225304,185619 --heads-q 16 --head-dim 96 --deterministic --strides dout=9728,96 --backward",
    "--name W3 --seqlens-q 24000 --heads-q 1 --head-dim 128 --strides k=89600,128 --strides v=89600,128 --backward",
    "--name W4-80000x16 --seqlens-q 16x80000 --heads-q 2 --backward",
    "--name W4-65535x1 --seqlens-q 1x65535 --heads-q 2 --backward",
    "--name W4-65536x1 --seqlens-q 1x65536 --heads-q 2 --backward",
    "--name W4-65537x1 --seqlens-q 1x65537 --heads-q 2 --backward",
    "--name W4-heads --seqlens-q 70,3 --seqlens-k 65,9 --heads-q 65537 --head-dim 8 --backward",
    "--name W5-65535 --seqlens-q 65535 --heads-q 2 --heads-k 1 --backward",
    "--name W5-65536 --seqlens-q 65536 --heads-q 2 --heads-k 1 --causal --backward",
    "--name W5-65537 --seqlens-q 65537 --heads-q 2 --heads-k 1 --causal --backward",
    "--name W6 --seqlens-q 34x8192 --heads-q 12 --head-dim 128 --backward",
    "--name E1 --seqlens-q 0,0,1023 --seqlens-k 0,1,2045 --rows-q 2046 --heads-q 32 --head-dim 128 --backward",
    "--name E1-causal --seqlens-q 0,0,1023 --seqlens-k 0,1,2045 --rows-q 2046 --heads-q 32 --head-dim 128 --causal --backward",
    "--name E1-deterministic --seqlens-q 0,0,1023 --seqlens-k 0,1,2045 --rows-q 2046 --heads-q 32 --head-dim 128 --deterministic --backward",
    "--name E2 --seqlens-q 0,0,1023 --seqlens-k 0,1,2045 --rows-q 2046 --rows-k 2045 --heads-q 32 --head-dim 128 --backward",
    "--name M1 --seqlens-q 144,288,512 --rows-q 946 --rows-k 946 --heads-q 16 --backward",
    "--name M5-8 --seqlens-q 8976 --seqused-q 8612 --seqused-k 8612 --heads-q 8 --head-dim 128 --dtype fp16 --deterministic --backward",
    "--name M5-20 --seqlens-q 8976 --seqused-q 8612 --seqused-k 8612 --heads-q 20 --head-dim 128 --dtype fp16 --deterministic --backward",
    "--name K4-10 --seqlens-q 1024x2 --batched --heads-q 32 --head-dim 128 --causal --softcap 10 --backward",
    "--name K4-15 --seqlens-q 1024x2 --batched --heads-q 32 --head-dim 128 --causal --softcap 15 --backward",
    "--name K4-varlen --seqlens-q 217x128 --heads-q 32 --head-dim 128 --causal --softcap 15 --backward",
    "--name R1-h12 --seqlens-q 1024x2 --batched --heads-q 12 --dtype fp16 --deterministic --backward",
    "--name R1-h8 --seqlens-q 512x2 --batched --heads-q 8 --dtype fp16 --deterministic --backward",
    "--name R1-window --seqlens-q 1024x2 --heads-q 8 --window 200,30 --deterministic --backward",
    "--name R1-gqa --seqlens-q 1024,300,77 --heads-q 16 --heads-k 2 --head-dim 128 --causal --deterministic --backward",
    "--name R1-d256 --seqlens-q 1000,24 --heads-q 4 --head-dim 256 --deterministic --backward",
    NULL,
};

// and the same kinds for the CPU backend.
static const char *const fault_small_lines[] = {
    "--name W1-dout --seqlens-q 90,60 --heads-q 2 --head-dim 96 --deterministic --strides dout=9728,96 --backward",
    "--name W3 --seqlens-q 70 --head-dim 128 --strides k=1280,128 --strides v=1280,128 --backward",
    "--name W4-20000x4 --seqlens-q 4x20000 --head-dim 8 --backward",
    "--name W4-65537x1 --seqlens-q 1x65537 --head-dim 8 --backward",
    "--name W4-heads --seqlens-q 2,1 --seqlens-k 1,3 --heads-q 65537 --head-dim 8 --backward",
    "--name W5-q --seqlens-q 65537 --seqlens-k 3 --head-dim 8 --backward",
    "--name W5-k --seqlens-q 3 --seqlens-k 65537 --head-dim 8 --backward",
    "--name W6 --seqlens-q 34x40 --heads-q 2 --head-dim 128 --backward",
    "--name E1 --seqlens-q 0,0,123 --seqlens-k 0,1,245 --rows-q 246 --heads-q 3 --head-dim 128 --backward",
    "--name E1-causal --seqlens-q 0,0,123 --seqlens-k 0,1,245 --rows-q 246 --heads-q 3 --head-dim 128 --causal --backward",
    "--name E2 --seqlens-q 0,0,123 --seqlens-k 0,1,245 --rows-q 246 --rows-k 245 --heads-q 3 --head-dim 128 --backward",
    "--name M1 --seqlens-q 44,28,112 --rows-q 186 --rows-k 186 --heads-q 3 --backward",
    "--name M5 --seqlens-q 176 --seqused-q 159 --seqused-k 159 --heads-q 4 --heads-k 2 --head-dim 128 --dtype fp16 --deterministic --backward",
    "--name K4-10 --seqlens-q 100x2 --batched --heads-q 2 --head-dim 128 --causal --softcap 10 --backward",
    "--name K4-15 --seqlens-q 100x2 --batched --heads-q 2 --head-dim 128 --causal --softcap 15 --backward",
    "--name K4-far --seqlens-q 100,30 --heads-q 2 --head-dim 128 --causal --softcap 1e9 --backward",
    "--name R1 --seqlens-q 100x2 --batched --heads-q 2 --dtype fp16 --deterministic --backward",
    NULL,
};

// Faults that need 20 GB of device memory or more.
static const char *const fault_large_lines[] = {
    "--name W2 --seqlens-q 729x1600 --batched --heads-q 16 --head-dim 72 --backward",
    "--name W3-outputs --seqlens-q 24000 --heads-q 1 --head-dim 128 --strides k=89600,128 --strides v=89600,128 --strides dk=89600,128 --strides dv=89600,128 --backward",
    "--name W-heads-far --seqlens-q 40000 --heads-q 5 --heads-k 5 --head-dim 64 --strides q=64,1100000000 --strides o=64,1100000000 --backward",
    NULL,
};

// 65536 tokens in sequences whose lengths are lognormal (mu 6, sigma 1.2).
static const char lognormal_lengths[] =
    "263,563,453,63,75,164,148,524,1140,175,47,83,636,448,128,771,160,351,3020,116,611,783,201,99,1444,12"
    "44,1086,545,344,1018,198,64,186,146,70,84,965,184,32,169,138,517,69,216,438,591,279,43,197,284,111,5"
    "31,184,293,352,259,904,431,442,5952,4731,185,546,256,5010,125,297,104,80,2208,1762,191,184,5228,1550"
    ",1942,1081,71,2012,8,704,163,203,920,139,944,195,110,171,231,2423,55,406,269";
// clang-format on

#endif
