//! Lists the links of a group from all three places: the group's header, a heap, and a table of symbols.
//!
//! A name is bytes here: HDF5 stores any. Leaves following the links to `tree`.

use hdf5_reader::btree_v1::collect_btree_v1_leaves_storage;
use hdf5_reader::btree_v2::{BTreeV2Header, BTreeV2Record, collect_btree_v2_records_storage};
use hdf5_reader::error::Result as Hdf5Result;
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};
use hdf5_reader::io::Cursor as Hdf5Cursor;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::link_info::LinkInfoMessage;
use hdf5_reader::messages::symbol_table_msg::SymbolTableMessage;
use hdf5_reader::symbol_table::SymbolTableNode;

use super::header::{Header, LINK, LINK_INFO, SYMBOL_TABLE, number};
use super::structure::Structure;
use crate::error::{FaultKind, ReadError};

/// A link of a group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: Box<[u8]>,
    pub(super) to: Target,
}

/// The target of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The object at this address.
    Object(u64),
    /// A path, from the group or from the root.
    Path(Box<[u8]>),
    /// An object in another file.
    Elsewhere,
}

/// The bytes that are no link.
fn broken(at: u64) -> ReadError {
    ReadError::fault(at, FaultKind::words("a link", "bytes that are none"))
}

/// The links of a group, sorted by name as in h5py and h5ls; newer files store links in the order of hashes.
pub(super) fn of_group(structure: &Structure, group: &Header) -> Result<Vec<Link>, ReadError> {
    let mut links = Vec::new();
    for message in group.of_kind(SYMBOL_TABLE) {
        if let HdfMessage::SymbolTable(table) = message.parsed(structure)? {
            symbols(structure, &table, message.at, &mut links)?;
        }
    }
    for message in group.of_kind(LINK) {
        let body = message.bytes(structure)?;
        links.push(link(&body, structure.sizes().0.into()).ok_or_else(|| broken(message.at))?);
    }
    for message in group.of_kind(LINK_INFO) {
        if let HdfMessage::LinkInfo(info) = message.parsed(structure)?
            && !structure.is_undefined(info.fractal_heap_address)
        {
            dense(structure, &info, message.at, &mut links)?;
        }
    }
    links.sort_by(|a, b| a.name.cmp(&b.name));
    links.dedup_by(|later, first| later.name == first.name);
    Ok(links)
}

/// Reads a link message of version 1 (IV.A.2.g).
fn link(body: &[u8], offsets: usize) -> Option<Link> {
    let (&[version, flags], mut rest) = body.split_first_chunk::<2>()?;
    let kind = if flags & 0x08 == 0 { 0 } else { take(&mut rest, 1)?[0] };
    if flags & 0x04 != 0 {
        take(&mut rest, 8)?;
    }
    if flags & 0x10 != 0 {
        take(&mut rest, 1)?;
    }
    let len = number(take(&mut rest, 1 << (flags & 3))?);
    let name = take(&mut rest, usize::try_from(len).ok()?)?.into();
    let to = match (version, kind) {
        (1, 0) => Target::Object(number(take(&mut rest, offsets)?)),
        (1, 1) => {
            let len = number(take(&mut rest, 2)?) as usize;
            Target::Path(without_nul(take(&mut rest, len)?).into())
        }
        // Kinds from 64 on are an application's own; 64 itself is HDF5's link to another file.
        (1, _) => Target::Elsewhere,
        _ => return None,
    };
    Some(Link { name, to })
}

fn take<'b>(rest: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn without_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or(text)
}

/// The links in a heap, which a tree lists.
fn dense(structure: &Structure, info: &LinkInfoMessage, at: u64, links: &mut Vec<Link>) -> Result<(), ReadError> {
    let (offsets, lengths) = structure.sizes();
    let bodies: Vec<Vec<u8>> = structure.call(|file| {
        let storage = file.storage();
        let heap = FractalHeap::parse_at_storage(storage, info.fractal_heap_address, offsets, lengths)?;
        let tree = BTreeV2Header::parse_at_storage(storage, info.btree_name_index_address, offsets, lengths)?;
        let records = collect_btree_v2_records_storage(storage, &tree, offsets, lengths, None, &[], None)?;
        let mut blocks = FractalHeapDirectBlockCache::default();
        let ids = records.iter().filter_map(|record| match record {
            BTreeV2Record::LinkNameHash { heap_id, .. } | BTreeV2Record::CreationOrder { heap_id, .. } => Some(heap_id),
            _ => None,
        });
        ids.map(|id| {
            let body = heap.get_object_storage_cached(id, storage, offsets, lengths, &mut blocks)?;
            let counted = structure.count_copied(at, body.len() as u64);
            counted.map(|()| body).map_err(|stop| structure.stopped(stop))
        })
        .collect::<Hdf5Result<_>>()
    })?;
    for body in bodies {
        links.push(link(&body, offsets.into()).ok_or_else(|| broken(at))?);
    }
    Ok(())
}

/// The links in a table of symbols, whose names lie in a separate heap.
fn symbols(structure: &Structure, table: &SymbolTableMessage, at: u64, links: &mut Vec<Link>) -> Result<(), ReadError> {
    let (offsets, lengths) = structure.sizes();
    let (names, nodes) = structure.call(|file| {
        let storage = file.storage();
        let heap = LocalHeap::parse_at_storage(storage, table.heap_address, offsets, lengths)?;
        let leaves = collect_btree_v1_leaves_storage(storage, table.btree_address, offsets, lengths, None, &[], None)?;
        let mut nodes = Vec::new();
        for (_, address) in leaves {
            // Signature, version, a zero, the number of symbols.
            let head = storage.read_range(address, 8)?;
            let len = 8 + number(&head.as_ref()[6..8]) as usize * (2 * usize::from(offsets) + 24);
            let node = storage.read_range(address, len)?;
            nodes.push(SymbolTableNode::parse(&mut Hdf5Cursor::new(node.as_ref()), offsets, lengths)?);
        }
        let len = usize::try_from(heap.data_segment_size).unwrap_or(usize::MAX);
        let names =
            if nodes.is_empty() { Vec::new() } else { storage.read_range(heap.data_segment_address, len)?.to_vec() };
        Ok((names, nodes))
    })?;
    for symbol in nodes.iter().flat_map(|node| &node.entries) {
        let text = |offset: u64| names.get(usize::try_from(offset).ok()?..).map(without_nul);
        let name = text(symbol.link_name_offset).ok_or_else(|| broken(at))?;
        let to = match symbol.cache_type {
            // A soft link: the scratch pad has the offset of the path.
            2 => Target::Path(text(number(&symbol.scratch[..4])).ok_or_else(|| broken(at))?.into()),
            _ => Target::Object(symbol.object_header_address),
        };
        structure.count_copied(at, name.len() as u64)?;
        links.push(Link { name: name.into(), to });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_what_their_messages_say() {
        let found = |body: &[u8]| link(body, 8).map(|link| (link.name.to_vec(), link.to));
        let object = |name: &[u8]| Some((name.to_vec(), Target::Object(0x30)));
        assert_eq!(found(b"\x01\x00\x01x\x30\0\0\0\0\0\0\0"), object(b"x"));
        // A creation order, a character set, and a length of two bytes; a name that is not UTF-8.
        assert_eq!(found(b"\x01\x15\x07\0\0\0\0\0\0\0\x00\x02\0\xE2\xE5\x30\0\0\0\0\0\0\0"), object(b"\xE2\xE5"));
        let path = |path: &[u8]| Some((b"s".to_vec(), Target::Path(path.into())));
        assert_eq!(found(b"\x01\x08\x01\x01s\x02\0/g"), path(b"/g"));
        assert_eq!(found(b"\x01\x08\x40\x01b\x03\0\0x\0"), Some((b"b".to_vec(), Target::Elsewhere)));
        for broken in [&b"\x02\x00\x01x\x30\0\0\0\0\0\0\0"[..], b"\x01\x00\x09x", b"\x01", b"\x01\x00\x01x\x30"] {
            assert_eq!(found(broken), None);
        }
    }
}
