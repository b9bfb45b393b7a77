//! Which instruction set runs a kernel, and which kernel a dtype needs.
//!
//! The only place that detects instruction sets. Kernels are plain Rust in `cpu/`; `cpu/x86.rs` and `cpu/aarch64.rs`
//! compile them again with their registers. Results are bitwise the same whichever is chosen.

#[cfg_attr(not(all(target_arch = "aarch64", target_endian = "little")), path = "cpu/absent/aarch64.rs")]
mod aarch64;
pub(crate) mod bins;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod element;
pub(crate) mod exact;
pub(crate) mod finite;
mod interleave;
pub(crate) mod lanes;
mod narrow;
pub(crate) mod order;
pub(crate) mod permute;
pub(crate) mod reduce;
mod stores;
pub(crate) mod sums;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod tiles;
pub(crate) mod transpose;
#[cfg_attr(not(target_arch = "x86_64"), path = "cpu/absent/x86.rs")]
mod x86;
pub(crate) mod zip;

use crate::plan::LINE;
use crate::threads;
use crate::tree::Partial;
use bins::{Count, Tables};
use blob_core::DType;
use exact::Exact;
use finite::{Find, Found};
use half::{bf16, f16};
use lanes::{Bool, Scratch};
use reduce::Wide;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::OnceLock;
pub(crate) use stores::Stores;
use transpose::Block;

/// The environment variable that lowers the instruction set: `portable`, `avx2`, `avx512` or `neon`.
const SWITCH: &str = "BLOB_OPS_ISA";

/// What can be named there, a row for each kind of machine, the plainest first.
pub(crate) const NAMES: [&[&str]; 2] = [&["portable", "avx2", "avx512"], &["portable", "neon"]];

/// Work that any machine can do. `run` is `#[inline(always)]`, or wider registers would not reach it.
pub(crate) trait Kernel {
    type Out;
    fn run<M: Machine>(self) -> Self::Out;
}

/// What an instruction set offers besides wider registers.
pub(crate) trait Machine {
    /// Whether a product and a sum are one instruction.
    const FUSED: bool = false;

    /// Asks for the cache line in which `bytes` start.
    fn prefetch(bytes: &[u8]);

    /// Copies between slices of one length, past the caches where it can.
    #[inline(always)]
    fn stream(dst: &mut [u8], src: &[u8]) {
        dst.copy_from_slice(src);
    }

    /// Moves a block in tiles; `false`, and nothing is moved, where there is no kernel for it.
    #[inline(always)]
    fn tiles<const W: usize>(_: &mut Block<'_>) -> bool {
        false
    }
}

/// How a move is run: its instruction set, its stores, and into how many pieces it is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exec {
    pub(crate) isa: Isa,
    pub(crate) store: Store,
    /// About how many tasks it is cut into.
    pub(crate) pieces: usize,
}

impl Exec {
    /// What suits a move of so many bytes on this machine and the current pool.
    pub(crate) fn of(bytes: usize) -> Self {
        Exec { isa: Isa::detect(), store: Store::of(bytes), pieces: threads::pieces(bytes) }
    }
}

/// How a destination is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Store {
    /// Through the caches.
    Cached,
    /// Past them: whole lines, or runs so long that their ends do not matter.
    Past,
}

/// Runs of at least as many bytes are written past the caches whatever their alignment: they have few ends.
const MIN_STREAMED_RUN: usize = 1 << 10;

impl Store {
    /// From here on what is written first is out of the caches before the last is: where the processor streams, writing
    /// past them saves reading each line before it is overwritten, a quarter to a third of the time (kernels.md, 5.1).
    const LARGE: usize = 32 << 20;

    /// For a move of so many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        match bytes >= Self::LARGE && Stores::here() == Stores::Streaming {
            true => Store::Past,
            false => Store::Cached,
        }
    }

    /// For runs of so many bytes, shorter than a page, one behind the other from the start of `dst`. Lines that are written
    /// in two parts past the caches are read and written twice.
    pub(crate) fn of_runs(self, run: usize, dst: &[u8]) -> Self {
        let lines = run.is_multiple_of(LINE) && dst.as_ptr().addr().is_multiple_of(LINE);
        match lines {
            true => self,
            false => Store::Cached,
        }
    }

    /// Writes `src` over `dst`, which is as long.
    #[inline(always)]
    pub(crate) fn write<M: Machine>(self, dst: &mut [u8], src: &[u8]) {
        match self {
            Store::Cached => dst.copy_from_slice(src),
            Store::Past => M::stream(dst, src),
        }
    }
}

/// Any machine.
struct Portable;

impl Machine for Portable {
    #[inline(always)]
    fn prefetch(_: &[u8]) {}
}

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Isa {
    Portable,
    Avx2(x86::Avx2),
    Avx512(x86::Avx512),
    Neon(aarch64::Neon),
}

impl Isa {
    /// The best of this machine, not above what [`SWITCH`] names; read once. A name that is none is said on stderr, and
    /// the plainest runs: whoever sets it wants less than the best.
    pub(crate) fn detect() -> Isa {
        static CHOSEN: OnceLock<Isa> = OnceLock::new();
        *CHOSEN.get_or_init(|| match std::env::var_os(SWITCH) {
            None => Isa::best(),
            Some(ceiling) => Isa::choose(&ceiling.to_string_lossy()).unwrap_or_else(|| {
                let names = "portable, avx2, avx512, neon";
                say_unknown(SWITCH, &ceiling.to_string_lossy(), names, "portable");
                Isa::Portable
            }),
        })
    }

    /// The best one not above the `ceiling`, which is the plainest where another kind of machine has that; `None` where it
    /// is no name of an instruction set.
    pub(crate) fn choose(ceiling: &str) -> Option<Isa> {
        NAMES.iter().find_map(|all| {
            let top = all.iter().position(|name| *name == ceiling)?;
            let within = |isa: &Isa| all[..=top].contains(&isa.name());
            Isa::available().into_iter().rfind(within)
        })
    }

    fn best() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Portable)
    }

    /// All that this machine has, the plainest first.
    pub(crate) fn available() -> Vec<Isa> {
        let mut all = vec![Isa::Portable];
        all.extend(x86::Avx2::detect().map(Isa::Avx2));
        all.extend(x86::Avx512::detect().map(Isa::Avx512));
        all.extend(aarch64::Neon::detect().map(Isa::Neon));
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2(_) => "avx2",
            Isa::Avx512(_) => "avx512",
            Isa::Neon(_) => "neon",
        }
    }

    /// Registers of half the width where this one's are the widest.
    pub(crate) fn narrower(self) -> Isa {
        match self {
            Isa::Avx512(token) => Isa::Avx2(token.avx2()),
            other => other,
        }
    }

    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            Isa::Portable => kernel.run::<Portable>(),
            Isa::Avx2(token) => token.run(kernel),
            Isa::Avx512(token) => token.run(kernel),
            Isa::Neon(token) => token.run(kernel),
        }
    }

    /// The statistics of a block of whole elements, at least one. `ahead` is what will be read next.
    pub(crate) fn block(self, dtype: DType, bytes: &[u8], ahead: &[u8], scratch: &mut Scratch) -> Partial {
        macro_rules! wide {
            ($element:ty) => {
                self.run(Wide::<$element> { bytes, ahead, scratch, element: PhantomData })
            };
        }
        macro_rules! exact {
            ($element:ty) => {
                self.run(Exact::<$element> { bytes, scratch, element: PhantomData })
            };
        }
        match dtype {
            DType::F32 => wide!(f32),
            DType::F64 => wide!(f64),
            DType::F16 => wide!(f16),
            DType::BF16 => wide!(bf16),
            DType::I32 => wide!(i32),
            DType::U32 => wide!(u32),
            DType::I64 => wide!(i64),
            DType::U64 => wide!(u64),
            DType::I8 => exact!(i8),
            DType::I16 => exact!(i16),
            DType::U8 => exact!(u8),
            DType::U16 => exact!(u16),
            DType::Bool => exact!(Bool),
            other => no_kernel(other),
        }
    }

    /// Counts whole elements into a histogram's tables.
    pub(crate) fn count(self, dtype: DType, bytes: &[u8], scratch: &mut Scratch, tables: &mut Tables) {
        macro_rules! run {
            ($element:ty) => {
                self.run(Count::<$element> { bytes, scratch, tables, element: PhantomData })
            };
        }
        match dtype {
            DType::F32 => run!(f32),
            DType::F64 => run!(f64),
            DType::F16 => run!(f16),
            DType::BF16 => run!(bf16),
            DType::I8 => run!(i8),
            DType::I16 => run!(i16),
            DType::I32 => run!(i32),
            DType::I64 => run!(i64),
            DType::U8 => run!(u8),
            DType::U16 => run!(u16),
            DType::U32 => run!(u32),
            DType::U64 => run!(u64),
            DType::Bool => run!(Bool),
            other => no_kernel(other),
        }
    }

    /// Looks for NaN and Inf among whole elements.
    pub(crate) fn find(self, dtype: DType, bytes: &[u8]) -> Found {
        macro_rules! run {
            ($word:ty, $exponent:expr, $fraction:expr) => {
                self.run(Find::<$word> { bytes, exponent: $exponent, fraction: $fraction })
            };
        }
        match dtype {
            DType::F16 => run!(u16, 0x7C00, 0x03FF),
            DType::BF16 => run!(u16, 0x7F80, 0x007F),
            DType::F32 => run!(u32, 0x7F80_0000, 0x007F_FFFF),
            DType::F64 => run!(u64, 0x7FF0 << 48, (1 << 52) - 1),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Found::default(),
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Found::default(),
            DType::Bool => Found::default(),
            other => no_kernel(other),
        }
    }
}

/// A switch without effect would be taken for one that works.
fn say_unknown(switch: &str, value: &str, names: &str, runs: &str) {
    let line = format!("blob-ops: {switch}={value} is none of {names}; running {runs}\n");
    // Whoever closed stderr does not want to know.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A dtype that `blob-core` knows and this crate forgot: our own mistake, found by the test over all dtypes.
fn no_kernel(dtype: DType) -> ! {
    panic!("blob-ops has no kernel for {dtype:?}")
}
