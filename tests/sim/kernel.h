// kernel.h - what tests/sim/ptx/builtins.cuh includes into a kernel's source besides the machine: C++ for CUDA's words, and the two symbols
// by which the machine finds the kernel.
#pragma once

#include "engine.h"
#include "machine.h"

#define VISIBLE __attribute__((visibility("default")))

// A symbol that a kernel has if something in it is used: the machine then makes room for what that needs.
#define DECLARED(symbol)                  \
    extern "C" {                          \
    VISIBLE inline const char symbol = 1; \
    }
#define USED(symbol) asm volatile("" ::"m"(symbol))

// Blocks of a cluster: KERNEL and CLUSTER_KERNEL say.
#define SIM_CLUSTER(blocks) static constexpr int sim_cluster = blocks;

template <class Parameter> constexpr size_t sim_parameter_bytes(void (*)(Parameter)) {
    return sizeof(Parameter);
}
// The parameter lands on the thread's own stack; reading it from the host's copy is no access of the kernel.
template <class Parameter>
__attribute__((no_sanitize("thread"))) void sim_call(void (*kernel)(Parameter), const void *parameter) {
    kernel(*static_cast<const Parameter *>(parameter));
}

// One value in another's bits.
template <class To, class From> inline To sim_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
template <class T> inline sim::u64 sim_widen(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    sim::u64 wide = 0;
    __builtin_memcpy(&wide, &value, sizeof value);
    return wide;
}
template <class T> inline T sim_narrow(sim::u64 wide) {
    T value;
    __builtin_memcpy(&value, &wide, sizeof value);
    return value;
}
