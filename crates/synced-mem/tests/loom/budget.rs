//! Two threads, memories of one budget, an origin: the limit holds at each moment, no borrowed byte goes, and no thread
//! waits for ever, whichever comes first.

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use synced_mem::{Budget, Error, Location, SharedMem};

use crate::origin::Source;

/// Each interleaving with at most two threads put off against their will: without a bound there are millions.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// A budget for four bytes of the host, with a memory of an origin's four bytes, and another memory.
fn budget(other: SharedMem) -> (Budget, SharedMem, SharedMem) {
    let budget = Budget::new(Location::Host, 4);
    let read = SharedMem::of(Arc::new(Source(AtomicUsize::new(0))));
    [&read, &other].iter().for_each(|memory| budget.add(memory));
    (budget, read, other)
}

fn is_met<T>(borrowed: Result<T, Error>) -> Option<T> {
    match borrowed {
        Ok(bytes) => Some(bytes),
        Err(Error::OverBudget { limit: 4, .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Reads, and has the bytes for as long as the borrow lasts.
fn read(memory: &SharedMem) -> bool {
    let Some(bytes) = is_met(memory.host(..)) else { return false };
    assert!(memory.valid_on(Location::Host, ..));
    assert_eq!(*bytes, [7; 4]);
    true
}

#[test]
fn two_readers_share_room_for_one() {
    model(|| {
        let (budget, one, two) = budget(SharedMem::of(Arc::new(Source(AtomicUsize::new(0)))));
        let other = thread::spawn(move || read(&one));
        let has_read = read(&two);
        // Only the other one may have been in the way.
        assert!(other.join().unwrap() || has_read);
        assert!(budget.stats().peak <= 4, "{:?}", budget.stats());
    });
}

#[test]
fn a_reader_makes_room_for_a_writer_and_not_the_reverse() {
    model(|| {
        let (budget, lazy, written) = budget(SharedMem::new(4));
        let other = {
            let lazy = lazy.clone();
            thread::spawn(move || {
                // Read again: the way without a lock.
                read(&lazy) && read(&lazy)
            })
        };
        let has_written = is_met(written.host_overwrite(..)).map(|mut bytes| bytes.fill(9)).is_some();
        let has_read = other.join().unwrap();
        assert!(has_written || has_read);
        if has_written {
            // The bytes are nowhere else, so they stay.
            assert!(is_met(lazy.host(..)).is_none());
            assert_eq!(*written.host(..).unwrap(), [9; 4]);
        }
        assert!(budget.stats().peak <= 4, "{:?}", budget.stats());
    });
}
