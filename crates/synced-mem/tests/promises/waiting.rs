//! The memory's lock is not held while a device works: a thread that needs no bytes from it goes on meanwhile.
//!
//! A kernel is stalled until another thread has done something with the same memory. Were the lock held, that thread
//! would wait for the kernel and the kernel for the thread, until the kernel gives up.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Arg, Device, Error, Head, Host, Location, Queue, SharedMem, SyncedMem};

use super::PATIENCE;

/// A kernel that waits to be told to go on, and tells whether it was in time.
struct Stalled {
    started: Receiver<()>,
    go: Sender<()>,
    in_time: Receiver<bool>,
}

impl Stalled {
    /// Fills what it may write with `byte`, once it may.
    fn launch<'a>(queue: &Arc<dyn Queue>, arg: Arg<'a>, byte: u8) -> Self {
        let (start, started) = channel();
        let (go, gone) = channel();
        let (told, in_time) = channel();
        launch(&**queue, [arg], move |args| {
            start.send(()).ok();
            told.send(gone.recv_timeout(PATIENCE).is_ok()).ok();
            args[0].bytes_mut().fill(byte);
        })
        .unwrap();
        Self { started, go, in_time }
    }

    /// Runs `meanwhile` while the kernel works for `waiter`, on another thread.
    fn during<R: Send>(self, waiter: impl FnOnce() -> R + Send, meanwhile: impl FnOnce()) -> R {
        thread::scope(|scope| {
            let waiter = scope.spawn(waiter);
            self.started.recv_timeout(PATIENCE).expect("the kernel runs");
            meanwhile();
            self.go.send(()).ok();
            assert!(self.in_time.recv().unwrap(), "it had to wait for the device");
            waiter.join().unwrap()
        })
    }
}

/// Of a device whose transfers never wait, and of one whose transfers wait for all earlier work.
fn queues() -> [Arc<dyn Queue>; 2] {
    [false, true].map(|stages| {
        let device = Loopback::new(Mode::Deferred);
        if stages {
            device.stage_transfers(Host::Done);
        }
        device.queue().unwrap()
    })
}

fn is_staged(queue: &Arc<dyn Queue>) -> bool {
    queue.is_staged(NonNull::dangling(), 1)
}

/// Bytes 0..8 are being written by a stalled kernel.
fn shared(queue: &Arc<dyn Queue>) -> (SharedMem, Stalled) {
    let memory = SharedMem::from(vec![1; 16]);
    let mut token = memory.device_mut(queue, 0..8).unwrap();
    let stalled = Stalled::launch(queue, token.arg_mut(), 7);
    drop(token);
    (memory, stalled)
}

fn is_conflict<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Conflict { .. }))
}

#[test]
fn guards_are_dropped_and_disjoint_bytes_are_borrowed_meanwhile() {
    for queue in queues() {
        let (memory, stalled) = shared(&queue);
        let guards = (memory.host(8..12).unwrap(), memory.host_mut(12..16).unwrap());
        let bytes = stalled.during(
            || memory.host(0..8).unwrap().to_vec(),
            || {
                assert_eq!(guards.0[..], [1; 4]);
                drop(guards);
                memory.host_mut(8..12).unwrap().fill(2);
                assert_eq!(&*memory.host(8..16).unwrap(), [2, 2, 2, 2, 1, 1, 1, 1]);
                assert!(memory.valid_on(Location::Host, 8..16));
                assert_eq!(memory.valid_on(Location::Host, ..), !is_staged(&queue), "its bytes are on the way");
            },
        );
        assert_eq!(bytes, [7; 8]);
        assert_eq!(memory.host(6..10).unwrap()[..], [7, 7, 2, 2]);
    }
}

#[test]
fn conflicts_and_timeouts_are_answered_meanwhile() {
    for queue in queues() {
        let (memory, stalled) = shared(&queue);
        stalled.during(
            || memory.host_mut(0..8).map(|mut bytes| bytes.fill(3)).unwrap(),
            || {
                assert!(is_conflict(memory.host(4..12)));
                assert!(is_conflict(memory.host_mut(4..12)));
                assert!(is_conflict(memory.device(&queue, 0..1)));
                assert!(is_conflict(memory.check_write(7..8)));
                assert!(is_conflict(memory.evict(Location::Host, ..)));
                assert!(is_conflict(memory.adopt(vec![3; 16])));
                let moment = Duration::from_millis(1);
                assert!(is_conflict(memory.with_timeout(moment, |memory| memory.host(0..8))));
                assert!(is_conflict(memory.with_timeout(moment, |memory| memory.host_overwrite(7..8))));
            },
        );
        assert_eq!(&*memory.host(0..8).unwrap(), [3; 8]);
    }
}

#[test]
fn a_reader_that_waits_is_a_reader_already() {
    for queue in queues() {
        let (memory, stalled) = shared(&queue);
        let guard = stalled.during(|| memory.host(0..8).unwrap(), || assert!(is_conflict(memory.check_write(0..1))));
        assert!(is_conflict(memory.host_mut(0..1)));
        drop(guard);
        memory.host_mut(0..1).unwrap();
    }
}

#[test]
fn other_memories_and_their_ends_do_not_wait_for_the_kernel() {
    for queue in queues() {
        let (memory, stalled) = shared(&queue);
        stalled.during(
            || memory.host(0..8).map(drop).unwrap(),
            || {
                let (other, copied) = (SharedMem::from(vec![3; 16]), SharedMem::new(8));
                copied.copy_from(0, &other, 4..12).unwrap();
                other.copy_from(0, &memory, 8..16).unwrap();
                assert_eq!(other.host(6..10).unwrap()[..], [1, 1, 3, 3]);
                drop((other, copied));
            },
        );
    }
}

#[test]
fn two_threads_that_read_at_once_both_get_the_bytes() {
    for queue in queues() {
        let mut memory = SyncedMem::new(8);
        let mut token = memory.device_mut(&queue, ..).unwrap();
        let stalled = Stalled::launch(&queue, token.arg_mut(), 9);
        drop(token);
        let read = || assert_eq!(memory.host(..).unwrap(), [9; 8]);
        stalled.during(
            || {
                thread::scope(|scope| {
                    scope.spawn(read);
                    read();
                });
            },
            || {
                // A download that has ended when it returns counts then.
                assert_eq!(memory.stats().downloads.count, u64::from(!is_staged(&queue)));
                assert_ne!(memory.head(), Head::Uninitialized);
            },
        );
        assert_eq!(memory.stats().downloads.count, 1);
    }
}

#[test]
fn a_foreign_queue_is_waited_for_with_the_lock_released() {
    let [queue, _] = queues();
    let [foreign, _] = queues();
    let (memory, stalled) = shared(&queue);
    let guard = memory.host_mut(8..16).unwrap();
    stalled.during(|| drop(memory.device(&foreign, 0..8).unwrap()), || drop(guard));
    assert_eq!(&*memory.host(0..8).unwrap(), [7; 8]);
}

#[test]
fn the_host_is_evicted_with_the_lock_released() {
    for queue in queues() {
        let (memory, stalled) = shared(&queue);
        stalled.during(|| memory.evict(Location::Host, ..).unwrap(), || assert_eq!(memory.stats().frees.count, 0));
        assert!(!memory.valid_on(Location::Host, 0..1));
        assert_eq!(memory.host(0..16).unwrap()[7..9], [7, 1]);
    }
}

#[test]
fn retired_batches_are_waited_for_with_the_lock_released() {
    for queue in queues() {
        let other = SharedMem::new(8);
        let mut token = other.device_mut(&queue, 0..8).unwrap();
        let stalled = Stalled::launch(&queue, token.arg_mut(), 7);
        let memory = SharedMem::new(8);
        stalled.during(
            || {
                for batch in 0..4 {
                    memory.adopt(vec![batch; 8]).unwrap();
                    memory.device(&queue, 0..8).unwrap();
                }
            },
            || assert_eq!(memory.len(), memory.host(0..8).unwrap().len()),
        );
        drop(token);
        assert_eq!(&*memory.host(0..8).unwrap(), [3; 8]);
    }
}

#[test]
fn a_borrow_whose_wait_fails_is_taken_back() {
    for queue in queues() {
        let memory = SharedMem::from(vec![1; 16]);
        let mut token = memory.device_mut(&queue, 0..8).unwrap();
        launch(&*queue, [token.arg_mut()], |_| panic!("broken")).unwrap();
        drop(token);
        assert!(memory.host(0..8).is_err());
        memory.check_write(0..16).unwrap();
        assert!(!memory.valid_on(Location::Host, 0..1));
        assert_eq!(&*memory.host(8..16).unwrap(), [1; 8]);
    }
}

#[test]
fn a_reader_wakes_those_who_wait_for_it_when_it_fails() {
    for queue in queues() {
        let memory = SharedMem::from(vec![1; 8]);
        let mut token = memory.device_mut(&queue, 0..8).unwrap();
        let (start, started) = channel();
        let (go, gone) = channel::<()>();
        launch(&*queue, [token.arg_mut()], move |_| {
            start.send(()).ok();
            gone.recv_timeout(PATIENCE).ok();
            panic!("broken");
        })
        .unwrap();
        drop(token);
        thread::scope(|scope| {
            let reader = scope.spawn(|| memory.host(0..8).map(drop));
            started.recv_timeout(PATIENCE).unwrap();
            let patient = scope.spawn(|| memory.with_timeout(PATIENCE, |memory| memory.host_overwrite(0..8)).is_ok());
            // Most likely the other one waits by now; the test holds either way.
            thread::sleep(Duration::from_millis(20));
            go.send(()).unwrap();
            assert!(reader.join().unwrap().is_err());
            assert!(patient.join().unwrap());
        });
    }
}

/// The host passes the bytes on from one machine to another, and the first of two downloads is waited for before the
/// second is enqueued.
#[test]
fn an_upload_waits_for_the_download_that_the_same_call_began_after_a_wait() {
    let one = Loopback::new(Mode::Deferred).queue().unwrap();
    let two = Loopback::new(Mode::Deferred).queue().unwrap();
    let mut memory = SyncedMem::new(30);
    let fill = |memory: &mut SyncedMem, range, with: u8| {
        let mut token = memory.device_mut(&one, range).unwrap();
        launch(&*one, [token.arg_mut()], move |args| args[0].bytes_mut().fill(with)).unwrap();
    };
    fill(&mut memory, 0..30, 1);
    memory.prefetch_host(..).unwrap();
    fill(&mut memory, 0..10, 2);
    fill(&mut memory, 20..30, 3);
    let token = memory.device(&two, ..).unwrap();
    let (tell, told) = channel();
    launch(&*two, [token.arg()], move |args| tell.send(args[0].bytes().to_vec()).unwrap()).unwrap();
    two.synchronize().unwrap();
    let expected = [[2; 10], [1; 10], [3; 10]].concat();
    assert_eq!(told.recv().unwrap(), expected);
}

#[test]
fn whatever_is_in_conflict_may_wait_and_not_for_longer_than_it_may() {
    let memory = SharedMem::from(vec![1; 8]);
    let guard = memory.host_mut(0..8).unwrap();
    let releasing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(guard);
    });
    memory.with_timeout(PATIENCE, |memory| memory.adopt(vec![2; 8])).unwrap();
    releasing.join().unwrap();
    assert_eq!(*memory.host(..).unwrap(), [2; 8]);
    let _guard = memory.host_mut(0..1).unwrap();
    let mut tries = 0;
    let refused = memory.with_timeout(Duration::from_millis(20), |memory| {
        tries += 1;
        memory.host(..)
    });
    assert!(is_conflict(refused) && (2..5).contains(&tries), "{tries} tries");
}

/// Bytes 0..8 of a memory are on the host, and their way to the queue's device waits for a kernel.
fn upload(queue: &Arc<dyn Queue>) -> (SharedMem, Stalled) {
    let other = SharedMem::new(1);
    let mut token = other.device_mut(queue, ..).unwrap();
    (SharedMem::from(vec![1; 16]), Stalled::launch(queue, token.arg_mut(), 7))
}

#[test]
fn a_transfer_that_waits_for_a_kernel_of_another_memory_keeps_nobody_waiting() {
    let [_, queue] = queues();
    let (memory, stalled) = upload(&queue);
    let guards = (memory.host(0..4).unwrap(), memory.host_mut(8..12).unwrap());
    let token = stalled.during(
        || memory.device(&queue, 0..8).unwrap(),
        || {
            drop(guards);
            assert_eq!((memory.stats().uploads.count, memory.head()), (0, Head::AtHost));
            assert_eq!(*memory.host(0..8).unwrap(), [1; 8], "which a transfer only reads");
            memory.host_mut(8..16).unwrap().fill(3);
            assert!(is_conflict(memory.host_mut(7..9)));
            let moment = Duration::from_millis(1);
            assert!(is_conflict(memory.with_timeout(moment, |memory| memory.host_overwrite(0..1))));
        },
    );
    assert_eq!((memory.stats().uploads.bytes, memory.host(6..10).unwrap().to_vec()), (8, vec![1, 1, 3, 3]));
    drop(token);
}

/// An eviction has no borrow, so the bytes that it moves are kept from writers by the transfer itself.
#[test]
fn a_writer_of_bytes_that_an_eviction_moves_waits_for_the_transfer() {
    let [_, queue] = queues();
    let (memory, stalled) = shared(&queue);
    let device = Location::Device(queue.device().id());
    let mut writer = None;
    stalled.during(
        || memory.evict(device, ..).unwrap(),
        || {
            memory.host_mut(8..16).unwrap().fill(2);
            assert!(memory.valid_on(device, 0..8));
            let memory = memory.clone();
            writer = Some(thread::spawn(move || memory.host_mut(0..1).unwrap().fill(9)));
        },
    );
    writer.unwrap().join().unwrap();
    assert_eq!(memory.host(..).unwrap().to_vec(), [[9, 7, 7, 7, 7, 7, 7, 7], [2; 8]].concat());
    assert!(!memory.valid_on(device, ..1));
}
