//! Reads one record: an array of any version (V0 to V3) and storage (dense, row_sparse, csr), or none.
//!
//! Reads the header and skips the data. An error in a record concerns the whole file: records have no length, so if one
//! cannot be parsed, the offset of the next is unknown.

use blob_core::{DType, MAX_AXES, Shape};

use crate::entry::{Kind, SparseKind};
use crate::error::{Fault, FaultKind, ReadError};
use crate::mxnet::flags::{self, Context};
use crate::wire::cursor::Cursor;

/// The layout of a record.
// Exhaustive: MXNet is retired, so there will be no further version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.5 to 0.10: no magic, `u32` dims.
    V0,
    /// 0.11: `i64` dims.
    V1,
    /// 0.12 to today: with a storage type. Written by MXNet 1, and read by every later MXNet without np-shape.
    V2,
    /// 1.5 to today, with np-shape: a shape without axes is a scalar. Written by MXNet 2.
    V3,
}

impl Version {
    /// All four, oldest first.
    pub const ALL: [Version; 4] = [Version::V0, Version::V1, Version::V2, Version::V3];

    /// The versions of a file's records, from the [`dialect`](crate::Checkpoint::dialect) that the reader gave, such as
    /// `V0 and V2 records`. Receipts store that text, so the dialect is not for people alone.
    #[must_use]
    pub fn of_dialect(dialect: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|version| dialect.split(' ').any(|word| word == version.name())).collect()
    }

    /// `V2`.
    pub(crate) fn name(self) -> &'static str {
        ["V0", "V1", "V2", "V3"][self as usize]
    }

    /// The first word of a record; in V0 that is the number of axes.
    pub(crate) fn magic(self) -> Option<u32> {
        match self {
            Version::V0 => None,
            Version::V1 => Some(0xF993_FAC8),
            Version::V2 => Some(0xF993_FAC9),
            Version::V3 => Some(0xF993_FACA),
        }
    }
}

/// The interpretation of a dense V2 record without axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAxes {
    /// No array, and the record ends here: MXNet's own reading, though MXNet never writes such a record.
    None,
    /// A scalar: MXNet 1.5 to 1.9 wrote scalars so without np-shape, but cannot read such a record.
    Scalar,
}

/// One record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) version: Version,
    /// Whether the record's meaning depends on [`NoAxes`].
    pub(crate) no_axes: bool,
    /// The device that the array was on; none for a record without an array.
    pub(crate) context: Option<Context>,
    pub(crate) body: Body,
}

/// The content of a record.
#[derive(Debug)]
pub(crate) enum Body {
    /// No array: the extents that mark the lack of one.
    None(Vec<i64>),
    Dense(ElementRun),
    Sparse {
        kind: SparseKind,
        /// The dense shape.
        shape: Shape,
        /// The stored shape of the values, which may be wrong: see [`storage_dims`].
        stored: Vec<i64>,
        /// The values, then the others in the order of the file.
        parts: Vec<ElementRun>,
    },
}

/// One run of elements.
#[derive(Debug)]
pub(crate) struct ElementRun {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) offset: u64,
}

/// Reads the record at the cursor, and moves the cursor past the record.
pub(crate) fn read(cursor: &mut Cursor<'_>, no_axes: NoAxes) -> Result<Record, ReadError> {
    let at = cursor.pos();
    let word = cursor.u32("a record")?;
    let version = version(word).ok_or_else(|| no_record(at, word))?;
    let storage = match version {
        Version::V0 | Version::V1 => None,
        Version::V2 | Version::V3 => storage(cursor, version)?,
    };
    let stored = match storage {
        Some(_) => Some(dims(cursor, "the storage shape")?),
        None => None,
    };
    let dims = match version {
        Version::V0 => short_dims(cursor, word as usize)?,
        _ => dims(cursor, "the shape")?,
    };
    let empty = dims.values.is_empty();
    let is_ambiguous = version == Version::V2 && storage.is_none() && empty;
    let none = match version {
        Version::V3 => dims.values.contains(&-1) && dims.values.iter().all(|d| *d >= -1),
        _ => empty && !(is_ambiguous && no_axes == NoAxes::Scalar),
    };
    if none {
        return Ok(Record { version, no_axes: is_ambiguous, context: None, body: Body::None(dims.values) });
    }
    let shape = dims.shape()?;
    let context = Context { dev_type: cursor.i32("the device type")?, dev_id: cursor.i32("the device number")? };
    let dtype = type_flag(cursor, "the type flag")?;
    let body = match storage.zip(stored) {
        None => Body::Dense(data(cursor, Kind::Data, dims.at, shape, dtype)?),
        Some((kind, stored)) => sparse(cursor, kind, stored, shape, dtype)?,
    };
    Ok(Record { version, no_axes: is_ambiguous, context: Some(context), body })
}

fn version(word: u32) -> Option<Version> {
    let known = Version::ALL.into_iter().find(|version| version.magic() == Some(word));
    known.or((word as usize <= MAX_AXES).then_some(Version::V0))
}

fn no_record(at: u64, word: u32) -> ReadError {
    let expected = "a record (0xF993FAC8, …C9, …CA, or up to 32 axes of a V0 one)";
    ReadError::fault(at, FaultKind::words(expected, format!("{word:#010X}")))
}

/// The storage type; `None` for a dense one.
fn storage(cursor: &mut Cursor<'_>, version: Version) -> Result<Option<SparseKind>, ReadError> {
    let at = cursor.pos();
    let found = cursor.i32("the storage type")?;
    match (found, version) {
        (0, _) => Ok(None),
        (1, Version::V2) => Ok(Some(SparseKind::RowSparse)),
        (2, Version::V2) => Ok(Some(SparseKind::Csr)),
        _ if swapped(found, 2) => Err(big_endian(at, "a storage type of 0 to 2", found)),
        // MXNet's writer stops here for an array without storage: the file was never complete.
        (-1, Version::V2) => Err(ReadError::fault(
            at,
            FaultKind::words("a storage type of 0 to 2", "-1 (undefined): MXNet fails while it writes such an array"),
        )),
        _ => Err(ReadError::fault(
            at,
            FaultKind::Flag {
                field: "the storage type",
                found: found.into(),
                known: match version {
                    Version::V3 => "0 (dense)",
                    _ => "0 (dense), 1 (row_sparse) or 2 (csr)",
                },
            },
        )),
    }
}

/// Whether `found` is a number from 1 to `max` in the other byte order.
fn swapped(found: i32, max: i32) -> bool {
    (1..=max).contains(&found.swap_bytes())
}

/// A big-endian machine writes the framing little-endian and the rest big-endian (apache/mxnet#18667).
fn big_endian(at: u64, expected: &'static str, found: i32) -> ReadError {
    let as_written = found.swap_bytes();
    let found = format!("{found}, which is {as_written} on a big-endian machine: MXNet itself cannot read its files");
    ReadError::fault(at, FaultKind::words(expected, found))
}

/// The stored dimensions, with the offset of the first and the width of each.
struct Dims {
    at: u64,
    width: u64,
    values: Vec<i64>,
}

/// `i32` ndim, then as many `i64`.
fn dims(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Dims, ReadError> {
    let at = cursor.pos();
    let found = cursor.i32(field)?;
    if swapped(found, MAX_AXES as i32) {
        return Err(big_endian(at, "0 to 32 axes", found));
    }
    // MXNet reads -1, "unknown", as a number of axes, and then 2⁶⁴-8 bytes of extents; no writer stores -1.
    let Ok(ndim) = usize::try_from(found) else {
        let what = FaultKind::Flag { field: "the number of axes", found: found.into(), known: "0 to 32" };
        return Err(ReadError::fault(at, what));
    };
    if ndim > MAX_AXES {
        let (found, max) = (ndim as u64, MAX_AXES as u64);
        return Err(ReadError::fault(at, FaultKind::Axes { found, max }));
    }
    let at = cursor.pos();
    cursor.need(8 * ndim as u64, cursor.file_len(), field)?;
    let values = (0..ndim).map(|_| cursor.i64(field)).collect::<Result<_, _>>()?;
    Ok(Dims { at, width: 8, values })
}

/// As many `u32` as the record's first word says.
fn short_dims(cursor: &mut Cursor<'_>, ndim: usize) -> Result<Dims, ReadError> {
    let at = cursor.pos();
    let field = "the shape";
    cursor.need(4 * ndim as u64, cursor.file_len(), field)?;
    let values = (0..ndim).map(|_| cursor.u32(field).map(i64::from)).collect::<Result<_, _>>()?;
    Ok(Dims { at, width: 4, values })
}

impl Dims {
    fn shape(&self) -> Result<Shape, Fault> {
        let mut dims = Vec::with_capacity(self.values.len());
        for (axis, &found) in self.values.iter().enumerate() {
            let dim = usize::try_from(found).map_err(|_| {
                let what = FaultKind::Dim { axis: axis as u32, found, max: isize::MAX as u64 };
                Fault::new(self.at + axis as u64 * self.width, what)
            })?;
            dims.push(dim);
        }
        let axes = dims.len() as u32;
        Shape::new(dims).map_err(|_| Fault::new(self.at, FaultKind::Overflow { axes }))
    }
}

fn type_flag(cursor: &mut Cursor<'_>, field: &'static str) -> Result<DType, ReadError> {
    let at = cursor.pos();
    let flag = cursor.i32(field)?;
    flags::dtype(flag).ok_or_else(|| {
        let what = FaultKind::Flag { field, found: flag.into(), known: "0 to 12" };
        ReadError::fault(at, what)
    })
}

/// Skips the elements of an array, which must exist; the array's shape is at `at`.
fn data(cursor: &mut Cursor<'_>, kind: Kind, at: u64, shape: Shape, dtype: DType) -> Result<ElementRun, ReadError> {
    let offset = cursor.pos();
    let field = match kind {
        Kind::Values => "the values of a sparse array",
        Kind::Indices => "the indices of a sparse array",
        Kind::Indptr => "the row pointers of a csr array",
        _ => "the data",
    };
    let axes = shape.num_axes() as u32;
    let len = (shape.count() as u64)
        .checked_mul(dtype.size() as u64)
        .ok_or_else(|| Fault::new(at, FaultKind::Overflow { axes }))?;
    cursor.skip(len, field)?;
    Ok(ElementRun { kind, shape, dtype, offset })
}

/// The rest of a sparse record: types and shapes of the index arrays, then the values, then the index arrays.
fn sparse(
    cursor: &mut Cursor<'_>,
    kind: SparseKind,
    stored: Dims,
    shape: Shape,
    dtype: DType,
) -> Result<Body, ReadError> {
    let mut index_arrays = Vec::with_capacity(2);
    let mut rows = 0;
    for name in &kind.parts()[1..] {
        let dtype = type_flag(cursor, "an index array's type flag")?;
        let dims = dims(cursor, "an index array's shape")?;
        let shape = dims.shape()?;
        // MXNet refuses others too, because the number of values would be unknown.
        if shape.num_axes() != 1 {
            let what = FaultKind::Mismatch {
                field: "the axes of an index array",
                expected: 1,
                found: shape.num_axes() as u64,
            };
            return Err(ReadError::fault(dims.at, what));
        }
        rows = dims.values[0];
        index_arrays.push((*name, dims.at, shape, dtype));
    }
    let (at, width) = (stored.at, stored.width);
    let Some(values) = storage_dims(kind, &stored.values, shape.dims(), rows) else {
        let found = "no axes";
        return Err(ReadError::fault(at, FaultKind::words("a storage shape of one axis or more", found)));
    };
    let values = Dims { at, width, values }.shape()?;
    let mut parts = vec![data(cursor, Kind::Values, at, values, dtype)?];
    for (name, at, shape, dtype) in index_arrays {
        parts.push(data(cursor, name, at, shape, dtype)?);
    }
    Ok(Body::Sparse { kind, shape, stored: stored.values, parts })
}

/// The shape of a sparse array's values, from the stored one, the dense one and the number of indices.
///
/// The stored shape may be stale: MXNet writes the shape before the operation that computes the array has ended, and
/// the rest afterwards. Therefore, as in MXNet's loader, a shape without elements is replaced, and the first extent is
/// always the number of indices.
fn storage_dims(kind: SparseKind, stored: &[i64], dense: &[usize], indices: i64) -> Option<Vec<i64>> {
    let mut dims = stored.to_vec();
    if stored.contains(&0) {
        dims = match kind {
            SparseKind::Csr => vec![indices],
            SparseKind::RowSparse => dense.iter().map(|d| *d as i64).collect(),
        };
    }
    *dims.first_mut()? = indices;
    Some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_extent_of_a_storage_shape_is_ignored() {
        let csr = |stored: &[i64]| storage_dims(SparseKind::Csr, stored, &[6, 4], 5);
        let rows = |stored: &[i64]| storage_dims(SparseKind::RowSparse, stored, &[6, 4, 2], 3);
        assert_eq!(csr(&[5]).unwrap(), [5]);
        assert_eq!(csr(&[0]).unwrap(), [5], "the writer's race");
        for stale in [1, 1000, -3, 1 << 40] {
            assert_eq!(csr(&[stale]).unwrap(), [5]);
            assert_eq!(rows(&[stale, 4, 2]).unwrap(), [3, 4, 2]);
        }
        assert_eq!(rows(&[0]).unwrap(), [3, 4, 2]);
        assert_eq!(rows(&[9, 0, 2]).unwrap(), [3, 4, 2]);
        // Other extents stay unchanged, also where the dense shape has different ones.
        assert_eq!(rows(&[9, 7]).unwrap(), [3, 7]);
        assert_eq!(csr(&[]), None);
    }

    #[test]
    fn numbers_of_the_other_byte_order_are_recognised() {
        assert!(swapped(0x0200_0000, 2));
        assert!(!swapped(2, 2));
        assert!(!swapped(0, 2));
        assert!(!swapped(-1, 32));
    }
}
