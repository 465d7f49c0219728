// Softcap: scores become softcap * tanh(score * scale / softcap).

//% include "attn/types.cuh"

//% if softcap then
// Scores become tanh(score * scale / softcap); the factor of the softmax is then softcap * log2(e). By 2^x and a reciprocal: exact at
// both ends, 1e-7 absolute elsewhere.
DEVICE float cap_score(float score, float inverse) {
    return fma_f32(-2.0f, rcp(ex2(score * inverse * (2.0f * LOG2_E)) + 1.0f), 1.0f);
}
//% end -- softcap
