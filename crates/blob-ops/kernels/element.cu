// Element-wise arithmetic in place, and fill.
//
//   arithmetic: for each 16 bytes: y = op(y, x) for each element in them; then for each element behind: the same
//   fill:       for each 16 bytes: y = pattern; then for each byte before and behind
//
// y + x, y - x, y + x * alpha, y * alpha are one expression: which of its parts apply is the same for all threads.

#include "common.cuh"
#include "numbers.cuh"

#define TIMES 1    // multiply by alpha: x, or y where nothing is added
#define PLUS 2     // add x to y
#define MINUS 4    // subtract it
#define FLUSH 8    // subnormal numbers are zeros of their sign, before and after

struct Arithmetic {
    u64 y, x;
    u64 alpha;     // its bits
    u32 pieces;    // of 16 bytes; both operands are aligned to them
    u32 rest;      // elements behind
    u32 op;
    u32 bytes;     // behind, elements lie at any address
};

// How elements of a kind are stored (Raw), computed (V) and made zero where they are subnormal.
struct W8 { typedef u8 Raw; typedef u32 V; };
struct W16 { typedef u16 Raw; typedef u32 V; };
struct W32 { typedef u32 Raw; typedef u32 V; };
struct W64 { typedef u64 Raw; typedef u64 V; };

template <class N> struct Integer {
    static const bool IS_HALF = false;
    typedef typename N::Raw Raw;
    typedef typename N::V V;
    static __device__ V load(Raw raw) { return raw; }
    static __device__ Raw store(V value) { return Raw(value); }
    static __device__ Raw flush(Raw raw) { return raw; }
    static __device__ V plus(V a, V b) { return a + b; }
    static __device__ V times(V a, V b) { return a * b; }
    static __device__ V minus(V a, V b) { return a - b; }
};

template <class R, R EXPONENT> __device__ R flushed(R raw) {
    R sign = raw & R(~(R(~R(0)) >> 1));
    return (raw & EXPONENT) == 0 ? sign : raw;
}

struct Single {
    typedef float V;
    static __device__ V plus(V a, V b) { return settle(__fadd_rn(a, b), a, b); }
    static __device__ V times(V a, V b) { return settle(__fmul_rn(a, b), a, b); }
    static __device__ V minus(V a, V b) { return settle(__fsub_rn(a, b), a, b); }
};

struct Float32 : Single {
    static const bool IS_HALF = false;
    typedef u32 Raw;
    static __device__ V load(Raw raw) { return bits<float>(raw); }
    static __device__ Raw store(V value) { return bits<u32>(value); }
    static __device__ Raw flush(Raw raw) { return flushed<Raw, 0x7F800000u>(raw); }
};

struct Float16 : Single {
    static const bool IS_HALF = true;
    typedef u16 Raw;
    static __device__ V load(Raw raw) { return widen_f16(raw); }
    static __device__ V number(Raw raw) { return number_f16(raw); }
    static __device__ Raw store(V value) { return to_f16(value); }
    static __device__ Raw near(V value) { return near_f16(value); }
    static __device__ Raw flush(Raw raw) { return flushed<Raw, 0x7C00>(raw); }
};

struct Bfloat16 : Single {
    static const bool IS_HALF = true;
    typedef u16 Raw;
    static __device__ V load(Raw raw) { return widen_bf16(raw); }
    static __device__ V number(Raw raw) { return widen_bf16(raw); }
    static __device__ Raw store(V value) { return to_bf16(value); }
    static __device__ Raw near(V value) { return near_bf16(value); }
    static __device__ Raw flush(Raw raw) { return flushed<Raw, 0x7F80>(raw); }
};

struct Float64 {
    static const bool IS_HALF = false;
    typedef u64 Raw;
    typedef double V;
    static __device__ V load(Raw raw) { return bits<double>(raw); }
    static __device__ Raw store(V value) { return bits<u64>(value); }
    static __device__ Raw flush(Raw raw) { return flushed<Raw, 0x7FF0000000000000ull>(raw); }
    static __device__ V plus(V a, V b) { return settle(__dadd_rn(a, b), a, b); }
    static __device__ V times(V a, V b) { return settle(__dmul_rn(a, b), a, b); }
    static __device__ V minus(V a, V b) { return settle(__dsub_rn(a, b), a, b); }
};

template <class N> __device__ typename N::Raw compute(u32 op, typename N::V alpha, typename N::Raw y, typename N::Raw x) {
    typedef typename N::V V;
    if (op & FLUSH) { y = N::flush(y); x = N::flush(x); }
    V first = N::load(y), second = N::load(x);
    if (op & TIMES) second = N::times(second, alpha);
    V result = second;
    if (op & PLUS) result = N::plus(first, second);
    if (op & MINUS) result = N::minus(first, second);
    typename N::Raw out = N::store(result);
    return op & FLUSH ? N::flush(out) : out;
}

// Whether out is y + x, or y + x * alpha, of numbers. 16-bit floats take so many instructions that to choose an operation and
// to ask for NaN at each step would show.
template <class N, bool IS_HALF> struct Numbers {
    template <class G> static __device__ bool add(u32, typename N::V, const G &, const G &, G &) { return false; }
};
template <class N> struct Numbers<N, true> {
    template <class G> static __device__ bool add(u32 op, float alpha, const G &y, const G &x, G &out) {
        if (op != PLUS && op != (PLUS | TIMES)) return false;
        bool is_number = true;
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            float second = N::number(x.raw[k]);
            if (op & TIMES) second = __fmul_rn(second, alpha);
            float sum = __fadd_rn(N::number(y.raw[k]), second);
            is_number = is_number && sum == sum;
            out.raw[k] = N::near(sum);
        }
        return is_number;
    }
};

template <class N> __device__ void arithmetic(const Arithmetic &p) {
    typedef typename N::Raw Raw;
    const int COUNT = 16 / sizeof(Raw);
    typename N::V alpha = N::load(0);
    if (sizeof(typename N::V) == 8) alpha = bits<typename N::V>(p.alpha);
    else alpha = bits<typename N::V>(u32(p.alpha));
    u32 index = blockIdx.x * THREADS + threadIdx.x;
    if (index < p.pieces) {
        Group<Raw, COUNT> y, x, out;
        y.word = *at<const uint4>(p.y + u64(index) * 16);
        x = y;
        if (p.op & (PLUS | MINUS)) x.word = *at<const uint4>(p.x + u64(index) * 16);
        if (!Numbers<N, N::IS_HALF>::add(p.op, alpha, y, x, out)) {
            #pragma unroll
            for (int k = 0; k < COUNT; k++) out.raw[k] = compute<N>(p.op, alpha, y.raw[k], x.raw[k]);
        }
        *at<uint4>(p.y + u64(index) * 16) = out.word;
        return;
    }
    index -= p.pieces;
    if (index >= p.rest) return;
    u64 place = u64(p.pieces) * 16 + u64(index) * sizeof(Raw);
    Raw y = load_one<Raw>(p.y + place, p.bytes), x = load_one<Raw>(p.x + place, p.bytes);
    store_one<Raw>(p.y + place, compute<N>(p.op, alpha, y, x), p.bytes);
}

KERNEL arithmetic_w8(PARAMS(Arithmetic)) { arithmetic<Integer<W8> >(p); }
KERNEL arithmetic_w16(PARAMS(Arithmetic)) { arithmetic<Integer<W16> >(p); }
KERNEL arithmetic_w32(PARAMS(Arithmetic)) { arithmetic<Integer<W32> >(p); }
KERNEL arithmetic_w64(PARAMS(Arithmetic)) { arithmetic<Integer<W64> >(p); }
KERNEL arithmetic_f16(PARAMS(Arithmetic)) { arithmetic<Float16>(p); }
KERNEL arithmetic_bf16(PARAMS(Arithmetic)) { arithmetic<Bfloat16>(p); }
KERNEL arithmetic_f32(PARAMS(Arithmetic)) { arithmetic<Float32>(p); }
KERNEL arithmetic_f64(PARAMS(Arithmetic)) { arithmetic<Float64>(p); }

struct Fill {
    u64 at;          // aligned to 16 bytes
    u64 pattern[2];  // what lies there
    u32 pieces;      // of 16 bytes
    u32 head;        // bytes before
    u32 tail;        // bytes behind
    u32 pad;
};

__device__ u8 byte_of(const Fill &p, u32 index) {
    return u8(p.pattern[(index / 8) % 2] >> (8 * (index % 8)));
}

KERNEL fill(PARAMS(Fill)) {
    u32 index = blockIdx.x * THREADS + threadIdx.x;
    if (index < p.pieces) {
        uint4 word = make_uint4(u32(p.pattern[0]), u32(p.pattern[0] >> 32), u32(p.pattern[1]), u32(p.pattern[1] >> 32));
        *at<uint4>(p.at + u64(index) * 16) = word;
        return;
    }
    index -= p.pieces;
    if (index < p.head) *at<u8>(p.at - p.head + index) = byte_of(p, 16 - p.head + index);
    else if (index - p.head < p.tail) *at<u8>(p.at + u64(p.pieces) * 16 + index - p.head) = byte_of(p, index - p.head);
}
