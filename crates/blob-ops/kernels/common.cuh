// What the kernel files share: words of every width, and places of entries along axes.
// Every kernel takes one struct by value; Rust writes the same struct (device/params.rs). Indices within a launch have
// 32 bits, because larger work is cut into launches; offsets in bytes have 64.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#define THREADS 256
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// So many blocks on a processor at once, where it has the threads: that limits the registers of each.
#define KERNEL_OF(BLOCKS) extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)

// A struct of parameters that may be indexed where it lies.
#define PARAMS(T) const __grid_constant__ T p

template <int W> struct Word;
template <> struct Word<1> { typedef u8 T; };
template <> struct Word<2> { typedef u16 T; };
template <> struct Word<4> { typedef u32 T; };
template <> struct Word<8> { typedef u64 T; };
template <> struct Word<16> { typedef uint4 T; };

// Device memory at an address; said to be no other kind of memory, so that loads and stores need not ask.
template <class T> __device__ T *at(u64 address) { return static_cast<T *>(__cvta_global_to_generic(address)); }

// One store of a word. The long ones are said in PTX, because the compiler makes several of what was computed as floats.
template <class T> __device__ void put(u64 address, T word) { *at<T>(address) = word; }
template <> __device__ void put(u64 address, u64 word) {
    asm volatile("st.global.u64 [%0], %1;" :: "l"(address), "l"(word) : "memory");
}
template <> __device__ void put(u64 address, uint4 word) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(address), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w) : "memory");
}

// The bits of one type as another of its size.
template <class To, class From> __device__ To bits(From from);
template <> __device__ float bits(u32 from) { return __uint_as_float(from); }
template <> __device__ u32 bits(float from) { return __float_as_uint(from); }
template <> __device__ double bits(u64 from) { return __longlong_as_double(i64(from)); }
template <> __device__ u64 bits(double from) { return u64(__double_as_longlong(from)); }
template <> __device__ u32 bits(u32 from) { return from; }
template <> __device__ u64 bits(u64 from) { return from; }

// Dtypes, as Rust numbers them.
enum { BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64 };

// An element; with `bytes` it may lie at any address, else at one that suits it.
template <class R> __device__ R load_one(u64 address, u32 bytes) {
    if (!bytes) return *at<const R>(address);
    R raw = 0;
    #pragma unroll
    for (int byte = 0; byte < int(sizeof(R)); byte++) raw |= R(*at<const u8>(address + byte)) << (8 * byte);
    return raw;
}

template <class R> __device__ void store_one(u64 address, R raw, u32 bytes) {
    if (!bytes) {
        *at<R>(address) = raw;
        return;
    }
    #pragma unroll
    for (int byte = 0; byte < int(sizeof(R)); byte++) *at<u8>(address + byte) = u8(raw >> (8 * byte));
}

// As many neighbouring elements as a word holds.
template <class R, int N> union Group {
    typename Word<int(sizeof(R)) * N>::T word;
    R raw[N];
};
