//! Reads the root's text attributes as metadata: scalar texts of variable length, which lie in a heap, or of fixed
//! length. Skips other attributes, and those of newer files that lie outside of the root's header.

use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::attribute::AttributeMessage;
use hdf5_reader::messages::datatype::{Datatype, VarLenKind};

use super::structure::Structure;
use crate::error::ReadError;
use crate::metadata::{LEFT_OUT, MetadataSize};
use crate::names::{NameTable, name_from_bytes};

/// How many values of a heap are searched for one.
const MAX_VALUES: u32 = 4096;

/// Reads the text attributes into the table's metadata.
pub(super) fn read(structure: &Structure, table: &mut NameTable) -> Result<(), ReadError> {
    let root = structure.call(|file| file.root_group())?;
    let header = structure.call(|file| file.get_or_parse_header(root.address()))?;
    let at = structure.begin().saturating_add(root.address());
    let mut kept = MetadataSize::default();
    for message in &header.messages {
        let HdfMessage::Attribute(attribute) = message else {
            continue;
        };
        let Some(location) = text_location(structure, attribute)? else {
            continue;
        };
        let len = match location {
            TextLocation::Inline => attribute.raw_data.len() as u64,
            TextLocation::Heap { len, .. } => len,
        };
        if !kept.take(&attribute.name, len) {
            table.warn(Some(at), LEFT_OUT);
            continue;
        }
        let mut bytes = Vec::new();
        match location {
            TextLocation::Inline => bytes.extend(&attribute.raw_data),
            TextLocation::Heap { at, len } => {
                bytes.resize(len as usize, 0);
                structure.read(at, &mut bytes)?;
            }
        }
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        table.metadata.push((attribute.name.clone(), name_from_bytes(&bytes[..end]).into_owned()));
    }
    Ok(())
}

/// Where a text lies: in the attribute itself, or in a heap.
enum TextLocation {
    Inline,
    Heap { at: u64, len: u64 },
}

/// The location of an attribute's text; `None` where it is not a single text.
fn text_location(structure: &Structure, attribute: &AttributeMessage) -> Result<Option<TextLocation>, ReadError> {
    let is_single = attribute.dataspace.dims.iter().all(|dim| *dim == 1);
    match attribute.datatype {
        Datatype::String { .. } if is_single => Ok(Some(TextLocation::Inline)),
        Datatype::VarLen { kind: VarLenKind::String, .. } if is_single => find_in_heap(structure, &attribute.raw_data),
        _ => Ok(None),
    }
}

/// Finds a text in its heap. The reference has the text's length, the heap's address and the text's index in the heap.
fn find_in_heap(structure: &Structure, reference: &[u8]) -> Result<Option<TextLocation>, ReadError> {
    let (8, 8) = structure.sizes() else {
        return Ok(None);
    };
    let (Some(len), Some(heap), Some(number)) = (word(reference, 0, 4), word(reference, 4, 8), word(reference, 12, 4))
    else {
        return Ok(None);
    };
    if len == 0 {
        return Ok(Some(TextLocation::Inline));
    }
    let mut at = structure.begin().saturating_add(heap);
    let read = |at: u64| structure.call(|file| Ok(file.storage().read_range(at, 16)?.to_vec()));
    let head = read(at)?;
    let (Some(size), true) = (word(&head, 8, 8), head.starts_with(b"GCOL")) else {
        return Ok(None);
    };
    let end = at.saturating_add(size);
    at += 16;
    for _ in 0..MAX_VALUES {
        if at.saturating_add(16) > end {
            break;
        }
        let value = read(at)?;
        let (Some(index), Some(size)) = (word(&value, 0, 2), word(&value, 8, 8)) else {
            break;
        };
        at += 16;
        let is_within = at.checked_add(size).is_some_and(|behind| behind <= end.min(structure.file_len()));
        if index == 0 || !is_within {
            break;
        }
        if index == number {
            return Ok((len <= size).then_some(TextLocation::Heap { at, len }));
        }
        at += size.next_multiple_of(8);
    }
    Ok(None)
}

/// A little-endian number of `len` bytes.
fn word(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..len].copy_from_slice(bytes.get(at..at + len)?);
    Some(u64::from_le_bytes(word))
}
