// The sums of magnitudes and of squares of blocks of 4096 floats, and many of these joined in the host's tree.
//
//   floats: for each lane i of 16 in each group g of 256: sum = 0.0; for each row of 16: sum += f(x[256 g + 16 row + i])
//           for each lane: total = 0.0; for each group in order: total += sum; lanes are added 8, 4, 2, 1 apart
//   joined: for each step of 1, 2, 4 .. 128: for each i that 2 step divides: sums[i] += sums[i + step]
//
// The additions are those of cpu/sums.rs, in its order.

#include "sums.cuh"
#include "numbers.cuh"

// Which NaN it is does not matter: a sum of one has the bits that all NaN have here.
template <class R, u32 DTYPE> __device__ double wide(R raw);
template <> __device__ double wide<u16, F16>(u16 raw) { return number_f16(raw); }
template <> __device__ double wide<u16, BF16>(u16 raw) { return widen_bf16(raw); }
template <> __device__ double wide<u32, F32>(u32 raw) { return bits<float>(raw); }
template <> __device__ double wide<u64, F64>(u64 raw) { return bits<double>(raw); }

// The sums of a thread's lanes, each over its rows.
template <class R, u32 DTYPE, int N, bool SQUARE> __device__ void each(double *sums, const Group<R, N> (&row)[16]) {
    #pragma unroll
    for (int n = 0; n < N; n++) {
        double sum = 0.0;
        #pragma unroll
        for (int k = 0; k < 16; k++) {
            double x = wide<R, DTYPE>(row[k].raw[n]);
            sum = __dadd_rn(sum, SQUARE ? __dmul_rn(x, x) : fabs(x));
        }
        sums[n] = sum;
    }
}

// N neighbouring lanes a thread, so that 2-byte elements are read four bytes at once; then N blocks by the threads of one.
template <class R, u32 DTYPE, int N> __device__ void floats(const Sums &p) {
    __shared__ double sums[16 * 16 * N];
    const u32 EACH = THREADS / N;
    u32 part = threadIdx.x / EACH, thread = threadIdx.x % EACH;
    u64 block = u64(blockIdx.x) * N + part;
    u32 count = count_of(p, block);
    u32 lane = thread % (16 / N) * N, group = thread / (16 / N);
    u64 from = p.from + block * BLOCK * sizeof(R);
    u32 element = group * 256 + lane;
    Group<R, N> row[16];
    if (count == BLOCK && !p.scattered) {
        #pragma unroll
        for (u32 k = 0; k < 16; k++)
            row[k].word = *at<const typename Word<int(sizeof(R)) * N>::T>(from + (element + k * 16) * sizeof(R));
    } else {
        #pragma unroll
        for (u32 k = 0; k < 16; k++) {
            #pragma unroll
            for (u32 n = 0; n < N; n++) {
                u32 at = element + k * 16 + n;
                row[k].raw[n] = at < count ? load_one<R>(from + at * sizeof(R), p.bytes) : R(0);
            }
        }
    }
    double *own = sums + part * 256 + group * 16 + lane;
    if (p.square) each<R, DTYPE, N, true>(own, row);
    else each<R, DTYPE, N, false>(own, row);
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
