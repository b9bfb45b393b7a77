//! Messages that several objects share: a file may keep equal datatypes or shapes once, in an object or in a heap.
//!
//! HDF5 File Format Specification 3.0, III.D, IV.A.2.m and IV.A.2.p. `hdf5-reader` parses the heaps; the table of the
//! heaps is parsed here, because `hdf5-reader` resolves only whole headers.

use std::cell::RefCell;

use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::fractal_heap::FractalHeap;
use hdf5_reader::io::Cursor as Hdf5Cursor;
use hdf5_reader::messages::shared::{self, SharedMessage};
use hdf5_reader::messages::{HdfMessage, parse_message};

use super::header::{Header, Message, SHARED_TABLE, number};
use super::structure::{SharedHeap, Structure};
use crate::error::{FaultKind, ReadError};

impl Message {
    /// The bytes of the message, which may lie in another object or in the file's heap of shared messages.
    pub(super) fn bytes(&self, structure: &Structure) -> Result<Vec<u8>, ReadError> {
        if !self.is_shared {
            return Ok(self.body.clone());
        }
        let (offsets, lengths) = structure.sizes();
        let mut fields = Hdf5Cursor::new(&self.body);
        let found = structure.call(|_| shared::parse(&mut fields, self.kind, offsets, lengths, self.body.len()))?;
        match found {
            SharedMessage::SharedInSohm { heap_id, .. } => self.in_heap(structure, &heap_id),
            SharedMessage::SharedInOhdr { address, .. } => {
                let other = Header::read(structure, address)?;
                let same = other.messages.into_iter().find(|message| message.kind == self.kind && !message.is_shared);
                same.map(|message| message.body).ok_or_else(|| {
                    let found = "an object without it";
                    ReadError::fault(self.at, FaultKind::words("an object with the message that is shared", found))
                })
            }
        }
    }

    /// The message, parsed into fields.
    pub(super) fn parsed(&self, structure: &Structure) -> Result<HdfMessage, ReadError> {
        let body = self.bytes(structure)?;
        let (offsets, lengths) = structure.sizes();
        structure.at(self.at);
        structure.call(|_| parse_message(self.kind, body.len(), &mut Hdf5Cursor::new(&body), offsets, lengths))
    }

    /// The bytes of the message in one of the file's heaps of shared messages.
    fn in_heap(&self, structure: &Structure, heap_id: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut heaps = structure.shared_heaps(heaps)?.iter();
        let heap = heaps.find(|heap| self.kind < 64 && heap.kinds & 1 << self.kind != 0).ok_or_else(|| {
            let found = format!("none for messages of type {}", self.kind);
            ReadError::fault(self.at, FaultKind::words("a heap of shared messages", found))
        })?;
        let (offsets, lengths) = structure.sizes();
        let mut blocks = heap.blocks.borrow_mut();
        let body = structure
            .call(|file| heap.heap.get_object_storage_cached(heap_id, file.storage(), offsets, lengths, &mut blocks))?;
        structure.count_copied(self.at, body.len() as u64).map(|()| body)
    }
}

/// Reads the table that the superblock's extension names; no heaps without one.
fn heaps(structure: &Structure) -> Result<Vec<SharedHeap>, ReadError> {
    let Some(extension) = structure.extension() else {
        return Ok(Vec::new());
    };
    let extension = Header::read(structure, extension)?;
    let Some(message) = extension.of_kind(SHARED_TABLE).next() else {
        return Ok(Vec::new());
    };
    let (offsets, lengths) = structure.sizes();
    let width = usize::from(offsets);
    let broken =
        |found: &'static str| ReadError::fault(message.at, FaultKind::words("a table of shared messages", found));
    // Version, the table's address, the number of rows.
    let address = message.body.get(1..1 + width).map(number).ok_or_else(|| broken("a message that ends early"))?;
    let rows = usize::from(*message.body.get(1 + width).ok_or_else(|| broken("a message that ends early"))?);
    // Version, kind, types, sizes and counts; the addresses of the row's index and heap.
    let row_len = 14 + 2 * width;
    let len = 4 + rows * row_len + 4;
    let at = structure.begin().saturating_add(address);
    let table = structure.bytes(at, len as u64, "the table of shared messages")?;
    let (covered, stored) = table.split_at(len - 4);
    if !covered.starts_with(b"SMTB") || u64::from(jenkins_lookup3(covered)) != number(stored) {
        return Err(broken("one without its mark or its checksum"));
    }
    let rows = covered[4..].chunks_exact(row_len).map(|row| {
        let address = number(&row[14 + width..]);
        let heap = structure.call(|file| FractalHeap::parse_at_storage(file.storage(), address, offsets, lengths))?;
        Ok(SharedHeap { kinds: number(&row[2..4]), heap, blocks: RefCell::default() })
    });
    rows.collect()
}
