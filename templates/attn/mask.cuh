// Which keys a query sees: bottom-right aligned, by used lengths. With shift = k_len - q_len, query r sees key c iff
//     c < k_len   and   c <= r + shift + right (causal: right = 0)   and   c >= r + shift - left.
// Ranges of tiles come first; only tiles that a limit crosses are masked element by element, by selection, never by arithmetic.
//
// key_tiles and query_tiles describe the same set of (query tile, key tile) pairs exactly: a pair is in it iff some used query sees
// some used key. The order of dQ's summands depends on that.

//% include "attn/types.cuh"

// Half-open.
struct Range {
    int begin, end;
};

struct Mask {
    int q_len, k_len, shift;
    int left, right;  // |edge| <= 2^30, set by the host; lengths are below 2^30, set by the schedule kernel

    DEVICE Mask(const Sequence &s, int window_left, int window_right)
        : q_len(s.q_len), k_len(s.k_len), shift(s.k_len - s.q_len), left(window_left), right(window_right) {}

    // Last key that query r sees, plus one; first key.
    DEVICE int key_end(int r) const {
        //% if mask == "full" then
        return k_len;
        //% elseif mask == "causal" then
        return smaller(k_len, r + shift + 1);
        //% else
        return static_cast<int>(smaller(static_cast<i64>(k_len), static_cast<i64>(r) + shift + right + 1));
        //% end -- mask
    }
    DEVICE int key_begin(int r) const {
        //% if mask == "window" then
        return static_cast<int>(larger(static_cast<i64>(0), static_cast<i64>(r) + shift - left));
        //% else
        return 0;
        //% end -- mask
    }

    // Key tiles that the queries of tile m see.
    template <int M, int N> DEVICE Range key_tiles(int m) const {
        const int first = m * M, last = smaller(first + M, q_len) - 1;
        const int end = key_end(last), begin = key_begin(first);
        if (end <= begin || last < first) return {0, 0};
        //% if mask == "window" then
        if (static_cast<i64>(left) + right < 0) return {0, 0};
        //% end -- mask
        return {begin / N, (end + N - 1) / N};
    }
    // Those of them that every query of the tile sees whole.
    template <int M, int N> DEVICE Range whole_key_tiles(int m) const {
        const int first = m * M, last = smaller(first + M, q_len) - 1;
        return {(key_begin(last) + N - 1) / N, larger(key_end(first), 0) / N};
    }
    // Query tiles that see a key of tile n.
    template <int M, int N> DEVICE Range query_tiles(int n) const {
        const int first = n * N, last = smaller(first + N, k_len) - 1;
        if (last < first) return {0, 0};
        //% if mask == "full" then
        return {0, (q_len + M - 1) / M};
        //% else
        // The first query that sees `first`, and the last that sees `last`, plus one.
        //% if mask == "causal" then
        const i64 begin = larger(static_cast<i64>(0), static_cast<i64>(first) - shift), end = q_len;
        //% else
        const i64 begin = larger(static_cast<i64>(0), static_cast<i64>(first) - shift - right);
        const i64 end = smaller(static_cast<i64>(q_len), static_cast<i64>(last) - shift + left + 1);
        if (static_cast<i64>(left) + right < 0) return {0, 0};
        //% end -- mask
        if (end <= begin) return {0, 0};
        return {static_cast<int>(begin) / M, (static_cast<int>(end) + M - 1) / M};
        //% end -- mask
    }
    // Those of them all of whose rows exist and see all N keys of tile n.
    template <int M, int N> DEVICE Range whole_query_tiles(int n) const {
        const int first = n * N, last = first + N - 1;
        if (last >= k_len) return {0, 0};
        //% if mask == "full" then
        return {0, q_len / M};
        //% elseif mask == "causal" then
        return {(larger(last - shift, 0) + M - 1) / M, q_len / M};
        //% else
        const i64 begin = larger(static_cast<i64>(0), static_cast<i64>(last) - shift - right);
        const i64 end = smaller(static_cast<i64>(q_len), static_cast<i64>(first) - shift + left + 1);
        return {static_cast<int>((begin + M - 1) / M), static_cast<int>(larger(end, static_cast<i64>(0)) / M)};
        //% end -- mask
    }
};

// -inf in place of invisible keys, a selection, so that whatever they hold is gone. first_row: of the 16 that the warp's accumulator s has;
// first_key: of its columns.
template <int N> DEVICE void hide_scores(const Mask &mask, int first_row, int first_key, float (&s)[N]) {
    const int row = first_row + lane_index() / 4, column = first_key + 2 * (lane_index() % 4);
    const int end[2] = {mask.key_end(row) - column, mask.key_end(row + 8) - column};
    //% if mask == "window" then
    const int begin[2] = {mask.key_begin(row) - column, mask.key_begin(row + 8) - column};
    //% end -- mask
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int key = 8 * (i / 4) + i % 2;
        bool visible = key < end[row_half(i)];
        //% if mask == "window" then
        visible = visible && key >= begin[row_half(i)];
        //% end -- mask
        if (!visible) s[i] = -infinity();
    }
}
