// What the sums of blocks of 4096 elements share, and the joining of many. Elements that are missing are zeros.

#include "common.cuh"

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

// Sums of blocks, one behind the other.
struct Joins {
    u64 from;
    u64 to;        // one for each THREADS of them
    u64 count;
};
