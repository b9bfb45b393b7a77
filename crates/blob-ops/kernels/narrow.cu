// Permutations of which a side is short, and the bytes of the other side lie without a gap: channels last, or first.
//
//   narrow: for each stretch of the long side: all its entries -> shared memory, in the order of the side without gaps
//               -> the other side, or from the other side to that one

#include "strided.cuh"

struct Narrow {
    u64 from, to;
    u64 pitch;      // bytes from row to row of the side that has a row for each entry of the short side
    u32 side;       // entries of the short side
    u32 len;        // entries of the long side
    u32 chunk;      // of them in a block
    u32 chunks;
    u32 reciprocal; // of the words in a block's row, so that (e * reciprocal) >> 32 is the row of word e
    u32 shift;      // every 2^shift words in shared memory are followed by one that is not used
    u32 gather;     // from the side without gaps
    u32 axes;       // outer ones
    Axes axis;
};

// Words of N entries: word e of those that lie one behind the other.
template <int W, int N> struct Flat {
    typedef typename Word<W * N>::T Word;
    u64 start;
    u32 count, shift;

    __device__ Flat(const Narrow &p, u64 base, u32 first, u32 entries)
        : start(base + u64(first) * p.side * W), count(entries * p.side / N), shift(p.shift) {}
    __device__ bool has(u32 e) const { return e < count; }
    __device__ u64 address(u32 e) const { return start + e * (W * N); }
    __device__ void put(Word *tile, u32 e, Word word) const { tile[e + (e >> shift)] = word; }
    __device__ Word get(const Word *tile, u32 e) const { return tile[e + (e >> shift)]; }
};

// Word e of the rows, whose entries lie as many places apart in shared memory as there are rows.
template <int W, int N> struct Apart {
    typedef typename Word<W * N>::T Word;
    typedef typename ::Word<W>::T Entry;
    u64 start, pitch;
    u32 side, count, words, reciprocal, shift;

    __device__ Apart(const Narrow &p, u64 base, u32 first, u32 entries)
        : start(base + u64(first) * W), pitch(p.pitch), side(p.side), count(entries / N), words(p.chunk / N),
          reciprocal(p.reciprocal), shift(p.shift) {}
    __device__ u32 row(u32 e) const { return __umulhi(e, reciprocal); }
    __device__ u32 column(u32 e) const { return e - row(e) * words; }
    __device__ bool has(u32 e) const { return row(e) < side && column(e) < count; }
    __device__ u64 address(u32 e) const { return start + row(e) * pitch + column(e) * (W * N); }
    // Where an entry of the word lies: behind the words that are not used.
    __device__ u32 place(u32 e, u32 n) const {
        u32 entry = (column(e) * N + n) * side + row(e);
        return entry + (entry / N >> shift) * N;
    }
    __device__ void put(Word *tile, u32 e, Word word) const {
        Group<Entry, N> group;
        group.word = word;
        #pragma unroll
        for (int n = 0; n < N; n++) reinterpret_cast<Entry *>(tile)[place(e, n)] = group.raw[n];
    }
    __device__ Word get(const Word *tile, u32 e) const {
        Group<Entry, N> group;
        #pragma unroll
        for (int n = 0; n < N; n++) group.raw[n] = reinterpret_cast<const Entry *>(tile)[place(e, n)];
        return group.word;
    }
};

template <int WORDS, class From, class To, class Word> __device__ void through(Word *tile, const From &from, const To &to) {
    Word word[WORDS / THREADS];
    #pragma unroll
    for (int k = 0; k < WORDS / THREADS; k++) {
        u32 e = k * THREADS + threadIdx.x;
        if (from.has(e)) word[k] = *at<const Word>(from.address(e));
    }
    #pragma unroll
    for (int k = 0; k < WORDS / THREADS; k++) {
        u32 e = k * THREADS + threadIdx.x;
        if (from.has(e)) from.put(tile, e, word[k]);
    }
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < WORDS / THREADS; k++) {
        u32 e = k * THREADS + threadIdx.x;
        if (to.has(e)) *at<Word>(to.address(e)) = to.get(tile, e);
    }
}

// As many words in shared memory as keep enough of them under way, and blocks enough on a processor.
template <int W, int N> __device__ void narrow(const Narrow &p) {
    const int WORDS = W * N == 4 && N == 1 ? 2048 : 1024;
    __shared__ typename Word<W * N>::T tile[WORDS + WORDS / 8];
    u32 outer = blockIdx.x / p.chunks, first = (blockIdx.x - outer * p.chunks) * p.chunk;
    u32 entries = p.len - first < p.chunk ? p.len - first : p.chunk;
    Place start = place(p.axis, 0, p.axes, outer);
    u64 from = p.from + start.from, to = p.to + start.to;
    if (p.gather) through<WORDS>(tile, Flat<W, N>(p, from, first, entries), Apart<W, N>(p, to, first, entries));
    else through<WORDS>(tile, Apart<W, N>(p, from, first, entries), Flat<W, N>(p, to, first, entries));
}

KERNEL_OF(8) narrow_16(PARAMS(Narrow)) { narrow<16, 1>(p); }
KERNEL_OF(8) narrow_8(PARAMS(Narrow)) { narrow<8, 1>(p); }
KERNEL_OF(8) narrow_4(PARAMS(Narrow)) { narrow<4, 1>(p); }
KERNEL_OF(8) narrow_2(PARAMS(Narrow)) { narrow<2, 2>(p); }
KERNEL_OF(8) narrow_1(PARAMS(Narrow)) { narrow<1, 4>(p); }
