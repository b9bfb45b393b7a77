//! A queue for each request: what they read stays, but the queues do not.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use synced_mem::loopback::{Loopback, Mode, Operation, launch};
use synced_mem::{Device, Queue, SharedMem, SyncedMem};

use super::break_queue;
use super::poison::held;

/// The stated bound of 64, the copy's home queue, and the one that allocated its block.
const MAX_ALIVE: usize = 66;

fn alive(queues: &[Weak<dyn Queue>]) -> usize {
    let alive = queues.iter().filter(|queue| queue.strong_count() > 0);
    alive.count()
}

#[test]
fn queues_that_only_read_are_forgotten() {
    for mode in [Mode::Immediate, Mode::Deferred] {
        let device = Loopback::new(mode);
        let weights = SharedMem::from(vec![5; 64]);
        let mut queues = Vec::new();
        for _ in 0..1000 {
            let queue = device.queue().unwrap();
            let token = weights.device(&queue, 0..64).unwrap();
            launch(&*queue, [token.arg()], |args| assert_eq!(args[0].bytes(), [5; 64])).unwrap();
            queues.push(Arc::downgrade(&queue));
            assert!(alive(&queues) <= MAX_ALIVE, "{}", alive(&queues));
        }
        let writer = device.queue().unwrap();
        let mut token = weights.device_overwrite(&writer, 0..64).unwrap();
        launch(&*writer, [token.arg_mut()], |args| args[0].bytes_mut().fill(6)).unwrap();
        drop(token);
        assert_eq!(weights.host(0..64).unwrap()[..2], [6, 6]);
        assert_eq!(device.report().pending, 0, "a writer waits for those that are left");
        assert_eq!(device.report().misuses, [""; 0]);
        assert_eq!(weights.stats().uploads.count, 1);
    }
}

#[test]
fn what_a_live_token_launches_is_waited_for_however_many_come_after_it() {
    let device = Loopback::new(Mode::Deferred);
    let memory = SharedMem::from(vec![5; 8]);
    let first = device.queue().unwrap();
    let token = memory.device(&first, 0..8).unwrap();
    for _ in 0..200 {
        drop(memory.device(&device.queue().unwrap(), 0..8).unwrap());
    }
    let seen = Arc::new(AtomicU8::new(0));
    let told = Arc::clone(&seen);
    launch(&*first, [token.arg()], move |args| {
        told.store(args[0].bytes()[0], Ordering::Relaxed);
    })
    .unwrap();
    drop(token);
    let second = device.queue().unwrap();
    let mut token = memory.device_overwrite(&second, 0..8).unwrap();
    launch(&*second, [token.arg_mut()], |args| args[0].bytes_mut().fill(9)).unwrap();
    drop(token);
    assert_eq!(&*memory.host(0..8).unwrap(), [9; 8]);
    assert_eq!(seen.load(Ordering::Relaxed), 5);
}

/// As above, for a memory with one owner, whose tokens do not report their drop.
#[test]
fn queues_that_only_read_from_one_owner_are_forgotten() {
    for mode in [Mode::Immediate, Mode::Deferred] {
        let device = Loopback::new(mode);
        let mut weights = SyncedMem::from(vec![5; 64]);
        let mut queues = Vec::new();
        let held = device.queue().unwrap();
        let token = weights.device(&held, ..).unwrap();
        for n in 0..20_000 {
            let queue = device.queue().unwrap();
            let token = weights.device(&queue, ..).unwrap();
            launch(&*queue, [token.arg()], |args| assert_eq!(args[0].bytes(), [5; 64])).unwrap();
            queues.push(Arc::downgrade(&queue));
            // Now and then, because a leak is slow, too.
            assert!(n % 1_000 != 999 || alive(&queues) <= MAX_ALIVE, "{}", alive(&queues));
        }
        // What a token allows that was held all the time is waited for.
        let seen = Arc::new(AtomicU8::new(0));
        let told = Arc::clone(&seen);
        launch(&*held, [token.arg()], move |args| told.store(args[0].bytes()[0], Ordering::Relaxed)).unwrap();
        let writer = device.queue().unwrap();
        let mut token = weights.device_overwrite(&writer, ..).unwrap();
        launch(&*writer, [token.arg_mut()], |args| args[0].bytes_mut().fill(6)).unwrap();
        assert_eq!(weights.host(..).unwrap()[..2], [6, 6]);
        assert_eq!(seen.load(Ordering::Relaxed), 5);
        assert_eq!(device.report().pending, 0, "a writer waits for those that are left");
        assert_eq!(device.report().misuses, [""; 0]);
        assert_eq!(weights.stats().uploads.count, 1);
    }
}

#[test]
fn a_broken_queue_among_the_oldest_is_not_asked_at_every_access_and_keeps_no_other_alive() {
    let device = Loopback::new(Mode::Deferred);
    let memory = SharedMem::new(8);
    let writer = device.queue().unwrap();
    drop(memory.device_overwrite(&writer, 0..8).unwrap());
    let broken = device.queue().unwrap();
    drop(memory.device(&broken, 0..8).unwrap());
    break_queue(&broken);
    let mut queues = Vec::new();
    let mut read_often = || {
        for _ in 0..100 {
            let queue = device.queue().unwrap();
            drop(memory.device(&queue, 0..8).unwrap());
            queues.push(Arc::downgrade(&queue));
        }
        alive(&queues)
    };
    read_often();
    let before = device.calls(Operation::Synchronize);
    let alive = read_often();
    let calls = device.calls(Operation::Synchronize) - before;
    assert!(calls <= 110, "{calls} synchronisations for 100 accesses");
    assert!(alive <= MAX_ALIVE, "{alive} of 200");
}

/// What each of many requests on one device leaves allocated, in bytes.
fn left_by(request: impl Fn(&Arc<dyn Queue>)) -> isize {
    const REQUESTS: isize = 100;
    let device = Loopback::new(Mode::Deferred);
    let serve = || (0..REQUESTS).for_each(|_| request(&device.queue().unwrap()));
    serve();
    let before = held();
    serve();
    assert_eq!(device.report().misuses, [""; 0]);
    (held() - before) / REQUESTS
}

#[test]
fn a_request_on_a_queue_of_its_own_leaves_what_the_queue_may_still_read_and_no_more() {
    let weights = SharedMem::from(vec![5; 64]);
    let fail = |queue: &Arc<dyn Queue>| {
        break_queue(queue);
        assert!(queue.synchronize().is_err());
    };
    let read = |queue: &Arc<dyn Queue>| drop(weights.device(queue, ..).unwrap());
    assert_eq!(left_by(fail), 0);
    let left_by_upload = left_by(|queue| drop(SharedMem::from(vec![5; 64]).device(queue, ..).unwrap()));
    let left_by_failed_upload = left_by(|queue| {
        let batch = SharedMem::from(vec![5; 64]);
        drop(batch.device(queue, ..).unwrap());
        fail(queue);
    });
    assert_eq!((left_by_upload, left_by_failed_upload), (0, 64));
    let left_by_failed_read = left_by(|queue| {
        read(queue);
        fail(queue);
    });
    assert!(left_by_failed_read <= 0 && left_by(read) <= 0);
    assert_eq!(weights.stats().leaks.count, 0);
    // What the first of so many queues may still read is not written, but replaced.
    let device = Loopback::new(Mode::Deferred);
    let weights = SharedMem::from(vec![5; 64]);
    for n in 0..100 {
        let queue = device.queue().unwrap();
        drop(weights.device(&queue, if n == 0 { 0..8 } else { 8..64 }).unwrap());
        fail(&queue);
    }
    weights.host_mut(0..1).unwrap()[0] = 6;
    assert_eq!(weights.host(..).unwrap()[..2], [6, 5]);
    assert_eq!(weights.stats().leaks.count, 1);
}
