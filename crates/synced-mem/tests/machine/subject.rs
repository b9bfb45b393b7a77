//! A shared memory under test, seen in cells of some bytes each.

use std::ops::Range;
use std::sync::Arc;

use synced_mem::SharedMem;

use crate::model::DEVICES;
use crate::rig::Rig;
use crate::watched::Watch;

/// A memory under test.
pub(crate) struct Subject {
    pub(crate) memory: SharedMem,
    pub(crate) watch: Arc<Watch>,
    /// How many bytes a cell has.
    pub(crate) scale: usize,
    /// A guard was leaked, so the memory never ends.
    pub(crate) leaked: bool,
    /// Adopted bytes are a second copy on the host with a bound of its own.
    pub(crate) adopted: bool,
}

impl Subject {
    pub(crate) fn new(memory: SharedMem, scale: usize) -> Self {
        let watch = Watch::over(&memory);
        Self { memory, watch, scale, leaked: false, adopted: false }
    }

    /// Cells, in bytes.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> Range<usize> {
        range.start * self.scale..range.end * self.scale
    }

    pub(crate) fn content(&self, values: &[u8]) -> Vec<u8> {
        let cells = values.iter().map(|value| vec![*value; self.scale]);
        cells.collect::<Vec<_>>().concat()
    }

    pub(crate) fn is_valid(&self, rig: &Rig, site: Option<usize>, cell: usize) -> bool {
        let bytes = self.bytes(&(cell..cell + 1));
        self.memory.valid_on(rig.place(site), bytes)
    }

    pub(crate) fn validity(&self, rig: &Rig, cells: usize) -> Vec<[bool; 1 + DEVICES]> {
        let of = |cell| std::array::from_fn(|site: usize| self.is_valid(rig, site.checked_sub(1), cell));
        (0..cells).map(of).collect()
    }

    /// Drops the last handle.
    pub(crate) fn end(self) -> Arc<Watch> {
        self.watch.let_go();
        self.watch
    }
}
