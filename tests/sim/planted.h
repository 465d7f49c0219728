// planted.h - faults behind switches, as check-sim-mutants plants them by the hundred in one kernel (plant.lua): compiled once, each runs in a
// process of its own.
//
// All are off until the environment's PLANTED names some by number: the first time that a thread comes to the switch of one of these, the
// process forks. The child goes on with the fault, up to the end; then its parent goes on without it, and ends when no fault is left to come to.
// On the standard output stand "PLANTED n", what the child prints, and "ENDED n STATUS" or "ENDED n signal SIGNAL".
#pragma once

namespace sim {
bool is_planted(int fault);
}
inline __attribute__((always_inline)) bool planted(int fault) {
    return sim::is_planted(fault);
}

// Registers that nobody has cleared: not a number.
template <class T> inline void spoil(T &registers) {
    __builtin_memset(&registers, 0xff, sizeof registers);
}

// `a < b` reads `a < Shifted{n} < b`: with fault n the comparison takes in what is equal, or leaves it out.
struct Shifted {
    int fault;
};
template <class T> struct ShiftedFrom {
    T left;
    bool shifted;
};
#define SHIFTED(sign, other)                                                                                          \
    template <class T> inline __attribute__((always_inline)) ShiftedFrom<T> operator sign(T left, Shifted by) {       \
        return {left, planted(by.fault)};                                                                             \
    }                                                                                                                 \
    template <class T, class U> inline __attribute__((always_inline)) bool operator sign(ShiftedFrom<T> a, U right) { \
        return a.shifted ? a.left other right : a.left sign right;                                                    \
    }
SHIFTED(<, <=)
SHIFTED(<=, <)
SHIFTED(>, >=)
SHIFTED(>=, >)
SHIFTED(==, !=)
SHIFTED(!=, ==)
#undef SHIFTED
