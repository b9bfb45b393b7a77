//! A copy from another memory: what it moves, what it refuses, and that one that fails changes nothing.

use synced_mem::loopback::{Fault, Operation};
use synced_mem::{Device, SharedMem};

use super::{break_queue, device, expect, fill};

/// Both memories are valid on the device, the target on the host too. The copy is enqueued and then reported as failed,
/// so the device's copy of the target may hold anything.
#[test]
fn a_copy_that_fails_late_leaves_what_another_place_holds() {
    let (device, queue) = device();
    let (target, source) = (SharedMem::from(vec![1; 64]), SharedMem::new(64));
    expect(&target.device(&queue, 0..64).unwrap(), 1);
    fill(&mut source.device_overwrite(&queue, 0..64).unwrap(), 2);
    device.fail(Operation::Copy, 1, Fault::Reported);
    assert!(target.copy_from(0, &source, 0..32).is_err());
    assert_eq!(target.host(0..64).unwrap()[..], [1; 64]);
    expect(&target.device(&queue, 0..64).unwrap(), 1);
    queue.synchronize().unwrap();
    // Tried again, it arrives.
    target.copy_from(0, &source, 0..32).unwrap();
    expect(&target.device(&queue, 0..32).unwrap(), 2);
    expect(&target.device(&queue, 32..64).unwrap(), 1);
    queue.synchronize().unwrap();
    assert_eq!(target.host(30..34).unwrap()[..], [2, 2, 1, 1]);
}

/// The device alone has the target's bytes: there is no other place to take the old ones from. The others stay.
#[test]
fn a_copy_that_fails_late_over_the_only_copy_leaves_old_or_new_bytes() {
    for fault in [Fault::Refused, Fault::Reported] {
        let (device, queue) = device();
        let (target, source) = (SharedMem::new(64), SharedMem::new(64));
        fill(&mut target.device_overwrite(&queue, 0..64).unwrap(), 7);
        fill(&mut source.device_overwrite(&queue, 0..64).unwrap(), 9);
        device.fail(Operation::Copy, 1, fault);
        assert!(target.copy_from(8, &source, 0..32).is_err());
        let found = target.host(0..64).unwrap();
        for (at, byte) in found.iter().enumerate() {
            let may_be_new = fault == Fault::Reported && (8..40).contains(&at);
            assert!(*byte == 7 || (*byte == 9 && may_be_new), "{fault:?}: byte {at} is {byte}");
        }
        drop(found);
        target.copy_from(8, &source, 0..32).unwrap();
        assert_eq!(target.host(8..41).unwrap()[..], [[9; 32].as_slice(), &[7]].concat());
    }
}

#[test]
fn a_copy_of_a_mixed_source_moves_what_the_better_side_lacks() {
    let (_device, queue) = device();
    let (source, target) = (SharedMem::new(4096), SharedMem::new(4096));
    drop(source.device_mut(&queue, 0..4096).unwrap());
    source.host_overwrite(8..12).unwrap().fill(3);
    target.copy_from(0, &source, 0..4096).unwrap();
    let stats = (source.stats(), target.stats());
    assert_eq!(stats.0.uploads.bytes, 4);
    assert_eq!((stats.0.downloads.bytes, stats.1.device_copies.bytes), (0, 4096));
    assert_eq!(target.host(6..14).unwrap()[..], [0, 0, 3, 3, 3, 3, 0, 0]);
}

#[test]
fn a_copy_takes_the_place_of_what_a_broken_queue_was_to_write() {
    let (device, broken) = device();
    let healthy = device.queue().unwrap();
    let (target, source) = (SharedMem::from(vec![1; 8]), SharedMem::new(8));
    fill(&mut target.device_mut(&broken, 0..4).unwrap(), 2);
    break_queue(&broken);
    assert!(target.host(0..4).is_err());
    fill(&mut source.device_overwrite(&healthy, 0..8).unwrap(), 3);
    target.copy_from(0, &source, 0..4).unwrap();
    assert_eq!(target.stats().device_copies.bytes, 4);
    assert_eq!(*target.host(0..8).unwrap(), [3, 3, 3, 3, 1, 1, 1, 1]);
    healthy.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
}

/// The bytes that the host holds, those that a queue which works wrote, and those that only the broken one was to
/// deliver.
#[test]
fn a_copy_that_fails_beside_a_broken_queue_changes_nothing() {
    for fault in [Fault::Refused, Fault::Reported] {
        let (device, broken) = device();
        let healthy = device.queue().unwrap();
        let target = SharedMem::from(vec![1; 16]);
        fill(&mut target.device_mut(&healthy, 4..8).unwrap(), 4);
        let read = target.device(&broken, 4..8).unwrap();
        fill(&mut target.device_mut(&broken, 0..4).unwrap(), 2);
        drop(read);
        break_queue(&broken);
        let cause = target.host(0..4).unwrap_err().to_string();
        let source = SharedMem::new(16);
        fill(&mut source.device_mut(&healthy, ..).unwrap(), 5);
        let blocks = device.report().live_blocks;
        device.fail(Operation::Copy, 1, fault);
        assert!(target.copy_from(0, &source, ..).is_err());
        assert_eq!(*target.host(8..16).unwrap(), [1; 8]);
        assert_eq!(*target.host(4..8).unwrap(), [4; 4]);
        assert_eq!(target.host(0..4).unwrap_err().to_string(), cause);
        assert_eq!(device.report().live_blocks, blocks);
        target.copy_from(0, &source, ..).unwrap();
        assert_eq!(*target.host(..).unwrap(), [5; 16]);
        assert_eq!(device.report().misuses, [""; 0]);
    }
}
