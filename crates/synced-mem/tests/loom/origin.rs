//! Two threads and an origin: each byte is read once, and a read without a borrow is not disturbed.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use synced_mem::{Origin, OriginError, SharedMem};

/// An origin of four bytes that counts how many of them were read.
pub(crate) struct Source(pub(crate) AtomicUsize);

impl Origin for Source {
    fn len(&self) -> usize {
        4
    }

    fn read(&self, _: usize, out: &mut [u8]) -> Result<(), OriginError> {
        out.fill(7);
        self.0.fetch_add(out.len(), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn two_readers_of_an_origin_read_each_byte_once_and_both_see_it() {
    loom::model(|| {
        let source = Arc::new(Source(AtomicUsize::new(0)));
        let memory = SharedMem::of(source.clone());
        let other = {
            let (memory, source) = (memory.clone(), source.clone());
            thread::spawn(move || {
                assert_eq!(*memory.host(1..4).unwrap(), [7; 3]);
                assert!(source.0.load(Ordering::Relaxed) >= 3);
            })
        };
        assert_eq!(*memory.host(0..2).unwrap(), [7; 2]);
        assert!(source.0.load(Ordering::Relaxed) >= 2);
        other.join().unwrap();
        assert_eq!(source.0.load(Ordering::Relaxed), 4);
    });
}

/// A prefetch has no borrow that would keep a writer away.
#[test]
fn a_writer_waits_for_a_read_of_an_origin() {
    loom::model(|| {
        let memory = SharedMem::of(Arc::new(Source(AtomicUsize::new(0))));
        let other = {
            let memory = memory.clone();
            thread::spawn(move || drop(memory.prefetch_host(0..3)))
        };
        memory.host_overwrite(1..2).unwrap().fill(9);
        other.join().unwrap();
        assert_eq!(*memory.host(..).unwrap(), [7, 9, 7, 7]);
    });
}
