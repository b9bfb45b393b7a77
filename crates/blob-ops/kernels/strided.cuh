// Places of entries along axes, and the permutation that works for all of them: word by word.
//
//   strided: for each word in the order of one side: its index along each axis -> both places -> copy

#include "common.cuh"

#define ITEMS 4

// ---- axes ----

#define AXES 33

// Axes, the one that runs fastest first; strides in bytes.
struct Axes {
    u64 from[AXES];
    u64 to[AXES];
    u32 len[AXES];
    u32 pad;
};

struct Place { u64 from, to; };

// Where an index along the axes first..last lies.
__device__ Place place(const Axes &axes, u32 first, u32 last, u32 index) {
    Place place = {0, 0};
    #pragma unroll 1
    for (u32 axis = first; axis < last; axis++) {
        u32 at = index;
        if (axis + 1 < last) {
            index /= axes.len[axis];
            at -= index * axes.len[axis];
        }
        place.from += at * axes.from[axis];
        place.to += at * axes.to[axis];
    }
    return place;
}

// ---- strided ----

struct Strided {
    u64 from, to;
    u32 words;
    u32 axes;
    Axes axis;
};

template <int W> __device__ void strided(const Strided &p) {
    typedef typename Word<W>::T Word;
    u32 index = blockIdx.x * (THREADS * ITEMS) + threadIdx.x;
    Word word[ITEMS];
    u64 to[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (index + k * THREADS < p.words) {
            Place of = place(p.axis, 0, p.axes, index + k * THREADS);
            word[k] = *at<const Word>(p.from + of.from);
            to[k] = p.to + of.to;
        }
    }
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (index + k * THREADS < p.words) *at<Word>(to[k]) = word[k];
}

KERNEL strided_16(PARAMS(Strided)) { strided<16>(p); }
KERNEL strided_8(PARAMS(Strided)) { strided<8>(p); }
KERNEL strided_4(PARAMS(Strided)) { strided<4>(p); }
KERNEL strided_2(PARAMS(Strided)) { strided<2>(p); }
KERNEL strided_1(PARAMS(Strided)) { strided<1>(p); }
