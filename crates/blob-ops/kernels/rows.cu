// Merge and split by a table of parts.
//
//   for each word of the whole: (row, column) -> its part -> copy, to the whole (merge) or from it (split)

#include "common.cuh"

#define PARTS 192
#define ITEMS 4

struct Rows {
    u64 whole;       // the first word of this launch's columns
    u64 pitch;       // bytes from row to row of the whole
    u32 words;       // in all rows of this launch
    u32 row;         // words in a row of this launch
    u32 step_rows;   // THREADS / row
    u32 step_columns; // THREADS % row
    u32 parts;
    u32 split;       // from the whole to the parts
    u64 at[PARTS];   // where a part's first word lies
    u64 run[PARTS];  // bytes from row to row of a part
    u32 end[PARTS];  // the column behind a part's last
};

// The first part that ends behind the column.
__device__ u32 part_of(const u32 *end, u32 parts, u32 column) {
    u32 low = 0, high = parts - 1;
    #pragma unroll 1
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (column < end[middle]) high = middle; else low = middle + 1;
    }
    return low;
}

// The table where threads look up different parts at once: in constant memory they would wait for each other.
struct Table {
    u64 at[PARTS];
    u64 run[PARTS];
    u32 end[PARTS];

    __device__ void fill(const Rows &p) {
        if (threadIdx.x < p.parts) {
            at[threadIdx.x] = p.at[threadIdx.x];
            run[threadIdx.x] = p.run[threadIdx.x];
            end[threadIdx.x] = p.end[threadIdx.x];
        }
        __syncthreads();
    }
};

template <int W, bool SHARED> __device__ void rows(const Rows &p, const u64 *first, const u64 *run, const u32 *end) {
    typedef typename Word<W>::T Word;
    u32 index = blockIdx.x * (THREADS * ITEMS) + threadIdx.x;
    u32 row = index / p.row, column = index % p.row;
    u64 start = 0, pitch = 0, to[ITEMS];
    Word word[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (index + k * THREADS < p.words) {
            // Where as many threads as a block has are whole rows, a thread stays in its column.
            if (!SHARED || k == 0 || p.step_columns != 0) {
                u32 part = part_of(end, p.parts, column);
                start = first[part] + u64(column - (part == 0 ? 0 : end[part - 1])) * W;
                pitch = run[part];
            }
            u64 inner = start + row * pitch;
            u64 outer = p.whole + row * p.pitch + u64(column) * W;
            word[k] = *at<const Word>(p.split ? outer : inner);
            to[k] = p.split ? inner : outer;
        }
        row += p.step_rows;
        column += p.step_columns;
        if (column >= p.row) { column -= p.row; row += 1; }
    }
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (index + k * THREADS < p.words) *at<Word>(to[k]) = word[k];
}

// Neighbouring threads are in many parts, or the table is looked up once for all words of a thread.
__device__ bool is_short(const Rows &p) { return p.row <= 64 || (p.row <= THREADS && p.step_columns == 0); }

template <int W> __device__ void rows(const Rows &p) {
    __shared__ Table table;
    if (is_short(p)) {
        table.fill(p);
        rows<W, true>(p, table.at, table.run, table.end);
    } else {
        rows<W, false>(p, p.at, p.run, p.end);
    }
}

KERNEL rows_16(PARAMS(Rows)) { rows<16>(p); }
KERNEL rows_8(PARAMS(Rows)) { rows<8>(p); }
KERNEL rows_4(PARAMS(Rows)) { rows<4>(p); }
KERNEL rows_2(PARAMS(Rows)) { rows<2>(p); }
KERNEL rows_1(PARAMS(Rows)) { rows<1>(p); }
