//! `SyncedMem`: one memory with a single owner, whose borrows the compiler checks.
//! It relies on one rule: `&self` may only add a valid copy, only `&mut self` may change or replace one.
//! So `host(&self)` is a plain slice, and two threads may read at once.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{Error, HostBuffer, SharedMem};

/// A memory of a fixed length that is allocated when first touched; until then its bytes are zero.
#[derive(Debug)]
pub struct SyncedMem {
    len: usize,
    /// The host copy. Set once under `&self`; changed and replaced under `&mut self` only.
    host: OnceLock<HostBuffer>,
    /// Held while the host copy is being made, so that it is made once. Guards no data: a panic leaves nothing half done.
    filling: Mutex<()>,
}

impl SyncedMem {
    /// A memory of `len` zero bytes. Allocates nothing.
    pub fn new(len: usize) -> Self {
        Self {
            len,
            host: OnceLock::new(),
            filling: Mutex::new(()),
        }
    }

    /// Takes over a vector's bytes without copying them.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::from_buffer(HostBuffer::from_vec(bytes))
    }

    /// Adopts the bytes of `owner` without copying them; a write copies them first. See [`HostBuffer::from_owner`].
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::from_buffer(HostBuffer::from_owner(owner))
    }

    fn from_buffer(buffer: HostBuffer) -> Self {
        Self {
            len: buffer.len(),
            host: OnceLock::from(buffer),
            filling: Mutex::new(()),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the memory was ever touched or adopted; otherwise it is not allocated anywhere and reads as zeros.
    pub fn is_initialized(&self) -> bool {
        self.host.get().is_some()
    }

    /// The bytes on the host. Takes no lock after the first time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the first touch finds no room; the memory is then still untouched.
    pub fn host(&self) -> Result<&[u8], Error> {
        self.host_or_fill(HostBuffer::zeroed)
    }

    /// The bytes on the host, for writing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the first touch, or the copy of adopted read-only bytes, finds no room;
    /// the memory is then unchanged.
    pub fn host_mut(&mut self) -> Result<&mut [u8], Error> {
        self.host_buffer()?.make_mut()
    }

    /// The bytes on the host, for a caller who writes all of them: nothing is copied for its sake.
    /// What they hold before that is unspecified: zeros, or what was there.
    ///
    /// # Errors
    /// As [`host_mut`](Self::host_mut).
    pub fn host_overwrite(&mut self) -> Result<&mut [u8], Error> {
        self.host_buffer()?.make_mut_overwrite()
    }

    /// The host copy, made by `fill` if there is none: by one thread, once, while the others wait for it.
    fn host_or_fill(
        &self,
        fill: impl FnOnce(usize) -> Result<HostBuffer, Error>,
    ) -> Result<&[u8], Error> {
        if let Some(buffer) = self.host.get() {
            return Ok(buffer.as_slice());
        }
        let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = self.host.get() {
            return Ok(buffer.as_slice());
        }
        let buffer = fill(self.len)?;
        Ok(self.host.get_or_init(|| buffer).as_slice())
    }

    fn host_buffer(&mut self) -> Result<&mut HostBuffer, Error> {
        if self.host.get().is_none() {
            self.host = OnceLock::from(HostBuffer::zeroed(self.len)?);
        }
        Ok(self.host.get_mut().expect("the line above set it"))
    }

    /// The same memory behind a handle that can be cloned and that checks its borrows at run time.
    pub fn into_shared(self) -> SharedMem {
        SharedMem::from_memory(self.len, self.host.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<SyncedMem>();

    #[test]
    fn new_allocates_nothing_and_reads_as_zeros() {
        let huge = SyncedMem::new(usize::MAX);
        assert_eq!(huge.len(), usize::MAX);
        assert!(!huge.is_initialized());
        for len in [0, 1, 63, 64, 65, 4095, 4096, 4097] {
            let memory = SyncedMem::new(len);
            assert!(!memory.is_initialized());
            assert_eq!(memory.host().unwrap(), vec![0; len]);
            assert!(memory.is_initialized());
            assert_eq!(memory.is_empty(), len == 0);
        }
    }

    #[test]
    fn writes_are_read_back() {
        let mut memory = SyncedMem::new(3);
        memory.host_mut().unwrap()[1] = 7;
        assert_eq!(memory.host().unwrap(), [0, 7, 0]);
        memory.host_overwrite().unwrap().fill(9);
        assert_eq!(memory.host().unwrap(), [9, 9, 9]);
        let mut untouched = SyncedMem::new(2);
        untouched.host_overwrite().unwrap().fill(1);
        assert_eq!(untouched.host().unwrap(), [1, 1]);
    }

    #[test]
    fn adopted_bytes_are_used_in_place() {
        let bytes = vec![1, 2, 3];
        let address = bytes.as_ptr();
        let mut memory = SyncedMem::from_vec(bytes);
        assert!(memory.is_initialized());
        assert_eq!(memory.host().unwrap().as_ptr(), address);
        assert_eq!(memory.host_mut().unwrap().as_ptr(), address);

        static BYTES: &[u8] = &[4, 5, 6];
        let mut memory = SyncedMem::from_owner(BYTES);
        assert_eq!(memory.host().unwrap().as_ptr(), BYTES.as_ptr());
        memory.host_mut().unwrap()[0] = 0;
        assert_eq!(memory.host().unwrap(), [0, 5, 6]);
        assert_eq!(BYTES, [4, 5, 6]);
    }

    #[test]
    fn a_failed_allocation_changes_nothing() {
        let mut memory = SyncedMem::new(usize::MAX);
        assert!(matches!(
            memory.host(),
            Err(Error::OutOfMemory { bytes: usize::MAX })
        ));
        assert!(memory.host_mut().is_err());
        assert!(memory.host_overwrite().is_err());
        assert!(!memory.is_initialized());

        let memory = SyncedMem::new(2);
        let refuse = |bytes| Err(Error::OutOfMemory { bytes });
        assert!(memory.host_or_fill(refuse).is_err());
        assert!(!memory.is_initialized());
        assert_eq!(memory.host().unwrap(), [0, 0]);
    }

    #[test]
    fn threads_that_read_at_once_allocate_once() {
        for _ in 0..20 {
            let memory = SyncedMem::new(1000);
            let (fills, start) = (AtomicUsize::new(0), Barrier::new(4));
            let addresses: Vec<usize> = thread::scope(|scope| {
                let read = || {
                    start.wait();
                    let fill = |len| {
                        fills.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        HostBuffer::zeroed(len)
                    };
                    memory.host_or_fill(fill).unwrap().as_ptr().addr()
                };
                let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
                readers.into_iter().map(|r| r.join().unwrap()).collect()
            });
            assert_eq!(fills.into_inner(), 1);
            assert!(addresses.iter().all(|&address| address == addresses[0]));
        }
    }

    #[test]
    fn a_read_takes_no_lock_after_the_first() {
        let memory = SyncedMem::new(8);
        memory.host().unwrap();
        thread::scope(|scope| {
            let _filling = memory.filling.lock().unwrap();
            // Would wait for ever if it took the lock that is held here.
            let reader = scope.spawn(|| memory.host().unwrap().len());
            while !reader.is_finished() {
                thread::yield_now();
            }
        });
    }

    #[test]
    fn a_panic_while_filling_leaves_the_memory_usable() {
        let memory = SyncedMem::new(1);
        thread::scope(|scope| {
            let panicking = scope.spawn(|| memory.host_or_fill(|_| panic!("expected")).is_ok());
            assert!(panicking.join().is_err());
        });
        assert_eq!(memory.host().unwrap(), [0]);
    }

    #[test]
    fn into_shared_keeps_the_bytes() {
        let mut memory = SyncedMem::new(4);
        memory.host_mut().unwrap()[3] = 8;
        let address = memory.host().unwrap().as_ptr();
        let shared = memory.into_shared();
        let bytes = shared.host(0..4).unwrap();
        assert_eq!((&bytes[..], bytes.as_ptr()), (&[0, 0, 0, 8][..], address));
        assert!(!SyncedMem::new(4).into_shared().is_initialized());
    }
}
