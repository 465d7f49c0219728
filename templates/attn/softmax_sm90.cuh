// Online softmax over key tiles on a warpgroup's accumulators: two rows a thread, and as few instructions per score as there can be, because
// at head_dim 64 they, not the products, set the pace.
//
// Weights are 2^(score * factor - reference), one fused multiply-add and one ex2, factor = softmax_scale * log2(e). The reference is the
// first seen tile's maximum and only follows when an exponent exceeds HEADROOM (FlashAttention-4 skips rescaling by the same reasoning): the
// usual tile needs no row maximum, no shuffle and no pass over the output, only the largest exponent of each lane and one vote. Each row
// then decides for itself by its own maximum: a row's bits do not depend on its neighbours.
//
// The reference is a rounded product. All of a row's weights and its LSE use the same one, so the rounding cancels, unless it is large itself:
// beyond VAST, differences come first, (score - reference / factor) * factor, and those within float32's resolution count as none, so that the
// score that set the reference weighs exactly 1 however large it is. A row that has seen no key has reference -LARGEST, which is vast.
// Both are a matter of a warp's rare branch; there too a row's arithmetic depends on the row alone.

//% include "attn/types.cuh"

constexpr float HEADROOM = 8.0f;
constexpr float VAST = 1 << 20;
constexpr float RESOLUTION = 1.0f / (1 << 21);

DEVICE float quad_max(float x) {
    x = max_f32(x, shuffle_xor(x, 1));
    return max_f32(x, shuffle_xor(x, 2));
}
DEVICE float quad_sum(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
}
template <int N> DEVICE void row_maxima(const float (&s)[N], float (&top)[2]) {
    float part[4] = {s[0], s[2], s[1], s[3]};
#pragma unroll
    for (int i = 4; i < N; i += 4) {
        part[0] = max_f32(part[0], s[i]);
        part[1] = max_f32(part[1], s[i + 2]);
        part[2] = max_f32(part[2], s[i + 1]);
        part[3] = max_f32(part[3], s[i + 3]);
    }
    top[0] = quad_max(max_f32(part[0], part[2]));
    top[1] = quad_max(max_f32(part[1], part[3]));
}

struct RowSoftmax {
    float reference[2];  // in exponents
    float sum[2];        // over this thread's columns
    float factor;        // > 0
    bool careful;        // some row of the warp is vast

    DEVICE explicit RowSoftmax(float f) : factor(f), careful(false) {}

    // A row of tiles begins: scores of the first become exponents.
    template <int N> DEVICE void start(float (&s)[N]) {
        row_maxima(s, reference);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            reference[r] = scaled(reference[r]);
            sum[r] = 0.0f;
        }
        const bool vast[2] = {is_vast(0), is_vast(1)};
        careful = warp_any(vast[0] || vast[1]);
        if (unlikely(careful))
            subtract_carefully(s, vast, reference, {0.0f, 0.0f});
        else
            subtract(s);
    }

    // Scores of a later tile, hidden ones -inf, become exponents. True: the output so far shrinks first (scale_rows); it may still be in the making now.
    template <int N> DEVICE bool advance(float (&s)[N], float (&shrink)[2]) {
        if (unlikely(careful)) {
            exponents_carefully(s, shrink);
            return true;
        }
        subtract(s);
        return outgrown(s, shrink);
    }
    // The same, where hide(s) has still to put -inf in the place of hidden ones. WHY in between: its branch keeps multiplications apart from the search for
    // the largest exponent. Side by side they find one of their operands in a cache of the register ports; mixed they do not, which costs 6 % of the
    // kernel's cycles at head_dim 64. WHY not always: consumers that work alone spill registers then.
    template <int N, class Hide> DEVICE bool advance(float (&s)[N], float (&shrink)[2], Hide hide) {
        if (!unlikely(careful)) subtract(s);
        hide(s);
        if (unlikely(careful)) {
            exponents_carefully(s, shrink);
            return true;
        }
        return outgrown(s, shrink);
    }
    template <int D> static DEVICE void scale_rows(float (&o)[D], const float (&shrink)[2]) {
#pragma unroll
        for (int i = 0; i < D; i++) o[i] *= shrink[row_half(i)];
    }

    // Exponents become weights, and join the sums.
    template <int N> DEVICE void weigh(float (&s)[N]) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            s[i] = ex2(s[i]);
            sum[row_half(i)] += s[i];
        }
    }

    // 1 / sum (0 for a row without a key) and the natural logarithm of the sum of exps.
    DEVICE void finish(int r, float &scale, float &lse) const {
        const float total = quad_sum(sum[r]);
        const bool unseen = total == 0.0f;  // a seen row's sum holds the weight that set its reference
        scale = unseen ? 0.0f : rcp(total);
        lse = unseen ? -infinity() : (reference[r] + lg2(total)) * LN_2;
    }

  private:
    // Whether some exponent of the warp is beyond HEADROOM; then the references of such rows follow.
    template <int N> DEVICE bool outgrown(float (&s)[N], float (&shrink)[2]) {
        int top[2] = {0, 0};  // compared as integers: only positive ones matter
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            top[0] = max3(top[0], float_to_signed(s[i]), float_to_signed(s[i + 1]));
            top[1] = max3(top[1], float_to_signed(s[i + 2]), float_to_signed(s[i + 3]));
        }
        if (!unlikely(warp_any(larger(top[0], top[1]) > float_to_signed(HEADROOM)))) return false;
        raise(s, shrink);
        return true;
    }
    template <int N> DEVICE void raise(float (&s)[N], float (&shrink)[2]) {
        float top[2];
        row_maxima(s, top);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool grows = top[r] > HEADROOM;
            const float raised = smaller(reference[r] + top[r], LARGEST);
            const float step = raised - reference[r];  // what the rounded reference has really moved by
            shrink[r] = grows ? ex2(-step) : 1.0f;
            top[r] = grows ? step : 0.0f;
            reference[r] = grows ? raised : reference[r];
            sum[r] *= shrink[r];
        }
#pragma unroll
        for (int i = 0; i < N; i++) s[i] -= top[row_half(i)];
        careful = warp_any(is_vast(0) || is_vast(1));
    }
    // The same as the usual exponents and raise together, where `careful`: a row that is not vast gets the same bits as there.
    template <int N> DEVICE void exponents_carefully(float (&s)[N], float (&shrink)[2]) {
        float top[2], base[2], step[2];
        bool vast[2];
        row_maxima(s, top);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            vast[r] = is_vast(r);
            base[r] = reference[r];
            const bool unseen = reference[r] == -LARGEST;
            const float growth = vast[r] ? (top[r] - vast_score(r)) * factor : fma_f32(top[r], factor, -base[r]);
            const bool grows = growth > HEADROOM || (unseen && top[r] > -infinity());
            const float raised = vast[r] ? scaled(top[r]) : smaller(base[r] + growth, LARGEST);
            step[r] = grows && !vast[r] ? raised - base[r] : 0.0f;
            shrink[r] = grows ? (unseen ? 0.0f : ex2(vast[r] ? -growth : -step[r])) : 1.0f;
            reference[r] = grows ? raised : base[r];
            base[r] = vast[r] ? reference[r] : base[r];
            vast[r] = vast[r] && is_vast(r);
            sum[r] *= shrink[r];
        }
        subtract_carefully(s, vast, base, step);
        careful = warp_any(is_vast(0) || is_vast(1));
    }
    DEVICE bool is_vast(int r) const { return !(reference[r] < VAST && reference[r] > -VAST); }
    DEVICE float scaled(float score) const {
        return score == infinity() ? score : larger(smaller(score * factor, LARGEST), -LARGEST);
    }
    template <int N> DEVICE void subtract(float (&s)[N]) const {
        // WHY row by row: neighbours then share an operand, which the register ports read once.
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float offset = -reference[r];
#pragma unroll
            for (int i = 2 * r; i < N; i += 4) {
                s[i] = fma_f32(s[i], factor, offset);
                s[i + 1] = fma_f32(s[i + 1], factor, offset);
            }
        }
    }
    // The score that a vast reference was taken from, within float32's resolution.
    DEVICE float vast_score(int r) const { return larger(reference[r] * rcp(factor), -LARGEST); }
    template <int N> DEVICE void subtract_carefully(float (&s)[N], const bool (&vast)[2], const float (&base)[2],
                                                    const float (&step)[2]) const {
        const float origin[2] = {vast_score(0), vast_score(1)};
        const float near[2] = {absolute(origin[0]) * RESOLUTION, absolute(origin[1]) * RESOLUTION};
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int r = row_half(i);
            const float difference = s[i] - origin[r];
            const float apart = absolute(difference) <= near[r] ? 0.0f : difference * factor;
            s[i] = vast[r] ? apart : fma_f32(s[i], factor, -base[r]) - step[r];
        }
    }
};
