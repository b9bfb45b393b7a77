// Square matrices one behind the other, each transposed where it is.
//
//   for each pair of tiles that mirror each other: both -> shared memory -> each to the other's place

#include "common.cuh"

struct Squares {
    u64 at;
    u64 matrix; // bytes of one
    u32 side;
    u32 tiles;  // along a side
    u32 bytes;  // elements lie at any address
    u32 pad;
};

template <int W> __device__ void square(const Squares &p) {
    typedef typename Word<W>::T Word;
    const int SIDE = 32, PITCH = SIDE + (W < 4 ? 4 / W : 1), STEP = THREADS / SIDE;
    __shared__ Word upper[SIDE * PITCH], lower[SIDE * PITCH];
    u32 rest = blockIdx.x / p.tiles, matrix = rest / p.tiles;
    u32 j = (blockIdx.x - rest * p.tiles) * SIDE, i = (rest - matrix * p.tiles) * SIDE;
    if (j < i) return; // the mirrored block does both
    u64 start = p.at + matrix * p.matrix;
    u32 lane = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
    #pragma unroll 1
    for (u32 k = first; k < SIDE; k += STEP) {
        if (i + k < p.side && j + lane < p.side)
            upper[k * PITCH + lane] = load_one<Word>(start + (u64(i + k) * p.side + j + lane) * W, p.bytes);
        if (j + k < p.side && i + lane < p.side)
            lower[k * PITCH + lane] = load_one<Word>(start + (u64(j + k) * p.side + i + lane) * W, p.bytes);
    }
    __syncthreads();
    #pragma unroll 1
    for (u32 k = first; k < SIDE; k += STEP) {
        if (i + k < p.side && j + lane < p.side)
            store_one<Word>(start + (u64(i + k) * p.side + j + lane) * W, lower[lane * PITCH + k], p.bytes);
        if (i != j && j + k < p.side && i + lane < p.side)
            store_one<Word>(start + (u64(j + k) * p.side + i + lane) * W, upper[lane * PITCH + k], p.bytes);
    }
}

KERNEL square_8(PARAMS(Squares)) { square<8>(p); }
KERNEL square_4(PARAMS(Squares)) { square<4>(p); }
KERNEL square_2(PARAMS(Squares)) { square<2>(p); }
KERNEL square_1(PARAMS(Squares)) { square<1>(p); }
