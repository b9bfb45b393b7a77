//! The choices that suit the processor at hand: stores past the caches or through them, and which lines are asked for
//! ahead.
//!
//! Pure rules over a processor's report, which `cpu.rs` asks for. Any choice gives the same bits.

use super::machine::{Fetch, Store};

/// A processor's report of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Processor {
    /// `AuthenticAMD`, `GenuineIntel`, …
    pub(crate) vendor: [u8; 12],
    /// 6 for Intel's since the Pentium Pro, 23, 25 and 26 for AMD's Zen.
    pub(crate) family: u32,
    /// Whether it multiplies matrices, as Intel's servers do since Sapphire Rapids.
    pub(crate) amx: bool,
}

impl Fetch {
    /// AMD's from Zen on have the lines of small moves before they are asked for. Over memcpy's time, unasked and asked
    /// (EPYC Zen 4): f32 128² 1.45 and 1.82, 127 × 129 2.1 and 2.4, f64 in place 128² 1.9 and 2.2, but f32 4 MiB of
    /// 127 × 129 2.2 and 2.2, f64 1024² 2.5 and 1.8. An Intel Xeon with AMX takes 2.1 and 1.5 for f32 127 × 129; its
    /// sets have 12 places, and squares were not measured there.
    pub(crate) fn suiting(processor: Option<Processor>, bytes: usize) -> Fetch {
        /// Bytes of a result that fits, beside its source, in a second-level cache of 1 MiB.
        const SMALL: usize = 512 << 10;
        match (processor.is_some_and(Processor::is_zen), bytes <= SMALL) {
            (false, _) => Fetch::Asked,
            (true, false) => Fetch::Squares,
            (true, true) => Fetch::Unasked,
        }
    }
}

impl Store {
    pub(crate) const ALL: [Store; 2] = [Store::Cached, Store::Streaming];

    /// Streaming where a gain was measured, ordinary elsewhere. 256 MiB of f32, one thread, time over memcpy's,
    /// streaming and ordinary: AMD EPYC (Zen 4) merges 0.6 and 1.2; Intel Xeon with AMX fill 0.48 and 1.25, merges 1.1
    /// and 1.7; Intel Cascade Lake fill 0.73 and 0.53, merges 1.03 and 0.96: a core of Intel's servers before has too
    /// few buffers for lines that are under way to memory.
    pub(crate) fn suiting(processor: Option<Processor>) -> Store {
        let streams = processor.is_some_and(|processor| match &processor.vendor {
            b"GenuineIntel" => processor.amx,
            _ => processor.is_zen(),
        });
        if streams { Store::Streaming } else { Store::Cached }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Store::Cached => "ordinary",
            Store::Streaming => "streaming",
        }
    }
}

impl Processor {
    /// Whether it is one of AMD's from Zen on.
    fn is_zen(self) -> bool {
        /// The first of the line.
        const ZEN: u32 = 0x17;
        matches!(&self.vendor, b"AuthenticAMD" | b"HygonGenuine") && self.family >= ZEN
    }

    /// From the words of the `cpuid` instruction: the vendor's of leaf 0 in the order EBX, EDX, ECX; EAX of leaf 1,
    /// where the family is bits 8 to 11, and for 15 bits 20 to 27 are added; EDX of leaf 7, where AMX-TILE is bit 24
    /// (Intel SDM 2A, CPUID; AMD APM 3, E.3.2).
    #[allow(dead_code, reason = "only x86-64 says what it is")]
    pub(crate) fn new(vendor: [u32; 3], signature: u32, features: u32) -> Self {
        let family = signature >> 8 & 0xF;
        let extended = if family == 0xF { signature >> 20 & 0xFF } else { 0 };
        let mut name = [0; 12];
        for (bytes, word) in name.chunks_mut(4).zip(vendor) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Processor { vendor: name, family: family + extended, amx: features >> 24 & 1 == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `cpuid` gives them.
    fn processor(vendor: &[u8; 12], signature: u32, features: u32) -> Processor {
        let word = |at: usize| u32::from_le_bytes(*vendor[at..].first_chunk().expect("4 of 12"));
        Processor::new([word(0), word(4), word(8)], signature, features)
    }

    #[test]
    fn streaming_only_where_it_was_measured_to_gain() {
        // Of leaf 7's EDX AMX-TILE alone, and the report of the Xeon on which the gain was measured.
        const AMX: u32 = 1 << 24;
        const XEON: u32 = 0x23C1_4010;
        // Signatures of an EPYC 9004, 7003, 7001 and of a Dhyana, of an Opteron of family 16; then of a Cascade Lake, a
        // Sapphire Rapids without and with AMX, that Xeon, a Zhaoxin, and one that Intel does not make.
        for (vendor, signature, features, family, stores) in [
            (b"AuthenticAMD", 0x00A1_0F11, 0, 25, Store::Streaming),
            (b"AuthenticAMD", 0x00A0_0F11, 0, 25, Store::Streaming),
            (b"AuthenticAMD", 0x0080_0F12, 0, 23, Store::Streaming),
            (b"HygonGenuine", 0x0090_0F02, 0, 24, Store::Streaming),
            (b"AuthenticAMD", 0x0010_0F42, AMX, 16, Store::Cached),
            (b"GenuineIntel", 0x0005_0657, !AMX, 6, Store::Cached),
            (b"GenuineIntel", 0x0008_06F8, 0, 6, Store::Cached),
            (b"GenuineIntel", 0x0008_06F8, AMX, 6, Store::Streaming),
            (b"GenuineIntel", 0x000A_0671, XEON, 6, Store::Streaming),
            (b"CentaurHauls", 0x0000_06F1, AMX, 6, Store::Cached),
            (b"GenuineIntel", 0x00A1_0F11, 0, 25, Store::Cached),
        ] {
            let processor = processor(vendor, signature, features);
            assert_eq!((processor.vendor, processor.family), (*vendor, family));
            assert_eq!(Store::suiting(Some(processor)), stores, "{processor:?}");
        }
        assert_eq!(Store::suiting(None), Store::Cached);
    }

    #[test]
    fn moves_go_unasked_or_in_squares_only_where_it_was_measured_to_gain() {
        let zen = Some(processor(b"AuthenticAMD", 0x00A1_0F11, 0));
        let xeon = Some(processor(b"GenuineIntel", 0x000A_0671, 0));
        assert_eq!(Fetch::suiting(zen, 512 << 10), Fetch::Unasked);
        assert_eq!(Fetch::suiting(zen, (512 << 10) + 1), Fetch::Squares);
        for (processor, bytes) in [(xeon, 64 << 10), (xeon, 4 << 20), (None, 64 << 10), (None, 4 << 20)] {
            assert_eq!(Fetch::suiting(processor, bytes), Fetch::Asked, "{processor:?}, {bytes}");
        }
    }
}
