// Numbers as the host computes them: which NaN comes out, rounding to odd.
// Twins of cpu/element.rs, cpu/narrow.rs and cpu/lanes.rs; a test compares the bits.

// An f16 as f32: exact; of a NaN some NaN.
__device__ float number_f16(u16 half) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(half));
    return number;
}

// The bits of an f16 as f32: exact. NaN keeps its payload and is quiet.
__device__ float widen_f16(u16 half) {
    u32 sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    return magnitude > 0x7C00 ? bits<float>(sign | magnitude << 13 | 0x7FC00000u) : number_f16(half);
}

__device__ float widen_bf16(u16 half) { return bits<float>(u32(half) << 16); }

// The f16 nearest to a number, to even.
__device__ u16 near_f16(float x) {
    u16 near;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(near) : "f"(x));
    return near;
}

// The same, where NaN keeps the upper bits of its payload.
__device__ u16 to_f16(float x) {
    u32 word = bits<u32>(x);
    return x != x ? u16((word >> 16 & 0x8000u) | 0x7E00 | (word >> 13 & 0x3FF)) : near_f16(x);
}

// The bf16 nearest to a number, to even.
__device__ u16 near_bf16(float x) {
    u32 word = bits<u32>(x);
    return u16((word + 0x7FFF + (word >> 16 & 1)) >> 16);
}

// The same, where NaN keeps the upper bits of its payload.
__device__ u16 to_bf16(float x) { return x != x ? u16(bits<u32>(x) >> 16 | 0x40) : near_bf16(x); }

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
