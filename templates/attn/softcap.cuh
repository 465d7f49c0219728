// Softcap: scores become softcap * tanh(score * scale / softcap).

//% include "attn/types.cuh"

//% if softcap then
// Scores become tanh(score * scale / softcap); the factor of the softmax is then softcap * log2(e). By 2^x and a reciprocal, exact at
// both ends and good to 1e-7 elsewhere: too little of a small number, which a large cap multiplies up again. Those take the first two terms of
// the series, so that nothing is off by more than 2e-6 of itself and a cap far above all scores is none.
DEVICE float cap_score(float score, float inverse) {
    constexpr float SMALL = 1.0f / 16;
    const float x = score * inverse;
    const float series = x * fma_f32(x * x, -1.0f / 3, 1.0f);
    const float whole = fma_f32(-2.0f, rcp(ex2(x * (2.0f * LOG2_E)) + 1.0f), 1.0f);
    return absolute(x) < SMALL ? series : whole;
}
template <class Args, int N> DEVICE void cap_scores(const Args &args, float (&s)[N]) {
    const float inverse = args.scale / args.softcap;
#pragma unroll
    for (int i = 0; i < N; i++) s[i] = cap_score(s[i], inverse);
}
// What scores, capped ones, are multiplied by to be exponents of 2.
template <class Args> DEVICE float score_factor(const Args &args) { return args.softcap * LOG2_E; }
//% else
template <class Args, int N> DEVICE void cap_scores(const Args &, float (&)[N]) {}
template <class Args> DEVICE float score_factor(const Args &args) { return args.scale * LOG2_E; }
//% end -- softcap
