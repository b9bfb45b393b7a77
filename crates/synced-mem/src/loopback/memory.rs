//! The bytes of a loopback machine's devices: slots by address, never two at the same one in the life of the process.
//! Host bytes that a device reads where they lie are pieces too. Relies on the caller to hold the machine's lock, and
//! on the contracts of `Queue::upload` and `Queue::download` for the host bytes of pending work. Knows no order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::DeviceId;

/// The value of fresh and freed bytes, which nobody takes for zeros.
pub(super) const POISON: u8 = 0xA5;

/// Addresses are given out from here, over all machines: one that is not known here is no memory of this machine.
static NEXT_ADDRESS: AtomicU64 = AtomicU64::new(1 << 40);

/// The alignment of addresses, as drivers of GPUs give, and the least distance between two slots.
const ALIGNMENT: u64 = 256;

/// The bytes of all slots, and the misuses.
#[derive(Default)]
pub(super) struct Memory {
    slots: BTreeMap<u64, Slot>,
    pub(super) misuses: Vec<String>,
}

struct Slot {
    device: DeviceId,
    bytes: Vec<u8>,
}

/// A range of a slot, which is named by an address; or of host bytes, of which the slot is the address on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) slot: u64,
    pub(super) range: Range<usize>,
    host: Option<HostStart>,
}

/// The first of host bytes that the device reads in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostStart(NonNull<u8>);

// SAFETY: an address of plain bytes; by the contract of `Piece::of_host` the bytes may be read from any thread.
unsafe impl Send for HostStart {}
// SAFETY: through a shared reference the bytes are only read, which the contract of `Piece::of_host` allows any thread.
unsafe impl Sync for HostStart {}

impl Piece {
    /// A range of device memory.
    pub(super) fn new(slot: u64, range: Range<usize>) -> Self {
        Self { slot, range, host: None }
    }

    /// Host bytes.
    ///
    /// # Safety
    /// Whenever the bytes of the piece, or of a part, are read, `len` bytes at `start` are readable, and none of those
    /// that are read changes meanwhile.
    pub(super) unsafe fn of_host(start: NonNull<u8>, len: usize) -> Self {
        Self { slot: start.addr().get() as u64, range: 0..len, host: Some(HostStart(start)) }
    }

    /// Some of the bytes, which lie within the piece.
    pub(super) fn part(&self, at: Range<usize>) -> Self {
        let start = self.range.start;
        Self { range: start + at.start..start + at.end, ..self.clone() }
    }

    /// Whether these are host bytes.
    pub(super) fn is_of_host(&self) -> bool {
        self.host.is_some()
    }

    /// The first bytes.
    pub(super) fn first(&self, len: usize) -> Self {
        self.part(0..len)
    }

    /// Whether some byte belongs to both.
    pub(super) fn overlaps(&self, other: &Piece) -> bool {
        let start = self.range.start.max(other.range.start);
        self.slot == other.slot && start < self.range.end.min(other.range.end)
    }
}

/// Host bytes that a pending upload reads, or a pending download writes.
pub(super) struct HostBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a pointer to plain bytes, which have no thread; by the contract of `new` the task that holds it may use
// them on the thread that runs the task.
unsafe impl Send for HostBytes {}

impl HostBytes {
    /// # Safety
    /// Until this value is dropped, the `len` bytes at `start` may be used from any thread: for an upload they are
    /// readable and do not change, for a download they are writable and have no other user.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Leaves the first half, as of work that is broken off; returns the length.
    pub(super) fn halve(&mut self) -> usize {
        self.len /= 2;
        self.len
    }

    /// For the upload that this was made for.
    pub(super) fn read(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a task is made with equal lengths");
        // SAFETY: by the contract of `new` the source is readable and stable; the target is a unique borrow of as many
        // bytes, and so cannot overlap bytes that another may read.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), to.as_mut_ptr(), self.len) }
    }

    /// For the download that this was made for; poison in the place of bytes that are gone.
    pub(super) fn write(&self, from: Option<&[u8]>) {
        assert!(from.is_none_or(|from| from.len() == self.len), "a task is made with equal lengths");
        let start = self.start.as_ptr();
        if let Some(from) = from {
            // SAFETY: by the contract of `new` the target is writable and ours alone, so it overlaps no borrowed slice;
            // the source is a borrow of as many bytes.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), start, self.len) }
        } else {
            // SAFETY: by the contract of `new`, for a download, the `len` bytes at `start` are writable and have no
            // other user until this value is dropped.
            unsafe { start.write_bytes(POISON, self.len) }
        }
    }
}

impl Memory {
    /// A slot of `len` poisoned bytes; `None` when the host has no room.
    pub(super) fn allocate(&mut self, device: DeviceId, len: usize) -> Option<u64> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        while bytes.len() < len {
            // In pages, because a loop over bytes would be slow in builds for tests.
            let page = &[POISON; 4096];
            bytes.extend_from_slice(&page[..page.len().min(len - bytes.len())]);
        }
        let step = (len as u64).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        // Relaxed: only uniqueness matters.
        let address = NEXT_ADDRESS.fetch_add(step, Ordering::Relaxed);
        self.slots.insert(address, Slot { device, bytes });
        Some(address)
    }

    /// Forgets a slot. The address is never given out again, so every later use is found out.
    pub(super) fn free(&mut self, slot: u64) {
        if self.slots.remove(&slot).is_none() {
            self.misuses.push(format!("the block at {slot:#x} was freed twice"));
        }
    }

    /// The piece of a device's memory that lies at an address.
    pub(super) fn find(&self, device: DeviceId, address: u64, len: usize) -> Option<Piece> {
        let (&start, slot) = self.slots.range(..=address).next_back()?;
        let at = usize::try_from(address - start).ok()?;
        let end = at.checked_add(len)?;
        let fits = slot.device == device && end <= slot.bytes.len();
        fits.then(|| Piece::new(start, at..end))
    }

    /// The bytes of a piece; `None`, and a misuse, when freed.
    pub(super) fn read(&mut self, piece: &Piece) -> Option<&[u8]> {
        let Some(HostStart(start)) = piece.host else {
            return self.write(piece).map(|bytes| &*bytes);
        };
        let Range { start: at, end } = piece.range;
        // SAFETY: the range lies within the bytes of the piece (`part`), which are readable and do not change now
        // (`of_host`). The slice is used under the machine's lock, before the task that has the piece has ended.
        Some(unsafe { slice::from_raw_parts(start.add(at).as_ptr(), end - at) })
    }

    /// The bytes of a piece, to be changed; `None`, and a misuse, when freed.
    pub(super) fn write(&mut self, piece: &Piece) -> Option<&mut [u8]> {
        if piece.is_of_host() {
            self.misuses.push(format!("bytes {:?} of the host, which are only read, were written", piece.range));
            return None;
        }
        let slot = self.slots.get_mut(&piece.slot);
        let bytes = slot.and_then(|slot| slot.bytes.get_mut(piece.range.clone()));
        if bytes.is_none() {
            self.misuses.push(freed(piece));
        }
        bytes
    }

    /// Copies between pieces of equal length that do not overlap. The bytes of a freed block are poison.
    pub(super) fn copy(&mut self, to: &Piece, from: &Piece) {
        // The slot is taken out, because the map lends only one value at a time.
        let Some(mut bytes) = self.take(to.slot) else {
            self.misuses.push(freed(to));
            return;
        };
        if to.slot == from.slot {
            bytes.copy_within(from.range.clone(), to.range.start);
        } else {
            match self.read(from) {
                Some(source) => bytes[to.range.clone()].copy_from_slice(source),
                None => bytes[to.range.clone()].fill(POISON),
            }
        }
        self.put_back(to.slot, bytes);
    }

    /// The bytes of a slot, until [`put_back`](Self::put_back) returns them.
    fn take(&mut self, slot: u64) -> Option<Vec<u8>> {
        self.slots.get_mut(&slot).map(|slot| std::mem::take(&mut slot.bytes))
    }

    /// Returns a slot of [`take`](Self::take).
    fn put_back(&mut self, slot: u64, bytes: Vec<u8>) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.bytes = bytes;
        }
    }
}

/// The misuse of touching a freed piece.
fn freed(piece: &Piece) -> String {
    let Piece { slot, range, .. } = piece;
    format!("bytes {range:?} of the block at {slot:#x} were used after it was freed")
}
