// Tiles of permutations of which both sides are long, through shared memory.
//
//   tile:  for each tile of x along the source and y along the destination:
//              rows of the source -> shared memory -> rows of the destination
//   words: as tile, for entries of up to four bytes: V words of four bytes a lane, whose entries are turned in registers

#include "strided.cuh"

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
template <int X, int Y> struct Tile {
    u32 x, y;
    const u64 *from, *to;

    __device__ Tile(const Tiles &p, u64 *rows) {
        u32 rest = blockIdx.x / p.x_tiles;
        u32 outer = rest / p.y_tiles;
        x = (blockIdx.x - rest * p.x_tiles) * X;
        y = (rest - outer * p.y_tiles) * Y;
        from = rows;
        to = rows + Y;
        Place start = place(p.axis, 0, p.outer, outer);
        #pragma unroll 1
        for (u32 at = threadIdx.x; at < X + Y; at += THREADS) {
            u32 row = at < Y ? y + at : x + at - Y;
            if (at < Y) rows[at] = row < p.y ? p.from + start.from + place(p.axis, p.x_end, p.y_end, row).from : 0;
            else rows[at] = row < p.x ? p.to + start.to + place(p.axis, p.outer, p.x_end, row).to : 0;
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
    Tile<SIDE, SIDE> t(p, rows);
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

// ---- words: entries of W bytes, N = 4 / W of them in a word, and V words a lane ----

// N words that hold N entries each, turned: entry j of word i becomes entry i of word j.
__device__ void turn(u32 (&)[1]) {}

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

// The tile has X words in a row, and rows for Y words of a column. A lane takes V · N neighbouring rows of a column of words.
// A word too many behind each row and behind each lane's rows: then all lanes read different banks.
template <int W, int X, int Y, int V> __device__ void words(const Tiles &p) {
    typedef typename Word<4 * V>::T Words;
    union Lane { Words all; u32 word[V]; };
    const int N = 4 / W, PITCH = X + 1, GROUP = V * N, LOADS = Y * N * X / V / THREADS;
    __shared__ u32 tile[Y * N * PITCH + Y / V];
    __shared__ u64 rows[(X + Y) * N];
    Tile<X * N, Y * N> t(p, rows);
    u32 lane = threadIdx.x % (X / V), first = threadIdx.x / (X / V), x = t.x + lane * GROUP;
    Lane loaded[LOADS];
    #pragma unroll
    for (int k = 0; k < LOADS; k++) {
        u64 row = t.from[first + k * (THREADS * V / X)];
        loaded[k].all = Words();
        if (row != 0 && x < p.x) loaded[k].all = *at<const Words>(row + u64(x) * W);
    }
    #pragma unroll
    for (int k = 0; k < LOADS; k++) {
        u32 row = first + k * (THREADS * V / X);
        #pragma unroll
        for (int v = 0; v < V; v++) tile[row * PITCH + row / GROUP + lane * V + v] = loaded[k].word[v];
    }
    __syncthreads();
    lane = threadIdx.x % (Y / V);
    u32 y = t.y + lane * GROUP;
    #pragma unroll
    for (int k = 0; k < X * Y / V / THREADS; k++) {
        u32 column = threadIdx.x / (Y / V) + k * (THREADS * V / Y);
        u32 word[V][N];
        #pragma unroll
        for (int v = 0; v < V; v++) {
            #pragma unroll
            for (int j = 0; j < N; j++) word[v][j] = tile[(lane * GROUP + v * N + j) * PITCH + lane + column];
            turn(word[v]);
        }
        #pragma unroll
        for (int j = 0; j < N; j++) {
            Lane out;
            #pragma unroll
            for (int v = 0; v < V; v++) out.word[v] = word[v][j];
            u64 row = t.to[column * N + j];
            if (row != 0 && y < p.y) *at<Words>(row + u64(y) * W) = out.all;
        }
    }
}
