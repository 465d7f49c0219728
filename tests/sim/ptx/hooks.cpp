// hooks.cpp - what the compiler calls at every access of a kernel and at undefined behaviour; linked into each compiled kernel.
//
// g++ -fsanitize=thread announces each access to memory whose address has escaped, -fsanitize=bounds and friends call handlers: both
// sets of functions are ours, and the sanitizers' own libraries are not there. Hidden, so that kernels of several modules and a
// program that has sanitizers itself don't meet.
#include <cstring>

#include "machine.h"

#define CALLER __builtin_return_address(0)
#define HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {

// Most accesses are to the running thread's own stack, which only wgmma watches. The machine is asked about the others.
inline __attribute__((always_inline)) void seen(void *p, size_t bytes, bool write, const void *pc) {
    if (++sim::stack.accesses > sim::stack.limit) sim::endless(pc);
    const char *at = static_cast<char *>(p);
    sim::Stack &own = *sim::stack.of;
    const size_t offset = static_cast<size_t>(at - own.low);
    if (offset >= sim::STACK_BYTES) {
        sim::access(p, bytes, write, pc);
        return;
    }
    if (!sim::stack.watched || !bytes) return;
    const size_t end = (offset + bytes + 3) / 4;
    for (size_t word = offset / 4; word < end && word < sim::STACK_BYTES / 4; word++) own.touched[word] = own.fences;
    if (at < own.flights_high && at + bytes > own.flights_low) sim::in_flight(at, bytes, write, pc);
}

}  // namespace

#define ACCESS(n)                                                                \
    HIDDEN void __tsan_read##n(void *p) { seen(p, n, false, CALLER); }           \
    HIDDEN void __tsan_write##n(void *p) { seen(p, n, true, CALLER); }           \
    HIDDEN void __tsan_unaligned_read##n(void *p) { seen(p, n, false, CALLER); } \
    HIDDEN void __tsan_unaligned_write##n(void *p) { seen(p, n, true, CALLER); } \
    HIDDEN void __tsan_volatile_read##n(void *p) { seen(p, n, false, CALLER); }  \
    HIDDEN void __tsan_volatile_write##n(void *p) { seen(p, n, true, CALLER); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
HIDDEN void __tsan_read_range(void *p, size_t n) { seen(p, n, false, CALLER); }
HIDDEN void __tsan_write_range(void *p, size_t n) { seen(p, n, true, CALLER); }
HIDDEN void __tsan_func_entry(void *) {}
HIDDEN void __tsan_func_exit() {}
HIDDEN void __tsan_init() {}

// The linker's --wrap leads here, and gives the real functions these names.
extern "C" void *__real_memmove(void *, const void *, size_t);
extern "C" void *__real_memset(void *, int, size_t);
HIDDEN void *__wrap_memcpy(void *to, const void *from, size_t n) {
    seen(const_cast<void *>(from), n, false, CALLER);
    seen(to, n, true, CALLER);
    return __real_memmove(to, from, n);
}
HIDDEN void *__wrap_memmove(void *to, const void *from, size_t n) {
    seen(const_cast<void *>(from), n, false, CALLER);
    seen(to, n, true, CALLER);
    return __real_memmove(to, from, n);
}
HIDDEN void *__wrap_memset(void *to, int value, size_t n) {
    seen(to, n, true, CALLER);
    return __real_memset(to, value, n);
}

#define UNDEFINED(name, what) \
    HIDDEN void __ubsan_handle_##name(void *, void *, void *) { sim::undefined(what, CALLER); }
UNDEFINED(out_of_bounds, "array index out of range")
UNDEFINED(mul_overflow, "integer overflow")
UNDEFINED(add_overflow, "integer overflow")
UNDEFINED(sub_overflow, "integer overflow")
UNDEFINED(negate_overflow, "integer overflow")
UNDEFINED(divrem_overflow, "integer overflow")
UNDEFINED(shift_out_of_bounds, "shift out of range")
