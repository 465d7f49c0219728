// Online softmax over key tiles, in the base-2 domain: weights are 2^((score - reference) * factor), factor = softmax_scale * log2(e). The
// difference comes first: the score that set the reference then weighs exactly 1, however large it is (a fused score * factor - reference would
// leave a rounding error of the product, which at a logit of 1e30 is 1e23).
//
// Every row keeps a reference and the sum of its weights. FlashAttention-2 (arXiv:2307.08691) moves the reference to the running
// maximum at every tile, which costs two shuffles a row and a pass over the output. Here the reference only follows when a score
// exceeds it by more than HEADROOM, which after the first tile is rare: until then weights grow to at most 2^HEADROOM, which the
// 16-bit type and the float32 sums hold without loss. Each lane looks at its own scores; a vote decides whether the warp enters the
// branch that moves references, and there each row decides for itself by its own maximum: a row's bits do not depend on its
// neighbours.
//
// A row that has seen no key has reference -LARGEST: finite, so that a masked score (-inf) minus it is -inf and never NaN, and so low
// that any real score exceeds it. A tile in which a row sees nothing changes neither its reference nor its sum nor its output.

//% include "attn/types.cuh"

constexpr float HEADROOM = 8.0f;

// M blocks of 16 rows a warp; index 0 and 1 of a block are rows g and g + 8 (ptx/mma.cuh).
template <int M> struct Softmax {
    float reference[M][2], sum[M][2];

    DEVICE Softmax() {
#pragma unroll
        for (int m = 0; m < M; m++) {
            reference[m][0] = reference[m][1] = -LARGEST;
            sum[m][0] = sum[m][1] = 0.0f;
        }
    }

    // Turns a tile's scores into weights, raising references (and scaling `output`) where they are outgrown.
    template <int N, int D> DEVICE void weigh(float (&scores)[M][N][4], float (&output)[M][D][4], float factor) {
        float top[M][2];
        bool outgrown = false;
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                top[m][half] = -infinity();
#pragma unroll
                for (int n = 0; n < N; n++)
                    top[m][half] = max_f32(top[m][half], max_f32(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                outgrown |= (top[m][half] - reference[m][half]) * factor > HEADROOM;
            }
        if (warp_any(outgrown)) raise(top, output, factor);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    scores[m][n][i] = ex2((scores[m][n][i] - reference[m][i / 2]) * factor);
                    sum[m][i / 2] += scores[m][n][i];
                }
    }

    // Sums over the four lanes of each row; then 1 / sum (0 for a row without a key) and the natural logarithm of the sum of exps.
    DEVICE void finish(float (&scale)[M][2], float (&lse)[M][2], float factor) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float total = sum[m][half];
                total += shuffle_xor(total, 1);
                total += shuffle_xor(total, 2);
                const bool unseen = total == 0.0f;  // a seen row's sum holds the weight that set its reference
                scale[m][half] = unseen ? 0.0f : rcp(total);
                lse[m][half] = unseen ? -infinity() : (reference[m][half] * factor + lg2(total)) * LN_2;
            }
    }

  private:
    template <int D> DEVICE void raise(float (&top)[M][2], float (&output)[M][D][4], float factor) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float highest = max_f32(top[m][half], shuffle_xor(top[m][half], 1));
                highest = max_f32(highest, shuffle_xor(highest, 2));
                if (!((highest - reference[m][half]) * factor > HEADROOM)) continue;
                const float shrink = ex2((reference[m][half] - highest) * factor);
                reference[m][half] = highest;
                sum[m][half] *= shrink;
#pragma unroll
                for (int d = 0; d < D; d++) {
                    output[m][d][2 * half] *= shrink;
                    output[m][d][2 * half + 1] *= shrink;
                }
            }
    }
};
