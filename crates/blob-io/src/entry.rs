//! One stored array: name, dtype and shape, and the place of the bytes.
//!
//! Kept small: a hostile file can list a million entries.

#[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "HDF5 files alone have chunks"))]
mod place;

use std::borrow::Cow;
use std::sync::Arc;

use blob_core::{DType, Shape};

use crate::error::{Error, Fault, FaultKind, ReadError, Reason, failed};
use crate::warning::{Flags, Warning};
pub use place::Segment;
pub(crate) use place::{Checksum, Chunk, Chunked, Deflated, Filter, Order, Payload, Runs, Varints};

/// One array stored in a file, known from the header alone.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) name: Box<str>,
    pub(crate) shape: Shape,
    pub(crate) dtype: Option<DType>,
    pub(crate) kind: Kind,
    pub(crate) order: Order,
    pub(crate) swapped: bool,
    /// Whether the array is bf16 that the file stores as u16.
    pub(crate) is_kept_as_bits: bool,
    pub(crate) payload: Payload,
    pub(crate) layer_type: Option<Arc<str>>,
    pub(crate) position: u32,
    pub(crate) index: u32,
    /// Shared by all parts of the array.
    pub(crate) sparse: Option<Arc<Sparse>>,
    pub(crate) flags: Flags,
    /// Why the array cannot be loaded: a fault, or [`FaultKind::Foreign`].
    pub(crate) fault: Option<Box<Fault>>,
    pub(crate) checksum: Option<Box<Checksum>>,
}

impl Entry {
    /// An entry at `position`, still without a name, a dtype and bytes.
    pub(crate) fn new(position: u32, index: u32, kind: Kind) -> Self {
        Self {
            name: Box::default(),
            shape: Shape::default(),
            dtype: None,
            kind,
            order: Order::RowMajor,
            swapped: false,
            is_kept_as_bits: false,
            payload: Payload::Runs(Runs::None),
            layer_type: None,
            position,
            index,
            sparse: None,
            flags: Flags::default(),
            fault: None,
            checksum: None,
        }
    }

    /// The name, unique within the file: `conv1/0`, `arg:fc1_weight`, `@3`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type; `None` for an array without elements ([`Kind::None`]), with a fault, or of a dtype that blobs
    /// do not have ([`Entry::foreign_dtype`]).
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The element type that the file itself states. In npy and npz files, which have no bf16, this is u16 where a
    /// conversion's receipt says that the values are bf16; elsewhere [`Entry::dtype`].
    #[must_use]
    pub fn stored_dtype(&self) -> Option<DType> {
        if self.is_kept_as_bits { Some(DType::U16) } else { self.dtype }
    }

    /// The file's own name of a dtype that blobs do not have (`F8_E4M3`, `<c8`). Such an array is sound and listed;
    /// loading the array is [`Error::Unsupported`](crate::Error::Unsupported).
    #[must_use]
    pub fn foreign_dtype(&self) -> Option<&str> {
        match &self.fault.as_deref()?.kind {
            FaultKind::Foreign { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Marks a sound array whose dtype blobs do not have; the array takes `bytes` bytes.
    pub(crate) fn set_foreign(&mut self, at: u64, name: impl Into<Cow<'static, str>>, bytes: u64) {
        let name = name.into();
        self.dtype = None;
        self.fault = Some(Box::new(Fault::new(at, FaultKind::Foreign { name, bytes })));
    }

    /// The shape, row-major, outermost axis first. Meaningless if [`Entry::fault`] is set.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The kind of the array: data, a diff, a part of a sparse array, or nothing.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The type of the layer that holds the array (`Convolution`), where the file states types.
    #[must_use]
    pub fn layer_type(&self) -> Option<&str> {
        self.layer_type.as_deref()
    }

    /// The 0-based place of the layer or record among all layers or records of the file, with tensors or without.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position as usize
    }

    /// The 0-based place of the array within the layer or record.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// The array's size once loaded, in bytes; 0 for an array without elements or with a fault.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        match (self.dtype, self.fault.as_deref().map(|fault| &fault.kind)) {
            (_, Some(FaultKind::Foreign { bytes, .. })) => *bytes,
            (Some(dtype), None) => self.shape.count() as u64 * dtype.size() as u64,
            _ => 0,
        }
    }

    /// Where the array's first byte lies in the file; for a compressed array, where the stream begins.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match &self.payload {
            Payload::Runs(runs) => runs.as_slice().first().map(|s| s.offset),
            Payload::Deflated(d) => Some(d.offset),
            Payload::Chunked(chunked) => chunked.chunks.first().map(|chunk| chunk.offset),
            Payload::Varints(varints) => varints.spans.first().map(|span| span.start),
        }
    }

    /// The runs of bytes that make up the array, in the array's order; empty for a compressed array, and for integers
    /// of varying length.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        match &self.payload {
            Payload::Runs(runs) => runs.as_slice(),
            Payload::Deflated(_) | Payload::Chunked(_) | Payload::Varints(_) => &[],
        }
    }

    /// How many chunks the array is stored in; 0 for arrays that are not chunked.
    pub(crate) fn chunks(&self) -> usize {
        match &self.payload {
            Payload::Chunked(chunked) => chunked.chunks.len(),
            Payload::Runs(_) | Payload::Deflated(_) | Payload::Varints(_) => 0,
        }
    }

    /// Whether the segments, put one after the other, are the array in row-major little-endian order: no
    /// decompression, no gaps between elements, no reordering.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let size = self.dtype.map_or(1, DType::size) as u64;
        matches!(&self.payload, Payload::Runs(runs) if runs.as_slice().iter().all(|s| s.stride == size))
            && self.order == Order::RowMajor
            && !self.swapped
    }

    /// The sparse array that this entry is a part of, if any.
    #[must_use]
    pub fn sparse(&self) -> Option<&Sparse> {
        self.sparse.as_deref()
    }

    /// The fault of the array; loading the array returns the fault as an error.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        let fault = self.fault.as_deref();
        fault.filter(|fault| !matches!(fault.kind, FaultKind::Foreign { .. }))
    }

    /// Why a sound array is listed and never loaded, in words that follow "is not read: ": a dtype that blobs do not
    /// have, values in another file, an unknown filter. `None` for a broken array, too: see [`Entry::fault`].
    #[must_use]
    pub fn unread(&self) -> Option<String> {
        match self.foreign_dtype() {
            Some(name) => Some(format!("dtype {name}")),
            None => self.fault().filter(|fault| fault.reason() == Reason::Unsupported).map(ToString::to_string),
        }
    }

    /// The dtype, where the array can be loaded; `file` is the file's name in the error.
    pub(crate) fn loadable(&self, file: &str) -> Result<DType, Error> {
        if let Some(fault) = self.fault() {
            return Err(self.error(file, fault.clone().into()));
        }
        if let Some(name) = self.foreign_dtype() {
            let message = format!("{} is of dtype {name}, which blob lists but does not load", subject(self));
            return Err(Error::Unsupported { file: file.to_owned(), message });
        }
        self.dtype.ok_or_else(|| self.refused(file, "holds no array"))
    }

    /// The error for bytes that could not be read.
    pub(crate) fn error(&self, file: &str, e: ReadError) -> Error {
        match e {
            ReadError::Io { offset, source } => {
                failed(file, &format!("read {} at byte {offset}", subject(self)), source)
            }
            other => other.within(subject(self)).into_error(file),
        }
    }

    /// The error for a request that this entry does not allow.
    pub(crate) fn refused(&self, file: &str, message: &str) -> Error {
        Error::Request { file: file.to_owned(), message: format!("{} {message}", subject(self)) }
    }

    /// How many bytes [`Checkpoint::check`](crate::Checkpoint::check) reads: the bytes that the array's checksum
    /// covers, the header included, or the array's bytes from filtered chunks, or from integers of varying length;
    /// `None` if there is nothing to compare.
    #[must_use]
    pub fn checked_len(&self) -> Option<u64> {
        match &self.payload {
            Payload::Chunked(chunked) if !chunked.filters.is_empty() => Some(self.byte_len()),
            Payload::Varints(_) => Some(self.byte_len()),
            _ => self.checksum.as_ref().map(|checksum| checksum.size),
        }
    }

    /// The unusual in the array, where the meaning is clear nevertheless.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> + '_ {
        self.flags.warnings()
    }

    /// The warning that the file has another name for the array, where there is such a warning.
    #[must_use]
    pub fn name_warning(&self) -> Option<Warning> {
        self.flags.of_name()
    }
}

/// The kind of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An ordinary dense array.
    Data,
    /// The gradient or momentum stored beside a Caffe blob's data.
    Diff,
    /// The stored values of a sparse array.
    Values,
    /// The indices of a sparse array: rows of a row_sparse one, columns of a csr one.
    Indices,
    /// The row pointers of a csr array.
    Indptr,
    /// A place in a list that holds no array (MXNet's none).
    None,
}

impl Kind {
    /// The lower-case word for this kind, as it appears in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Diff => "diff",
            Self::Values => "values",
            Self::Indices => "indices",
            Self::Indptr => "indptr",
            Self::None => "none",
        }
    }
}

/// How a sparse array is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SparseKind {
    /// Some rows of the outermost axis: `values[k]` is row `indices[k]`.
    RowSparse,
    /// Compressed rows of a matrix: row `r` holds `values[indptr[r]..indptr[r+1]]` at columns `indices[..]`.
    Csr,
}

impl SparseKind {
    /// MXNet's name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RowSparse => "row_sparse",
            Self::Csr => "csr",
        }
    }

    /// The parts that an array is stored as, in MXNet's order.
    #[must_use]
    pub fn parts(self) -> &'static [Kind] {
        match self {
            Self::RowSparse => &[Kind::Values, Kind::Indices],
            Self::Csr => &[Kind::Values, Kind::Indptr, Kind::Indices],
        }
    }
}

/// The sparse array that an entry is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sparse {
    /// How the array is stored.
    pub kind: SparseKind,
    /// The whole array's name: `weight` for the part `weight#values`.
    pub name: Arc<str>,
    /// The dense shape.
    pub shape: Shape,
}

/// The name of an entry in errors.
pub(crate) fn subject(entry: &Entry) -> String {
    format!("array {:?}", entry.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_small() {
        // Half of the 256 bytes that an array may cost; names and shapes need the rest.
        assert!(size_of::<Entry>() <= 128, "{}", size_of::<Entry>());
    }
}
