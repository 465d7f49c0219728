// The 16-bit operand type of this kernel.

//% include "attn/types.cuh"

// Two floats as a pair of operand elements, and one element as a float.
DEVICE u32 pack(float lo, float hi) { return pack_$(dtype)(lo, hi); }
DEVICE float unpack(u16 bits) { return unpack_$(dtype)(bits); }
