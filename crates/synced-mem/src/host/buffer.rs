//! One block of host memory: origin, alignment, and who frees the block. Every byte is initialised at all times, so
//! handing out slices is safe. Relies on the global allocator, and hands a pool's block back to the pool; knows no
//! borrows, no sharing, no devices.

use std::any::Any;
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;

use crate::access::Access;
use crate::error::Error;
use crate::host::allocation::{ALIGN, Allocation};
use crate::host::pool::{HostPool, Loan};

/// A block of initialised host bytes with its owner.
///
/// Blocks allocated here start at a multiple of 64 bytes, of 256 from 4 KiB up; adopted memory starts wherever it was.
/// An empty buffer never allocates and is 64-byte aligned.
pub struct HostBuffer {
    /// The first byte. Not derived from a reference that later code would have to keep unique.
    ptr: NonNull<u8>,
    len: usize,
    backing: Backing,
}

/// Who frees the bytes, and whether writes are allowed. Owners are held here only to be dropped.
enum Backing {
    /// No bytes at all.
    Empty,
    /// A block of our own that was never used before.
    Fresh { block: Allocation },
    /// A block that goes back to a pool.
    Pooled { loan: Loan },
    /// A vector's block.
    Vector { _vector: RawVector },
    /// Adopted bytes with an owner.
    Owner { _owner: Owner, access: Access },
    /// Lent bytes, which outlive the buffer.
    Lent { access: Access },
}

/// A vector taken apart, so that a move does not assert that nothing else points into the bytes.
struct RawVector {
    ptr: NonNull<u8>,
    capacity: usize,
}

impl Drop for RawVector {
    fn drop(&mut self) {
        // SAFETY: pointer and capacity are those of the vector that `HostBuffer::from` took apart, and only this
        // puts it together again, once; length 0 is within it, and bytes need no drop.
        drop(unsafe { Vec::from_raw_parts(self.ptr.as_ptr(), 0, self.capacity) });
    }
}

/// A boxed owner as a raw pointer: moving a `Box` would assert that nothing else points into it,
/// and the bytes of an inline array do lie in it.
struct Owner(NonNull<dyn Any + Send + Sync>);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: `self.0` came from `Box::leak` in `from_owner` or `from_raw`, and only this boxes it again, once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the buffer owns its block alone, or an owner that is `Send + Sync`, or its maker promised as much
// (`from_raw`, `lent`); bytes are plain data, and a shared reference to the buffer only reads them.
unsafe impl Send for HostBuffer {}
// SAFETY: no method that takes `&self` writes a byte or a field; the owner, where there is one, is `Sync` itself or
// was promised to be used by nobody else.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates `len` zero bytes.
    ///
    /// Costs no time per byte until a page is first touched.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the allocator refuses, or no block can be this large.
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self::empty());
        }
        let block = Allocation::zeroed(len)?;
        let (ptr, backing) = (block.start, Backing::Fresh { block });
        Ok(Self { ptr, len, backing })
    }

    /// Adopts the bytes of `owner` without copying them. The owner is dropped when the bytes are used no more: with the
    /// buffer, or when a write has copied them.
    ///
    /// The bytes are read-only: the first write copies them. `owner` is moved to its final place first and its `as_ref`
    /// is called once there; the owner is not touched again until the drop.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        // Before the call, so that an owner that panics in it is dropped.
        let backing = Backing::Owner { _owner: Owner(owner), access: Access::Read };
        // SAFETY: the owner lives in its box until `backing` is dropped, and nothing writes to it or borrows it mutably
        // before that. So the slice, tied to this borrow, stays valid for as long as the buffer keeps `backing`.
        let bytes: &[u8] = unsafe { owner.as_ref() }.as_ref();
        let (ptr, len) = (first(NonNull::from(bytes).cast(), bytes.len()), bytes.len());
        Self { ptr, len, backing }
    }

    /// Adopts `len` bytes at `ptr` without copying them. The owner is dropped when the bytes are used no more: with the
    /// buffer, or when a write has copied bytes that may only be read. Of no bytes, only the owner is adopted.
    ///
    /// # Safety
    /// From now until `owner` is dropped, unless `len` is 0: `ptr` starts `len` initialised bytes of one allocation,
    /// which any thread may use; they are written through the buffer alone; and with [`Access::Write`], `ptr` may write
    /// them, and they are read through the buffer alone. They do not lie in the box of `owner` itself: moving a box
    /// claims what is in it.
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, access: Access, owner: Box<dyn Any + Send + Sync>) -> Self {
        let backing = Backing::Owner { _owner: Owner(NonNull::from(Box::leak(owner))), access };
        let ptr = first(ptr, len);
        Self { ptr, len, backing }
    }

    /// Uses `len` bytes at `ptr` that the caller keeps and frees.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw), until the buffer, what borrows it and every pointer taken from it were used for
    /// the last time, in any thread.
    pub(crate) unsafe fn lent(ptr: NonNull<u8>, len: usize, access: Access) -> Self {
        let (ptr, backing) = (first(ptr, len), Backing::Lent { access });
        Self { ptr, len, backing }
    }

    /// The first `len` bytes of a pool's block, which goes back to the pool with the buffer.
    fn pooled(loan: Loan, len: usize) -> Self {
        assert!(len <= loan.block().capacity(), "a pool's block is too short");
        let ptr = first(loan.block().start(), len);
        let backing = Backing::Pooled { loan };
        Self { ptr, len, backing }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte, for `SharedMem`: reading and writing through it is limited by its borrows only.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Whether the bytes may be written in place.
    pub(crate) fn is_writable(&self) -> bool {
        match self.backing {
            Backing::Owner { access, .. } | Backing::Lent { access } => access == Access::Write,
            _ => true,
        }
    }

    /// Whether every byte is zero that was not written since the buffer was made.
    pub(crate) fn is_clean(&self) -> bool {
        match &self.backing {
            Backing::Empty | Backing::Fresh { .. } => true,
            Backing::Pooled { loan } => loan.is_clean,
            Backing::Vector { .. } | Backing::Owner { .. } | Backing::Lent { .. } => false,
        }
    }

    /// Whether the bytes are lent: kept and freed elsewhere.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.backing, Backing::Lent { .. })
    }

    /// How many bytes our own allocator keeps for the buffer: the length, or a pool's block in full. Bytes for the
    /// alignment are not counted.
    pub(crate) fn allocated(&self) -> usize {
        match &self.backing {
            Backing::Fresh { block } => block.capacity(),
            Backing::Pooled { loan } => loan.block().capacity(),
            _ => 0,
        }
    }

    fn empty() -> Self {
        Self { ptr: dangling(), len: 0, backing: Backing::Empty }
    }
}

impl HostPool {
    /// A buffer of `len` bytes: zeros, unless the pool leaves used blocks as they are.
    ///
    /// When the allocator refuses, the pool frees its waiting blocks and asks once more.
    pub(crate) fn take(&self, len: usize) -> Result<HostBuffer, Error> {
        let buffer = match self.lend(len) {
            Ok(Some(mut loan)) => {
                if self.clears() && !loan.is_clean {
                    assert!(len <= loan.block().capacity(), "a pool's block is too short");
                    // SAFETY: the block is this loan's alone, has room for `len` bytes, and no reference to it exists.
                    unsafe { loan.block().start().write_bytes(0, len) };
                    loan.is_clean = true;
                }
                return Ok(HostBuffer::pooled(loan, len));
            }
            Ok(None) => HostBuffer::zeroed(len),
            Err(Error::Forked) => return Err(Error::Forked),
            Err(error) => Err(error),
        };
        buffer.or_else(|_| {
            self.trim();
            HostBuffer::zeroed(len)
        })
    }
}

/// Takes over a vector's bytes without a copy. The bytes may be written.
impl From<Vec<u8>> for HostBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return Self::empty();
        }
        let mut bytes = ManuallyDrop::new(bytes);
        let (len, capacity) = (bytes.len(), bytes.capacity());
        // SAFETY: a vector's pointer is never null. It is taken with `as_mut_ptr`, which keeps the right to the
        // whole capacity that `drop` needs.
        let ptr = unsafe { NonNull::new_unchecked(bytes.as_mut_ptr()) };
        let backing = Backing::Vector { _vector: RawVector { ptr, capacity } };
        Self { ptr, len, backing }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // All other backings free their bytes when dropped.
        if let Backing::Pooled { loan } = mem::replace(&mut self.backing, Backing::Empty) {
            loan.give_back();
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("ptr", &self.ptr)
            .field("len", &self.len)
            .field("writable", &self.is_writable())
            .finish()
    }
}

/// Where `len` bytes start: at `ptr`, unless there are none.
fn first(ptr: NonNull<u8>, len: usize) -> NonNull<u8> {
    if len == 0 { dangling() } else { ptr }
}

/// Where an empty slice starts: nowhere, but aligned.
pub(crate) fn dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Line;
    const { assert!(align_of::<Line>() == ALIGN) };
    NonNull::<Line>::dangling().cast()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use std::slice;

    use super::*;
    use crate::host::allocation::HUGE;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<HostBuffer>();

    /// An owner whose bytes lie in itself, and that answers each call differently.
    struct Fickle {
        bytes: [u8; 40],
        calls: Arc<AtomicUsize>,
        drops: Arc<AtomicUsize>,
    }

    impl Fickle {
        fn new() -> (Self, Arc<AtomicUsize>, Arc<AtomicUsize>) {
            let (calls, drops) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
            let owner = Fickle { bytes: std::array::from_fn(|i| i as u8), calls: calls.clone(), drops: drops.clone() };
            (owner, calls, drops)
        }
    }

    impl AsRef<[u8]> for Fickle {
        fn as_ref(&self) -> &[u8] {
            match self.calls.fetch_add(1, Ordering::Relaxed) {
                0 => &self.bytes[..33],
                _ => &[],
            }
        }
    }

    impl Drop for Fickle {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::Relaxed);
            self.bytes.fill(0xEE);
        }
    }

    impl HostBuffer {
        pub(crate) fn as_slice(&self) -> &[u8] {
            // SAFETY: `ptr` starts `len` initialised bytes of one block, alive while `self` is; no test writes them
            // meanwhile.
            unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
        }

        pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
            assert!(self.is_writable());
            // SAFETY: `ptr` starts `len` initialised bytes of one block, alive while `self` is; they may be written
            // (asserted), and `&mut self` makes this the only reference to them.
            unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
        }
    }

    #[test]
    fn zeroed_is_zero_and_aligned() {
        let lengths = [0, 1, 2, 63, 64, 65, 127, 1000, 4095, 4096, 4097, 10_007];
        for len in lengths.into_iter().chain([HUGE - 1, HUGE, HUGE + 1]) {
            // Several at once, so that no address is right by luck.
            let mut buffers: Vec<_> = (0..4).map(|_| HostBuffer::zeroed(len).unwrap()).collect();
            let align = if len < 4096 { 64 } else { 256 };
            for buffer in &mut buffers {
                assert_eq!(buffer.len(), len);
                assert_eq!(buffer.is_empty(), len == 0);
                assert_eq!(buffer.as_slice().as_ptr().addr() % align, 0, "length {len}");
                // Every byte, where that is quick; under Miri it is not.
                let step = if cfg!(miri) { 997 } else { 1 };
                assert!(buffer.as_slice().iter().step_by(step).all(|&byte| byte == 0));
                buffer.as_mut_slice().fill(0xFF);
            }
        }
    }

    #[test]
    fn too_long_is_an_error() {
        let max = isize::MAX as usize;
        for len in [max - 255, max - 16, max, max + 1, usize::MAX - 1, usize::MAX] {
            if cfg!(miri) && len < max - 16 {
                continue; // A valid layout: Miri ends there instead of answering null.
            }
            match HostBuffer::zeroed(len) {
                Err(Error::OutOfMemory { bytes }) => assert_eq!(bytes, len),
                other => panic!("{len}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_vector_is_adopted_with_its_capacity() {
        for (len, capacity) in [(0, 0), (0, 100), (1, 1), (5, 100)] {
            let mut bytes = Vec::with_capacity(capacity);
            bytes.resize(len, 3);
            let address = bytes.as_ptr();
            let mut buffer = HostBuffer::from(bytes);
            assert_eq!(buffer.as_slice(), vec![3; len]);
            if len == 0 {
                assert_eq!(buffer.as_slice().as_ptr().addr() % 64, 0);
                continue;
            }
            assert_eq!(buffer.as_slice().as_ptr(), address);
            buffer.as_mut_slice()[len - 1] = 4;
            assert_eq!(buffer.as_mut_slice().as_ptr(), address);
            assert_eq!(buffer.as_slice()[len - 1], 4);
        }
    }

    #[test]
    fn an_owner_is_asked_once_and_in_its_final_place() {
        let (owner, calls, drops) = Fickle::new();
        let buffer = HostBuffer::from_owner(owner);
        let expected: Vec<u8> = (0..33).collect();
        let moved = Box::new(buffer);
        for _ in 0..3 {
            assert_eq!(moved.as_slice(), expected);
        }
        let moved = *moved;
        assert_eq!(moved.as_slice(), expected);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(moved);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_empty_owner_is_kept_and_its_address_is_not() {
        let owner: Arc<[u8]> = Arc::from([]);
        let buffer = HostBuffer::from_owner(owner.clone());
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(buffer.as_slice().as_ptr().addr() % 64, 0);
        drop(buffer);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn an_owner_that_panics_is_dropped() {
        struct Panics {
            _alive: Arc<()>,
        }
        impl AsRef<[u8]> for Panics {
            fn as_ref(&self) -> &[u8] {
                panic!("expected")
            }
        }
        let alive = Arc::new(());
        let owner = Panics { _alive: alive.clone() };
        assert!(std::panic::catch_unwind(|| HostBuffer::from_owner(owner)).is_err());
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    /// A boxed slice as foreign memory; its owner shows the bytes that it found when it was dropped.
    struct Foreign {
        bytes: NonNull<[u8]>,
        found: Arc<Mutex<Option<Vec<u8>>>>,
    }

    // SAFETY: it owns the slice behind the pointer alone, as a `Box` would.
    unsafe impl Send for Foreign {}
    // SAFETY: no method does anything through a shared reference.
    unsafe impl Sync for Foreign {}

    impl Drop for Foreign {
        fn drop(&mut self) {
            // SAFETY: the pointer came from a leaked box, and only this takes it back.
            let bytes = unsafe { Box::from_raw(self.bytes.as_ptr()) };
            *self.found.lock().unwrap() = Some(bytes.into_vec());
        }
    }

    fn adopt_foreign(bytes: &[u8], access: Access) -> (HostBuffer, Arc<Mutex<Option<Vec<u8>>>>) {
        let found = Arc::<Mutex<Option<Vec<u8>>>>::default();
        let bytes = NonNull::from(Box::leak(Box::<[u8]>::from(bytes)));
        let owner = Foreign { bytes, found: found.clone() };
        // SAFETY: the bytes are a leaked box's, which only the owner knows of and frees.
        let buffer = unsafe { HostBuffer::from_raw(bytes.cast(), bytes.len(), access, Box::new(owner)) };
        (buffer, found)
    }

    #[test]
    fn foreign_bytes_are_written_in_place_and_their_owner_goes_last() {
        let (mut buffer, found) = adopt_foreign(&[1, 2, 3], Access::Write);
        let address = buffer.as_slice().as_ptr();
        buffer.as_mut_slice()[1] = 9;
        assert_eq!(buffer.as_mut_slice().as_ptr(), address);
        assert_eq!(buffer.as_slice(), [1, 9, 3]);
        assert_eq!(*found.lock().unwrap(), None);
        drop(Box::new(buffer));
        assert_eq!(*found.lock().unwrap(), Some(vec![1, 9, 3]));
    }

    #[test]
    fn lent_bytes_are_written_in_place_and_not_freed() {
        let mut bytes = [1u8, 2, 3];
        let ptr = NonNull::from(&mut bytes[1..]).cast();
        // SAFETY: two bytes of the array, which is not used before the buffer is gone.
        let mut buffer = unsafe { HostBuffer::lent(ptr, 2, Access::Write) };
        buffer.as_mut_slice()[1] = 9;
        drop(buffer);
        assert_eq!(bytes, [1, 2, 9]);
    }

    /// A buffer of each source but a pool: what it is called, and whether it is writable, clean, lent.
    /// Both slices have to outlive what is returned, and the second is not to be used meanwhile.
    fn of_each_source(bytes: &[u8], mutable: &mut [u8]) -> [(&'static str, HostBuffer, [bool; 3]); 7] {
        let (len, owner) = (bytes.len(), HostBuffer::from_owner(bytes.to_vec()));
        // SAFETY: the slice is there to read, and outlives the buffer.
        let lent = unsafe { HostBuffer::lent(NonNull::from(bytes).cast(), len, Access::Read) };
        let (ptr, mutable_len) = (NonNull::from(&mut *mutable).cast(), mutable.len());
        // SAFETY: the slice is there to write, outlives the buffer, and is used by nothing else.
        let lent_mutable = unsafe { HostBuffer::lent(ptr, mutable_len, Access::Write) };
        let foreign = |access| adopt_foreign(bytes, access).0;
        let zeroed = HostBuffer::zeroed(len).unwrap();
        let vector = HostBuffer::from(bytes.to_vec());
        [
            ("zeroed", zeroed, [true, true, false]),
            ("vector", vector, [true, len == 0, false]),
            ("owner", owner, [false, false, false]),
            ("foreign", foreign(Access::Read), [false, false, false]),
            ("foreign, mutable", foreign(Access::Write), [true, false, false]),
            ("lent", lent, [false, false, true]),
            ("lent, mutable", lent_mutable, [true, false, true]),
        ]
    }

    #[test]
    fn each_source_says_what_it_is() {
        for bytes in [&[][..], &[0; 100], &[0; 5000]] {
            for (source, buffer, expected) in of_each_source(bytes, &mut bytes.to_vec()) {
                let is = [buffer.is_writable(), buffer.is_clean(), buffer.is_lent()];
                assert_eq!(is, expected, "{source}");
                let allocated = if source == "zeroed" { bytes.len() } else { 0 };
                assert_eq!(buffer.allocated(), allocated, "{source}");
                assert_eq!(buffer.len(), bytes.len(), "{source}");
            }
        }
    }

    #[test]
    fn nothing_is_aligned_whatever_its_source() {
        // At one of the two places, an address taken over from the caller is odd.
        let (bytes, mutable) = ([1; 2], &mut [1; 2]);
        for at in 0..2 {
            for (source, buffer, _) in of_each_source(&bytes[at..at], &mut mutable[at..at]) {
                assert_eq!(buffer.as_slice(), [], "{source}");
                assert_eq!(buffer.as_slice().as_ptr().addr() % 64, 0, "{source}");
            }
        }
    }

    #[test]
    fn foreign_nothing_keeps_its_owner() {
        let (buffer, found) = adopt_foreign(&[], Access::Write);
        assert_eq!(*found.lock().unwrap(), None);
        drop(buffer);
        assert_eq!(*found.lock().unwrap(), Some(vec![]));
    }
    #[test]
    fn a_pools_block_is_as_long_as_promised() {
        let pool = crate::HostPool::new(1 << 20);
        let mut buffer = pool.take(4097).unwrap();
        assert!(buffer.is_writable() && buffer.is_clean() && !buffer.is_lent());
        buffer.as_mut_slice().fill(1);
        assert_eq!((buffer.len(), buffer.allocated()), (4097, 6144));
    }
}
