//! The heaps of messages that several objects share: a file may keep equal datatypes or shapes once.
//!
//! HDF5 File Format Specification 3.0, III.D and IV.A.2.p. The reader parses the heaps; the table that names them is
//! parsed here, because the reader resolves only whole headers.

use std::cell::RefCell;

use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};

use super::header::{Header, SHARED_TABLE, number};
use super::structure::Structure;
use crate::error::{FaultKind, ReadError};

/// The heaps of a file.
#[derive(Debug, Default)]
pub(super) struct SharedHeaps {
    heaps: Vec<SharedHeap>,
}

#[derive(Debug)]
struct SharedHeap {
    /// A bit for each type of message that the heap holds.
    kinds: u64,
    heap: FractalHeap,
    blocks: RefCell<FractalHeapDirectBlockCache>,
}

impl SharedHeaps {
    /// Reads the table that the superblock's extension names; no heaps without one.
    pub(super) fn read(structure: &Structure) -> Result<Self, ReadError> {
        let Some(extension) = structure.extension() else {
            return Ok(Self::default());
        };
        let extension = Header::read(structure, extension)?;
        let Some(message) = extension.of_kind(SHARED_TABLE).next() else {
            return Ok(Self::default());
        };
        let (offsets, lengths) = structure.sizes();
        let width = usize::from(offsets);
        let broken =
            |found: &'static str| ReadError::fault(message.at, FaultKind::words("a table of shared messages", found));
        // Version, the table's address, the number of its rows.
        let address = message.body.get(1..1 + width).map(number).ok_or_else(|| broken("a message that ends early"))?;
        let rows = usize::from(*message.body.get(1 + width).ok_or_else(|| broken("a message that ends early"))?);
        // Version, kind, types, sizes and counts; the addresses of the row's index and of its heap.
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
            let heap =
                structure.call(|file| FractalHeap::parse_at_storage(file.storage(), address, offsets, lengths))?;
            Ok(SharedHeap { kinds: number(&row[2..4]), heap, blocks: RefCell::default() })
        });
        Ok(Self { heaps: rows.collect::<Result<_, ReadError>>()? })
    }

    /// A message of this type; `at` is where it is referred to.
    pub(super) fn message(
        &self,
        structure: &Structure,
        kind: u16,
        heap_id: &[u8],
        at: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let holds = |heap: &&SharedHeap| kind < 64 && heap.kinds & 1 << kind != 0;
        let heap = self.heaps.iter().find(holds).ok_or_else(|| {
            let found = format!("none for messages of type {kind}");
            ReadError::fault(at, FaultKind::words("a heap of shared messages", found))
        })?;
        let (offsets, lengths) = structure.sizes();
        let mut blocks = heap.blocks.borrow_mut();
        structure
            .call(|file| heap.heap.get_object_storage_cached(heap_id, file.storage(), offsets, lengths, &mut blocks))
    }
}
