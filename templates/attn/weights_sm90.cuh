// What stands between the products of the Hopper backward: scores become weights, gradients of weights become gradients of scores.
//
// Products are transposed: rows of an accumulator are keys, columns queries. Element d[4 n + 2 h + i] of a thread (ptx/wgmma.cuh) is key
// 16 * warp + lane / 4 + 8 h of the group's 64, query 8 n + 2 * (lane % 4) + i of the tile's 64.
//
// Weights wait for their gradient as float32 (`WHOLE_WEIGHTS`, where registers allow it) or in 16 bits: as fp16, whose rounding hardly adds to that
// of the result, or, where some of a warp's are so small that fp16 would lose them, as bf16 (`coarse`). As the operand of dV they are of the
// kernel's type. No weight exceeds 1, but an exponent exceeds 0 by the rounding errors of score and shift: it is cut, so that
// whatever the logits are, weights are finite; a NaN stays one.

//% include "attn/row_statistics.cuh"
//% include "attn/element.cuh"
//% include "attn/mask.cuh"
//% include "attn/softcap.cuh"

constexpr bool WHOLE_WEIGHTS = $(budget.whole_weights);
constexpr bool MAY_BE_COARSE = $(dtype == "bf16");
constexpr float LEAST_FINE = -14.0f;      // exponents below are subnormal in fp16
constexpr u32 UNIT_PAIR = 0x3C003C00u;    // 1 twice, as fp16
constexpr u32 NORMAL_PAIR = 0x04000400u;  // the least normal number, 2^-14, twice

using Scores = float[TILE_M / 2];
using Weights = u32[TILE_M / 16][4];  // operands of A: columns 16 k ... of an accumulator, packed, are fragment k

DEVICE constexpr int query_of(int i) { return i / 4 * 8 + i % 2; }

// Which elements of a pair of tiles are visible. Rows and columns are relative to the tiles.
struct Band {
    int key_end, query_end;  // that exist
    int lower, upper;        // lower <= row - column <= upper, as far as the mask asks for them

    // Whether any of 64 rows from `row` on hides one of the tile's columns.
    DEVICE bool hides(int row) const {
        bool some = key_end < row + 64 || query_end < TILE_M;
        //% if mask ~= "full" then
        some = some || upper < row + 63;
        //% end -- mask
        //% if mask == "window" then
        some = some || lower > row - (TILE_M - 1);
        //% end -- mask
        return some;
    }
    // Selects `value` where a row does not see a column; row: that of element 0.
    DEVICE void hide(Scores &x, int row, float value) const {
        const int column = lane_index() % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; half++, row += 8) {
            int begin = 0, end = query_end;  // columns that the row sees
            //% if mask ~= "full" then
            begin = row - upper;
            //% end -- mask
            //% if mask == "window" then
            end = smaller(end, row - lower + 1);
            //% end -- mask
            if (row >= key_end) end = 0;
            begin -= column;
            end -= column;
#pragma unroll
            for (int i = 2 * half; i < TILE_M / 2; i += i % 2 ? 3 : 1)
                if (query_of(i) < begin || query_of(i) >= end) x[i] = value;
        }
    }
};

struct Weigher {
    float factor;
    //% if softcap then
    float inverse, cap_factor;
    //% end -- softcap

    DEVICE explicit Weigher(float scale, float softcap) : factor(exponent_factor(scale)) {
        //% if softcap then
        inverse = scale / softcap;
        cap_factor = softcap * LOG2_E;
        //% else
        static_cast<void>(softcap);
        //% end -- softcap
    }

    //% if softcap then
    // Scores, which arrive without the shift, become weights in p; what their gradients are multiplied by, weight times slope of the cap, stays in
    // s or, coarse, in `waiting`. statistics: shared address of the rows. hide: puts a value in place of what is invisible.
    template <class Hide> DEVICE void weigh(Scores &s, Weights &p, Weights &waiting, u32 statistics, Hide hide) const {
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i++) s[i] = cap_score(s[i], inverse);
        hide(s, -infinity());
        const u32 own = statistics + lane_index() % 4 * 2 * 16;
#pragma unroll
        for (int n = 0; n < TILE_M / 8; n++) {
            float shift[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const Vector4 words = load_shared(own + (n * 8 + i) * 16);
                shift[i] = shift_of(words.x, words.y);
            }
#pragma unroll
            for (int at = 4 * n; at < 4 * n + 4; at += 2) {
                float weight[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float capped = s[at + i];  // in -1 ... 1, or -infinity
                    weight[i] = min_nan(ex2(fma_f32(capped, cap_factor, shift[i])), WEIGHT_UNIT);
                    if (capped < -2.0f) weight[i] = 0.0f;  // hidden; its shift may be anything
                    s[at + i] = weight[i] * larger(fma_f32(-capped, capped, 1.0f), 0.0f);
                }
                p[at / 8][at / 2 % 4] = pack(weight[0], weight[1]);
                if constexpr (!WHOLE_WEIGHTS) waiting[at / 8][at / 2 % 4] = pack(s[at], s[at + 1]);
            }
        }
    }
    //% else
    // Scores with their shift become weights: float32 in s and operands in p, or 16 bits in p alone. Tells whether those are coarse. partial: some
    // may be invisible; hide puts a value in place of those.
    template <class Hide> DEVICE bool weigh(Scores &s, Weights &p, bool partial, Hide hide) const {
        bool coarse = false;
        if (!WHOLE_WEIGHTS && MAY_BE_COARSE && partial) {
            // What is hidden has no say: in columns past the sequence's end stands what other sequences left.
            hide(s, 0.0f);
            coarse = warp_any(lowest(s) < LEAST_FINE);
        }
        hide(s, factor > 0.0f ? -infinity() : infinity());
        // One loop, and nothing between: multiplications fill the slots that exponentials leave.
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i++) s[i] = ex2(s[i] * factor);
        if constexpr (WHOLE_WEIGHTS) {
            pack_whole(s, p);
            if (unlikely(warp_any(doubled(p)))) {
#pragma unroll
                for (int i = 0; i < TILE_M / 2; i++) s[i] = min_nan(s[i], WEIGHT_UNIT);
                pack_whole(s, p);
            }
        } else {
#pragma unroll
            for (int i = 0; i < TILE_M / 2; i += 2) p[i / 8][i / 2 % 4] = pack_cut(s[i], s[i + 1]);
            if constexpr (MAY_BE_COARSE) {
                if (!partial) coarse = warp_any(subnormal(p));
                if (unlikely(coarse)) {
#pragma unroll
                    for (int i = 0; i < TILE_M / 2; i += 2)
                        p[i / 8][i / 2 % 4] = pack(min_nan(s[i], WEIGHT_UNIT), min_nan(s[i + 1], WEIGHT_UNIT));
                }
            }
        }
        return coarse;
    }

  private:
    //% if dtype == "bf16" then
    static DEVICE u32 pack_cut(float a, float b) { return pack_fp16_finite(a, b); }  // twice the unit at most
    //% else
    static DEVICE u32 pack_cut(float a, float b) { return min_fp16x2(pack_fp16(a, b), UNIT_PAIR); }
    //% end -- dtype
    static DEVICE void pack_whole(const Scores &s, Weights &p) {
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i += 2) p[i / 8][i / 2 % 4] = pack(s[i], s[i + 1]);
    }
    // Whether a weight is 2 or more, or a NaN: bit 14 then, in both 16-bit types. A third of what cutting every weight costs.
    static DEVICE bool doubled(const Weights &p) {
        static_assert(!WHOLE_WEIGHTS || WEIGHT_UNIT == 1.0f, "the bit tells multiples of 1");
        u32 bits = 0;
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) bits |= p[k][0] | p[k][1] | p[k][2] | p[k][3];
        return (bits & 0x40004000u) != 0;
    }
    // Whether a weight is too small for fp16. Bits of what is not negative compare as the numbers do; a NaN is above them.
    static DEVICE bool subnormal(const Weights &p) {
        u32 least = NORMAL_PAIR;
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) least = min3_u16x2(least, p[k][i], p[k][i + 1]);
        return least != NORMAL_PAIR;
    }
    // The lowest of a thread's exponents, if it is negative: as bits, negative numbers are above others and in reverse.
    DEVICE float lowest(const Scores &s) const {
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i += 2)
            bits = max3(bits, float_to_bits(s[i] * factor), float_to_bits(s[i + 1] * factor));
        return bits_to_float(bits);
    }
    //% end -- softcap
};

// Gradients of scores, packed, of fragment k; s or `waiting` as weigh left them. Without softcap `waiting` is p, which becomes the operand of dV
// here. WHY also where that changes nothing: for an operand that something else has read, ptxas finds too few registers (C7512).
template <bool COARSE>
DEVICE void score_gradients(u32 (&ds)[4], const Scores &s, Weights &waiting, const Scores &dp, int k) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = 8 * k + 2 * i;
        float w0 = s[at], w1 = s[at + 1];
        if constexpr (!WHOLE_WEIGHTS) {
            const u16 low = static_cast<u16>(waiting[k][i]), high = static_cast<u16>(waiting[k][i] >> 16);
            w0 = COARSE ? unpack(low) : unpack_fp16(low);
            w1 = COARSE ? unpack(high) : unpack_fp16(high);
            waiting[k][i] = pack(w0, w1);
        }
        ds[i] = pack(w0 * dp[at], w1 * dp[at + 1]);
    }
}
