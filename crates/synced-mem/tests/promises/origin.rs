//! Memories of an origin: each byte is read when it is needed and once, a read that fails changes nothing, and other
//! threads neither wait for a read that does not concern them nor disturb it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::launch;
use synced_mem::{Device, Error, Head, Host, Location, Origin, OriginError, Queue, SharedMem, SyncedMem};

use super::tape::{Fault, Tape, pattern};
use super::{PATIENCE, device, fill};

#[test]
fn a_read_brings_the_bytes_that_were_asked_for_and_no_others() {
    let tape = Tape::new(64);
    let memory = SharedMem::of(tape.clone());
    assert_eq!((memory.head(), memory.is_initialized(), memory.len()), (Head::AtOrigin, true, 64));
    assert_eq!(memory.lacking(..).unwrap().host, 64);
    for _ in 0..2 {
        assert_eq!(memory.host(8..16).unwrap()[..], pattern(8..16));
    }
    assert_eq!(memory.host(4..20).unwrap()[..], pattern(4..20));
    assert_eq!(tape.reads(), [8..16, 4..8, 16..20]);
    assert_eq!((memory.stats().origin_reads.bytes, memory.lacking(..).unwrap().host), (16, 48));
    assert!(memory.valid_on(Location::Origin, ..) && !memory.valid_on(Location::Host, 3..5));
    assert_eq!(memory.head(), Head::Mixed);
    assert_eq!(memory.host(..).unwrap()[..], pattern(0..64));
    assert_eq!((memory.head(), tape.bytes_read()), (Head::AtHost, 64));
    assert_eq!(memory.stats().fills.count, 0);
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "a list of reads, of which there is one")]
fn a_write_makes_the_origin_stale_and_an_overwrite_reads_nothing() {
    let (_device, queue) = device();
    let tape = Tape::new(64);
    let memory = SharedMem::of(tape.clone());
    memory.host_overwrite(0..8).unwrap().fill(1);
    fill(&mut memory.device_overwrite(&queue, 8..16).unwrap(), 2);
    assert_eq!(tape.bytes_read(), 0);
    memory.host_mut(16..24).unwrap()[0] = 3;
    assert_eq!(tape.reads(), [16..24]);
    assert!(!memory.valid_on(Location::Origin, 0..1) && !memory.valid_on(Location::Origin, 23..24));
    assert!(memory.valid_on(Location::Origin, 24..64));
    assert!(
        matches!(memory.evict_clean(Location::Host, 16..64), Err(Error::OnlyCopy { range, .. }) if range == (16..24))
    );
    let mut expected = pattern(0..64);
    [(0..8, 1), (8..16, 2), (16..17, 3)].into_iter().for_each(|(range, byte)| expected[range].fill(byte));
    assert_eq!(memory.host(..).unwrap()[..], expected);
    // The last of its bytes goes, and the origin with it.
    assert_eq!(Arc::strong_count(&tape), 2);
    memory.host_overwrite(20..).unwrap().fill(4);
    assert_eq!(Arc::strong_count(&tape), 1);
    assert!(!memory.valid_on(Location::Origin, 63..64) && memory.evict(Location::Origin, ..).is_ok());
}

#[test]
fn bytes_that_the_origin_has_are_given_up_for_nothing_and_read_again() {
    let (device, queue) = device();
    let place = Location::Device(device.id());
    let tape = Tape::new(64);
    let mut memory = SyncedMem::of(tape.clone());
    memory.host(..).unwrap();
    memory.device(&queue, 0..32).unwrap();
    assert_eq!(tape.bytes_read(), 64);
    // An upload from the host is pending, which is not waited for.
    assert!(device.report().pending > 0);
    memory.evict_clean(Location::Host, ..).unwrap();
    assert!(device.report().pending > 0);
    memory.evict_clean(place, ..).unwrap();
    queue.synchronize().unwrap();
    memory.shrink();
    let stats = memory.stats();
    assert_eq!((memory.head(), stats.downloads.count, stats.uploads.count), (Head::AtOrigin, 0, 1));
    assert_eq!((stats.allocations.count, stats.frees.count, device.report().live_blocks), (2, 2, 0));
    assert_eq!(memory.host(60..).unwrap(), pattern(60..64));
    assert_eq!(tape.bytes_read(), 68);
}

#[test]
fn an_origin_that_is_evicted_gives_what_it_alone_has_and_goes() {
    let tape = Tape::new(64);
    let memory = SharedMem::of(tape.clone());
    memory.host(8..16).unwrap();
    let refused = memory.evict_clean(Location::Origin, ..);
    assert!(matches!(refused, Err(Error::OnlyCopy { range, .. }) if range == (0..8)));
    tape.fail(2, Fault::Fails);
    assert!(matches!(memory.evict(Location::Origin, ..), Err(Error::Origin { range, .. }) if range == (16..64)));
    assert!(memory.valid_on(Location::Origin, ..));
    memory.evict(Location::Origin, ..).unwrap();
    assert_eq!((tape.reads(), Arc::strong_count(&tape)), (vec![8..16, 0..8, 16..64], 1));
    assert_eq!((memory.head(), &memory.host(..).unwrap()[..]), (Head::AtHost, &pattern(0..64)[..]));
}

#[test]
fn a_read_that_fails_leaves_the_range_as_it_was() {
    let (_device, queue) = device();
    let tape = Tape::new(64);
    let memory = SharedMem::of(tape.clone());
    memory.host(0..8).unwrap();
    for fault in [Fault::Fails, Fault::Changed] {
        tape.fail(1, fault);
        let Err(Error::Origin { range, source, .. }) = memory.host(0..16) else { panic!("the read fails") };
        assert_eq!((range, matches!(source, OriginError::Changed { .. })), (8..16, fault == Fault::Changed));
        tape.fail(1, fault);
        let error = memory.device(&queue, 4..16).unwrap_err();
        assert!(error.to_string().starts_with("cannot read bytes 8..16 from their origin: told to"), "{error}");
        assert!(memory.valid_on(Location::Host, 0..8) && !memory.valid_on(Location::Host, 8..9));
    }
    assert_eq!(memory.host(..).unwrap()[..], pattern(0..64));
    assert_eq!((tape.bytes_read(), memory.stats().origin_reads.bytes), (64, 64));
}

#[test]
fn a_read_that_panics_passes_the_panic_on_and_ends_its_borrow() {
    let tape = Tape::new(64);
    let memory = SharedMem::of(tape.clone());
    let accesses: [fn(&SharedMem); 3] =
        [|memory| drop(memory.host(..)), |memory| drop(memory.host_mut(8..)), |memory| drop(memory.prefetch_host(..8))];
    let (device, queue) = device();
    tape.fail(1, Fault::Panics);
    assert!(catch_unwind(AssertUnwindSafe(|| memory.upload(&queue, ..))).is_err());
    assert!(!memory.valid_on(Location::Device(device.id()), 0..1));
    for access in accesses {
        tape.fail(1, Fault::Panics);
        assert!(catch_unwind(AssertUnwindSafe(|| access(&memory))).is_err());
        assert!(memory.check_write(..).is_ok() && memory.head() == Head::AtOrigin);
    }
    assert_eq!(memory.host_mut(..).unwrap()[..], pattern(0..64));
}

#[test]
fn readers_at_once_read_each_byte_once() {
    for _ in 0..20 {
        let tape = Tape::with_hook(64, |_| thread::yield_now());
        let (shared, owned) = (SharedMem::of(tape.clone()), SyncedMem::of(tape.clone()));
        let (_device, queue) = device();
        let start = Barrier::new(6);
        thread::scope(|scope| {
            let (shared, owned, queue, start) = (&shared, &owned, &queue, &start);
            for nth in 0..3 {
                scope.spawn(move || {
                    start.wait();
                    let range = 8 * nth..40 + 8 * nth;
                    assert_eq!(shared.host(range.clone()).unwrap()[..], pattern(range));
                    assert_eq!(owned.host(8 * nth..).unwrap(), pattern(8 * nth..64));
                });
                scope.spawn(move || {
                    start.wait();
                    shared.upload(queue, 8 * nth..).unwrap();
                    owned.upload(queue, 8 * nth..).unwrap();
                });
            }
        });
        for stats in [shared.stats(), owned.stats()] {
            assert_eq!(stats.origin_reads.bytes, 64, "{:?}", tape.reads());
        }
    }
}

/// A memory whose reads stop until they are let go on, and the ends that say so.
fn stopped() -> (SharedMem, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let goes = std::sync::Mutex::new(goes);
    let tape = Tape::with_hook(64, move |_| {
        begun.send(()).unwrap();
        goes.lock().unwrap().recv_timeout(PATIENCE).expect("the read is let go on");
    });
    (SharedMem::of(tape), begins, go)
}

#[test]
fn the_memory_answers_while_an_origin_is_read() {
    let (memory, begins, go) = stopped();
    thread::scope(|scope| {
        let reader = scope.spawn(|| memory.host(0..32).unwrap()[..] == pattern(0..32));
        begins.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(memory.host_mut(16..48), Err(Error::Conflict { .. })));
        memory.shrink();
        memory.host_overwrite(32..48).unwrap().fill(1);
        assert_eq!(memory.host(32..48).unwrap()[..], [1; 16]);
        assert_eq!((memory.stats().origin_reads.count, memory.valid_on(Location::Host, 0..1)), (0, false));
        go.send(()).unwrap();
        assert!(reader.join().unwrap());
    });
}

/// Something that writes bytes of a memory.
type Change = fn(&SharedMem, &Arc<dyn Queue>);

/// A prefetch has no borrow: where another has come meanwhile, the prefetch ends with a conflict.
#[test]
fn bytes_that_are_being_read_are_not_changed_under_the_read() {
    let (device, queue) = device();
    let changes: [(&str, Change); 5] = [
        ("a write on the host", |memory, _| memory.host_overwrite(0..32).unwrap().fill(9)),
        ("a write on a device", |memory, queue| fill(&mut memory.device_overwrite(queue, 0..32).unwrap(), 9)),
        ("an adoption", |memory, _| memory.adopt(vec![9; 64]).unwrap()),
        ("a copy", |memory, queue| {
            let source = SharedMem::from(vec![9; 32]);
            source.upload(queue, ..).unwrap();
            source.evict(Location::Host, ..).unwrap();
            memory.copy_from(0, &source, ..).unwrap();
        }),
        ("an eviction", |memory, _| {
            memory.evict(Location::Host, ..).unwrap();
            memory.host_overwrite(0..32).unwrap().fill(9);
        }),
    ];
    for (what, change) in changes {
        let (memory, begins, go) = stopped();
        thread::scope(|scope| {
            let prefetch = scope.spawn(|| drop(memory.prefetch_host(0..64)));
            begins.recv_timeout(PATIENCE).unwrap();
            let changing = scope.spawn(|| change(&memory, &queue));
            thread::sleep(Duration::from_millis(20));
            let was_waiting = !changing.is_finished();
            go.send(()).unwrap();
            prefetch.join().unwrap();
            changing.join().unwrap();
            assert!(was_waiting, "{what} waits");
        });
        // Whatever of the bytes is read again.
        for _ in 0..8 {
            let _ = go.send(());
        }
        assert_eq!(memory.host(0..32).unwrap()[..], [9; 32], "{what}");
        assert!(!memory.valid_on(Location::Origin, 0..1), "{what}");
    }
    drop((device, queue));
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "a list of reads, of which there is one")]
fn a_device_gets_the_bytes_that_it_asks_for() {
    let (device, queue) = device();
    let tape = Tape::new(4096);
    let memory = SharedMem::of(tape.clone());
    let token = memory.device(&queue, 100..200).unwrap();
    launch(&*queue, [token.arg()], |args| assert_eq!(args[0].bytes(), pattern(100..200))).unwrap();
    drop(token);
    queue.synchronize().unwrap();
    assert!(memory.valid_on(Location::Device(device.id()), 100..200));
    let stats = memory.stats();
    assert_eq!((tape.reads(), stats.origin_reads.bytes, stats.uploads.bytes), (vec![100..200], 100, 100));
    // The device's block alone: nothing of it is on the host.
    assert!(!memory.valid_on(Location::Host, 100..101));
    assert_eq!(stats.allocations.count, 1);
    // The host has these bytes of the device, not of the origin again.
    assert_eq!(memory.host(90..110).unwrap()[..], pattern(90..110));
    assert_eq!((tape.reads(), memory.stats().downloads.bytes), (vec![100..200, 90..100], 10));
}

/// Of many pieces, the last of them short.
#[test]
fn a_device_gets_more_bytes_than_are_held_on_the_host_at_once() {
    let (_device, queue) = device();
    let len = (3 << 20) + 5;
    let tape = Tape::new(len);
    let mut memory = SyncedMem::of(tape.clone());
    tape.fail(2, Fault::Fails);
    assert!(matches!(memory.device(&queue, ..), Err(Error::Origin { range, .. }) if range == (1 << 20..2 << 20)));
    memory
        .device_mut(&queue, ..)
        .map(|mut token| {
            launch(&*queue, [token.arg_mut()], move |args| assert!(args[0].bytes() == pattern(0..len))).unwrap();
        })
        .unwrap();
    queue.synchronize().unwrap();
    assert_eq!((tape.bytes_read(), memory.stats().origin_reads.bytes), (len + (1 << 20), len as u64));
}

#[test]
fn scattered_reads_read_no_byte_that_was_not_asked_for() {
    let tape = Tape::new(1 << 16);
    let (shared, owned) = (SharedMem::of(tape.clone()), SyncedMem::of(tape.clone()));
    for start in (0..1 << 16).step_by(128) {
        assert_eq!(shared.host(start..start + 8).unwrap()[..], pattern(start..start + 8));
        assert_eq!(owned.host(start..start + 8).unwrap(), pattern(start..start + 8));
    }
    for stats in [shared.stats(), owned.stats()] {
        assert_eq!((stats.origin_reads.bytes, stats.failures.count), (4096, 0));
    }
    // 256 ranges of the one are left; of the other slices may show all.
    let held = |on_host: &dyn Fn(usize) -> bool| (0..1 << 16).step_by(128).filter(|start| on_host(*start)).count();
    assert_eq!(held(&|start| shared.valid_on(Location::Host, start..start + 8)), 256);
    assert_eq!(held(&|start| owned.valid_on(Location::Host, start..start + 8)), 512);
}

#[test]
fn scattered_writes_read_nothing_and_lose_nothing() {
    let tape = Tape::new(1 << 16);
    let memory = SharedMem::of(tape.clone());
    let mut expected = pattern(0..1 << 16);
    for start in (0..1 << 16).step_by(128) {
        memory.host_overwrite(start..start + 8).unwrap().fill(5);
        expected[start..start + 8].fill(5);
    }
    assert_eq!((tape.bytes_read(), memory.stats().failures.count), (0, 0));
    assert!(memory.host(..).unwrap()[..] == expected[..]);
}

#[test]
fn an_origin_of_no_bytes_is_never_read() {
    let tape = Tape::new(0);
    let memory = SharedMem::of(tape.clone());
    assert_eq!(
        (memory.head(), memory.host(..).unwrap().len(), memory.host_mut(..).unwrap().len()),
        (Head::Uninitialized, 0, 0)
    );
    assert_eq!((tape.reads().len(), Arc::strong_count(&tape)), (0, 1));
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "a list of reads, of which there is one")]
fn an_origin_that_is_read_as_a_whole_gives_all_bytes_that_are_lacking() {
    let (_device, queue) = device();
    let tape = Tape::whole(64);
    let memory = SharedMem::of(tape.clone());
    memory.upload(&queue, 8..16).unwrap();
    assert_eq!((tape.reads(), memory.stats().uploads.bytes), (vec![0..64], 8));
    assert_eq!(memory.host(..).unwrap()[..], pattern(0..64));
    memory.evict(Location::Host, ..).unwrap();
    memory.host_overwrite(30..32).unwrap().fill(1);
    assert_eq!(memory.host(2..4).unwrap()[..], pattern(2..4));
    // Bytes that a device has are not read again, and newer ones are kept.
    assert_eq!(tape.reads(), [0..64, 0..8]);
    assert_eq!(memory.host(28..40).unwrap()[2..4], [1; 2]);
    assert_eq!(tape.reads(), [0..64, 0..8, 16..30, 32..64]);
}

/// An origin that tells when it is read, and gives its bytes when it is told to.
struct Slow {
    asked: mpsc::SyncSender<()>,
    go: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Origin for Slow {
    fn len(&self) -> usize {
        16
    }

    fn read(&self, _: usize, out: &mut [u8]) -> Result<(), OriginError> {
        self.asked.send(()).ok();
        self.go.lock().unwrap().recv_timeout(PATIENCE).map_err(OriginError::failed)?;
        out.fill(7);
        Ok(())
    }
}

/// The queue's work is waited for while the origin is read, before the upload is enqueued: that wait tells nothing of
/// the upload.
#[test]
fn an_upload_that_is_enqueued_after_a_wait_for_its_queue_is_waited_for_by_other_queues() {
    let (device, first) = device();
    device.stage_transfers(Host::Pending);
    let second = device.queue().unwrap();
    let (asked, was_asked) = mpsc::sync_channel(1);
    let (go, gone) = mpsc::channel();
    let memory = SharedMem::of(Arc::new(Slow { asked, go: gone.into() }));
    fill(&mut memory.device_overwrite(&first, 8..).unwrap(), 2);
    thread::scope(|scope| {
        let upload = scope.spawn(|| memory.upload(&first, 0..8));
        was_asked.recv_timeout(PATIENCE).unwrap();
        assert_eq!(memory.host(8..).unwrap()[..], [2; 8]);
        go.send(()).unwrap();
        upload.join().unwrap().unwrap();
    });
    assert_eq!(device.report().pending, 1, "the upload");
    let (token, found) = (memory.device(&second, 0..8).unwrap(), mpsc::channel());
    launch(&*second, [token.arg()], move |args| found.0.send(args[0].bytes().to_vec()).unwrap()).unwrap();
    second.synchronize().unwrap();
    assert_eq!(found.1.recv().unwrap(), [7; 8]);
}
