// Elements of every dtype as lanes, in which they are held exactly. Which dtype they come from is the same for all threads.

#include "common.cuh"
#include "numbers.cuh"

// ---- from elements to lanes ----

template <class R, class L, u32 DTYPE> struct Source {
    typedef R Raw;
    static __device__ L lane(R raw) {
        if (DTYPE == BOOL) return L(raw != 0);
        if (DTYPE == I8) return L(i8(raw));
        if (DTYPE == I16) return L(i16(raw));
        return L(raw);
    }
};
template <> struct Source<u16, float, F16> {
    typedef u16 Raw;
    static __device__ float lane(u16 raw) { return widen_f16(raw); }
};
template <> struct Source<u16, float, BF16> {
    typedef u16 Raw;
    static __device__ float lane(u16 raw) { return widen_bf16(raw); }
};
template <> struct Source<u32, float, F32> {
    typedef u32 Raw;
    static __device__ float lane(u32 raw) { return bits<float>(raw); }
};
template <> struct Source<u64, double, F64> {
    typedef u64 Raw;
    static __device__ double lane(u64 raw) { return bits<double>(raw); }
};

template <class S, class L, int N> __device__ void load(L (&lane)[N], u64 from, u64 index, u32 bytes) {
    typedef typename S::Raw Raw;
    u64 address = from + index * sizeof(Raw);
    if (N == 1) {
        lane[0] = S::lane(load_one<Raw>(address, bytes));
        return;
    }
    Group<Raw, N> group;
    group.word = *at<typename Word<int(sizeof(Raw)) * N>::T>(address);
    #pragma unroll
    for (int k = 0; k < N; k++) lane[k] = S::lane(group.raw[k]);
}

template <int N> __device__ void lanes(i32 (&lane)[N], u32 source, u64 from, u64 index, u32 bytes) {
    switch (source) {
        case BOOL: load<Source<u8, i32, BOOL> >(lane, from, index, bytes); break;
        case U8: load<Source<u8, i32, U8> >(lane, from, index, bytes); break;
        case I8: load<Source<u8, i32, I8> >(lane, from, index, bytes); break;
        case U16: load<Source<u16, i32, U16> >(lane, from, index, bytes); break;
        case I16: load<Source<u16, i32, I16> >(lane, from, index, bytes); break;
        default: load<Source<u32, i32, I32> >(lane, from, index, bytes);
    }
}
template <int N> __device__ void lanes(u32 (&lane)[N], u32, u64 from, u64 index, u32 bytes) {
    load<Source<u32, u32, U32> >(lane, from, index, bytes);
}
template <int N> __device__ void lanes(i64 (&lane)[N], u32, u64 from, u64 index, u32 bytes) {
    load<Source<u64, i64, I64> >(lane, from, index, bytes);
}
template <int N> __device__ void lanes(u64 (&lane)[N], u32, u64 from, u64 index, u32 bytes) {
    load<Source<u64, u64, U64> >(lane, from, index, bytes);
}
template <int N> __device__ void lanes(float (&lane)[N], u32 source, u64 from, u64 index, u32 bytes) {
    switch (source) {
        case F16: load<Source<u16, float, F16> >(lane, from, index, bytes); break;
        case BF16: load<Source<u16, float, BF16> >(lane, from, index, bytes); break;
        default: load<Source<u32, float, F32> >(lane, from, index, bytes);
    }
}
template <int N> __device__ void lanes(double (&lane)[N], u32, u64 from, u64 index, u32 bytes) {
    load<Source<u64, double, F64> >(lane, from, index, bytes);
}
