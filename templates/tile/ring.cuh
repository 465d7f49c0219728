// Rings of buffers in shared memory between warps that fill and warps that read: each slot has a full and an empty barrier.

//% include "ptx/mbarrier.cuh"

// A position in a ring of N slots: the phase to wait for alternates with every round.
template <int N> struct Ring {
    u32 slot = 0, parity = 0;

    DEVICE void advance() {
        slot = slot + 1 == N ? 0 : slot + 1;
        parity ^= slot == 0 ? 1 : 0;
    }
};

// The same in one register, for who has few.
template <int N> struct RingPlace {
    u32 at = 0;  // in the two rounds that parities tell apart

    DEVICE u32 slot() const {
        if constexpr (POWER_OF_TWO) return at % N;
        return at < N ? at : at - N;
    }
    DEVICE u32 parity() const {
        if constexpr (POWER_OF_TWO) return at / N % 2;
        return at < N ? 0 : 1;
    }
    DEVICE void advance() { at = POWER_OF_TWO || at + 1 < 2 * N ? at + 1 : 0; }

  private:
    static constexpr bool POWER_OF_TWO = (N & (N - 1)) == 0;
};

// The barriers of a ring, those of all slots side by side: the arrivals that fill a slot, and those that hand it back.
DEVICE void init_ring(u32 full, u32 empty, int slots, u32 fill, u32 hand_back) {
    for (int i = 0; i < slots; i++) {
        mbarrier_init(full + 8 * i, fill);
        mbarrier_init(empty + 8 * i, hand_back);
    }
}

// One arrival of a warp that has come together; or none.
DEVICE void arrive(u32 barrier, bool really = true) {
    if (lane_index() == 0 && really) mbarrier_arrive(barrier);
}
