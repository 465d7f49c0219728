// Plain arithmetic that every layer may use.

//% include "ptx/builtins.cuh"
//% include "ptx/math.cuh"
//% include "ptx/memory.cuh"

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr float LARGEST = 3.402823466e38f;
DEVICE float infinity() { return bits_to_float(0x7F800000u); }

template <typename T> DEVICE T smaller(T a, T b) { return a < b ? a : b; }
template <typename T> DEVICE T larger(T a, T b) { return a > b ? a : b; }

// Of element i of an accumulator (ptx/mma.cuh, ptx/wgmma.cuh): which of the thread's two rows it is in.
DEVICE constexpr int row_half(int i) { return i / 2 % 2; }
