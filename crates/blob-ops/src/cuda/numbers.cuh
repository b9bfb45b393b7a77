// Numbers as the host computes them: 16-bit floats by integer code, which NaN comes out, rounding to odd.
// Twins of cpu/element.rs, cpu/narrow.rs and cpu/lanes.rs; a test compares the bits.

// The bits of an f16 as f32: exact. NaN keeps its payload and is quiet.
__device__ float widen_f16(u16 half) {
    u32 sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    u32 normal = (magnitude << 13) + (112u << 23);
    u32 subnormal = bits<u32>(__fmul_rn(__uint2float_rn(magnitude), 5.9604644775390625e-8f));
    u32 large = (magnitude << 13) | 0x7F800000u | (magnitude > 0x7C00 ? 0x400000u : 0);
    u32 found = magnitude < 0x400 ? subnormal : magnitude < 0x7C00 ? normal : large;
    return bits<float>(sign | found);
}

__device__ float widen_bf16(u16 half) { return bits<float>(u32(half) << 16); }

// The nearest f16, to even; NaN keeps the upper bits of its payload.
__device__ u16 to_f16(float x) {
    u32 word = bits<u32>(x), magnitude = word & 0x7FFFFFFFu, sign = (word >> 16) & 0x8000u;
    // The last place of 0.5 is that of an f16 subnormal, so that this addition rounds to it.
    u32 subnormal = bits<u32>(__fadd_rn(bits<float>(magnitude), 0.5f)) - 0x3F000000u;
    u32 normal = ((magnitude + 0xFFF + ((magnitude >> 13) & 1)) >> 13) - (112u << 10);
    u32 number = magnitude < (113u << 23) ? subnormal : normal < 0x7C00 ? normal : 0x7C00;
    u32 nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
    return u16(sign | (magnitude > 0x7F800000u ? nan : number));
}

// The nearest bf16, to even; NaN keeps the upper bits of its payload.
__device__ u16 to_bf16(float x) {
    u32 word = bits<u32>(x);
    u32 number = (word + 0x7FFF + ((word >> 16) & 1)) >> 16, nan = (word >> 16) | 0x40;
    return u16((word & 0x7FFFFFFFu) > 0x7F800000u ? nan : number);
}

// Which NaN comes out: the first operand that is one, made quiet, else x86's own, which is negative.
__device__ float settle(float r, float a, float b) {
    u32 quiet = 0x400000u;
    if (r == r) return r;
    return bits<float>(a != a ? bits<u32>(a) | quiet : b != b ? bits<u32>(b) | quiet : 0xFFC00000u);
}

__device__ double settle(double r, double a, double b) {
    u64 quiet = 1ull << 51;
    if (r == r) return r;
    return bits<double>(a != a ? bits<u64>(a) | quiet : b != b ? bits<u64>(b) | quiet : 0xFFF8ull << 48);
}
