// The sums of magnitudes and of squares of blocks of 4096 elements, and many of these joined in the host's tree.
//
//   floats:   for each lane i of 16 in each group g of 256: sum = 0.0; for each row of 16: sum += f(x[256 g + 16 row + i])
//             for each lane: total = 0.0; for each group in order: total += sum; lanes are added 8, 4, 2, 1 apart
//   integers: for each element: low += f(x) mod 2^32, high += f(x) / 2^32
//   joined:   for each step of 1, 2, 4 .. 128: for each i that 2 step divides: sums[i] += sums[i + step]
//
// The floats' additions are those of cpu/sums.rs, in its order. Elements that are missing are zeros.

#include "common.cuh"
#include "numbers.cuh"

#define BLOCK 4096

struct Sums {
    u64 from;
    u64 to;        // 8 bytes a block for floats, 16 for integers
    u64 count;     // elements of this launch
    u32 square;
    u32 scattered; // elements are loaded one by one
    u32 bytes;     // they lie at any address
    u32 is_signed;
};

// How many elements the block has; none behind the last.
__device__ u32 count_of(const Sums &p, u64 block) {
    u64 start = block * BLOCK;
    return start >= p.count ? 0 : p.count - start < BLOCK ? u32(p.count - start) : BLOCK;
}

template <class R, u32 DTYPE> __device__ double wide(R raw);
template <> __device__ double wide<u16, F16>(u16 raw) { return widen_f16(raw); }
template <> __device__ double wide<u16, BF16>(u16 raw) { return widen_bf16(raw); }
template <> __device__ double wide<u32, F32>(u32 raw) { return bits<float>(raw); }
template <> __device__ double wide<u64, F64>(u64 raw) { return bits<double>(raw); }

// N neighbouring lanes a thread, so that 2-byte elements are read four bytes at once; then N blocks by the threads of one.
template <class R, u32 DTYPE, int N> __device__ void floats(const Sums &p) {
    __shared__ double sums[16 * 16 * N];
    const u32 EACH = THREADS / N;
    u32 part = threadIdx.x / EACH, thread = threadIdx.x % EACH;
    u64 block = u64(blockIdx.x) * N + part;
    u32 count = count_of(p, block);
    u32 lane = thread % (16 / N) * N, group = thread / (16 / N);
    u64 from = p.from + block * BLOCK * sizeof(R);
    Group<R, N> row[16];
    #pragma unroll
    for (u32 k = 0; k < 16; k++) {
        u32 element = group * 256 + k * 16 + lane;
        u64 address = from + element * sizeof(R);
        if (count == BLOCK && !p.scattered) {
            row[k].word = *at<const typename Word<int(sizeof(R)) * N>::T>(address);
        } else {
            #pragma unroll
            for (int n = 0; n < N; n++)
                row[k].raw[n] = element + n < count ? load_one<R>(address + n * sizeof(R), p.bytes) : R(0);
        }
    }
    #pragma unroll
    for (int n = 0; n < N; n++) {
        double sum = 0.0;
        #pragma unroll
        for (int k = 0; k < 16; k++) {
            double x = wide<R, DTYPE>(row[k].raw[n]);
            sum = __dadd_rn(sum, p.square ? __dmul_rn(x, x) : fabs(x));
        }
        sums[part * 256 + group * 16 + lane + n] = sum;
    }
    __syncthreads();
    if (thread >= 16) return;
    double total = 0.0;
    #pragma unroll
    for (int k = 0; k < 16; k++) total = __dadd_rn(total, sums[part * 256 + k * 16 + thread]);
    #pragma unroll
    for (int half = 8; half > 0; half /= 2) total = __dadd_rn(total, __shfl_down_sync(0xFFFF, total, half, 16));
    if (thread == 0 && count > 0) *at<double>(p.to + block * 8) = total;
}

KERNEL sums_f16(PARAMS(Sums)) { floats<u16, F16, 2>(p); }
KERNEL sums_bf16(PARAMS(Sums)) { floats<u16, BF16, 2>(p); }
KERNEL sums_f32(PARAMS(Sums)) { floats<u32, F32, 1>(p); }
KERNEL sums_f64(PARAMS(Sums)) { floats<u64, F64, 1>(p); }

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

// Sums of blocks, one behind the other.
struct Joins {
    u64 from;
    u64 to;        // one for each THREADS of them
    u64 count;
};

// Neighbours are joined first, then pairs of them, and so on: what is missing at the end changes nothing, as no sum is -0.
__device__ double joined(double sum, u32 lanes, int count) {
    #pragma unroll
    for (int step = 1; step < count; step *= 2) sum = __dadd_rn(sum, __shfl_down_sync(lanes, sum, step, count));
    return sum;
}

KERNEL join_floats(PARAMS(Joins)) {
    __shared__ double sums[THREADS / 32];
    u64 index = u64(blockIdx.x) * THREADS + threadIdx.x;
    double sum = index < p.count ? *at<const double>(p.from + index * 8) : 0.0;
    sum = joined(sum, ~0u, 32);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= THREADS / 32) return;
    sum = joined(sums[threadIdx.x], 0xFF, THREADS / 32);
    if (threadIdx.x == 0) *at<double>(p.to + u64(blockIdx.x) * 8) = sum;
}

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
