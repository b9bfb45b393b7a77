//! NEON on aarch64: tiles of a permutation turned in its registers of 16 bytes, and the prefetch.
//!
//! A token exists only where NEON runs. Little-endian only, for want of a big-endian machine to test on.
//! Stable Rust has no store past the caches here, so `stream` is a plain copy, nor a prefetch: `prfm` is written in assembly.
//! Not measured: no aarch64 machine was at hand. The tests pass under qemu, which says nothing about speed. What a
//! measurement must show is in STYLE: at least 10 % over the portable tiles, or this file goes.

#![allow(unsafe_code)]

use super::machine::{Block, Kernel, Machine};
use super::tiles::tiles;
use std::arch::{aarch64::*, asm};

/// Proof that this machine runs NEON.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }

    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "neon")]
        fn with_neon<K: Kernel>(kernel: K) -> K::Out {
            kernel.run::<OnNeon>()
        }
        // SAFETY: `with_neon` is a safe function but for its need of NEON. The field of `Neon` is private and only
        // `detect` builds one, after the machine has said that it has NEON; an instruction set does not go away.
        unsafe { with_neon(kernel) }
    }
}

/// A machine with NEON. Private, and only `Neon::run` names it, so that its methods run where a token exists.
enum OnNeon {}

impl Machine for OnNeon {
    #[inline(always)]
    fn prefetch(bytes: &[u8]) {
        // SAFETY: the instruction is a hint that reads nothing and never faults, whatever the address; it changes no
        // register, flag or memory.
        unsafe {
            asm!("prfm pldl2keep, [{}]", in(reg) bytes.as_ptr().addr(), options(nomem, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn tiles<const W: usize>(block: &mut Block<'_>) -> bool {
        // SAFETY: safe but for its need of NEON, which this machine has: only the token's `run` names this type.
        unsafe {
            match W {
                1 => neon::tiles::<1, 16>(block),
                2 => neon::tiles::<2, 8>(block),
                4 => neon::tiles::<4, 4>(block),
                8 => neon::tiles::<8, 2>(block),
                16 => neon::tiles::<16, 1>(block),
                _ => false,
            }
        }
    }
}

tiles!(
    neon, "neon", uint8x16_t, 16, 1,
    vld1q_u8, vst1q_u8, vst1q_u8, begin, prefetch,
    vzip1q_u8 vzip2q_u8 lo16 hi16 lo32 hi32 lo64 hi64,
    lanes_of_one
);

/// Nothing to fence later: the stores of a tile go through the caches.
#[inline(always)]
fn begin() {}

/// Asks for a cache line, which need not exist.
#[inline(always)]
fn prefetch(place: *const u8) {
    // SAFETY: as for the machine's prefetch.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) place.addr(), options(nomem, nostack, preserves_flags));
    }
}

/// Interleaves halves of two registers, taken as entries of another width.
macro_rules! zip {
    ($name:ident, $zip:ident, $of:ident, $to:ident) => {
        #[target_feature(enable = "neon")]
        #[inline]
        fn $name(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
            $to($zip($of(a), $of(b)))
        }
    };
}

zip!(lo16, vzip1q_u16, vreinterpretq_u16_u8, vreinterpretq_u8_u16);
zip!(hi16, vzip2q_u16, vreinterpretq_u16_u8, vreinterpretq_u8_u16);
zip!(lo32, vzip1q_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32);
zip!(hi32, vzip2q_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32);
zip!(lo64, vzip1q_u64, vreinterpretq_u64_u8, vreinterpretq_u8_u64);
zip!(hi64, vzip2q_u64, vreinterpretq_u64_u8, vreinterpretq_u8_u64);

/// Nothing to exchange.
#[inline(always)]
fn lanes_of_one<const N: usize>(rows: [uint8x16_t; N]) -> [uint8x16_t; N] {
    rows
}
