//! The tokens of `x86.rs` where there is no x86-64: they never exist, so nothing asks which machine this is.

use super::machine::Kernel;
use super::stores::Processor;

/// Never exists here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Avx2 {}

/// Never exists here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Avx512 {}

/// Nothing is known of other processors.
pub(crate) fn processor() -> Option<Processor> {
    None
}

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn run<K: Kernel>(self, _: K) -> K::Out {
        match self {}
    }
}

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn avx2(self) -> Avx2 {
        match self {}
    }

    pub(crate) fn run<K: Kernel>(self, _: K) -> K::Out {
        match self {}
    }
}
