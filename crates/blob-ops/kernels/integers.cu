// The sums of magnitudes and of squares of blocks of 4096 integers, and many of these joined.
//
//   for each element: low += f(x) mod 2^32, high += f(x) / 2^32

#include "sums.cuh"

// A square of 2^64 or more in a thread's share: beyond every sum of high halves, and 256 of them fit.
#define LARGE (1ull << 50)

struct Halves { u64 low, high; };

// Said in PTX, because the compiler finds products of four bytes, dp4a, which not every tool that reads PTX knows.
__device__ u64 square(u32 x) {
    u64 product;
    asm("mul.wide.u32 %0, %1, %1;" : "=l"(product) : "r"(x));
    return product;
}

template <class R, class I> __device__ void add(const Sums &p, Halves &sum, R raw) {
    u64 magnitude = raw;
    if (p.is_signed && I(raw) < 0) magnitude = R(0 - raw);
    if (p.square) {
        if (sizeof(R) == 8 && magnitude >> 32 != 0 && sum.high < LARGE) sum.high += LARGE;
        magnitude = sizeof(R) == 8 ? magnitude * magnitude : square(u32(magnitude));
    }
    sum.low += magnitude & 0xFFFFFFFFu;
    sum.high += magnitude >> 32;
}

template <class R, class I> __device__ void integers(const Sums &p) {
    const int N = 16 / sizeof(R);
    __shared__ Halves sums[THREADS / 32];
    u32 count = count_of(p, blockIdx.x);
    u64 from = p.from + u64(blockIdx.x) * BLOCK * sizeof(R);
    Halves sum = {0, 0};
    if (count == BLOCK && !p.scattered) {
        #pragma unroll
        for (int k = 0; k < int(sizeof(R)); k++) {
            Group<R, N> group;
            group.word = *at<const uint4>(from + (k * THREADS + threadIdx.x) * 16);
            #pragma unroll
            for (int n = 0; n < N; n++) add<R, I>(p, sum, group.raw[n]);
        }
    } else {
        #pragma unroll 1
        for (u32 element = threadIdx.x; element < count; element += THREADS)
            add<R, I>(p, sum, load_one<R>(from + element * sizeof(R), p.bytes));
    }
    #pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        sum.low += __shfl_down_sync(~0u, sum.low, half);
        sum.high += __shfl_down_sync(~0u, sum.high, half);
    }
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    #pragma unroll
    for (int warp = 1; warp < THREADS / 32; warp++) {
        sum.low += sums[warp].low;
        sum.high += sums[warp].high;
    }
    if (sum.high >= LARGE) sum.low = sum.high = ~0ull;
    *at<u64>(p.to + u64(blockIdx.x) * 16) = sum.low;
    *at<u64>(p.to + u64(blockIdx.x) * 16 + 8) = sum.high;
}

KERNEL sums_w8(PARAMS(Sums)) { integers<u8, i8>(p); }
KERNEL sums_w16(PARAMS(Sums)) { integers<u16, i16>(p); }
KERNEL sums_w32(PARAMS(Sums)) { integers<u32, i32>(p); }
KERNEL sums_w64(PARAMS(Sums)) { integers<u64, i64>(p); }

// In place of all ones: beyond the high halves of 256 blocks, and 256 of them fit.
#define NO_SUM (1ull << 55)

__device__ Halves joined(Halves sum, u32 lanes, int count) {
    #pragma unroll
    for (int step = count / 2; step > 0; step /= 2) {
        sum.low += __shfl_down_sync(lanes, sum.low, step, count);
        sum.high += __shfl_down_sync(lanes, sum.high, step, count);
    }
    return sum;
}

KERNEL join_integers(PARAMS(Joins)) {
    __shared__ Halves sums[THREADS / 32];
    u64 index = u64(blockIdx.x) * THREADS + threadIdx.x;
    Halves sum = {0, 0};
    if (index < p.count) {
        sum.low = *at<const u64>(p.from + index * 16);
        sum.high = *at<const u64>(p.from + index * 16 + 8);
        if (sum.high == ~0ull) {
            sum.low = 0;
            sum.high = NO_SUM;
        }
    }
    sum = joined(sum, ~0u, 32);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= THREADS / 32) return;
    sum = joined(sums[threadIdx.x], 0xFF, THREADS / 32);
    if (threadIdx.x > 0) return;
    if (sum.high >= NO_SUM) sum.low = sum.high = ~0ull;
    *at<u64>(p.to + u64(blockIdx.x) * 16) = sum.low;
    *at<u64>(p.to + u64(blockIdx.x) * 16 + 8) = sum.high;
}
