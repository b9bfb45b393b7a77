//! Reads the root's text attributes as metadata: scalar texts of variable length, which lie in a heap, or of fixed
//! length. Names other attributes as lost, and says where those of newer files lie outside of the root's header.

use std::collections::HashMap;

use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::attribute::AttributeMessage;
use hdf5_reader::messages::datatype::{Datatype, VarLenKind};

use super::header::{ATTRIBUTE, ATTRIBUTE_INFO, Header};
use super::structure::Structure;
use crate::error::ReadError;
use crate::metadata::{LEFT_OUT, MetadataSize};
use crate::names::{NameTable, name_from_bytes};
use crate::words::Listed;

/// How many names a warning lists, and how many characters of each.
pub(super) const MAX_LISTED: usize = 3;
pub(super) const LONGEST_LISTED: usize = 64;
/// How many values of one heap are listed, and how many of all heaps are kept.
const MAX_VALUES: usize = 4096;
const MAX_KEPT: usize = 1 << 16;
/// The name of a heap in errors.
const HEAP: &str = "a heap of texts";

/// Reads the text attributes into the table's metadata.
pub(super) fn read(structure: &Structure, table: &mut NameTable) -> Result<(), ReadError> {
    match texts(structure, table) {
        // The arrays are sound without the attributes.
        Err(ReadError::Fault(fault)) => {
            table.warn_of_loss(Some(fault.offset()), "the root's attributes cannot all be read")
        }
        read => read?,
    }
    Ok(())
}

fn texts(structure: &Structure, table: &mut NameTable) -> Result<(), ReadError> {
    let header = Header::read(structure, structure.root()?)?;
    let at = header.at;
    let mut kept = MetadataSize::default();
    let mut heaps = Heaps::default();
    let mut others = Listed::<String, MAX_LISTED>::default();
    for message in header.of_kind(ATTRIBUTE) {
        let attribute = match message.parsed(structure) {
            Ok(HdfMessage::Attribute(attribute)) => attribute,
            Err(stop @ ReadError::Io { .. }) => return Err(stop),
            _ => {
                others.push(|| "one that cannot be read".to_owned());
                continue;
            }
        };
        let Some(location) = text_location(structure, &attribute, &mut heaps)? else {
            others.push(|| attribute.name.chars().take(LONGEST_LISTED).collect());
            continue;
        };
        let len = match location {
            TextLocation::Inline => attribute.raw_data.len() as u64,
            TextLocation::Heap { len, .. } => len,
        };
        if !kept.take(&attribute.name, len) {
            table.warn_of_loss(Some(at), LEFT_OUT);
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
    table.warn_of_names("attributes of the root that are no texts are left out", &others);
    if is_elsewhere(&header) {
        table.warn_of_loss(None, "attributes of the root that lie outside of its header are left out");
    }
    Ok(())
}

/// Whether an object has attributes.
pub(super) fn has_any(header: &Header) -> bool {
    header.of_kind(ATTRIBUTE).next().is_some() || is_elsewhere(header)
}

/// Whether an object's attributes lie outside of the header: then a message has the address of the attributes' heap,
/// which is undefined otherwise (IV.A.2.v).
fn is_elsewhere(header: &Header) -> bool {
    header.of_kind(ATTRIBUTE_INFO).any(|message| {
        let Some([_, flags, rest @ ..]) = message.body.get(..) else { return false };
        let index = if flags & 1 == 1 { 2 } else { 0 };
        rest.get(index..index + 8).is_some_and(|address| address != [0xFF; 8])
    })
}

/// Where a text lies: in the attribute itself, or in a heap.
enum TextLocation {
    Inline,
    Heap { at: u64, len: u64 },
}

/// The location of an attribute's text; `None` where the attribute is not a single text.
fn text_location(
    structure: &Structure,
    attribute: &AttributeMessage,
    heaps: &mut Heaps,
) -> Result<Option<TextLocation>, ReadError> {
    let is_single = attribute.dataspace.dims.iter().all(|dim| *dim == 1);
    match attribute.datatype {
        Datatype::String { .. } if is_single => Ok(Some(TextLocation::Inline)),
        Datatype::VarLen { kind: VarLenKind::String, .. } if is_single => heaps.find(structure, &attribute.raw_data),
        _ => Ok(None),
    }
}

/// The values of heaps by the heap's address and the value's index: a file has few heaps, and many texts in each.
#[derive(Default)]
struct Heaps {
    values: HashMap<u64, HashMap<u64, (u64, u64)>>,
    count: usize,
}

impl Heaps {
    /// Finds a text in a heap. The reference has the text's length, the heap's address and the text's index there.
    fn find(&mut self, structure: &Structure, reference: &[u8]) -> Result<Option<TextLocation>, ReadError> {
        let (8, 8) = structure.sizes() else {
            return Ok(None);
        };
        let (Some(len), Some(heap), Some(number)) =
            (word(reference, 0, 4), word(reference, 4, 8), word(reference, 12, 4))
        else {
            return Ok(None);
        };
        if len == 0 {
            return Ok(Some(TextLocation::Inline));
        }
        if !self.values.contains_key(&heap) {
            let values = values_of(structure, structure.begin().saturating_add(heap))?;
            if self.count + values.len() > MAX_KEPT {
                (self.values, self.count) = (HashMap::new(), 0);
            }
            self.count += values.len();
            self.values.insert(heap, values);
        }
        let found = self.values.get(&heap).and_then(|values| values.get(&number));
        Ok(found.filter(|(_, size)| len <= *size).map(|(at, _)| TextLocation::Heap { at: *at, len }))
    }
}

/// The values of the heap at `at`: the offset and the size of each, by index.
fn values_of(structure: &Structure, mut at: u64) -> Result<HashMap<u64, (u64, u64)>, ReadError> {
    let mut values = HashMap::new();
    let head = structure.bytes(at, 16, HEAP)?;
    let (Some(size), true) = (word(&head, 8, 8), head.starts_with(b"GCOL")) else {
        return Ok(values);
    };
    let end = at.saturating_add(size).min(structure.file_len());
    at += 16;
    while values.len() < MAX_VALUES && at.saturating_add(16) <= end {
        let value = structure.bytes(at, 16, HEAP)?;
        let (Some(index), Some(size)) = (word(&value, 0, 2), word(&value, 8, 8)) else {
            break;
        };
        at += 16;
        if index == 0 || at.checked_add(size).is_none_or(|behind| behind > end) {
            break;
        }
        values.entry(index).or_insert((at, size));
        at += size.next_multiple_of(8);
    }
    Ok(values)
}

/// A little-endian number of `len` bytes.
fn word(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..len].copy_from_slice(bytes.get(at..at + len)?);
    Some(u64::from_le_bytes(word))
}
