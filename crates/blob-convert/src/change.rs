//! What a conversion changes: one typed list, from which warnings, the success line, JSON and the receipt are made.
//!
//! A [`Change`] is of one tensor or of the whole file. [`Group`] gathers those of one kind. Nothing is decided from
//! their texts.

mod group;

use std::borrow::Cow;
use std::fmt;

use blob_core::{DType, Shape};
use blob_io::{Format, Warning};

pub use group::Group;
pub(crate) use group::{Groups, listed};

/// One change of one tensor, or of the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// What is changed.
    pub effect: Effect,
    /// Whether an option or a transform asks for it.
    pub is_asked: bool,
}

/// What is changed.
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
        /// What it does.
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
        /// That format.
        format: Format,
    },
    /// The format has no names.
    NameLost {
        /// That format.
        format: Format,
    },
    /// The names that an earlier conversion gave stay, although the format's own program knows others.
    NamesStay {
        /// Why, in words.
        why: &'static str,
    },
    /// The tensor has its name in another spelling, since a file system or an archive cannot hold it as it is. This
    /// crate reads the name back.
    NameEncoded {
        /// The name that other readers find.
        stored: String,
    },
    /// The format's own program knows the dtype only in later versions.
    NewDtype {
        /// The dtype.
        dtype: DType,
        /// The first version that knows it: `MXNet 2.0`.
        since: &'static str,
    },
    /// The framework of the source computes with other values than are stored, in words.
    TakenOtherwise {
        /// Which ones, and why.
        words: Cow<'static, str>,
    },
    /// The tensor is not written; it is called by its name in the source.
    LeftOut {
        /// Why, in words.
        reason: String,
    },
    /// What the tensor is was guessed by a transform, from its name and shape.
    Guessed {
        /// What it is taken for: `weights of a convolution`.
        what: &'static str,
    },
    /// Finite values become infinite.
    Infinite {
        /// The dtype that they are rounded to.
        words: Cow<'static, str>,
    },
    /// Values other than 0 become 0.
    Zeroed {
        /// The same.
        words: Cow<'static, str>,
    },
    /// Values that a transform loses otherwise, in its words.
    Lost {
        /// What happens to them: `values became infinite as f16`.
        words: Cow<'static, str>,
    },
    /// Metadata of the source that the output has no place for.
    MetadataDropped {
        /// The format of the output.
        format: Format,
        /// The keys.
        keys: Vec<String>,
    },
    /// What the source's reader left out, as its warning says.
    Unlisted(Warning),
    /// Whatever else is in the source and not in the output, in words.
    Dropped(Cow<'static, str>),
    /// The source cannot be restored byte for byte from the output.
    WayBack {
        /// Why, in words.
        why: Cow<'static, str>,
    },
    /// The description of a net that a transform follows.
    Followed {
        /// The file that has it.
        net: String,
    },
    /// Something else that a user should know, which changes nothing by itself.
    Notice(String),
    /// Something else that a user should look at.
    Remark(String),
}

/// How much a change matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The same tensors, stored otherwise.
    Form,
    /// Said, but nothing is different.
    Notice,
    /// Another reader finds something else.
    Change,
    /// Gone.
    Loss,
}

impl Effect {
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
            Self::OtherDtype { .. } => ("other-dtype", Loss),
            Self::BitsStored { .. } => ("bits-stored", Change),
            Self::Padded { .. } => ("padded", Change),
            Self::DtypeLost { .. } => ("dtype-lost", Loss),
            Self::NameLost { .. } => ("name-lost", Loss),
            Self::NamesStay { .. } => ("names-stay", Loss),
            Self::NameEncoded { .. } => ("name-encoded", Change),
            Self::NewDtype { .. } => ("new-dtype", Change),
            Self::TakenOtherwise { .. } => ("taken-otherwise", Change),
            Self::LeftOut { .. } => ("left-out", Loss),
            Self::Guessed { .. } => ("guessed", Loss),
            Self::Infinite { .. } => ("became-infinite", Loss),
            Self::Zeroed { .. } => ("became-zero", Loss),
            Self::Lost { .. } => ("values-lost", Loss),
            Self::MetadataDropped { .. } => ("metadata-dropped", Loss),
            Self::Unlisted(_) => ("unlisted", Loss),
            Self::Dropped(_) => ("dropped", Loss),
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

    /// Whether something is gone that nobody asked to leave out: [`Options::strict`](crate::Options::strict) refuses
    /// it.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        !self.is_asked && self.effect.weight() == Weight::Loss
    }

    /// Whether it deserves a warning: nobody asked for it, and a reader of the output finds something else.
    #[must_use]
    pub fn is_warned(&self) -> bool {
        !self.is_asked && self.effect.weight() >= Weight::Change
    }

    /// Whether it is worth a line, though nothing is different.
    #[must_use]
    pub fn is_notice(&self) -> bool {
        self.effect.weight() == Weight::Notice && !self.is_asked
    }
}

/// What is changed about one tensor, in the words of a table or a receipt: `written as f16`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.effect {
            Effect::Unpacked => f.write_str("unpacked to row-major little-endian"),
            Effect::Expanded => f.write_str("expanded from sparse to dense"),
            Effect::Transformed { words, .. }
            | Effect::Infinite { words }
            | Effect::Zeroed { words }
            | Effect::Lost { words }
            | Effect::TakenOtherwise { words }
            | Effect::Dropped(words)
            | Effect::WayBack { why: words } => f.write_str(words),
            Effect::Renamed { was } => write!(f, "was {was:?}"),
            Effect::Reshaped { was } => write!(f, "reshaped from {was}"),
            Effect::Rounded { to, .. } => write!(f, "written as {to}"),
            Effect::OtherDtype { was, to } => write!(f, "{was} there becomes {to}"),
            Effect::BitsStored { of, .. } => write!(f, "{of} bits stored as u2: NumPy has no bfloat16"),
            Effect::Padded { from, to } => write!(f, "stored with {to} axes, with ones after its {from}"),
            Effect::DtypeLost { .. } => f.write_str("stored without its dtype, having no values"),
            Effect::NameLost { .. } => f.write_str("stored without its name"),
            Effect::NamesStay { why } => write!(f, "the names that an earlier conversion gave stay: {why}"),
            Effect::NameEncoded { stored } => write!(f, "stored as {stored:?}"),
            Effect::NewDtype { dtype, since } => write!(f, "{dtype} is known to {since} and later alone"),
            Effect::LeftOut { reason } => write!(f, "left out: {reason}"),
            Effect::Guessed { what } => write!(f, "taken for {what}"),
            Effect::MetadataDropped { keys, .. } => write!(f, "metadata left out: {}", listed(keys)),
            Effect::Followed { net } => write!(f, "the net in {net} is followed"),
            Effect::Unlisted(warning) => warning.fmt(f),
            Effect::Notice(text) | Effect::Remark(text) => f.write_str(text),
        }
    }
}
