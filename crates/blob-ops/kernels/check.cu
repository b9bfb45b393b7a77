// The search for the first element that another dtype does not hold.
//
//   for each group of 2 or 4 elements: the first lane that is not held -> the least index of all

#include "lanes.cuh"

struct Check {
    u64 from;
    u64 found;      // where the least index lies
    u64 start;      // the index of the first element of this launch
    u64 low, high;  // bits of lanes; for floats with a fraction high is the limit of their magnitude
    u32 groups, rest;
    u32 source;
    u32 is_whole;   // floats: only whole numbers are held
    u32 bytes;
    u32 pad;
};

template <class L> __device__ L bound(u64 word) { return L(word); }
template <> __device__ float bound(u64 word) { return bits<float>(u32(word)); }
template <> __device__ double bound(u64 word) { return bits<double>(word); }

template <class L> __device__ bool held(const Check &p, L x) { return x >= bound<L>(p.low) && x <= bound<L>(p.high); }
template <> __device__ bool held(const Check &p, float x) {
    if (p.is_whole) return x >= bound<float>(p.low) && x < bound<float>(p.high) && truncf(x) == x;
    return fabsf(x) < bound<float>(p.high) || !(fabsf(x) < bits<float>(0x7F800000u));
}
template <> __device__ bool held(const Check &p, double x) {
    if (p.is_whole) return x >= bound<double>(p.low) && x < bound<double>(p.high) && trunc(x) == x;
    return fabs(x) < bound<double>(p.high) || !(fabs(x) < bits<double>(0x7FF0ull << 48));
}

template <class L, int N> __device__ void search(const Check &p, u64 index, u32 bytes) {
    L lane[N];
    lanes(lane, p.source, p.from, index, bytes);
    int first = N;
    #pragma unroll
    for (int k = N - 1; k >= 0; k--)
        if (!held(p, lane[k])) first = k;
    if (first < N) atomicMin(at<u64>(p.found), p.start + index + first);
}

template <class L, int N> __device__ void check(const Check &p) {
    u32 index = blockIdx.x * THREADS + threadIdx.x;
    if (index < p.groups) search<L, N>(p, u64(index) * N, 0);
    else if (index - p.groups < p.rest) search<L, 1>(p, u64(p.groups) * N + (index - p.groups), p.bytes);
}

KERNEL check_i32(PARAMS(Check)) { check<i32, 4>(p); }
KERNEL check_u32(PARAMS(Check)) { check<u32, 4>(p); }
KERNEL check_i64(PARAMS(Check)) { check<i64, 2>(p); }
KERNEL check_u64(PARAMS(Check)) { check<u64, 2>(p); }
KERNEL check_f32(PARAMS(Check)) { check<float, 4>(p); }
KERNEL check_f64(PARAMS(Check)) { check<double, 2>(p); }
