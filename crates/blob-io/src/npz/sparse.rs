//! Reads sparse arrays in an archive: a folder of `data`, `indices`, `indptr`, `shape` and `format`, as in files of
//! MXNet 2 and `scipy.sparse.save_npz`.

use std::sync::Arc;

use blob_core::{DType, Shape};

use crate::entry::{Entry, Kind, Sparse, SparseKind};
use crate::error::ReadError;
use crate::names::{NameTable, name_from_bytes};
use crate::npy::header;
use crate::npz::archive::Archive;
use crate::npz::index::Slot;
use crate::npz::zip::ZipMember;
use crate::payload;
use crate::tensor_name::TensorName;
use crate::warning::Flag;
use crate::wire::cursor::Cursor;
use crate::wire::source::Bytes;

/// The parts that have an entry, in order, with the suffix of the entry's name.
const KINDS: [Kind; 3] = [Kind::Values, Kind::Indices, Kind::Indptr];

/// Adds the parts of a sparse array; false, with nothing added, if the folder holds something else.
pub(crate) fn push(archive: &mut Archive<'_, '_>, slots: &[Slot], table: &mut NameTable) -> Result<bool, ReadError> {
    let mut members: [Option<ZipMember>; 5] = [const { None }; 5];
    for slot in slots {
        if let Some(part) = slot.part() {
            members[part] = Some(archive.member(*slot)?);
        }
    }
    let [Some(data), Some(indices), indptr, Some(shape), Some(format)] = &members else {
        return Ok(false);
    };
    let base = folder(data);
    let same = members.iter().flatten().all(|member| folder(member) == base);
    let (kind, broken) = match format_of(archive, format) {
        Err(ReadError::Fault(_)) => (None, false),
        other => other?,
    };
    let dims = match shape_of(archive, shape) {
        Err(ReadError::Fault(_)) => None,
        other => other?,
    };
    let (Some(kind), Some(shape), true) = (kind, dims, same) else {
        table.warn(None, "a folder looks like a sparse array, but its format or shape is not one of MXNet's; its parts are listed one by one");
        return Ok(false);
    };
    if indptr.is_some() != (kind == SparseKind::Csr) {
        table.warn(
            None,
            "a sparse array has an indptr without being csr, or the other way round; its parts are listed one by one",
        );
        return Ok(false);
    }
    let name: Arc<str> = name_from_bytes(base).as_ref().into();
    let position = table.next_position(slots[0].record)?;
    let sparse = Arc::new(Sparse { kind, name: name.clone(), shape });
    let parts = [Some(data), Some(indices), indptr.as_ref()];
    for (index, (member, part)) in parts.into_iter().zip(KINDS).enumerate() {
        let Some(member) = member else { continue };
        let mut entry = archive.entry(member, position, index as u32, part, table)?;
        if broken {
            entry.flags.set(Flag::BrokenFormatHeader);
        }
        entry.sparse = Some(sparse.clone());
        table.push(entry, &TensorName::new(&name, part).to_string(), slots[0].record)?;
    }
    Ok(true)
}

fn folder(member: &ZipMember) -> &[u8] {
    let slash = member.name.iter().rposition(|b| *b == b'/');
    &member.name[..slash.unwrap_or(0)]
}

/// The format, and whether the header is broken, as in files of MXNet 2. The text is at the member's end, plain (`|S3`)
/// or in UTF-32 (`<U3`).
fn format_of(archive: &mut Archive<'_, '_>, member: &ZipMember) -> Result<(Option<SparseKind>, bool), ReadError> {
    let Some(bytes) = archive.bytes(member, header::LONGEST_INFLATED)? else {
        return Ok((None, false));
    };
    let text: Vec<u8> = bytes.iter().copied().filter(|b| *b != 0).collect();
    let kind = [SparseKind::RowSparse, SparseKind::Csr].into_iter().find(|kind| {
        let before = text.strip_suffix(kind.name().as_bytes());
        before.is_some_and(|before| !before.last().is_some_and(u8::is_ascii_alphabetic))
    });
    let whole = Bytes(&bytes[..]);
    let mut cursor = Cursor::new(&whole);
    let is_broken = header::read(&mut cursor, bytes.len() as u64).is_err();
    Ok((kind, is_broken))
}

/// The dense shape: a list of i64, or of i32 as in SciPy's files.
fn shape_of(archive: &mut Archive<'_, '_>, member: &ZipMember) -> Result<Option<Shape>, ReadError> {
    let Some(bytes) = archive.bytes(member, header::LONGEST_INFLATED)? else {
        return Ok(None);
    };
    let len = bytes.len() as u64;
    let whole = Bytes(bytes);
    let mut cursor = Cursor::new(&whole);
    let (header, data) = header::read(&mut cursor, len)?;
    let mut entry = Entry::new(0, 0, Kind::Data);
    header.describe(&mut entry, data, len - data)?;
    if entry.shape.num_axes() != 1 || entry.shape.count() > blob_core::MAX_AXES {
        return Ok(None);
    }
    let bytes = payload::bytes(&whole, &entry)?;
    let dims: Option<Vec<usize>> = match entry.dtype {
        Some(DType::I64) => {
            let (words, _) = bytes.as_chunks::<8>();
            words.iter().map(|w| i64::from_le_bytes(*w).try_into().ok()).collect()
        }
        Some(DType::I32) => {
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().map(|w| i32::from_le_bytes(*w).try_into().ok()).collect()
        }
        _ => None,
    };
    Ok(dims.and_then(|dims| Shape::new(dims).ok()))
}
