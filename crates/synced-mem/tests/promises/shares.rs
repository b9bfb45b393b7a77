//! Devices that share the host's memory: their work reads the host's bytes where they lie, so that no block is taken
//! and no byte is copied; writes of either side are seen by the other, and no byte changes under a kernel.

use std::sync::Arc;

use synced_mem::loopback::{Loopback, Mode, Operation, launch};
use synced_mem::{Budget, Device, Error, Head, Host, HostBuffer, Location, Queue, SharedMem, SyncedMem, scope};

use super::tape::{Tape, pattern};
use super::{break_queue, expect, fill};

/// A deferred device that shares the host's memory, with a queue.
fn sharing() -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Deferred);
    device.share_host();
    let queue = device.queue().unwrap();
    (device, queue)
}

/// How many blocks, and how many bytes were moved, at all.
fn costs(memory: &SharedMem, device: &Loopback) -> (usize, u64) {
    let stats = memory.stats();
    let moved = [stats.uploads, stats.downloads, stats.device_copies, stats.host_copies];
    (device.report().live_blocks, moved.iter().map(|traffic| traffic.bytes).sum())
}

#[test]
fn a_read_takes_no_block_and_copies_nothing() {
    let (device, queue) = sharing();
    let place = Location::Device(device.id());
    // Bytes that were never written get memory on the host first.
    for (memory, byte) in [(SharedMem::from(vec![7; 64]), 7), (adopted(vec![7; 64]), 7), (SharedMem::new(64), 0)] {
        let (token, whole) = (memory.device(&queue, 8..16).unwrap(), memory.device(&queue, ..).unwrap());
        expect(&token, byte);
        expect(&whole, byte);
        assert_eq!(whole.arg().address(), memory.host(..).unwrap().as_ptr().addr() as u64);
        queue.synchronize().unwrap();
        assert_eq!((costs(&memory, &device), memory.head()), ((0, 0), Head::AtHost));
        assert!(!memory.valid_on(place, 0..1), "there is no second copy");
        let lacking = memory.lacking(..).unwrap();
        assert_eq!((lacking.host, lacking.devices[0].1, lacking.last), (0, 0, Some(place)));
    }
    assert_eq!(device.report().misuses, [""; 0]);
}

/// Of bytes that may only be read.
fn adopted(bytes: Vec<u8>) -> SharedMem {
    let mut memory = SyncedMem::new(bytes.len());
    memory.adopt(HostBuffer::from_owner(bytes)).unwrap();
    SharedMem::from(memory)
}

#[test]
fn a_write_of_either_side_is_seen_by_the_other() {
    let (device, queue) = sharing();
    let memory = SharedMem::new(16);
    for round in 1..4_u8 {
        memory.host_mut(..).unwrap().fill(round);
        expect(&memory.device(&queue, ..).unwrap(), round);
        // The kernel has not run, and the host waits for it.
        memory.host_mut(4..8).unwrap().fill(100 + round);
        expect(&memory.device(&queue, 4..8).unwrap(), 100 + round);
        // What a device writes is in memory of its own.
        fill(&mut memory.device_mut(&queue, 0..4).unwrap(), 200 + round);
        expect(&memory.device(&queue, 0..4).unwrap(), 200 + round);
        // Some lies here and some there: it comes to the host.
        let mixed = memory.device(&queue, 2..6).unwrap();
        launch(&*queue, [mixed.arg()], move |args| {
            let (ours, theirs) = (200 + round, 100 + round);
            assert_eq!(args[0].bytes(), [ours, ours, theirs, theirs]);
        })
        .unwrap();
        drop(mixed);
        assert_eq!(memory.host(2..6).unwrap()[..], [[200 + round; 2], [100 + round; 2]].concat());
    }
    queue.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn bytes_that_a_device_reads_are_borrowed_on_the_host() {
    let (device, queue) = sharing();
    let memory = SharedMem::new(16);
    memory.host_mut(..).unwrap().fill(3);
    let token = memory.device(&queue, 0..8).unwrap();
    let is_conflict = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
    is_conflict(memory.host_mut(7..9).map(drop));
    is_conflict(memory.evict(Location::Host, ..));
    is_conflict(memory.adopt(vec![0; 16]));
    // Not in the way: another range of either place.
    memory.host_mut(8..16).unwrap().fill(4);
    memory.evict(Location::Device(device.id()), ..).unwrap();
    expect(&token, 3);
    drop(token);
    // The bytes go where they are asked to, and the buffer stays until the kernel has read it.
    memory.evict(Location::Host, ..).unwrap();
    assert_eq!((memory.head(), memory.stats().uploads.bytes), (Head::AtDevice, 16));
    queue.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
    memory.shrink();
    assert_eq!(memory.stats().frees.bytes, 16);
}

/// A memory of one owner: the token is gone, its kernel is not.
#[test]
fn an_owner_who_writes_waits_for_the_kernel_of_a_token_that_is_gone() {
    let (device, queue) = sharing();
    let mut memory = SyncedMem::new(16);
    for round in 1..4_u8 {
        memory.host_mut(..).unwrap().fill(round);
        let pending = device.report().pending;
        expect(&memory.device(&queue, ..).unwrap(), round);
        assert_eq!(device.report().pending, pending + 1);
        memory.host_mut(0..1).unwrap().fill(99);
        assert_eq!(device.report().pending, 0);
        // No one works there any more, so nothing is waited for.
        let waits = device.calls(Operation::Synchronize);
        memory.host_mut(0..1).unwrap().fill(98);
        assert_eq!(device.calls(Operation::Synchronize), waits);
    }
    // One whose token is never dropped.
    std::mem::forget(memory.device(&queue, ..).unwrap());
    memory.host_overwrite(..).unwrap().fill(1);
    memory.adopt(vec![5; 16]).unwrap();
    assert_eq!(memory.host(..).unwrap(), [5; 16]);
    queue.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn a_queue_for_each_request_is_no_leak() {
    let (device, _) = sharing();
    let memory = SharedMem::from(vec![3; 16]);
    for _ in 0..200 {
        let queue = device.queue().unwrap();
        expect(&memory.device(&queue, ..).unwrap(), 3);
    }
    assert!(device.report().pending <= 2 * 64, "{} kernels wait", device.report().pending);
}

#[test]
fn the_bytes_of_an_origin_come_to_the_host_once() {
    let (device, queue) = sharing();
    let tape = Tape::new(64);
    let memory = SharedMem::of(tape.clone());
    for range in [8..16, 0..32, 4..20] {
        let token = memory.device(&queue, range.clone()).unwrap();
        let wanted = pattern(range);
        launch(&*queue, [token.arg()], move |args| assert_eq!(args[0].bytes(), wanted)).unwrap();
    }
    queue.synchronize().unwrap();
    assert_eq!((tape.reads(), costs(&memory, &device)), (vec![8..16, 0..8, 16..32], (0, 0)));
}

/// The limit of the host counts, and that of the device does not.
#[test]
fn a_budget_of_the_device_counts_no_bytes_of_the_host() {
    let (device, queue) = sharing();
    let (there, here) = (Budget::new(Location::Device(device.id()), 8), Budget::new(Location::Host, 128));
    let memories: Vec<_> = (0..3).map(|_| SharedMem::of(Tape::new(64))).collect();
    for memory in &memories {
        [&there, &here].into_iter().for_each(|budget| budget.add(memory));
        drop(memory.device(&queue, ..).unwrap());
    }
    assert_eq!((there.stats().in_use, here.stats().in_use, here.stats().evicted.count), (0, 128, 1));
    let held: Vec<_> = memories[1..].iter().map(|memory| memory.device(&queue, 0..8).unwrap()).collect();
    assert!(matches!(memories[0].device(&queue, ..), Err(Error::OverBudget { .. })), "what is read there stays");
    drop(held);
}

/// A slice that is lent is seen by no queue: it is copied as ever.
#[test]
fn a_lent_slice_is_copied() {
    let (device, queue) = sharing();
    let (input, mut output) = ([4; 16], [0; 16]);
    scope(|scope| {
        let (input, mut output) = (scope.lend(&input), scope.lend_mut(&mut output));
        let (source, mut target) = (input.device(&queue, ..)?, output.device_overwrite(&queue, ..)?);
        launch(&*queue, [source.arg(), target.arg_mut()], |args| {
            let (source, target) = args.split_at_mut(1);
            target[0].bytes_mut().copy_from_slice(source[0].bytes());
        })
    })
    .unwrap()
    .unwrap();
    assert_eq!(output, [4; 16]);
    assert_eq!(device.report().misuses, [""; 0]);
}

/// Other memories' bytes are taken where they lie.
#[test]
fn a_copy_on_the_device_reads_the_host() {
    for answer in [None, Some(Host::Done), Some(Host::Pending)] {
        let (device, queue) = sharing();
        answer.into_iter().for_each(|answer| device.stage_transfers(answer));
        let (from, to) = (SharedMem::from(vec![6; 16]), SharedMem::new(16));
        drop(from.device(&queue, ..).unwrap());
        fill(&mut to.device_overwrite(&queue, ..).unwrap(), 1);
        to.copy_from(4, &from, 0..8).unwrap();
        from.host_mut(..).unwrap().fill(9);
        assert_eq!(to.host(..).unwrap()[..], [&[1; 4][..], &[6; 8], &[1; 4]].concat());
        assert_eq!(from.stats().uploads.count, 0);
        assert_eq!(device.report().misuses, [""; 0]);
    }
}

/// A queue that has failed may still read the old bytes: the host gets other memory, and the old is leaked.
#[test]
fn a_write_leaves_the_old_bytes_to_a_queue_that_has_failed() {
    let (device, queue) = sharing();
    let memory = SharedMem::from(vec![3; 16]);
    drop(memory.device(&queue, ..).unwrap());
    break_queue(&queue);
    memory.host_mut(0..8).unwrap().fill(4);
    assert_eq!((memory.host(..).unwrap()[..].to_vec(), memory.stats().leaks.count), ([[4; 8], [3; 8]].concat(), 1));
    let working = device.queue().unwrap();
    expect(&memory.device(&working, 0..8).unwrap(), 4);
    working.synchronize().unwrap();
    // A guard that lives meanwhile keeps its bytes.
    let (third, fourth) = (device.queue().unwrap(), device.queue().unwrap());
    let token = memory.device(&third, 8..16).unwrap();
    drop(memory.device(&fourth, 0..8).unwrap());
    break_queue(&fourth);
    memory.host_mut(0..8).unwrap().fill(5);
    memory.host_mut(0..8).unwrap().fill(6);
    expect(&token, 3);
    third.synchronize().unwrap();
    drop(token);
    memory.host_mut(..).unwrap().fill(7);
    assert_eq!(device.report().misuses, [""; 0]);
}
