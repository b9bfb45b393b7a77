//! NEON on aarch64: tiles of a permutation turned in its registers of 16 bytes, and the prefetch.
//!
//! A token exists only where NEON runs. Little-endian only, because there was no big-endian machine to test on.
//! Stable Rust has no store past the caches here, so `stream` is a plain copy, nor a prefetch: `prfm` is written in
//! assembly. Not measured: no aarch64 machine was at hand. The tests pass under qemu, which says nothing about speed.
//! A measurement must show at least 10 % over the portable tiles, or this file goes.

#![allow(unsafe_code)]

use super::machine::{Block, Kernel, Machine};
use super::tiles::{Vector, tiles};
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
        // SAFETY: `with_neon` is safe except that it needs NEON. The field of `Neon` is private and only
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
        // SAFETY: safe except that it needs NEON, which this machine has: only the token's `run` names this type.
        unsafe {
            match W {
                1 => tiles_neon::<1, 16, 16>(block),
                2 => tiles_neon::<2, 8, 8>(block),
                4 => tiles_neon::<4, 4, 4>(block),
                8 => tiles_neon::<8, 2, 2>(block),
                16 => tiles_neon::<16, 1, 1>(block),
                _ => false,
            }
        }
    }
}

/// Interleaves halves of two registers, taken as entries of another width.
macro_rules! zip {
    ($a:expr, $b:expr, $low:ident, $high:ident, $of:ident, $to:ident) => {
        ($to($low($of($a), $of($b))), $to($high($of($a), $of($b))))
    };
}

/// See [`tiles`].
#[target_feature(enable = "neon")]
fn tiles_neon<const W: usize, const R: usize, const C: usize>(block: &mut Block<'_>) -> bool {
    // SAFETY: this function runs only where NEON is.
    unsafe { tiles::<uint8x16_t, W, R, C>(block) }
}

impl Vector for uint8x16_t {
    #[inline(always)]
    unsafe fn load(place: *const u8) -> Self {
        // SAFETY: the caller promises NEON, and 16 bytes to read.
        unsafe { vld1q_u8(place) }
    }
    #[inline(always)]
    unsafe fn store(self, place: *mut u8) {
        // SAFETY: the caller promises NEON, and 16 bytes to write.
        unsafe { vst1q_u8(place, self) }
    }
    /// Through the caches: there is nothing to fence later.
    #[inline(always)]
    unsafe fn stream(self, place: *mut u8) {
        // SAFETY: the caller promises NEON, and 16 bytes to write.
        unsafe { vst1q_u8(place, self) }
    }
    #[inline(always)]
    fn prefetch(place: *const u8) {
        // SAFETY: a hint that reads nothing and never faults, whatever the address, and changes no register or flag.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) place.addr(), options(nomem, nostack, preserves_flags));
        }
    }
    #[inline(always)]
    fn prefetch_mut(place: *mut u8) {
        // SAFETY: a hint that writes nothing and never faults, whatever the address, and changes no register or flag.
        unsafe {
            asm!("prfm pstl1keep, [{}]", in(reg) place.addr(), options(nomem, nostack, preserves_flags));
        }
    }
    #[inline(always)]
    unsafe fn unpack<const W: usize>(self, other: Self) -> (Self, Self) {
        // SAFETY: registers alone, and the caller promises NEON.
        unsafe {
            match W {
                1 => (vzip1q_u8(self, other), vzip2q_u8(self, other)),
                2 => zip!(self, other, vzip1q_u16, vzip2q_u16, vreinterpretq_u16_u8, vreinterpretq_u8_u16),
                4 => zip!(self, other, vzip1q_u32, vzip2q_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32),
                _ => zip!(self, other, vzip1q_u64, vzip2q_u64, vreinterpretq_u64_u8, vreinterpretq_u8_u64),
            }
        }
    }
}
