//! Transfers without the memory's lock that are under way for as long as a test likes: what others see meanwhile, and
//! what is known of the bytes afterwards, whether the transfer has ended well or not.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Fault, Hold, Loopback, Mode, Operation, launch};
use synced_mem::{Device, Error, Head, Host, Location, Queue, SharedMem, scope};

use super::{PATIENCE, break_queue, fill};

/// A deferred device with a queue, whose transfers give this answer.
fn staged(answer: Host) -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Deferred);
    device.stage_transfers(answer);
    let queue = device.queue().unwrap();
    (device, queue)
}

const ANSWERS: [Host; 2] = [Host::Done, Host::Pending];

/// Runs `meanwhile` during the first transfer of `transfers`.
fn during<R: Send>(hold: Hold, transfers: impl FnOnce() -> R + Send, meanwhile: impl FnOnce()) -> R {
    thread::scope(|scope| {
        let moving = scope.spawn(transfers);
        assert!(hold.has_begun(PATIENCE), "nothing is transferred");
        meanwhile();
        drop(hold);
        moving.join().unwrap()
    })
}

fn is_conflict<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Conflict { .. }))
}

#[test]
fn the_memory_answers_during_an_upload() {
    for answer in ANSWERS {
        let (device, queue) = staged(answer);
        let memory = SharedMem::from(vec![1; 16]);
        let (reader, writer) = (memory.host(0..4).unwrap(), memory.host_mut(8..12).unwrap());
        let token = during(
            device.hold_transfer(),
            || memory.device(&queue, 0..8).unwrap(),
            || {
                drop((reader, writer));
                let stats = memory.stats();
                assert_eq!((stats.uploads.count, stats.allocations.count, memory.head()), (0, 1, Head::AtHost));
                assert!(!memory.valid_on(Location::Device(device.id()), 0..1));
                assert_eq!(*memory.host(0..8).unwrap(), [1; 8], "bytes that are only read");
                memory.host_mut(8..16).unwrap().fill(3);
                let moment = Duration::from_millis(1);
                assert!(is_conflict(memory.host_mut(7..9)));
                assert!(is_conflict(memory.with_timeout(moment, |memory| memory.host_overwrite(0..1))));
                assert!(is_conflict(memory.adopt(vec![0; 16])));
                memory.shrink();
            },
        );
        assert_eq!((memory.stats().uploads.bytes, memory.head()), (8, Head::Mixed));
        drop(token);
        assert_eq!(memory.host_mut(..).unwrap()[..], [[1; 8], [3; 8]].concat());
    }
}

#[test]
fn the_memory_answers_during_a_download() {
    for answer in ANSWERS {
        let (device, queue) = staged(answer);
        let memory = SharedMem::new(16);
        fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 7);
        let guard = during(
            device.hold_transfer(),
            || memory.host(0..8).unwrap(),
            || {
                assert_eq!((memory.stats().downloads.count, memory.head()), (0, Head::AtDevice));
                // The other half comes and goes.
                assert_eq!(*memory.host(8..16).unwrap(), [7; 8]);
                fill(&mut memory.device_mut(&queue, 12..16).unwrap(), 8);
                assert!(is_conflict(memory.device_mut(&queue, 7..9)));
                assert!(is_conflict(memory.evict(Location::Host, ..)));
                memory.upload(&queue, 0..8).unwrap();
            },
        );
        assert_eq!((guard.to_vec(), memory.stats().downloads.bytes), (vec![7; 8], 16));
        drop(guard);
        assert_eq!(*memory.host(12..16).unwrap(), [8; 4]);
    }
}

/// Two threads want the same bytes: one brings them, and the other waits for the first.
#[test]
fn bytes_on_their_way_are_not_brought_a_second_time() {
    for answer in ANSWERS {
        let (device, queue) = staged(answer);
        let memory = SharedMem::new(16);
        fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 7);
        let mut second = None;
        let first = during(
            device.hold_transfer(),
            || memory.host(..).unwrap(),
            || {
                let memory = memory.clone();
                second = Some(thread::spawn(move || memory.host(4..12).unwrap().to_vec()));
                thread::sleep(Duration::from_millis(5));
                assert!(!second.as_ref().unwrap().is_finished());
            },
        );
        assert_eq!((first.to_vec(), second.unwrap().join().unwrap()), (vec![7; 16], vec![7; 8]));
        assert_eq!(memory.stats().downloads.count, 1);
    }
}

/// While the bytes of a slice are on their way, others make the memory wait for the queue, to bound the number of its
/// users. That wait tells nothing of the upload, which is enqueued after it.
#[test]
fn a_lent_slice_on_its_way_is_waited_for_by_other_queues() {
    let (device, first) = staged(Host::Done);
    let bytes = [1u8; 16];
    scope(|scope| {
        let memory = scope.lend(&bytes);
        memory.upload(&first, 8..).unwrap();
        let uploaded = during(
            device.hold_transfer(),
            || memory.upload(&first, 0..8),
            || (0..80).for_each(|_| memory.upload(&device.queue().unwrap(), 8..).unwrap()),
        );
        uploaded.unwrap();
        let second = device.queue().unwrap();
        let token = memory.device(&second, 0..8).unwrap();
        launch(&*second, [token.arg()], |args| assert_eq!(args[0].bytes(), [1; 8])).unwrap();
        second.synchronize().unwrap();
    })
    .unwrap();
}

/// The queue's failure is found out during the download. The device's copy, which another queue can read, is not given
/// up for bytes that never come.
#[test]
fn bytes_that_a_failed_queue_was_to_bring_are_not_trusted_when_they_land() {
    let (device, first) = staged(Host::Pending);
    let second = device.queue().unwrap();
    let memory = SharedMem::from(vec![1; 24]);
    memory.upload(&first, 8..16).unwrap();
    fill(&mut memory.device_overwrite(&first, 0..8).unwrap(), 7);
    // All that the queue has done until now is waited for.
    memory.host_mut(8..16).unwrap().fill(2);
    memory.upload(&second, 8..16).unwrap();
    memory.upload(&first, 16..24).unwrap();
    let mut writer = None;
    let prefetched = during(
        device.hold_transfer(),
        || memory.prefetch_host(0..8),
        || {
            break_queue(&first);
            let memory = memory.clone();
            let writing = memory.clone();
            writer = Some(thread::spawn(move || writing.host_mut(16..24).map(|mut bytes| bytes.fill(3))));
            // The copy is left to the queue that works when the failure is known.
            while memory.lacking(..).unwrap().devices[0].0.id() != second.id() {
                thread::yield_now();
            }
        },
    );
    prefetched.unwrap();
    writer.unwrap().join().unwrap().unwrap();
    assert_eq!(memory.host(0..8).unwrap()[..], [7; 8]);
    assert_eq!(memory.host(..).unwrap().to_vec(), [[7; 8], [2; 8], [3; 8]].concat());
}

const FAULTS: [Fault; 3] = [Fault::Refused, Fault::Reported, Fault::BrokenOff];

fn failures() -> impl Iterator<Item = (Host, Fault)> {
    ANSWERS.into_iter().flat_map(|answer| FAULTS.map(|fault| (answer, fault)))
}

#[test]
fn a_transfer_that_fails_without_the_lock_leaves_its_bytes_where_they_are() {
    // An upload that breaks off fails its queue, not the call.
    for (answer, fault) in failures().filter(|(_, fault)| *fault != Fault::BrokenOff) {
        let (device, queue) = staged(answer);
        let on_device = Location::Device(device.id());
        let memory = SharedMem::from(vec![1; 16]);
        device.fail(Operation::Upload, 1, fault);
        assert!(matches!(memory.upload(&queue, 0..8), Err(Error::Device { .. })));
        assert!(memory.valid_on(Location::Host, ..) && !memory.valid_on(on_device, 0..1));
        let token = memory.device(&queue, 0..8).unwrap();
        launch(&*queue, [token.arg()], |args| assert_eq!(args[0].bytes(), [1; 8])).unwrap();
        queue.synchronize().unwrap();
    }
}

#[test]
fn a_download_that_fails_without_the_lock_is_made_by_a_queue_that_works() {
    for (answer, fault) in failures() {
        let (device, first) = staged(answer);
        let (second, on_device) = (device.queue().unwrap(), Location::Device(device.id()));
        let memory = SharedMem::new(16);
        fill(&mut memory.device_overwrite(&first, ..).unwrap(), 7);
        memory.upload(&second, 0..8).unwrap();
        device.fail(Operation::Download, 1, fault);
        let found = memory.host(0..8);
        if fault == Fault::BrokenOff {
            // Another queue has the bytes as well, once the failure is known.
            assert_eq!(*found.unwrap(), [7; 8]);
        } else {
            assert!(matches!(found, Err(Error::Device { .. })));
            assert!(memory.valid_on(on_device, ..) && !memory.valid_on(Location::Host, 0..1));
            assert_eq!(*memory.host(0..8).unwrap(), [7; 8]);
        }
    }
}
