//! When work runs, in each mode.

use super::*;

#[test]
fn fresh_bytes_are_poison_and_zeros_are_not() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let block = alloc(&queue, 4097);
    assert_eq!(bytes(&queue, &*block), vec![0xA5; 4097]);
    // SAFETY: within the block.
    unsafe { queue.fill(&*block, 4000, 97) }.unwrap();
    assert_eq!(bytes(&queue, &*block)[3999..], [&[0xA5][..], &[0; 97]].concat());
}

#[test]
fn immediate_work_has_run_when_its_call_returns() {
    let device = Loopback::new(Mode::Immediate);
    let (one, two) = (device.queue().unwrap(), device.queue().unwrap());
    let log = Log::default();
    log.note(&*one, "one");
    two.wait_for(&*one).unwrap();
    log.note(&*two, "two");
    assert_eq!(log.names(), ["one", "two"]);
    assert_eq!(device.report().pending, 0);
}

#[test]
fn deferred_work_runs_only_for_who_needs_it() {
    let device = Loopback::new(Mode::Deferred);
    let queues: Vec<_> = (0..4).map(|_| device.queue().unwrap()).collect();
    let log = Log::default();
    log.note(&*queues[0], "a");
    queues[1].wait_for(&*queues[0]).unwrap();
    log.note(&*queues[0], "after the wait");
    log.note(&*queues[1], "b");
    queues[2].wait_for(&*queues[1]).unwrap();
    log.note(&*queues[1], "after that wait");
    log.note(&*queues[2], "c");
    log.note(&*queues[3], "unrelated");
    assert_eq!((log.names().len(), device.report().pending), (0, 8));
    queues[2].synchronize().unwrap();
    assert_eq!(log.names(), ["a", "b", "c"]);
    assert_eq!(device.report().pending, 3);
    queues[0].synchronize().unwrap();
    assert_eq!(log.names()[3..], ["after the wait"]);
}

/// The order in which nine kernels on three queues run.
fn shuffled(seed: u64) -> Vec<String> {
    let device = Loopback::new(Mode::Random(seed));
    let queues: Vec<_> = (0..3).map(|_| device.queue().unwrap()).collect();
    let log = Log::default();
    for step in 0..3 {
        for (queue, name) in queues.iter().zip(["a", "b", "c"]) {
            log.note(&**queue, format!("{name}{step}"));
        }
    }
    queues[2].wait_for(&*queues[0]).unwrap();
    log.note(&*queues[2], "last of a and c");
    queues.iter().for_each(|queue| queue.synchronize().unwrap());
    log.names()
}

#[test]
fn random_order_is_that_of_its_seed_and_keeps_each_queue_in_order() {
    let mut orders: Vec<Vec<String>> = Vec::new();
    for seed in 0..32 {
        let names = shuffled(seed);
        assert_eq!(names, shuffled(seed));
        for queue in ["a", "b", "c"] {
            let own: Vec<_> = names.iter().filter(|name| name.starts_with(queue)).collect();
            assert_eq!(own, [0, 1, 2].map(|step| format!("{queue}{step}")).each_ref());
        }
        let last = names.iter().position(|name| name.starts_with("last"));
        let before = |end: &str| names.iter().position(|name| name == end) < last;
        assert!(before("a2") && before("c2"), "{names:?}");
        orders.push(names);
    }
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 16, "only {} orders of 32 seeds", orders.len());
}

#[test]
fn random_work_stays_behind_sometimes_and_not_for_ever() {
    let device = Loopback::new(Mode::Random(5));
    let queue = device.queue().unwrap();
    let log = Log::default();
    let mut backlog = Vec::new();
    for step in 0..100 {
        log.note(&*queue, step);
        backlog.push(device.report().pending);
    }
    assert!(backlog.contains(&0) && backlog.iter().any(|pending| *pending > 1));
    assert!(log.names().len() > 10);
}

#[test]
fn work_of_a_dropped_queue_runs_for_those_that_wait_for_it() {
    let device = Loopback::new(Mode::Deferred);
    let (one, two) = (device.queue().unwrap(), device.queue().unwrap());
    let block = alloc(&one, 8);
    set(&one, &block, 3);
    two.wait_for(&*one).unwrap();
    drop(one);
    assert_eq!(bytes(&two, &*block), [3; 8]);
    // Freed at once: there is no order left.
    drop(block);
    assert_eq!((device.report().pending, device.report().live_blocks), (0, 0));
    assert_eq!(device.report().misuses, [""; 0]);
}
