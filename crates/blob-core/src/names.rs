//! The names that Caffe and NeoML give to axes. Which axis of a shape a name means is left to `axis`.

use std::fmt;

/// Caffe's names for the axes of a blob of up to four axes, from the left: in a shape of two axes they are
/// [`Num`](Nchw::Num) and [`Channels`](Nchw::Channels), and the others are not there.
///
/// Where Caffe's accessors answer 1 for an axis that is not there, see
/// [`Shape::legacy_pad_right`](crate::Shape::legacy_pad_right).
// Exhaustive: the legacy blob will only ever have these four names, and a `match` over them should need no wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nchw {
    /// Axis 0, the images of a batch; `num()`.
    Num,
    /// Axis 1; `channels()`.
    Channels,
    /// Axis 2; `height()`.
    Height,
    /// Axis 3; `width()`.
    Width,
}

impl Nchw {
    /// All four, in the order of the axes.
    pub const ALL: [Nchw; 4] = [Nchw::Num, Nchw::Channels, Nchw::Height, Nchw::Width];
}

impl fmt::Display for Nchw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Nchw::Num => "Num",
            Nchw::Channels => "Channels",
            Nchw::Height => "Height",
            Nchw::Width => "Width",
        })
    }
}

/// NeoML's names for the seven axes of every blob (`TBlobDim`), in memory order: channels vary fastest.
///
/// The first three count objects, the other four are one object; see [`Dims7`](crate::Dims7).
// Exhaustive: NeoML's blobs will only ever have these seven names, and a `match` over them should need no wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobDim {
    /// Axis 0, the length of a sequence; `BD_BatchLength`.
    BatchLength,
    /// Axis 1, the sequences of a batch; `BD_BatchWidth`.
    BatchWidth,
    /// Axis 2, the objects of a list; `BD_ListSize`.
    ListSize,
    /// Axis 3; `BD_Height`.
    Height,
    /// Axis 4; `BD_Width`.
    Width,
    /// Axis 5; `BD_Depth`.
    Depth,
    /// Axis 6; `BD_Channels`.
    Channels,
}

impl BlobDim {
    /// All seven, in the order of the axes.
    pub const ALL: [BlobDim; 7] = [
        BlobDim::BatchLength,
        BlobDim::BatchWidth,
        BlobDim::ListSize,
        BlobDim::Height,
        BlobDim::Width,
        BlobDim::Depth,
        BlobDim::Channels,
    ];
}

impl fmt::Display for BlobDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BlobDim::BatchLength => "BatchLength",
            BlobDim::BatchWidth => "BatchWidth",
            BlobDim::ListSize => "ListSize",
            BlobDim::Height => "Height",
            BlobDim::Width => "Width",
            BlobDim::Depth => "Depth",
            BlobDim::Channels => "Channels",
        })
    }
}
