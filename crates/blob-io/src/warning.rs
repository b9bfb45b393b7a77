//! The unusual in a file or an array whose meaning is clear nevertheless: in words, and as bits.

use std::borrow::Cow;
use std::fmt;

/// Something unusual whose meaning is clear nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The byte offset concerned, where there is one.
    pub offset: Option<u64>,
    /// The finding, in words.
    pub text: Cow<'static, str>,
    /// Whether something of the file is not listed, and so is missing from a file made of the listed arrays.
    pub is_loss: bool,
}

impl Warning {
    pub(crate) fn new(offset: Option<u64>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { offset, text: text.into(), is_loss: false }
    }

    /// Something of the file is not listed.
    pub(crate) fn of_loss(offset: Option<u64>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { is_loss: true, ..Self::new(offset, text) }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "at byte {offset}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

macro_rules! flags {
    ($($flag:ident, $text:literal;)*) => {
        /// The warnings of an array, one bit each, because a file may list a million arrays.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Flag {
            $($flag,)*
        }

        const FLAGS: &[(Flag, &str)] = &[$((Flag::$flag, $text),)*];
    };
}

flags! {
    LegacyAndShape, "both num/channels/height/width and shape are stored; Caffe takes the first, and so do we";
    SeveralSources, "the values are stored more than once; taken as Caffe does: double_data, then data, then raw_data";
    NestedAndOuter, "blobs stand both in the V0 layer and in the V1 layer around it; Caffe takes the V0 ones, and so do we";
    FromOuter, "the name or the blobs stand in the V1 layer around a V0 layer, which Caffe ignores; they are read";
    ReservedName, "the name is that of the metadata in safetensors; it got its position added";
    RepeatedName, "the name is used before in this file; it got its position added";
    StaleStorageShape, "the stored shape of the values is stale (a race in MXNet's writer); taken from the indices, as MXNet does";
    RecoveredScalar, "a scalar that MXNet 1.5 to 1.9 wrote and cannot read; recovered";
    BrokenFormatHeader, "the header of format.npy is broken (a bug in MXNet 2); the format is taken from its bytes";
    Encoded, "the values are an encoded image, not pixels";
    RawAndTyped, "the values are stored both raw and typed; taken as ONNX does: raw_data";
}

/// The flags of arrays beside which the file has values that are not listed.
const LOSSES: [Flag; 3] = [Flag::SeveralSources, Flag::NestedAndOuter, Flag::RawAndTyped];

/// The flags of arrays that the file calls otherwise.
const NAMES: [Flag; 2] = [Flag::ReservedName, Flag::RepeatedName];

/// A set of [`Flag`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    pub(crate) fn set(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u8;
    }

    /// The union of two sets.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, flag: Flag) -> bool {
        self.0 & 1 << flag as u8 != 0
    }

    /// The warning about the name.
    pub(crate) fn of_name(self) -> Option<Warning> {
        let (_, text) = FLAGS.iter().find(|(flag, _)| self.has(*flag) && NAMES.contains(flag))?;
        Some(Warning::new(None, *text))
    }

    pub(crate) fn warnings(self) -> impl Iterator<Item = Warning> {
        let set = FLAGS.iter().filter(move |(flag, _)| self.has(*flag));
        set.map(|(flag, text)| Warning { is_loss: LOSSES.contains(flag), ..Warning::new(None, *text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_becomes_its_warning() {
        let mut flags = Flags::default();
        assert_eq!(flags.warnings().count(), 0);
        for (i, (flag, _)) in FLAGS.iter().enumerate() {
            flags.set(*flag);
            assert_eq!(flags.warnings().count(), i + 1);
        }
    }
}
