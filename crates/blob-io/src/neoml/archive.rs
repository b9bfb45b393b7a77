//! What a NeoML archive holds beside its tensors: heads, null places, and all that only NeoML understands.
//!
//! Enough to write the same archive again, or the same around other values. The bytes are `write`'s.

use std::collections::HashMap;

use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::limits::Limits;
use crate::neoml::record::{self, HEAD, Record};
use crate::neoml::{net, read};
use crate::wire::cursor::Cursor;
use crate::wire::source::Source;

/// What a file may hold beside its blobs: nets have some hundred bytes a layer, and all of it is kept in memory.
const MAX_BYTES: u64 = 64 << 20;

/// The blobs of a NeoML archive that is to be written, in their order, without their values.
///
/// Each names the tensor of a [`Layout`](crate::Layout) that holds its values, by its index there.
///
/// ```
/// use blob_core::{DType, Dims7, Shape};
/// use blob_io::neoml::Archive;
/// use blob_io::{Frame, Layout, TensorSpec};
///
/// let images = Shape::from(Dims7::new([1, 3, 1, 4, 5, 1, 6])?);
/// let layout = Layout::new(&[TensorSpec::new("w", DType::F32, images)], Frame::Neoml(&Archive::blob()))?;
/// // A blob's head, then its cells.
/// assert_eq!((layout.offsets(), layout.len()), (&[45][..], 45 + 4 * 360));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Archive {
    pub(super) parts: Vec<Part>,
    /// Whether lengths that are not known count the bytes of the blobs, as those of a pickle do.
    pub(super) is_fixed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    Blob {
        version: i32,
        pack: i32,
        tensor: usize,
        found: Option<Found>,
    },
    /// A blob of the file that is changed, which stays.
    Kept(Found),
}

/// A blob as a file has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) head: [u8; HEAD],
    /// Where its cells are, and their bytes.
    pub(super) cells: u64,
    pub(super) len: u64,
}

impl Archive {
    /// One bare blob, as `neoml.Blob.store` writes it; it has no name.
    #[must_use]
    pub fn blob() -> Self {
        Self { parts: vec![Part::new_blob(0)], is_fixed: false }
    }

    /// An array of `len` blobs, as `SerializeBlobs` writes it; they have no names.
    #[must_use]
    pub fn array(len: usize) -> Self {
        // A count that NeoML has no number for is refused with the layout.
        let count = u32::try_from(len).unwrap_or(u32::MAX);
        let mut parts = vec![Part::Bytes(count.to_le_bytes().to_vec())];
        for tensor in 0..len {
            parts.extend([Part::Bytes(vec![0]), Part::new_blob(tensor)]);
        }
        Self { parts, is_fixed: false }
    }

    /// The archive of a file that gives these of its blobs only, by their index, for the tensors of a layout in their
    /// order; the others stay as the file has them, at [`Layout::copies`](crate::Layout::copies).
    #[must_use]
    pub fn replacing(mut self, blobs: &[usize]) -> Self {
        let given: HashMap<usize, usize> = blobs.iter().enumerate().map(|(tensor, blob)| (*blob, tensor)).collect();
        for part in &mut self.parts {
            if let Part::Blob { tensor, found, .. } = part {
                match (given.get(tensor), &found) {
                    (None, Some(found)) => *part = Part::Kept(*found),
                    (Some(given), _) => *tensor = *given,
                    (None, None) => {}
                }
            }
        }
        self
    }

    /// How many blobs are to be given.
    pub(super) fn blobs(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Blob { .. })).count()
    }

    /// What a file holds beside the values of its arrays; `None` for other formats.
    pub(crate) fn read(source: &dyn Source, format: Format, limits: &Limits) -> Result<Option<Self>, ReadError> {
        let mut cursor = Cursor::new(source);
        let mut records = Vec::new();
        match format {
            Format::NeomlBlob => records.push(record::read(&mut cursor)?),
            Format::NeomlArray => read::walk_array(&mut cursor, limits.max_arrays, &mut |_, record| {
                records.extend(record);
                Ok(())
            })?,
            Format::NeomlNet => records = net::records(&mut cursor)?,
            _ => return Ok(None),
        }
        cursor.seek(0);
        let is_pickle = !source.is_empty() && cursor.u8(1, "the first byte")? == read::PICKLE;
        Self::of_records(source, &records, is_pickle).map(Some)
    }

    /// The archive of these records, with all bytes around their cells as the source has them.
    fn of_records(source: &dyn Source, records: &[Record], is_fixed: bool) -> Result<Self, ReadError> {
        let cells: u64 = records.iter().map(Record::cell_bytes).sum();
        let beside = source.len() - cells;
        if beside > MAX_BYTES {
            let what = FaultKind::words(
                "at most 64 MiB beside the blobs of a file that is written again",
                format!("{beside} bytes"),
            );
            return Err(ReadError::fault(0, what));
        }
        let mut cursor = Cursor::new(source);
        let mut parts = Vec::new();
        for (tensor, record) in records.iter().enumerate() {
            take(&mut cursor, record.at, &mut parts)?;
            let head = cursor.array::<HEAD>(source.len(), "the head of a blob")?;
            let found = Found { head, cells: cursor.pos(), len: record.cell_bytes() };
            let (version, pack) = (record.version, record.pack);
            parts.push(Part::Blob { version, pack, tensor, found: Some(found) });
            cursor.skip(found.len, "the cells")?;
        }
        take(&mut cursor, source.len(), &mut parts)?;
        Ok(Self { parts, is_fixed })
    }
}

impl Part {
    /// As NeoML writes it now.
    fn new_blob(tensor: usize) -> Self {
        Self::Blob { version: 2000, pack: 0, tensor, found: None }
    }
}

/// Keeps the bytes up to a place.
fn take(cursor: &mut Cursor<'_>, end: u64, parts: &mut Vec<Part>) -> Result<(), ReadError> {
    let len = end.saturating_sub(cursor.pos());
    if len > 0 {
        parts.push(Part::Bytes(cursor.bytes(len, end, MAX_BYTES, "what lies beside the blobs")?));
    }
    Ok(())
}
