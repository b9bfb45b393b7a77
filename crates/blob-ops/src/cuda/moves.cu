// Bytes from place to place: merge and split by a table of parts, permutations, transpositions in tiles.
//
//   rows:    for each word of the whole: (row, column) -> its part -> copy, to the whole (merge) or from it (split)
//   strided: for each word in the order of one side: its index along each axis -> both places -> copy
//   tile:    for each tile of x along the source and y along the destination:
//                rows of the source -> shared memory -> rows of the destination
//   packed:  as tile, for 1 and 2 bytes: four bytes a lane, turned in registers
//   square:  for each pair of tiles that mirror each other: both -> shared memory -> each to the other's place

#include "common.cuh"

// ---- rows ----

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
__device__ u32 part_of(const Rows &p, u32 column) {
    u32 low = 0, high = p.parts - 1;
    #pragma unroll 1
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (column < p.end[middle]) high = middle; else low = middle + 1;
    }
    return low;
}

template <int W> __device__ void rows(const Rows &p) {
    typedef typename Word<W>::T Word;
    u32 index = blockIdx.x * (THREADS * ITEMS) + threadIdx.x;
    u32 row = index / p.row, column = index % p.row;
    Word word[ITEMS];
    u64 to[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (index + k * THREADS < p.words) {
            u32 part = part_of(p, column);
            u32 start = part == 0 ? 0 : p.end[part - 1];
            u64 inner = p.at[part] + row * p.run[part] + u64(column - start) * W;
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

KERNEL rows_16(PARAMS(Rows)) { rows<16>(p); }
KERNEL rows_8(PARAMS(Rows)) { rows<8>(p); }
KERNEL rows_4(PARAMS(Rows)) { rows<4>(p); }
KERNEL rows_2(PARAMS(Rows)) { rows<2>(p); }
KERNEL rows_1(PARAMS(Rows)) { rows<1>(p); }

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

// ---- tiles ----

struct Tiles {
    u64 from, to;
    u32 x, y;               // entries along the source and along the destination
    u32 x_tiles, y_tiles;
    u32 outer, x_end, y_end; // the axes: outer ones before `outer`, then those of x, then those of y
    u32 pad;
    Axes axis;
};

// Where the tile of this block begins, and where its rows lie: those of the source for each y, of the destination for
// each x. Threads look the places up once for all lanes; a row that is not there has no address.
template <int SIDE> struct Tile {
    u32 x, y;
    const u64 *from, *to;

    __device__ Tile(const Tiles &p, u64 *rows) {
        u32 rest = blockIdx.x / p.x_tiles;
        u32 outer = rest / p.y_tiles;
        x = (blockIdx.x - rest * p.x_tiles) * SIDE;
        y = (rest - outer * p.y_tiles) * SIDE;
        from = rows;
        to = rows + SIDE;
        Place start = place(p.axis, 0, p.outer, outer);
        if (threadIdx.x < SIDE) {
            u32 row = y + threadIdx.x;
            rows[threadIdx.x] = row < p.y ? p.from + start.from + place(p.axis, p.x_end, p.y_end, row).from : 0;
        } else if (threadIdx.x < 2 * SIDE) {
            u32 row = x + threadIdx.x - SIDE;
            rows[threadIdx.x] = row < p.x ? p.to + start.to + place(p.axis, p.outer, p.x_end, row).to : 0;
        }
        __syncthreads();
    }
};

// Entries along each side of a tile: 16 KiB of shared memory, and 64 bytes or more under way for each thread.
template <int W> struct Side { static const int value = W <= 4 ? 64 : 32; };

template <int W> __device__ void tile(const Tiles &p) {
    typedef typename Word<W>::T Word;
    const int SIDE = Side<W>::value;
    // One word or entry too many in a row, so that the entries of a column lie in different banks.
    const int PITCH = SIDE + (W < 4 ? 4 / W : 1);
    const int STEP = THREADS / SIDE;
    __shared__ Word tile[SIDE * PITCH];
    __shared__ u64 rows[2 * SIDE];
    Tile<SIDE> t(p, rows);
    u32 lane = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
    Word word[SIDE / STEP];
    #pragma unroll
    for (int k = 0; k < SIDE / STEP; k++) {
        u64 row = t.from[first + k * STEP];
        word[k] = Word();
        if (row != 0 && t.x + lane < p.x) word[k] = *at<const Word>(row + u64(t.x + lane) * W);
    }
    #pragma unroll
    for (int k = 0; k < SIDE / STEP; k++) tile[(first + k * STEP) * PITCH + lane] = word[k];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < SIDE / STEP; k++) {
        u64 row = t.to[first + k * STEP];
        if (row != 0 && t.y + lane < p.y) *at<Word>(row + u64(t.y + lane) * W) = tile[lane * PITCH + first + k * STEP];
    }
}

KERNEL tile_16(PARAMS(Tiles)) { tile<16>(p); }
KERNEL tile_8(PARAMS(Tiles)) { tile<8>(p); }
KERNEL tile_4(PARAMS(Tiles)) { tile<4>(p); }
KERNEL tile_2(PARAMS(Tiles)) { tile<2>(p); }
KERNEL tile_1(PARAMS(Tiles)) { tile<1>(p); }

// ---- packed tiles: entries of W bytes, N = 4 / W of them in a lane's word ----

// N words that hold N entries each, turned: entry j of word i becomes entry i of word j.
__device__ void turn(u32 (&word)[2]) {
    u32 low = __byte_perm(word[0], word[1], 0x5410), high = __byte_perm(word[0], word[1], 0x7632);
    word[0] = low;
    word[1] = high;
}

__device__ void turn(u32 (&word)[4]) {
    u32 a = __byte_perm(word[0], word[1], 0x5140), b = __byte_perm(word[2], word[3], 0x5140);
    u32 c = __byte_perm(word[0], word[1], 0x7362), d = __byte_perm(word[2], word[3], 0x7362);
    word[0] = __byte_perm(a, b, 0x5410);
    word[1] = __byte_perm(a, b, 0x7632);
    word[2] = __byte_perm(c, d, 0x5410);
    word[3] = __byte_perm(c, d, 0x7632);
}

// The tile has 32 words in a row and 32 · N rows. A lane takes N neighbouring rows of a column of words, beginning with
// another one every 32 / N lanes: so all lanes read different banks, and what they turned is rotated by as much.
template <int W> __device__ void packed(const Tiles &p) {
    const int N = 4 / W, SIDE = 32 * N, PITCH = 33, STEP = THREADS / 32;
    __shared__ u32 tile[SIDE * PITCH];
    __shared__ u64 rows[2 * SIDE];
    Tile<SIDE> t(p, rows);
    u32 lane = threadIdx.x % 32, first = threadIdx.x / 32;
    u32 loaded[SIDE / STEP];
    #pragma unroll
    for (int k = 0; k < SIDE / STEP; k++) {
        u64 row = t.from[first + k * STEP];
        loaded[k] = 0;
        if (row != 0 && t.x + lane * N < p.x) loaded[k] = *at<const u32>(row + u64(t.x + lane * N) * W);
    }
    #pragma unroll
    for (int k = 0; k < SIDE / STEP; k++) tile[(first + k * STEP) * PITCH + lane] = loaded[k];
    __syncthreads();
    u32 turned = lane / (32 / N);
    #pragma unroll
    for (int k = 0; k < 32 / STEP; k++) {
        u32 column = first + k * STEP;
        u32 word[N];
        #pragma unroll
        for (int j = 0; j < N; j++) word[j] = tile[(lane * N + (j + turned) % N) * PITCH + column];
        turn(word);
        #pragma unroll
        for (int j = 0; j < N; j++) {
            u64 row = t.to[column * N + j];
            if (row != 0 && t.y + lane * N < p.y)
                *at<u32>(row + u64(t.y + lane * N) * W) = __funnelshift_l(word[j], word[j], turned * 8 * W);
        }
    }
}

KERNEL packed_2(PARAMS(Tiles)) { packed<2>(p); }
KERNEL packed_1(PARAMS(Tiles)) { packed<1>(p); }

// ---- squares ----

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
