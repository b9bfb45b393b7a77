//! Limits, failures told in advance, misuses, and memory and queues of others.

use super::*;

#[test]
fn a_limit_counts_blocks_until_they_are_dropped() {
    let device = Loopback::new(Mode::Deferred);
    device.set_limit(100);
    let (queue, sibling) = (device.queue().unwrap(), device.sibling());
    let block = queue.alloc(60).unwrap();
    assert_eq!((device.report().bytes_in_use, device.report().live_blocks), (60, 1));
    let error = queue.alloc(41).unwrap_err();
    assert!(matches!(error, Error::DeviceOutOfMemory { bytes: 41, device: id } if id == device.id()));
    assert!(sibling.queue().unwrap().alloc(101).is_ok());
    let rest = queue.alloc(40).unwrap();
    drop(block);
    assert_eq!((device.report().bytes_in_use, device.report().live_blocks), (40, 1));
    assert!(queue.alloc(60).is_ok());
    drop(rest);
    assert_eq!((device.report().bytes_in_use, device.report().live_blocks), (0, 0));
    assert!(queue.alloc(usize::MAX).is_err());
    device.set_limit(usize::MAX);
    assert!(queue.alloc(usize::MAX).is_err());
}

/// Makes one call of an operation.
fn call(device: &Loopback, queue: &Arc<dyn Queue>, operation: Operation) -> Result<(), Error> {
    let mut host = [0; 8];
    let start = NonNull::from(&mut host).cast();
    let (a, b) = (queue.alloc(8)?, alloc(queue, 8));
    // SAFETY: within blocks and bytes that live until the synchronisation; the adopted memory is not used.
    unsafe {
        match operation {
            Operation::Queue => device.queue().map(drop)?,
            Operation::Alloc => {}
            Operation::Adopt => queue.adopt(a.address(), 8).map(drop)?,
            Operation::Upload => queue.upload(&*a, 0, start, 8).map(drop)?,
            Operation::Download => queue.download(&*a, 0, start, 8).map(drop)?,
            Operation::Copy => queue.copy(&*a, 0, &*b, 0, 8)?,
            Operation::Fill => queue.fill(&*a, 0, 8)?,
            Operation::Wait => queue.wait_for(&**queue)?,
            Operation::Synchronize => {}
            Operation::Launch => launch(&**queue, [writer(&b, queue).arg_mut()], |_| {})?,
        }
    }
    queue.synchronize()
}

const ALL: [Operation; OPERATIONS] = [
    Operation::Queue,
    Operation::Alloc,
    Operation::Adopt,
    Operation::Upload,
    Operation::Download,
    Operation::Copy,
    Operation::Fill,
    Operation::Wait,
    Operation::Synchronize,
    Operation::Launch,
];

#[test]
fn the_nth_call_fails_of_each_operation() {
    for operation in ALL {
        let device = Loopback::new(Mode::Deferred);
        let queue = device.queue().unwrap();
        call(&device, &queue, operation).unwrap();
        let before = device.calls(operation);
        // `call` allocates twice.
        let step = if operation == Operation::Alloc { 2 } else { 1 };
        device.fail(operation, step + 1, Fault::Refused);
        assert!(call(&device, &queue, operation).is_ok(), "{operation:?}");
        let error = call(&device, &queue, operation).unwrap_err();
        assert!(matches!(&error, Error::Device { op, .. } if *op == operation.name()), "{error}");
        // The block that such a call could not use is freed all the same.
        assert!(call(&device, &queue, operation).is_ok(), "{operation:?}");
        let failed = if operation == Operation::Alloc { 1 } else { step };
        assert_eq!(device.calls(operation) - before, 2 * step + failed, "{operation:?}");
        assert_eq!(device.report().misuses, [""; 0]);
        assert_eq!(device.report().live_blocks, 0, "{operation:?}");
    }
}

#[test]
fn a_call_that_fails_enqueues_nothing() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let block = alloc(&queue, 8);
    device.fail(Operation::Fill, 1, Fault::Refused);
    // SAFETY: within the block.
    unsafe { queue.fill(&*block, 0, 8) }.unwrap_err();
    assert_eq!(device.report().pending, 0);
    let log = Log::default();
    log.note(&*queue, "kept");
    device.fail(Operation::Synchronize, 1, Fault::Refused);
    queue.synchronize().unwrap_err();
    assert_eq!(log.names(), [""; 0]);
    queue.synchronize().unwrap();
    assert_eq!(log.names(), ["kept"]);
}

#[test]
fn misuses_are_errors_and_are_listed() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, other) = (device.queue().unwrap(), device.sibling().queue().unwrap());
    let (block, theirs) = (queue.alloc(8).unwrap(), other.alloc(8).unwrap());
    // SAFETY: no: each breaks the contract of its call, which a loopback notices before it does anything.
    unsafe {
        queue.fill(&*block, 7, 2).unwrap_err();
        queue.fill(&*block, usize::MAX, 2).unwrap_err();
        queue.fill(&*theirs, 0, 8).unwrap_err();
        queue.copy(&*block, 0, &*theirs, 1, 8).unwrap_err();
        queue.copy(&*block, 0, &*block, 2, 4).unwrap_err();
        queue.adopt(theirs.address(), 8).unwrap_err();
        queue.adopt(block.address() + 1, 8).unwrap_err();
    }
    let misuses = device.report().misuses;
    assert_eq!(misuses.len(), 7, "{misuses:#?}");
    assert_eq!(misuses[0], format!("{}: fill: bytes 7..7+2 of a block of 8 bytes", device.id()));
    assert_eq!(device.report().pending, 0);
}

#[test]
fn a_block_freed_before_its_use_is_a_misuse_and_reads_as_poison() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    let (block, kept) = (alloc(&queue, 8), alloc(&queue, 8));
    set(&queue, &block, 1);
    set(&queue, &kept, 1);
    queue.synchronize().unwrap();
    let mut host = [0; 8];
    let start = NonNull::from(&mut host).cast();
    // SAFETY: within the blocks and the host bytes, which live and are left alone until the synchronisation. The other
    // queue's work is not waited for before the drop: that is the misuse.
    unsafe {
        other.copy(&*kept, 0, &*block, 0, 8).unwrap();
        other.download(&*block, 0, start, 8).unwrap();
    }
    set(&other, &block, 2);
    drop(block);
    assert_eq!(device.report().misuses, [""; 0]);
    queue.synchronize().unwrap();
    other.synchronize().unwrap();
    let misuses = device.report().misuses;
    assert_eq!(misuses.len(), 3, "{misuses:#?}");
    assert!(misuses.iter().all(|misuse| misuse.ends_with("were used after it was freed")), "{misuses:#?}");
    assert_eq!(host, [POISON; 8]);
    assert_eq!(bytes(&queue, &*kept), [POISON; 8]);
}

#[test]
fn foreign_machines_synchronise_and_do_not_reach_each_other() {
    let (device, foreign) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (queue, other) = (device.queue().unwrap(), foreign.queue().unwrap());
    let log = Log::default();
    log.note(&*other, "theirs");
    queue.wait_for(&*other).unwrap();
    assert_eq!(log.names(), ["theirs"]);
    assert_eq!(foreign.calls(Operation::Synchronize), 1);
    foreign.fail(Operation::Synchronize, 1, Fault::Refused);
    queue.wait_for(&*other).unwrap_err();
    let (block, theirs) = (queue.alloc(8).unwrap(), other.alloc(8).unwrap());
    assert!(!queue.reaches(&*foreign) && !other.reaches(&*device));
    assert!(queue.reaches(&*device) && queue.reaches(&*device.sibling()));
    // SAFETY: no: a copy from a device that is not reached, which a loopback notices.
    unsafe { queue.copy(&*block, 0, &*theirs, 0, 8) }.unwrap_err();
    assert_eq!((device.report().pending, device.report().misuses.len()), (0, 1));
}

#[test]
fn external_memory_is_adopted_and_outlives_the_block() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let external = device.external(8).unwrap();
    assert_eq!(external.with_bytes(|bytes| bytes.to_vec()), vec![POISON; 8]);
    external.with_bytes(|bytes| bytes.copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]));
    // SAFETY: the memory is that of `external`, which is not used until the work is done; the last is a misuse.
    let block: Arc<dyn Block> = Arc::from(unsafe { queue.adopt(external.address() + 2, 4) }.unwrap());
    assert_eq!(bytes(&queue, &*block), [2, 3, 4, 5]);
    set(&queue, &block, 9);
    assert_eq!(external.with_bytes(|bytes| bytes.to_vec())[2], 2);
    queue.synchronize().unwrap();
    assert_eq!(external.with_bytes(|bytes| bytes.to_vec()), [0, 1, 9, 9, 9, 9, 6, 7]);
    assert_eq!((device.report().bytes_in_use, device.report().live_blocks), (0, 0));
    set(&queue, &block, 9);
    drop((block, external));
    queue.synchronize().unwrap();
    assert_eq!(device.report().misuses.len(), 1);
}
