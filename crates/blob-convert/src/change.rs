//! The changes of a conversion: one typed list, the source of warnings, the success line, JSON and the receipt.
//!
//! A [`Change`] concerns one tensor or the whole file. A [`Group`] gathers changes of one kind. The texts are for
//! people alone: code decides by the types.

mod group;

use std::borrow::Cow;
use std::fmt;

use blob_core::{DType, Shape};
use blob_io::{Format, Warning};

pub use group::{Group, refuse_losses};
pub(crate) use group::{Groups, listed};

/// One change of one tensor, or of the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The kind of change, with details.
    pub effect: Effect,
    /// Whether an option or a transform asks for it.
    pub is_asked: bool,
}

/// The kind of change, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The bytes are unpacked: inflated, put in order, gathered.
    Unpacked,
    /// A sparse array becomes a dense one.
    Expanded,
    /// A transform changes the tensor, in the transform's words.
    Transformed {
        /// The transform's name.
        step: &'static str,
        /// The transform's description of the change.
        words: Cow<'static, str>,
    },
    /// The tensor has another name.
    Renamed {
        /// The name before.
        was: String,
    },
    /// The tensor has another shape of as many elements.
    Reshaped {
        /// The shape before.
        was: Shape,
    },
    /// The values are rounded to another dtype.
    Rounded {
        /// The dtype before.
        from: DType,
        /// The dtype that is written.
        to: DType,
    },
    /// The values are written as another dtype, which has each value of the dtype before.
    Widened {
        /// The dtype before.
        from: DType,
        /// The dtype that is written.
        to: DType,
    },
    /// An array of the file that the tensors go into gets another dtype.
    OtherDtype {
        /// The dtype there.
        was: DType,
        /// The dtype that is written.
        to: DType,
    },
    /// The bits of one dtype are stored as another, which the format has.
    BitsStored {
        /// The dtype of the values.
        of: DType,
        /// The dtype that other readers find.
        stored: DType,
        /// Whether a receipt tells blob's readers the dtype of the values. Without one the dtype is lost.
        is_told: bool,
    },
    /// The format stores more axes, and extents of one follow the tensor's own.
    Padded {
        /// The tensor's own axes.
        from: usize,
        /// The axes that are stored.
        to: usize,
    },
    /// The tensor has no values, and the format stores the dtype of values alone.
    DtypeLost {
        /// The dtype.
        dtype: DType,
        /// The output's format.
        format: Format,
    },
    /// The format has no names.
    NameLost {
        /// The output's format.
        format: Format,
    },
    /// The names that an earlier conversion gave stay, although the format's own program knows others.
    NamesStay {
        /// The reason, in words.
        why: &'static str,
    },
    /// The tensor's name is stored in another spelling, because a file system or an archive cannot hold the original.
    /// This crate reads the name back.
    NameEncoded {
        /// The name that other readers find.
        stored: String,
    },
    /// The format's own program knows the dtype only in later versions.
    NewDtype {
        /// The dtype.
        dtype: DType,
        /// The first version that knows the dtype: `MXNet 2.0`.
        since: &'static str,
    },
    /// The framework of the source computes with other values than are stored, in words.
    TakenOtherwise {
        /// The values and the reason.
        words: Cow<'static, str>,
    },
    /// The tensor shared the values of another one in the source, and has values of its own in the output.
    Untied {
        /// The other tensor's name in the source.
        from: String,
    },
    /// The tensor is not written. Reports have the tensor's name in the source.
    LeftOut {
        /// The reason, in words.
        reason: String,
    },
    /// A transform guessed the kind of the tensor, from the tensor's name and shape.
    Guessed {
        /// The guess: `weights of a convolution`.
        what: &'static str,
    },
    /// Finite values become infinite.
    Infinite {
        /// The event with the dtype: `became infinite as f16`.
        words: Cow<'static, str>,
    },
    /// Values other than 0 become 0.
    Zeroed {
        /// The event with the dtype, as above.
        words: Cow<'static, str>,
    },
    /// Values that a transform loses otherwise, in its words.
    Lost {
        /// The event, in the transform's words.
        words: Cow<'static, str>,
    },
    /// Metadata of the source for which the output has no place.
    MetadataDropped {
        /// The format of the output.
        format: Format,
        /// The keys.
        keys: Vec<String>,
    },
    /// A part of the source that the reader left out, with the reader's warning.
    Unlisted(Warning),
    /// Any other content of the source that the output lacks, in words.
    Dropped(Cow<'static, str>),
    /// The source cannot be restored byte for byte from the output.
    WayBack {
        /// The reason, in words.
        why: Cow<'static, str>,
    },
    /// The description of a net that a transform follows.
    Followed {
        /// The file with the description.
        net: String,
    },
    /// Tensors stay as they are, though the order of the values that they meet has changed, or is not known.
    Unfitting(String),
    /// Parameters that the net of the output needs, and the file lacks, in words.
    Lacking(String),
    /// Any other fact that a user should know; the fact by itself changes nothing.
    Notice(String),
    /// Any other change that a user should look at.
    Remark(String),
}

/// The importance of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The same tensors, stored otherwise.
    Form,
    /// Reported, though the output is no different.
    Notice,
    /// Another reader of the output finds something different.
    Change,
    /// Something of the source is gone.
    Loss,
}

impl Effect {
    /// The change from one dtype of floats to another.
    pub(crate) fn of_dtype(from: DType, to: DType) -> Self {
        let is_wider = match (from, to) {
            (DType::F16 | DType::BF16, DType::F32 | DType::F64) | (DType::F32, DType::F64) => true,
            _ => from == to,
        };
        if is_wider { Self::Widened { from, to } } else { Self::Rounded { from, to } }
    }

    /// A short name for programs: `name-lost`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    fn weight(&self) -> Weight {
        self.row().1
    }

    fn row(&self) -> (&'static str, Weight) {
        use Weight::{Change, Form, Loss, Notice};
        match self {
            Self::Unpacked => ("unpacked", Form),
            Self::Expanded => ("expanded", Form),
            Self::Transformed { .. } => ("transformed", Loss),
            Self::Renamed { .. } => ("renamed", Loss),
            Self::Reshaped { .. } => ("reshaped", Loss),
            Self::Rounded { .. } => ("rounded", Loss),
            Self::Widened { .. } => ("widened", Change),
            Self::OtherDtype { .. } => ("other-dtype", Loss),
            Self::BitsStored { is_told: true, .. } => ("bits-stored", Change),
            Self::BitsStored { is_told: false, .. } => ("bits-untold", Loss),
            Self::Padded { .. } => ("padded", Change),
            Self::DtypeLost { .. } => ("dtype-lost", Loss),
            Self::NameLost { .. } => ("name-lost", Loss),
            Self::NamesStay { .. } => ("names-stay", Loss),
            Self::NameEncoded { .. } => ("name-encoded", Change),
            Self::NewDtype { .. } => ("new-dtype", Change),
            Self::TakenOtherwise { .. } => ("taken-otherwise", Change),
            Self::Untied { .. } => ("untied", Change),
            Self::LeftOut { .. } => ("left-out", Loss),
            Self::Guessed { .. } => ("guessed", Loss),
            Self::Infinite { .. } => ("became-infinite", Loss),
            Self::Zeroed { .. } => ("became-zero", Loss),
            Self::Lost { .. } => ("values-lost", Loss),
            Self::MetadataDropped { .. } => ("metadata-dropped", Loss),
            Self::Unlisted(_) => ("unlisted", Loss),
            Self::Dropped(_) => ("dropped", Loss),
            Self::Unfitting(_) => ("unfitting", Loss),
            Self::Lacking(_) => ("lacking", Loss),
            Self::WayBack { .. } => ("way-back", Notice),
            Self::Followed { .. } => ("net-followed", Notice),
            Self::Notice(_) => ("notice", Notice),
            Self::Remark(_) => ("remark", Change),
        }
    }
}

impl Change {
    /// A change that an option or a transform asks for.
    pub(crate) fn asked(effect: Effect) -> Self {
        Self { effect, is_asked: true }
    }

    /// A change that the output's format, or another file, brings with it.
    pub(crate) fn unasked(effect: Effect) -> Self {
        Self { effect, is_asked: false }
    }

    /// Whether the change is a loss that nobody asked for: [`Options::strict`](crate::Options::strict) refuses such a
    /// change.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        !self.is_asked && self.effect.weight() == Weight::Loss
    }

    /// Whether the change deserves a warning: nobody asked for this, and a reader of the output finds something
    /// different.
    #[must_use]
    pub fn is_warned(&self) -> bool {
        !self.is_asked && self.effect.weight() >= Weight::Change
    }

    /// Whether the change is worth a line, though the output is no different.
    #[must_use]
    pub fn is_notice(&self) -> bool {
        self.effect.weight() == Weight::Notice && !self.is_asked
    }
}

/// The change of one tensor, in the words of a table or a receipt: `written as f16`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.effect {
            Effect::Unpacked => f.write_str("unpacked to row-major little-endian"),
            Effect::Expanded => f.write_str("expanded from sparse to dense"),
            Effect::Infinite { words } | Effect::Zeroed { words } | Effect::Lost { words } => {
                write!(f, "values {words}")
            }
            Effect::Transformed { words, .. }
            | Effect::TakenOtherwise { words }
            | Effect::Dropped(words)
            | Effect::WayBack { why: words } => f.write_str(words),
            Effect::Renamed { was } => write!(f, "was {was:?}"),
            Effect::Reshaped { was } => write!(f, "reshaped from {was}"),
            Effect::Rounded { to, .. } | Effect::Widened { to, .. } => write!(f, "written as {to}"),
            Effect::OtherDtype { was, to } => write!(f, "{was} there becomes {to}"),
            Effect::BitsStored { of, stored, .. } => write!(f, "{of} bits stored as {stored}: NumPy has no bfloat16"),
            Effect::Padded { from, to } => write!(f, "stored with {to} axes, with ones after its {from}"),
            Effect::DtypeLost { .. } => f.write_str("stored without its dtype, having no values"),
            Effect::NameLost { .. } => f.write_str("stored without its name"),
            Effect::NamesStay { why } => write!(f, "the names that an earlier conversion gave stay: {why}"),
            Effect::NameEncoded { stored } => write!(f, "stored as {stored:?}"),
            Effect::NewDtype { dtype, since } => write!(f, "{dtype} is known to {since} and later alone"),
            Effect::Untied { from } => write!(f, "no longer shares the values of {from:?}"),
            Effect::LeftOut { reason } => write!(f, "left out: {reason}"),
            Effect::Guessed { what } => write!(f, "taken for {what}"),
            Effect::MetadataDropped { keys, .. } => write!(f, "metadata left out: {}", listed(keys)),
            Effect::Followed { net } => write!(f, "the net in {net} is followed"),
            Effect::Unlisted(warning) => warning.fmt(f),
            Effect::Unfitting(text) | Effect::Lacking(text) | Effect::Notice(text) | Effect::Remark(text) => {
                f.write_str(text)
            }
        }
    }
}
