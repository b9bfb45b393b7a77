//! An MXNet file without the arrays' values: versions, devices, storage types, keys.
//!
//! Enough to write the same file again. The entries have the values, and `write` makes the file's bytes.

use blob_core::Shape;

use crate::entry::SparseKind;
use crate::error::{FaultKind, ReadError};
use crate::mxnet::flags::Context;
use crate::mxnet::read::key;
use crate::mxnet::record::{self, Body, NoAxes, Record, Version};
use crate::wire::cursor::Cursor;
use crate::wire::source::Source;

/// The arrays of an MXNet file to be written, in order, without values.
///
/// Each array names the tensors that hold the values, by index in a [`Layout`](crate::layout::Layout).
///
/// ```
/// use blob_core::{DType, Shape};
/// use blob_io::mxnet::{List, Version};
/// use blob_io::layout::{Frame, Layout, TensorSpec};
///
/// let mut list = List::new(Version::V2);
/// list.push("arg:fc1_weight", 0);
/// let weight = TensorSpec::new("w", DType::F32, Shape::new([2, 3])?);
/// let layout = Layout::new(&[weight], Frame::MxnetList(&list))?;
/// // After the header of the list and that of the record.
/// assert_eq!(layout.offsets()[0], 24 + (24 + 2 * 8));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct List {
    /// The version of the last record, and of added records.
    version: Version,
    pub(super) arrays: Vec<Array>,
    /// One key for each array, as stored in the file; `None` in an unnamed list and for a bare record.
    pub(super) keys: Option<Vec<Vec<u8>>>,
    /// Whether the keys come from a file of MXNet. Such keys are written again, even against the rules for keys.
    pub(super) has_found_keys: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) version: Version,
    pub(super) context: Context,
    pub(super) stored: ArrayContent,
    /// Whether the array comes from a file of MXNet. Such an array is written again, even against the version's rules.
    pub(super) is_found: bool,
}

/// The content of a record, with the indices of the tensors that hold the values.
#[derive(Clone, Debug)]
pub(super) enum ArrayContent {
    /// No array: the extents that mark this.
    None(Vec<i64>),
    Dense(usize),
    Sparse {
        kind: SparseKind,
        /// The dense shape.
        shape: Shape,
        /// The stored shape of the values, which may differ from the real one.
        stale: Option<Vec<i64>>,
        /// The values, then the index arrays in the file's order.
        parts: Vec<usize>,
    },
}

impl List {
    /// An empty list of arrays with names.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self { version, arrays: Vec::new(), keys: Some(Vec::new()), has_found_keys: false }
    }

    /// Adds a dense array, saved from the CPU.
    pub fn push(&mut self, name: &str, tensor: usize) {
        self.add(name, ArrayContent::Dense(tensor));
    }

    /// Adds a sparse array of this dense shape from the tensors of values, row pointers (csr only) and indices.
    pub fn push_sparse(&mut self, name: &str, kind: SparseKind, shape: Shape, parts: &[usize]) {
        self.add(name, ArrayContent::Sparse { kind, shape, stale: None, parts: parts.to_vec() });
    }

    fn add(&mut self, name: &str, stored: ArrayContent) {
        self.arrays.push(Array { version: self.version, context: Context::CPU, stored, is_found: false });
        if let Some(keys) = &mut self.keys {
            keys.push(name.as_bytes().to_vec());
        }
    }

    /// The version of the last record.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The same arrays under the same names, from the same devices, in records of another version.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        self.version = version;
        for array in &mut self.arrays {
            array.is_found &= array.version == version;
            array.version = version;
        }
        self
    }

    /// The same arrays, each sparse one as a dense one of one tensor.
    #[must_use]
    pub fn into_dense(mut self) -> Self {
        let mut tensors = 0;
        for array in &mut self.arrays {
            if !matches!(array.stored, ArrayContent::None(_)) {
                array.is_found &= matches!(array.stored, ArrayContent::Dense(_));
                array.stored = ArrayContent::Dense(tensors);
                tensors += 1;
            }
        }
        self
    }

    /// Reads the record headers of a file with `count` records again, with the same `no_axes` as when the entries were
    /// read. The entries are the tensors, in order.
    pub(crate) fn read(source: &dyn Source, count: u64, is_bare: bool, no_axes: NoAxes) -> Result<Self, ReadError> {
        let mut cursor = Cursor::new(source);
        if !is_bare {
            cursor.seek(16);
            let found = cursor.u64("the number of arrays")?;
            if found != count {
                let expected = "as many arrays as when it was opened";
                return Err(ReadError::fault(16, FaultKind::words(expected, format!("{found}, not {count}"))));
            }
        }
        let mut list = Self { version: Version::V2, arrays: Vec::new(), keys: None, has_found_keys: true };
        let mut tensors = 0;
        for _ in 0..count {
            let record = record::read(&mut cursor, no_axes)?;
            list.version = record.version;
            list.arrays.push(Array::found(record, &mut tensors));
        }
        if !is_bare && cursor.u64("the number of keys")? > 0 {
            let keys = (0..count).map(|_| key(&mut cursor));
            list.keys = Some(keys.collect::<Result<_, _>>()?);
        }
        Ok(list)
    }
}

impl Array {
    /// An array of a file. The next tensors are the array's.
    fn found(record: Record, tensors: &mut usize) -> Self {
        let mut next = || {
            *tensors += 1;
            *tensors - 1
        };
        let stored = match record.body {
            Body::None(dims) => ArrayContent::None(dims),
            Body::Dense(_) => ArrayContent::Dense(next()),
            Body::Sparse { kind, shape, stored, parts } => {
                ArrayContent::Sparse { kind, shape, stale: Some(stored), parts: parts.iter().map(|_| next()).collect() }
            }
        };
        let context = record.context.unwrap_or(Context::CPU);
        Self { version: record.version, context, stored, is_found: true }
    }
}
