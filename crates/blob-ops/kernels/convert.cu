// Elements of one dtype to another.
//
//   for each group of 2 or 4 elements: load, widen to lanes, saturate to the target, store
//
// One kernel for each lane; which dtype the elements go to is the same for all threads. Twins of cpu/convert.rs.

#include "lanes.cuh"

// ---- from lanes to elements ----

template <class T> struct Ends;
template <> struct Ends<u8> { static const i64 low = 0; static const u64 high = 0xFF; };
template <> struct Ends<i8> { static const i64 low = -0x80; static const u64 high = 0x7F; };
template <> struct Ends<u16> { static const i64 low = 0; static const u64 high = 0xFFFF; };
template <> struct Ends<i16> { static const i64 low = -0x8000; static const u64 high = 0x7FFF; };
template <> struct Ends<u32> { static const i64 low = 0; static const u64 high = 0xFFFFFFFFu; };
template <> struct Ends<i32> { static const i64 low = -0x80000000ll; static const u64 high = 0x7FFFFFFFu; };
template <> struct Ends<u64> { static const i64 low = 0; static const u64 high = ~0ull; };
template <> struct Ends<i64> { static const i64 low = -0x7FFFFFFFFFFFFFFFll - 1; static const u64 high = ~0ull >> 1; };

// An integer to the nearest of another width or sign.
template <class T, class L> __device__ T clamped(L x) {
    const L low = L(Ends<T>::low < Ends<L>::low ? Ends<L>::low : Ends<T>::low);
    const L high = L(Ends<T>::high > Ends<L>::high ? Ends<L>::high : Ends<T>::high);
    return T(x < low ? low : x > high ? high : x);
}

template <class T> __device__ T whole(i32 x) { return clamped<T>(x); }
template <class T> __device__ T whole(u32 x) { return clamped<T>(x); }
template <class T> __device__ T whole(i64 x) { return clamped<T>(x); }
template <class T> __device__ T whole(u64 x) { return clamped<T>(x); }

// A float cut towards zero; NaN first, because what a GPU makes of it differs from width to width.
template <class T> __device__ T whole(float x) {
    if (x != x) return 0;
    if (sizeof(T) == 8) return Ends<T>::low < 0 ? T(__float2ll_rz(x)) : T(__float2ull_rz(x));
    if (sizeof(T) == 4 && Ends<T>::low == 0) return T(__float2uint_rz(x));
    return clamped<T>(__float2int_rz(x));
}
template <class T> __device__ T whole(double x) {
    if (x != x) return 0;
    if (sizeof(T) == 8) return Ends<T>::low < 0 ? T(__double2ll_rz(x)) : T(__double2ull_rz(x));
    if (sizeof(T) == 4 && Ends<T>::low == 0) return T(__double2uint_rz(x));
    return clamped<T>(__double2int_rz(x));
}

// A double to the nearest float, which keeps the upper bits of a NaN's payload.
__device__ float narrow(double x) {
    u64 word = bits<u64>(x);
    u32 nan = u32(word >> 32 & 0x80000000u) | 0x7FC00000u | u32(word >> 29 & 0x3FFFFFu);
    return x != x ? bits<float>(nan) : __double2float_rn(x);
}

// A number as float if it is one; else that of its neighbours whose last bit is set, or one as good for a second rounding.
__device__ float odd(float x) { return x; }
__device__ float odd(double x) {
    float near = narrow(x);
    u32 word = bits<u32>(near);
    double back = near;
    bool inexact = x == x && back != x;
    u32 other = fabs(back) > fabs(x) ? word - 1 : word + 1;
    return bits<float>(inexact && (word & 1) == 0 ? other : word);
}
__device__ float odd(i32 x) {
    i32 marked = (x >> 8 | ((x & 0xFF) != 0)) << 8;
    return __int2float_rn(x >= -(1 << 24) && x <= 1 << 24 ? x : marked);
}
__device__ float odd(u32 x) {
    u32 marked = (x >> 8 | ((x & 0xFF) != 0)) << 8;
    return __uint2float_rn(x <= 1u << 24 ? x : marked);
}
__device__ float odd(i64 x) {
    i64 marked = (x >> 11 | ((x & 0x7FF) != 0)) << 11;
    return odd(__ll2double_rn(x >= -(1ll << 53) && x <= 1ll << 53 ? x : marked));
}
__device__ float odd(u64 x) {
    u64 marked = (x >> 11 | ((x & 0x7FF) != 0)) << 11;
    return odd(__ull2double_rn(x <= 1ull << 53 ? x : marked));
}

template <class L> __device__ u32 single(L x) { return bits<u32>(float(x)); }
template <> __device__ u32 single(float x) { return bits<u32>(x) | (x != x ? 0x400000u : 0); }
template <> __device__ u32 single(double x) { return bits<u32>(narrow(x)); }

template <class L> __device__ u64 twice(L x) { return bits<u64>(double(x)); }
template <> __device__ u64 twice(float x) {
    u32 word = bits<u32>(x);
    u64 nan = u64(word & 0x80000000u) << 32 | 0x7FF8ull << 48 | u64(word & 0x3FFFFFu) << 29;
    return x != x ? nan : bits<u64>(double(x));
}

// A target by its dtype.
template <u32 DTYPE, class L> struct To;
#define TO(DTYPE, RAW, MADE) \
    template <class L> struct To<DTYPE, L> { \
        typedef RAW Raw; \
        static __device__ RAW of(L x) { return MADE; } \
    };
TO(BOOL, u8, u8(x != L(0)))
TO(U8, u8, whole<u8>(x))
TO(I8, u8, u8(whole<i8>(x)))
TO(U16, u16, whole<u16>(x))
TO(I16, u16, u16(whole<i16>(x)))
TO(U32, u32, whole<u32>(x))
TO(I32, u32, u32(whole<i32>(x)))
TO(U64, u64, whole<u64>(x))
TO(I64, u64, u64(whole<i64>(x)))
TO(F16, u16, to_f16(odd(x)))
TO(BF16, u16, to_bf16(odd(x)))
TO(F32, u32, single(x))
TO(F64, u64, twice(x))

template <u32 DTYPE, class L, int N> __device__ void store(const L (&lane)[N], u64 to, u64 index, u32 bytes) {
    typedef typename To<DTYPE, L>::Raw Raw;
    u64 address = to + index * sizeof(Raw);
    if (N == 1) return store_one<Raw>(address, To<DTYPE, L>::of(lane[0]), bytes);
    Group<Raw, N> group;
    #pragma unroll
    for (int k = 0; k < N; k++) group.raw[k] = To<DTYPE, L>::of(lane[k]);
    put(address, group.word);
}

// Targets of up to 4 bytes.
struct Short {};
template <class L, int N> __device__ void store_as(Short, const L (&lane)[N], u32 target, u64 to, u64 index, u32 bytes) {
    switch (target) {
        case BOOL: store<BOOL>(lane, to, index, bytes); break;
        case U8: store<U8>(lane, to, index, bytes); break;
        case I8: store<I8>(lane, to, index, bytes); break;
        case U16: store<U16>(lane, to, index, bytes); break;
        case I16: store<I16>(lane, to, index, bytes); break;
        case U32: store<U32>(lane, to, index, bytes); break;
        case I32: store<I32>(lane, to, index, bytes); break;
        case F16: store<F16>(lane, to, index, bytes); break;
        case BF16: store<BF16>(lane, to, index, bytes); break;
        default: store<F32>(lane, to, index, bytes);
    }
}

// Targets of 8 bytes.
struct Long {};
template <class L, int N> __device__ void store_as(Long, const L (&lane)[N], u32 target, u64 to, u64 index, u32 bytes) {
    switch (target) {
        case U64: store<U64>(lane, to, index, bytes); break;
        case I64: store<I64>(lane, to, index, bytes); break;
        default: store<F64>(lane, to, index, bytes);
    }
}

// ---- convert ----

struct Convert {
    u64 from, to;
    u32 groups, rest; // elements behind the groups
    u32 blocks;       // of threads, for the groups
    u32 source, target;
    u32 is_long;      // a target of 8 bytes
    u32 bytes;        // behind, elements lie at any address
    u32 pad;
};

// Groups of N elements, for 4 elements a thread; those of a thread lie apart, so that neighbours are read together.
template <class L, int N, class Target> __device__ void groups(const Convert &p) {
    #pragma unroll
    for (int k = 0; k < 4 / N; k++) {
        u32 group = (blockIdx.x * (4 / N) + k) * THREADS + threadIdx.x;
        if (group < p.groups) {
            L lane[N];
            u64 index = u64(group) * N;
            lanes(lane, p.source, p.from, index, 0);
            store_as(Target(), lane, p.target, p.to, index, 0);
        }
    }
}

// Groups of N elements, but of 2 for a long target: a group is 16 bytes at most.
template <class L, int N> __device__ void convert(const Convert &p) {
    if (blockIdx.x < p.blocks) {
        if (p.is_long) return groups<L, 2, Long>(p);
        return groups<L, N, Short>(p);
    }
    u32 behind = (blockIdx.x - p.blocks) * THREADS + threadIdx.x;
    if (behind >= p.rest) return;
    L lane[1];
    u64 index = u64(p.groups) * (p.is_long ? 2 : N) + behind;
    lanes(lane, p.source, p.from, index, p.bytes);
    if (p.is_long) store_as(Long(), lane, p.target, p.to, index, p.bytes);
    else store_as(Short(), lane, p.target, p.to, index, p.bytes);
}

KERNEL convert_i32(PARAMS(Convert)) { convert<i32, 4>(p); }
KERNEL convert_u32(PARAMS(Convert)) { convert<u32, 4>(p); }
KERNEL convert_i64(PARAMS(Convert)) { convert<i64, 2>(p); }
KERNEL convert_u64(PARAMS(Convert)) { convert<u64, 2>(p); }
KERNEL convert_f32(PARAMS(Convert)) { convert<float, 4>(p); }
KERNEL convert_f64(PARAMS(Convert)) { convert<double, 2>(p); }
