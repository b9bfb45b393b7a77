//! A NeoML archive without tensors: headers, null flags, and data that only NeoML understands.
//!
//! Enough to write the same archive again, also with other values. `write` makes the bytes.

use std::collections::HashMap;

use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::limits::Limits;
use crate::neoml::record::{self, HEAD, Record};
use crate::neoml::{net, read};
use crate::wire::cursor::Cursor;
use crate::wire::source::Source;

/// The most bytes of a file beside the blobs, all kept in memory: nets have a few hundred such bytes a layer.
const MAX_BYTES: u64 = 64 << 20;

/// The blobs of a NeoML archive to be written, in order, without values.
///
/// Each blob names the tensor that holds the values, by index in a [`Layout`](crate::layout::Layout).
///
/// ```
/// use blob_core::{DType, Dims7, Shape};
/// use blob_io::neoml::Archive;
/// use blob_io::layout::{Frame, Layout, TensorSpec};
///
/// let images = Shape::from(Dims7::new([1, 3, 1, 4, 5, 1, 6])?);
/// let layout = Layout::new(&[TensorSpec::new("w", DType::F32, images)], Frame::Neoml(&Archive::blob()))?;
/// // A blob's header, then its values.
/// assert_eq!((layout.offsets(), layout.len()), (&[45][..], 45 + 4 * 360));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Archive {
    pub(super) parts: Vec<ArchivePart>,
    /// Whether the file has lengths that cover the blobs but cannot be updated, as in a pickle; then sizes must not
    /// change.
    pub(super) is_fixed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum ArchivePart {
    Bytes(Vec<u8>),
    Blob {
        version: i32,
        pack: i32,
        tensor: usize,
        found: Option<OldBlob>,
    },
    /// A blob of the file that is changed, which is kept.
    Kept(OldBlob),
}

/// A blob of an existing file.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldBlob {
    pub(super) head: [u8; HEAD],
    /// The offset and the length of the cells, which is NeoML's word for values.
    pub(super) cells: u64,
    pub(super) len: u64,
}

impl Archive {
    /// One bare blob without a name, like a file of `neoml.Blob.store`.
    #[must_use]
    pub fn blob() -> Self {
        Self { parts: vec![ArchivePart::new_blob(0)], is_fixed: false }
    }

    /// An array of `len` blobs without names, like the output of `SerializeBlobs`.
    #[must_use]
    pub fn array(len: usize) -> Self {
        // The layout refuses a count beyond NeoML's numbers.
        let count = u32::try_from(len).unwrap_or(u32::MAX);
        let mut parts = vec![ArchivePart::Bytes(count.to_le_bytes().to_vec())];
        for tensor in 0..len {
            parts.extend([ArchivePart::Bytes(vec![0]), ArchivePart::new_blob(tensor)]);
        }
        Self { parts, is_fixed: false }
    }

    /// The archive of a file with some blobs replaced: tensor `i` of a layout takes the place of blob `blobs[i]`. The
    /// other blobs are kept, at [`Layout::copies`](crate::layout::Layout::copies).
    #[must_use]
    pub fn replacing(mut self, blobs: &[usize]) -> Self {
        let given: HashMap<usize, usize> = blobs.iter().enumerate().map(|(tensor, blob)| (*blob, tensor)).collect();
        for part in &mut self.parts {
            if let ArchivePart::Blob { tensor, found, .. } = part {
                match (given.get(tensor), &found) {
                    (None, Some(found)) => *part = ArchivePart::Kept(*found),
                    (Some(given), _) => *tensor = *given,
                    (None, None) => {}
                }
            }
        }
        self
    }

    /// How many blobs take a tensor of the layout.
    pub(super) fn blobs(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, ArchivePart::Blob { .. })).count()
    }

    /// Reads a file without the arrays' values; `None` for other formats.
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

    /// The archive of these records, with all bytes of the source around the cells.
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
            keep_until(&mut cursor, record.at, &mut parts)?;
            let head = cursor.array::<HEAD>(source.len(), "the head of a blob")?;
            let found = OldBlob { head, cells: cursor.pos(), len: record.cell_bytes() };
            let (version, pack) = (record.version, record.pack);
            parts.push(ArchivePart::Blob { version, pack, tensor, found: Some(found) });
            cursor.skip(found.len, "the cells")?;
        }
        keep_until(&mut cursor, source.len(), &mut parts)?;
        Ok(Self { parts, is_fixed })
    }
}

impl ArchivePart {
    /// A blob of the current version.
    fn new_blob(tensor: usize) -> Self {
        Self::Blob { version: 2000, pack: 0, tensor, found: None }
    }
}

/// Keeps the bytes up to `end`.
fn keep_until(cursor: &mut Cursor<'_>, end: u64, parts: &mut Vec<ArchivePart>) -> Result<(), ReadError> {
    let len = end.saturating_sub(cursor.pos());
    if len > 0 {
        parts.push(ArchivePart::Bytes(cursor.bytes(len, end, MAX_BYTES, "what lies beside the blobs")?));
    }
    Ok(())
}
