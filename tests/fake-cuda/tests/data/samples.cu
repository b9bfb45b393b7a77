// Kernels that the interpreter is tested with. samples.ptx is what NVRTC 12.0.140 makes of them with
// --gpu-architecture=compute_70 --std=c++17 --fmad=false; it is committed so that the tests need no compiler.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

template <class T> __device__ void copy_each(const T *from, T *to, u64 count) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = from[at];
}
extern "C" __global__ void copy_u8(const u8 *from, u8 *to, u64 count) { copy_each(from, to, count); }
extern "C" __global__ void copy_u16x8(const uint4 *from, uint4 *to, u64 count) { copy_each(from, to, count); }

#define TILE 32
template <int PAD> __device__ void transpose(const u32 *from, u32 *to, u32 rows, u32 columns) {
    __shared__ u32 tile[TILE][TILE + PAD];
    u32 x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (u32 i = 0; i < TILE; i += 8)
        if (x < columns && y + i < rows) tile[threadIdx.y + i][threadIdx.x] = from[(u64)(y + i) * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (u32 i = 0; i < TILE; i += 8)
        if (x < rows && y + i < columns) to[(u64)(y + i) * rows + x] = tile[threadIdx.x][threadIdx.y + i];
}
extern "C" __global__ void transpose_padded(const u32 *from, u32 *to, u32 rows, u32 columns) { transpose<1>(from, to, rows, columns); }
extern "C" __global__ void transpose_tight(const u32 *from, u32 *to, u32 rows, u32 columns) { transpose<0>(from, to, rows, columns); }
extern "C" __global__ void transpose_naive(const u32 *from, u32 *to, u32 rows, u32 columns) {
    u32 x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < columns && y < rows) to[(u64)x * rows + y] = from[(u64)y * columns + x];
}

// Blocks of 4,096 elements: 256 threads in 16 groups of 16, rows of 16, groups in order, then a tree of shuffles.
extern "C" __global__ void block_sum(const float *from, double *to, u64 count) {
    __shared__ double part[16][16];
    u32 lane = threadIdx.x % 16, group = threadIdx.x / 16;
    u64 first = (u64)blockIdx.x * 4096 + group * 256 + lane;
    double sum = 0;
    for (u32 row = 0; row < 16; row++)
        if (first + row * 16 < count) sum += (double)from[first + row * 16];
    part[group][lane] = sum;
    __syncthreads();
    if (threadIdx.x < 16) {
        double all = part[0][lane];
        for (u32 g = 1; g < 16; g++) all += part[g][lane];
        for (u32 step = 8; step; step /= 2) all += __shfl_down_sync(0xffff, all, step, 16);
        if (lane == 0) to[blockIdx.x] = all;
    }
}

__device__ u32 settle(u32 a, u32 b, float sum) {
    if (sum == sum) return __float_as_uint(sum);
    if ((a & 0x7fffffff) > 0x7f800000) return a | 0x400000;
    if ((b & 0x7fffffff) > 0x7f800000) return b | 0x400000;
    return 0xffc00000;
}
extern "C" __global__ void add_settled(const u32 *a, const u32 *b, u32 *to, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = settle(a[at], b[at], __fadd_rn(__uint_as_float(a[at]), __uint_as_float(b[at])));
}

extern "C" __global__ void first_negative(const int *from, u64 *to, u64 count) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count && from[at] < 0) atomicMin(to, at);
}

extern "C" __global__ void count_into(const u32 *from, u32 *to, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) atomicAdd(&to[from[at] % 8], 1u);
}

// Between blocks without an atomic: a race.
extern "C" __global__ void count_racy(const u32 *from, u32 *to, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[from[at] % 8] += 1u;
}

extern "C" __global__ void shift_in_shared(u32 *data) {
    __shared__ u32 row[64];
    row[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    u32 next = row[(threadIdx.x + 1) % 64];
    __syncthreads();
    row[threadIdx.x] = next;
    __syncthreads();
    data[threadIdx.x] = row[threadIdx.x ^ 1];
}

struct Part { const u8 *from; u64 len; };
struct Parts { Part part[4]; u32 count; };
extern "C" __global__ void join(const __grid_constant__ Parts parts, u8 *to, u64 stride) {
    Part part = parts.part[blockIdx.y];
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < part.len; at += (u64)gridDim.x * blockDim.x)
        to[blockIdx.y * stride + at] = part.from[at];
}

__constant__ u32 table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
extern "C" __global__ void look_up(const u32 *from, u32 *to, u32 count, u32 kind) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    u32 value = from[at], result;
    switch (kind) {
        case 0: result = table[value % 8]; break;
        case 1: result = __popc(value); break;
        case 2: result = __clz(value); break;
        case 3: result = __brev(value); break;
        case 4: result = __byte_perm(value, 0x01020304, 0x5140); break;
        case 5: result = (value << 7) | (value >> 25); break;
        case 6: result = __ffs(value); break;
        case 7: result = __umulhi(value, 0x9e3779b9); break;
        default: result = ~value;
    }
    to[at] = result;
}

// Index arithmetic as a permutation of many axes needs it: a 64-bit division in a loop.
struct Axes { u64 size[6], stride[6]; u32 count; };
extern "C" __global__ void permute(const u8 *from, u8 *to, u64 count, const __grid_constant__ Axes axes) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    u64 rest = at, source = 0;
    for (int axis = (int)axes.count - 1; axis >= 0; axis--) {
        source += rest % axes.size[axis] * axes.stride[axis];
        rest /= axes.size[axis];
    }
    to[at] = from[source];
}

template <class From, class To> __device__ void convert_each(const From *from, To *to, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = (To)from[at];
}
#define CONVERT(name, From, To) extern "C" __global__ void name(const From *f, To *t, u32 n) { convert_each<From, To>(f, t, n); }
CONVERT(f32_to_s8, float, signed char) CONVERT(f32_to_u8, float, u8) CONVERT(f32_to_s16, float, short) CONVERT(f32_to_s32, float, int)
CONVERT(f32_to_u32, float, u32) CONVERT(f32_to_s64, float, long long) CONVERT(f32_to_u64, float, u64) CONVERT(f32_to_f64, float, double)
CONVERT(f64_to_s32, double, int) CONVERT(f64_to_u32, double, u32) CONVERT(f64_to_s64, double, long long) CONVERT(f64_to_u64, double, u64)
CONVERT(f64_to_f32, double, float) CONVERT(s64_to_f32, long long, float) CONVERT(u64_to_f32, u64, float) CONVERT(s64_to_f64, long long, double)
CONVERT(u64_to_f64, u64, double) CONVERT(s32_to_f32, int, float) CONVERT(u8_to_f32, u8, float) CONVERT(s16_to_s64, short, long long)
extern "C" __global__ void f32_floor_to_s32(const float *f, int *t, u32 n) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) t[at] = __float2int_rd(f[at]) ^ __float2int_rn(f[at]) ^ __float2int_ru(f[at]);
}
