//! One block of host memory: where it came from, how it is aligned, who frees it.
//! Every byte of it is initialised at all times, so handing out slices is safe.
//! It relies on the global allocator only; it knows no borrows, no sharing, no devices.

use std::alloc::{self, Layout};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use crate::Error;

/// Alignment of every block we allocate: a cache line, and the widest vector register.
const ALIGN: usize = 64;
/// Alignment of large blocks: what DLPack asks of a tensor's first byte.
const ALIGN_LARGE: usize = 256;
/// From this length a block counts as large: a page, so the padding is at most 6 %.
const LARGE: usize = 4096;
/// From this length huge pages are asked for: first touch of 256 MiB took 139 ms without and 26 ms with them.
const HUGE: usize = 4 << 20;
/// The alignment asked of the allocator. Above 16, std's `alloc_zeroed` takes aligned memory and clears it
/// (125 ms for 256 MiB) where `calloc` hands out pages that the kernel has already zeroed (0.013 ms).
const ALIGN_ALLOCATOR: usize = 16;

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

/// Who frees the bytes, and whether they may be written.
enum Backing {
    /// No bytes at all.
    Empty,
    /// Our own block: `layout` is what the allocator was asked for at `base`.
    Block { base: NonNull<u8>, layout: Layout },
    /// A vector's block, taken apart; the bytes start at `HostBuffer::ptr`.
    Vector { capacity: usize },
    /// Somebody else's bytes, never written. Held only to be dropped.
    Owner { _owner: Owner },
}

/// A boxed owner as a raw pointer: moving a `Box` would assert that nothing else points into it,
/// and the bytes of an inline array do lie in it.
struct Owner(NonNull<dyn Send + Sync>);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: `self.0` came from `Box::leak` in `HostBuffer::from_owner`, and only this runs `from_raw` on it, once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the buffer owns its block alone, or an owner that is `Send + Sync`; bytes are plain data, and a shared
// reference to the buffer only reads them.
unsafe impl Send for HostBuffer {}
// SAFETY: as above; no method that takes `&self` writes.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates `len` zero bytes.
    ///
    /// Costs no time per byte until a page is first touched.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the allocator refuses, or no block can be this large.
    pub fn zeroed(len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self::empty());
        }
        let out_of_memory = Error::OutOfMemory { bytes: len };
        let align = if len < LARGE { ALIGN } else { ALIGN_LARGE };
        let Some(padded) = len.checked_add(align - ALIGN_ALLOCATOR) else {
            return Err(out_of_memory);
        };
        let Ok(layout) = Layout::from_size_align(padded, ALIGN_ALLOCATOR) else {
            return Err(out_of_memory);
        };
        // SAFETY: `layout` is not zero-sized, because `len` is not 0.
        let Some(base) = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }) else {
            return Err(out_of_memory);
        };
        let address = base.addr().get();
        // At most `align - ALIGN_ALLOCATOR`, because `address` is a multiple of ALIGN_ALLOCATOR.
        let offset = address.next_multiple_of(align) - address;
        // SAFETY: `offset <= align - ALIGN_ALLOCATOR`, so `offset + len <= layout.size()`: within the block.
        let ptr = unsafe { base.add(offset) };
        if len >= HUGE {
            advise_huge_pages(ptr, len);
        }
        let backing = Backing::Block { base, layout };
        Ok(Self { ptr, len, backing })
    }

    /// Takes over a vector's bytes without copying them. They may be written.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return Self::empty();
        }
        let mut bytes = ManuallyDrop::new(bytes);
        let (len, capacity) = (bytes.len(), bytes.capacity());
        // SAFETY: a vector's pointer is never null. It is taken with `as_mut_ptr`, which keeps the right to the
        // whole capacity that `drop` needs.
        let ptr = unsafe { NonNull::new_unchecked(bytes.as_mut_ptr()) };
        Self {
            ptr,
            len,
            backing: Backing::Vector { capacity },
        }
    }

    /// Adopts the bytes of `owner` without copying them and drops it with the buffer.
    ///
    /// The bytes are read-only: the first write copies them. `owner` is moved to its final place first and its
    /// `as_ref` is called once there; it is not touched again until it is dropped.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        let backing = Backing::Owner {
            _owner: Owner(owner),
        };
        // SAFETY: the owner lives in its box until `backing` is dropped, and nobody writes to it or borrows it mutably
        // before that. So the slice, tied to this borrow, stays valid for as long as the buffer keeps `backing`.
        let bytes: &[u8] = unsafe { owner.as_ref() }.as_ref();
        let len = bytes.len();
        let ptr = if len == 0 {
            dangling()
        } else {
            NonNull::from(bytes).cast()
        };
        Self { ptr, len, backing }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` starts `len` initialised bytes of one block (`zeroed`, `from_vec` and `from_owner` made it so),
        // alive while `self` is, and written only through `&mut self` or by `SharedMem`, which does not call this
        // function on a buffer that it writes.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes for writing. Read-only bytes are copied into memory of our own first, and their owner is dropped.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when that copy finds no room; the buffer is then unchanged.
    pub fn make_mut(&mut self) -> Result<&mut [u8], Error> {
        self.make_mut_except(0..0)
    }

    /// The bytes for writing by somebody who writes all of them: what they hold is unspecified, though initialised.
    ///
    /// # Errors
    /// As [`make_mut`](Self::make_mut).
    pub fn make_mut_overwrite(&mut self) -> Result<&mut [u8], Error> {
        self.make_mut_except(0..self.len)
    }

    fn make_mut_except(&mut self, hole: Range<usize>) -> Result<&mut [u8], Error> {
        if !self.is_writable() {
            *self = self.copy_except(hole)?;
        }
        // SAFETY: as in `as_slice`; the bytes are ours alone, since the backing is not an owner, and `&mut self` makes
        // this the only reference to them.
        Ok(unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) })
    }

    /// The first byte, for `SharedMem`: reading and writing through it is limited by its borrows only.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Whether the bytes may be written where they are.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.backing, Backing::Owner { .. })
    }

    /// A buffer of our own with the same bytes, but for those in `hole`, which are zero.
    pub(crate) fn copy_except(&self, hole: Range<usize>) -> Result<Self, Error> {
        let mut copy = Self::zeroed(self.len)?;
        let (from, to) = (self.as_slice(), copy.make_mut()?);
        to[..hole.start].copy_from_slice(&from[..hole.start]);
        to[hole.end..].copy_from_slice(&from[hole.end..]);
        Ok(copy)
    }

    fn empty() -> Self {
        Self {
            ptr: dangling(),
            len: 0,
            backing: Backing::Empty,
        }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        match self.backing {
            Backing::Empty | Backing::Owner { .. } => {}
            // SAFETY: `base` came from `alloc_zeroed` with this `layout`, and is freed only here.
            Backing::Block { base, layout } => unsafe { alloc::dealloc(base.as_ptr(), layout) },
            // SAFETY: pointer and capacity are those of the vector that `from_vec` took apart; length 0 is within it,
            // and bytes need no drop.
            Backing::Vector { capacity } => unsafe {
                drop(Vec::from_raw_parts(self.ptr.as_ptr(), 0, capacity));
            },
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

/// Where an empty slice starts: nowhere, but aligned.
pub(crate) fn dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Line;
    const { assert!(align_of::<Line>() == ALIGN) };
    NonNull::<Line>::dangling().cast()
}

/// Asks for huge pages within the block. A refusal costs time only, so it is not an error.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages(ptr: NonNull<u8>, len: usize) {
    /// A multiple of every page size that Linux runs with: the advice must start on a page.
    const PAGE: usize = 64 << 10;
    let skip = ptr.addr().get().next_multiple_of(PAGE) - ptr.addr().get();
    let Some(len) = len.checked_sub(skip) else {
        return;
    };
    let start = ptr.as_ptr().wrapping_add(skip).cast();
    // SAFETY: the range lies within our block; this advice changes no contents and no protection.
    unsafe { libc::madvise(start, len & !(PAGE - 1), libc::MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

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
            let owner = Fickle {
                bytes: std::array::from_fn(|i| i as u8),
                calls: calls.clone(),
                drops: drops.clone(),
            };
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
                assert!(
                    buffer
                        .as_slice()
                        .iter()
                        .step_by(step)
                        .all(|&byte| byte == 0)
                );
                buffer.make_mut().unwrap().fill(0xFF);
            }
        }
    }

    #[test]
    fn memory_is_zero_again_after_reuse() {
        for _ in 0..64 {
            let mut buffer = HostBuffer::zeroed(300).unwrap();
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
            buffer.make_mut().unwrap().fill(0xFF);
        }
    }

    #[test]
    fn too_long_is_an_error() {
        let max = isize::MAX as usize;
        for len in [
            max - 255,
            max - 16,
            max,
            max + 1,
            usize::MAX - 1,
            usize::MAX,
        ] {
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
            let mut buffer = HostBuffer::from_vec(bytes);
            assert_eq!(buffer.as_slice(), vec![3; len]);
            if len == 0 {
                assert_eq!(buffer.as_slice().as_ptr().addr() % 64, 0);
                continue;
            }
            assert_eq!(buffer.as_slice().as_ptr(), address);
            buffer.make_mut().unwrap()[len - 1] = 4;
            assert_eq!(buffer.make_mut().unwrap().as_ptr(), address);
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
    fn writing_to_adopted_bytes_copies_them_and_lets_the_owner_go() {
        let (owner, calls, drops) = Fickle::new();
        let mut buffer = HostBuffer::from_owner(owner);
        assert!(!buffer.is_writable());
        buffer.make_mut().unwrap()[2] = 99;
        assert!(buffer.is_writable());
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(buffer.as_slice()[..4], [0, 1, 99, 3]);
        assert_eq!(buffer.as_slice().as_ptr().addr() % 64, 0);
        drop(buffer);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn overwriting_adopted_bytes_leaves_them_alone() {
        let owner: Arc<[u8]> = Arc::from([1, 2, 3]);
        let mut buffer = HostBuffer::from_owner(owner.clone());
        buffer.make_mut_overwrite().unwrap().fill(9);
        assert_eq!(buffer.as_slice(), [9, 9, 9]);
        assert_eq!(*owner, [1, 2, 3]);
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
        let owner = Panics {
            _alive: alive.clone(),
        };
        assert!(std::panic::catch_unwind(|| HostBuffer::from_owner(owner)).is_err());
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn copy_except_leaves_out_the_hole_only() {
        let buffer = HostBuffer::from_owner([1, 2, 3, 4, 5]);
        let copy = |hole| buffer.copy_except(hole).unwrap().as_slice().to_vec();
        assert_eq!(copy(0..0), [1, 2, 3, 4, 5]);
        assert_eq!(copy(1..3), [1, 0, 0, 4, 5]);
        assert_eq!(copy(0..5), [0; 5]);
    }
}
