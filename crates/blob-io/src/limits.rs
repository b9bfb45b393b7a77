//! The limits on the memory and time that a file may cost: each number bounds something that a hostile file could make
//! large.

/// The longest name that is read, of an array, a layer or a key.
pub(crate) const LONGEST_NAME: u64 = 1 << 16;

/// How many files of a folder a warning names.
pub(crate) const MAX_OTHERS: usize = 5;

/// Bounds on the cost of opening and reading a file.
///
/// A length is accepted if the remaining bytes of the file cover that length; these limits are for quantities that the
/// file's size does not bound, and for the cost of all arrays together. Fixed ones are not listed here: a name has at
/// most 64 KiB, all names together 8 MiB and 16 bytes an array, all shapes together 524,288 axes and 8 an array; a file
/// lists 4,096 arrays and one for each four bytes of the file.
///
/// ```
/// use blob_io::{Limits, OpenOptions};
///
/// let options = OpenOptions::new().limits(Limits { max_alloc: 16 << 20, ..Limits::default() });
/// assert!(options.open("missing.npz").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many arrays may be listed: 1,048,576 by default.
    pub max_arrays: u64,
    /// How many bytes of one array may be produced from fewer stored ones, by inflating, reordering, densifying or
    /// widening, and how many the settings of a net may take as texts: 1 GiB by default. All arrays of a file together
    /// may have so many beside 1,032 for each byte of the file, which is the most that deflate makes of one; those
    /// beyond are listed with a fault.
    pub max_alloc: u64,
    /// How many bytes of a stream are kept, and how many a gzip file may unpack to: the first 8 MiB in memory, the rest
    /// in the temporary folder. By default 4 GiB, twice the longest protobuf message, which is the longest file of
    /// Caffe.
    pub max_spool: u64,
    /// How many separate runs of bytes may make up one array: 65,536 by default.
    pub max_segments: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_arrays: 1 << 20, max_alloc: 1 << 30, max_spool: 4 << 30, max_segments: 1 << 16 }
    }
}

/// How many bytes of names `arrays` arrays may have. A file can refer to one long layer name many times over
/// with two bytes each, so the sum is bounded, not only each name.
pub(crate) fn names_for(arrays: u64) -> u64 {
    arrays.saturating_mul(16).saturating_add(8 << 20)
}

/// How many axes `arrays` arrays may have together: 8 an array, beyond a first 4 MiB of axes of 8 bytes each. No real
/// model comes near this, but a list of a million shapes of 32 axes would take 256 MiB.
pub(crate) fn axes_for(arrays: u64) -> u64 {
    arrays.saturating_mul(8).saturating_add((4 << 20) / 8)
}

/// How many arrays a file of `len` bytes may list. Each takes up to 256 bytes of memory, so memory stays within 64
/// bytes for each of the file. The smallest array with a value has twelve bytes; only absent ones have fewer than four.
pub(crate) fn arrays_in(len: u64) -> u64 {
    (len / 4).saturating_add(1 << 12)
}

/// How many bytes all arrays of a file of `len` bytes may have together: the most that deflate can make of the file
/// (1032:1, zlib's "Technical Details"), and `max_alloc`. Values that no stored byte pays for, such as a dataset that
/// was never written or one with many names, are bounded by the latter.
pub(crate) fn bytes_in(len: u64, max_alloc: u64) -> u64 {
    len.saturating_mul(1032).saturating_add(max_alloc)
}

/// How many chunks all arrays of a file of `len` bytes may have together. The index of a chunk takes bytes of the file,
/// but one dataset may have thousands of names; each chunk that is read takes some microseconds.
pub(crate) fn chunks_in(len: u64, max_segments: usize) -> u64 {
    len.saturating_add((max_segments as u64).saturating_mul(64))
}

/// Which limit a file exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::max_arrays`].
    Arrays,
    /// [`Limits::max_alloc`].
    Alloc,
    /// [`Limits::max_spool`].
    Spool,
    /// [`Limits::max_segments`].
    Segments,
    /// One that cannot be raised.
    Fixed,
}
