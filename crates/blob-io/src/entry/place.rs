//! Where an array's bytes lie in a file and how the bytes are encoded: runs, deflate streams, chunks, varints;
//! checksums.

use std::sync::Arc;

use crate::wire::protobuf::Span;

/// The order of the stored elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    RowMajor,
    /// npy's `fortran_order`: the first axis runs fastest.
    ColumnMajor,
}

/// Where an array's bytes lie.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Runs(Runs),
    Deflated(Box<Deflated>),
    /// Shared by all names of an HDF5 dataset.
    Chunked(Arc<Chunked>),
    /// Integers of a varint each, as protobuf packs them.
    Varints(Box<Varints>),
}

/// Runs of bytes; nearly always one.
#[derive(Clone, Debug)]
pub(crate) enum Runs {
    None,
    One(Segment),
    Many(Box<[Segment]>),
}

impl Runs {
    pub(crate) fn from_vec(mut segments: Vec<Segment>) -> Self {
        match segments.len() {
            0 => Self::None,
            1 => Self::One(segments.remove(0)),
            _ => Self::Many(segments.into_boxed_slice()),
        }
    }

    pub(super) fn as_slice(&self) -> &[Segment] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// A run of `count` elements in the file, `stride` bytes from the start of one to the start of the next.
///
/// Packed data have a stride of the element's size; unpacked protobuf floats have one of five bytes, because a tag
/// precedes each float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Where the first element lies.
    pub offset: u64,
    /// How many elements there are.
    pub count: u64,
    /// Bytes from the start of one element to the start of the next.
    pub stride: u64,
}

/// A deflate stream that inflates to `skip` bytes of header and then the array.
#[derive(Clone, Debug)]
pub(crate) struct Deflated {
    pub(crate) offset: u64,
    pub(crate) packed: u64,
    pub(crate) skip: u64,
}

/// Ranges of varints; the elements are the low bytes of each.
#[derive(Clone, Debug)]
pub(crate) struct Varints {
    pub(crate) spans: Box<[Span]>,
}

/// An array in chunks on a grid, as in HDF5. Each chunk is stored separately, behind filters if there are any; a
/// missing chunk holds fill values only.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    /// A chunk's shape; chunks at the array's end have values beyond that end.
    pub(crate) dims: Box<[u64]>,
    /// A chunk's bytes once the filters are undone.
    pub(crate) size: u64,
    /// In the order of the grid.
    pub(crate) chunks: Box<[Chunk]>,
    /// In the order in which the writer applied the filters.
    pub(crate) filters: Box<[Filter]>,
    /// The bytes of an element that is not stored.
    pub(crate) fill: [u8; 8],
}

/// One chunk.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// The chunk's index in the grid, row-major.
    pub(crate) index: u64,
    pub(crate) offset: u64,
    /// The number of bytes in the file.
    pub(crate) packed: u32,
    /// A bit for each filter that was skipped.
    pub(crate) mask: u32,
}

/// An encoding step that was applied to a chunk before storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Deflate,
    Shuffle,
    Fletcher32,
}

/// A zip's directory entry for a member's content.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    /// Where the content lies.
    pub(crate) offset: u64,
    /// How long the deflate stream is; `None` for a stored member.
    pub(crate) packed: Option<u64>,
    /// How long the inflated content is.
    pub(crate) size: u64,
    pub(crate) crc: u32,
}
