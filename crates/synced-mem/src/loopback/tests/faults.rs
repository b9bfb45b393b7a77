//! Calls that fail late, work that ends half-way, and blocks that are given out again.

use super::*;

/// A block of ones, and a queue that has nothing to do.
fn ones(device: &Loopback) -> (Arc<dyn Queue>, Arc<dyn Block>) {
    let queue = device.queue().unwrap();
    let block = alloc(&queue, 8);
    set(&queue, &block, 1);
    queue.synchronize().unwrap();
    (queue, block)
}

#[test]
fn a_call_that_fails_late_has_enqueued_its_work() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, block) = ones(&device);
    device.fail(Operation::Fill, 1, Fault::Reported);
    // SAFETY: within the block.
    unsafe { queue.fill(&*block, 2, 3) }.unwrap_err();
    assert_eq!(device.report().pending, 1);
    device.fail(Operation::Synchronize, 1, Fault::Reported);
    queue.synchronize().unwrap_err();
    assert_eq!(device.report().pending, 0);
    queue.synchronize().unwrap();
    assert_eq!(bytes(&queue, &*block), [1, 1, 0, 0, 0, 1, 1, 1]);
    device.fail(Operation::Alloc, 1, Fault::Reported);
    queue.alloc(8).unwrap_err();
    assert_eq!((device.report().live_blocks, device.report().bytes_in_use), (1, 8));
    device.fail(Operation::Launch, 1, Fault::Reported);
    let log = Log::default();
    let note = log.clone();
    launch(&*queue, [], move |_| note.0.lock().unwrap().push("ran".into())).unwrap_err();
    queue.synchronize().unwrap();
    assert_eq!(log.names(), ["ran"]);
}

#[test]
fn a_failure_outlives_the_handle_of_its_queue_for_those_that_wait() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, waiting) = (device.queue().unwrap(), device.queue().unwrap());
    launch(&*queue, [], |_| std::panic::resume_unwind(Box::new("broken"))).unwrap();
    waiting.wait_for(&*queue).unwrap();
    drop(queue);
    for _ in 0..2 {
        assert!(waiting.synchronize().is_err());
    }
}

#[test]
fn work_that_is_broken_off_moves_half_and_fails_its_queue_for_good() {
    for operation in [Operation::Upload, Operation::Download, Operation::Copy, Operation::Fill] {
        let device = Loopback::new(Mode::Deferred);
        let ((queue, block), (waiting, source)) = (ones(&device), ones(&device));
        let mut host = [7_u8; 8];
        let start = NonNull::from(&mut host).cast();
        device.fail(operation, 1, Fault::BrokenOff);
        // SAFETY: within the blocks and the host bytes, which live and are left alone until the synchronisation.
        unsafe {
            match operation {
                Operation::Upload => queue.upload(&*block, 1, start, 6).map(drop),
                Operation::Download => queue.download(&*block, 0, start, 8).map(drop),
                Operation::Copy => {
                    set(&queue, &block, 5);
                    queue.copy(&*block, 4, &*source, 0, 4)
                }
                _ => queue.fill(&*block, 0, 8),
            }
        }
        .unwrap();
        waiting.wait_for(&*queue).unwrap();
        for queue in [&queue, &waiting, &queue] {
            let error = queue.synchronize().unwrap_err().to_string();
            assert!(error.ends_with("call 1 was told to fail"), "{error}");
        }
        let fresh = device.queue().unwrap();
        let left = bytes(&fresh, &*block);
        match operation {
            Operation::Upload => assert_eq!(left, [1, 7, 7, 7, 1, 1, 1, 1]),
            Operation::Download => assert_eq!(host, [1, 1, 1, 1, 7, 7, 7, 7]),
            Operation::Copy => assert_eq!(left, [5, 5, 5, 5, 1, 1, 5, 5]),
            _ => assert_eq!(left, [0, 0, 0, 0, 1, 1, 1, 1]),
        }
        assert_eq!(device.report().misuses, [""; 0]);
    }
}

#[test]
fn a_kernel_that_is_broken_off_does_not_run() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, block) = ones(&device);
    device.fail(Operation::Launch, 1, Fault::BrokenOff);
    set(&queue, &block, 9);
    queue.synchronize().unwrap_err();
    assert_eq!(bytes(&device.queue().unwrap(), &*block), [1; 8]);
}

#[test]
fn blocks_are_given_out_again_in_the_order_of_their_queue() {
    let device = Loopback::new(Mode::Deferred);
    device.reuse_blocks();
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    let old = alloc(&queue, 8);
    set(&queue, &old, 1);
    let address = old.address();
    drop(old);
    assert_ne!(alloc(&other, 8).address(), address, "another queue knows nothing of it");
    let new = alloc(&queue, 8);
    assert_eq!((new.address(), device.report().pending), (address, 1));
    // What was enqueued on the old block comes first, for a queue that waits for this one.
    other.wait_for(&*queue).unwrap();
    set(&other, &new, 2);
    assert_eq!(bytes(&other, &*new), [2; 8]);
    // Who does not wait sees it come too late.
    drop(new);
    let new = alloc(&queue, 8);
    set(&queue, &new, 3);
    drop(new);
    let new = alloc(&queue, 8);
    set(&other, &new, 4);
    other.synchronize().unwrap();
    queue.synchronize().unwrap();
    assert_eq!(bytes(&other, &*new), [3; 8]);
    drop((new, queue, other));
    assert_eq!((device.report().live_blocks, device.report().misuses), (0, vec![]));
}

#[test]
fn a_queue_that_is_known_to_have_failed_fails_no_other() {
    let device = Loopback::new(Mode::Deferred);
    let ((queue, _), (early, _), (late, block)) = (ones(&device), ones(&device), ones(&device));
    launch(&*queue, [], |_| std::panic::resume_unwind(Box::new("broken"))).unwrap();
    // The failure is not known yet.
    early.wait_for(&*queue).unwrap();
    queue.synchronize().unwrap_err();
    late.wait_for(&*queue).unwrap_err();
    assert_eq!(bytes(&late, &*block), [1; 8]);
    early.synchronize().unwrap_err();
}
