// Matrix instructions of sm_80 and later: ldmatrix and mma.sync with float32 accumulation. All lanes of a warp take part.
//
// Fragments, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//     A  a0 (row g, k 2t..)  a1 (g + 8, 2t..)  a2 (g, 2t + 8..)  a3 (g + 8, 2t + 8..)      pairs of 16-bit values
//     B  b0 (k 2t.., column g)  b1 (k 2t + 8.., column g)
//     C  c0, c1 (row g, columns 2t, 2t + 1)  c2, c3 (row g + 8)
// m16n8k8 has a0, a1 and b0 alone.

// ldmatrix.sync.aligned.m8n8.x4.shared.b16, sm_75, ISA 6.5: lanes 8i ... 8i + 7 give the rows of matrix i.
DEVICE void ldmatrix_x4(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
DEVICE void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// x2: lanes 0 ... 15 give the rows; the addresses of the others are ignored.
DEVICE void ldmatrix_x2(u32 &r0, u32 &r1, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}
DEVICE void ldmatrix_x2_trans(u32 &r0, u32 &r1, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}
DEVICE void ldmatrix_x1(u32 &r0, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(address) : "memory");
}

//% for _, form in ipairs({ { "bf16", "bf16" }, { "fp16", "f16" } }) do
// mma.sync.aligned.m16n8k16.row.col.f32.$(form[2]), sm_80, ISA 7.0: c += a * b.
DEVICE void mma_m16n8k16_$(form[1])(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.$(form[2]).$(form[2]).f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// mma.sync.aligned.m16n8k8.row.col.f32.$(form[2]), sm_80, ISA 7.0.
DEVICE void mma_m16n8k8_$(form[1])(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.$(form[2]).$(form[2]).f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}
//% end -- form
