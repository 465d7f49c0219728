// Matrix instructions of sm_80 and later.

DEVICE void ldmatrix_x4(u32 (&r)[4], u32 address) { sim::load_matrices(address, r, 4, false); }
DEVICE void ldmatrix_x4_trans(u32 (&r)[4], u32 address) { sim::load_matrices(address, r, 4, true); }
DEVICE void ldmatrix_x2(u32 &r0, u32 &r1, u32 address) {
    u32 r[2];
    sim::load_matrices(address, r, 2, false);
    r0 = r[0];
    r1 = r[1];
}
DEVICE void ldmatrix_x2_trans(u32 &r0, u32 &r1, u32 address) {
    u32 r[2];
    sim::load_matrices(address, r, 2, true);
    r0 = r[0];
    r1 = r[1];
}
DEVICE void ldmatrix_x1(u32 &r0, u32 address) { sim::load_matrices(address, &r0, 1, false); }

//% for _, form in ipairs({ "bf16", "fp16" }) do
DEVICE void mma_m16n8k16_$(form)(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const u32 b[2] = {b0, b1};
    sim::multiply(c, a, b, 16, $(form == "fp16"));
}
DEVICE void mma_m16n8k8_$(form)(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    const u32 a[2] = {a0, a1};
    sim::multiply(c, a, &b0, 8, $(form == "fp16"));
}
//% end -- form
