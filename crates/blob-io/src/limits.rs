//! The limits on what a file may cost: each number bounds something that a hostile file could make large.

/// Bounds on what opening and reading a file may cost.
///
/// A length is believed when the remaining bytes of the file cover it; these limits are for what the file's size
/// does not bound by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) max_arrays: u64,
    pub(crate) max_segments: usize,
    pub(crate) max_alloc: u64,
    pub(crate) max_name: u64,
    pub(crate) max_names: u64,
    pub(crate) max_spool: u64,
}

impl Default for Limits {
    /// 1,048,576 arrays, 65,536 segments an array, 1 GiB of inflated or densified data, streams and unpacked gzip
    /// files of 4 GiB (twice the longest protobuf message, and so the longest file of Caffe's), names of 64 KiB and
    /// 16 bytes an array beyond a first 8 MiB, 8 axes an array beyond a first 524,288.
    fn default() -> Self {
        Self {
            max_arrays: 1 << 20,
            max_segments: 1 << 16,
            max_alloc: 1 << 30,
            max_name: 1 << 16,
            max_names: 8 << 20,
            max_spool: 4 << 30,
        }
    }
}

impl Limits {
    /// At most `n` arrays are listed.
    #[must_use]
    pub fn max_arrays(mut self, n: u64) -> Self {
        self.max_arrays = n;
        self
    }

    /// At most `bytes` bytes are produced from fewer stored ones: inflated, reordered or densified.
    #[must_use]
    pub fn max_alloc(mut self, bytes: u64) -> Self {
        self.max_alloc = bytes;
        self
    }

    /// At most `bytes` bytes of a stream are kept, and as many of what a gzip file unpacks to: the first
    /// 8 MiB in memory, more in the temporary folder.
    #[must_use]
    pub fn max_spool(mut self, bytes: u64) -> Self {
        self.max_spool = bytes;
        self
    }

    /// At most `n` separate runs of bytes make up one array.
    #[must_use]
    pub fn max_segments(mut self, n: usize) -> Self {
        self.max_segments = n;
        self
    }

    /// What [`Limits::max_alloc`] has set: the most bytes to produce from fewer stored ones.
    #[must_use]
    pub fn alloc(&self) -> u64 {
        self.max_alloc
    }

    /// How many bytes of names `arrays` arrays may have. A file can refer to one long layer name many times over
    /// with two bytes each, so the sum is bounded, not only each name.
    pub(crate) fn names_for(&self, arrays: u64) -> u64 {
        self.max_names.saturating_add(arrays.saturating_mul(16))
    }

    /// How many axes `arrays` arrays may have together: 8 an array, of 8 bytes each, beyond a first 4 MiB of them. No
    /// model comes near, but a list of a million shapes of 32 axes would take 256 MiB.
    pub(crate) fn axes_for(arrays: u64) -> u64 {
        (4 << 20) / 8 + arrays.saturating_mul(8)
    }
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
