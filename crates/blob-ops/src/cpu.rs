//! Which instruction set and which stores this process uses: the only place that asks the machine and the environment.
//!
//! Kernels are plain Rust in `cpu/`; `cpu/x86.rs` and `cpu/aarch64.rs` compile these again with wider registers.
//! Results are bitwise the same whichever is chosen.

#[cfg_attr(not(all(target_arch = "aarch64", target_endian = "little")), path = "cpu/absent/aarch64.rs")]
mod aarch64;
pub(crate) mod bins;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod element;
mod exact;
pub(crate) mod finite;
mod interleave;
pub(crate) mod lanes;
// Of a block, `fetch` is read by `tiles` alone.
#[cfg_attr(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))), expect(dead_code))]
pub(crate) mod machine;
mod narrow;
mod order;
pub(crate) mod permute;
pub(crate) mod reduce;
mod stores;
pub(crate) mod sums;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod tiles;
pub(crate) mod transpose;
#[cfg_attr(not(target_arch = "x86_64"), path = "cpu/absent/x86.rs")]
mod x86;
mod zip;

use crate::threads;
use machine::{Fetch, Kernel, Portable, Store};
use std::io::Write;
use std::sync::OnceLock;
use stores::Processor;

/// The environment variable that lowers the instruction set: `portable`, `avx2`, `avx512` or `neon`.
const ISA_SWITCH: &str = "BLOB_OPS_ISA";

/// The names for that switch, a row for each kind of machine, the plainest first.
pub(crate) const NAMES: [&[&str]; 2] = [&["portable", "avx2", "avx512"], &["portable", "neon"]];

/// The environment variable that names the stores: `streaming` or `ordinary`.
const STORES_SWITCH: &str = "BLOB_OPS_STORES";

/// How a move is run: the instruction set, the stores, and the number of pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exec {
    pub(crate) isa: Isa,
    pub(crate) store: Store,
    /// About how many tasks.
    pub(crate) pieces: usize,
}

impl Exec {
    /// From this length on, the first bytes written leave the caches before the last are written: where the processor
    /// streams, writing past them saves reading each line before overwriting (measured: [`Store::suiting`]).
    const LARGE: usize = 32 << 20;

    /// The way to run a move that writes this many bytes, on this machine and the current pool.
    pub(crate) fn of(bytes: usize) -> Self {
        let store = if bytes >= Self::LARGE { stores() } else { Store::Cached };
        Exec { isa: Isa::detect(), store, pieces: threads::pieces(bytes) }
    }

    /// As [`Exec::of`], into memory of which nobody has written a byte. The system clears a page when the page is first
    /// touched, and leaves the zeros in a cache, where a store finds the line. Eight arrays of 32 MiB one behind the
    /// other, two threads on an AMD EPYC: 35 ms, past the caches 54, on one thread 49 and 67. Pieces are no longer than
    /// a page: `memcpy` itself writes past the caches from some 12 MiB on.
    pub(crate) fn of_new(bytes: usize) -> Self {
        let pieces = threads::pieces(bytes).max(bytes / Self::PAGE);
        Exec { isa: Isa::detect(), store: Store::Cached, pieces }
    }

    /// A huge page of x86-64, and of aarch64 with pages of 4 KiB.
    const PAGE: usize = 2 << 20;
}

/// How this process writes results that no cache holds: as [`STORES_SWITCH`] names, else as suits the processor. Read
/// once.
pub(crate) fn stores() -> Store {
    static CHOSEN: OnceLock<Store> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let suited = Store::suiting(x86::processor());
        let Some(wanted) = variable(STORES_SWITCH) else {
            return suited;
        };
        Store::ALL.into_iter().find(|store| store.name() == wanted).unwrap_or_else(|| {
            say_unknown(STORES_SWITCH, &wanted, &Store::ALL.map(Store::name).join(", "), suited.name());
            suited
        })
    })
}

/// Who fetches the lines of a move that writes this many bytes on this processor.
pub(crate) fn fetch(bytes: usize) -> Fetch {
    static PROCESSOR: OnceLock<Option<Processor>> = OnceLock::new();
    Fetch::suiting(*PROCESSOR.get_or_init(x86::processor), bytes)
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
    /// The best of this machine, not above the one that [`ISA_SWITCH`] names; read once. An unknown name is reported on
    /// stderr, and the plainest set runs: the switch is set by those who want less than the best.
    pub(crate) fn detect() -> Isa {
        #[cfg(test)]
        if let Some(isa) = forced::isa() {
            return isa;
        }
        static CHOSEN: OnceLock<Isa> = OnceLock::new();
        *CHOSEN.get_or_init(|| match variable(ISA_SWITCH) {
            None => Isa::best(),
            Some(ceiling) => Isa::choose(&ceiling).unwrap_or_else(|| {
                say_unknown(ISA_SWITCH, &ceiling, "portable, avx2, avx512, neon", "portable");
                Isa::Portable
            }),
        })
    }

    /// The best one not above the `ceiling`, which is the plainest where another kind of machine has that; `None` where
    /// the name is no instruction set's.
    pub(crate) fn choose(ceiling: &str) -> Option<Isa> {
        NAMES.iter().find_map(|all| {
            let top = all.iter().position(|name| *name == ceiling)?;
            Isa::available().into_iter().rfind(|isa| all[..=top].contains(&isa.name()))
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
    #[allow(unreachable_code, reason = "a token that no value has, on other processors")]
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
}

/// The value of an environment variable; `None` where unset.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Said once, because a mistyped switch would otherwise be taken for one that works.
fn say_unknown(switch: &str, value: &str, names: &str, runs: &str) {
    let line = format!("blob-ops: {switch}={value} is none of {names}; running {runs}\n");
    // With stderr closed the line is lost, and that is all.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The instruction set that a test forces upon a thread.
#[cfg(test)]
pub(crate) mod forced {
    use super::Isa;
    use std::cell::Cell;

    thread_local! {
        static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
    }

    pub(super) fn isa() -> Option<Isa> {
        FORCED.get()
    }

    /// Runs a kernel with this instruction set, on the calling thread and the threads that it hands work to.
    pub(crate) fn with_isa<T>(isa: Isa, run: impl FnOnce() -> T) -> T {
        let before = FORCED.replace(Some(isa));
        let out = run();
        FORCED.set(before);
        out
    }
}
