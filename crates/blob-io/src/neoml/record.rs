//! Reads one blob record, `CDnnBlob::Serialize`: a header of 45 bytes, then the cells, which is NeoML's word for
//! values.
//!
//! The header has the number of cells twice, as seven extents and as a count. NeoML's own reader does not compare the
//! two, and writes out of bounds on a difference.

use blob_core::{BlobDim, DType, Shape};

use crate::entry::{Entry, Kind, Payload, Runs, Segment};
use crate::error::{FaultKind, ReadError};
use crate::names::NameTable;
use crate::wire::cursor::Cursor;

/// The versions of records, layers and nets that NeoML reads (`CDnn::ArchiveMinSupportedVersion` to CDnn's own).
pub(super) const VERSIONS: std::ops::RangeInclusive<i32> = 1001..=2000;

/// The bytes before the cells.
pub(super) const HEAD: usize = 45;

/// The byte before a number over 254, such as a version; a smaller number is a single byte.
pub(super) const LONG: u8 = 0xFF;

/// A record's header: everything before the cells.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(super) version: i32,
    /// A legacy field that NeoML ignores: 0 since version 2000, 1 before.
    pub(super) pack: i32,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// Where the version begins.
    pub(super) at: u64,
    /// Where the cells begin.
    pub(super) cells: u64,
}

/// Reads the record at the cursor and skips the cells, which must exist.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Record, ReadError> {
    let at = cursor.pos();
    let version = version(cursor)?;
    let dtype = dtype(cursor)?;
    let pack = cursor.i32("the pack field of a blob")?;
    let shape = shape(cursor)?;
    let cells = cursor.pos();
    let record = Record { version, pack, dtype, shape, at, cells };
    cursor.skip(record.cell_bytes(), "the cells")?;
    Ok(record)
}

/// Reads the record at the cursor if the first 13 bytes are as in NeoML's files; otherwise the cursor's position is
/// unspecified.
pub(super) fn find(cursor: &mut Cursor<'_>) -> Result<Option<Record>, ReadError> {
    let at = cursor.pos();
    if !begins(cursor)? {
        return Ok(None);
    }
    cursor.seek(at);
    read(cursor).map(Some)
}

/// Whether the version, the type and the pack field are those of a record.
fn begins(cursor: &mut Cursor<'_>) -> Result<bool, ReadError> {
    if cursor.left() < 13 {
        return Ok(false);
    }
    let [long, head @ ..] = cursor.array::<13>(cursor.file_len(), "a blob")?;
    let word = |i: usize| i32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    Ok(long == LONG && VERSIONS.contains(&word(0)) && matches!(word(4), 1 | 2) && matches!(word(8), 0 | 1))
}

fn version(cursor: &mut Cursor<'_>) -> Result<i32, ReadError> {
    const EXPECTED: &str = "a blob's version of 1001 to 2000";
    let at = cursor.pos();
    let short = cursor.u8(cursor.file_len(), "the version of a blob")?;
    let found = match short {
        LONG => cursor.i32("the version of a blob")?,
        _ => short.into(),
    };
    if VERSIONS.contains(&found) {
        Ok(found)
    } else {
        Err(ReadError::fault(at, FaultKind::words(EXPECTED, found.to_string())))
    }
}

fn dtype(cursor: &mut Cursor<'_>) -> Result<DType, ReadError> {
    let at = cursor.pos();
    let found = cursor.i32("the type of a blob")?;
    match found {
        1 => Ok(DType::F32),
        2 => Ok(DType::I32),
        _ => {
            let what =
                FaultKind::Flag { field: "the type of a blob", found: found.into(), known: "1 (float) or 2 (int)" };
            Err(ReadError::fault(at, what))
        }
    }
}

/// NeoML's number of a dtype; `None` for a type that no blob of NeoML has.
pub(super) fn tag(dtype: DType) -> Option<i32> {
    match dtype {
        DType::F32 => Some(1),
        DType::I32 => Some(2),
        _ => None,
    }
}

/// The seven extents and the number of cells, which must be the product of the extents.
fn shape(cursor: &mut Cursor<'_>) -> Result<Shape, ReadError> {
    const AXES: usize = BlobDim::ALL.len();
    let at = cursor.pos();
    let mut dims = [0; AXES];
    for (axis, dim) in dims.iter_mut().enumerate() {
        let at = cursor.pos();
        let found = cursor.i32("the extents of a blob")?;
        *dim = usize::try_from(found).map_err(|_| {
            let what = FaultKind::Dim { axis: axis as u32, found: found.into(), max: i32::MAX as u64 };
            ReadError::fault(at, what)
        })?;
    }
    let too_large = || ReadError::fault(at, FaultKind::Overflow { axes: AXES as u32 });
    let shape = Shape::new(dims).map_err(|_| too_large())?;
    shape.count().checked_mul(4).ok_or_else(too_large)?;
    let at = cursor.pos();
    let found = cursor.u32("the number of cells")?.into();
    let expected = shape.count() as u64;
    if found != expected {
        return Err(ReadError::fault(at, FaultKind::Count { field: "the cells", expected, found }));
    }
    Ok(shape)
}

impl Record {
    /// How many bytes the cells take.
    pub(super) fn cell_bytes(&self) -> u64 {
        self.shape.count() as u64 * self.dtype.size() as u64
    }

    /// The record as an entry without a name.
    pub(super) fn entry(&self, position: u32, index: u32) -> Entry {
        let mut entry = Entry::new(position, index, Kind::Data);
        let (count, stride) = (self.shape.count() as u64, self.dtype.size() as u64);
        if count > 0 {
            entry.payload = Payload::Runs(Runs::One(Segment { offset: self.cells, count, stride }));
        }
        entry.shape = self.shape.clone();
        entry.dtype = Some(self.dtype);
        entry
    }
}

/// Whether these bytes begin with a version of NeoML, as a record does.
pub(super) fn is_version(head: &[u8]) -> bool {
    let version = head.split_first().filter(|(long, _)| **long == LONG).and_then(|(_, word)| word.first_chunk::<4>());
    version.is_some_and(|word| VERSIONS.contains(&i32::from_le_bytes(*word)))
}

/// Reads a `SerializeBlob`: the null flag, then the record.
pub(super) fn nullable(cursor: &mut Cursor<'_>) -> Result<Option<Record>, ReadError> {
    let at = cursor.pos();
    match cursor.u8(cursor.file_len(), "whether a blob is null")? {
        0 => read(cursor).map(Some),
        1 => Ok(None),
        found => {
            let what =
                FaultKind::Flag { field: "whether a blob is null", found: found.into(), known: "0 (no) or 1 (yes)" };
            Err(ReadError::fault(at, what))
        }
    }
}

/// Adds the names of the axes of all tensors to the metadata.
pub(super) fn note_axes(table: &mut NameTable) {
    let names: Vec<_> = blob_core::BlobDim::ALL.iter().map(ToString::to_string).collect();
    table.metadata.push(("axes".to_owned(), names.join(", ")));
}
