//! A copy is given up, or its block replaced, only when the bytes that others hold for it have arrived there.

use std::sync::Arc;

use synced_mem::loopback::{Fault, Operation};
use synced_mem::{Device, Location, Queue, SharedMem};

use super::broken::{names, two_queues};
use super::{break_queue, expect, fill};

/// The block that takes the place of one that a broken queue was to write is new: nothing is in it but what is written.
#[test]
fn what_is_not_overwritten_is_brought_to_the_block_that_takes_the_place() {
    let (device, broken, healthy) = two_queues();
    let memory = SharedMem::from(vec![7; 64]);
    memory.device(&broken, 0..64).unwrap();
    fill(&mut memory.device_mut(&broken, 0..32).unwrap(), 2);
    break_queue(&broken);
    assert!(names(memory.host(0..32), &broken));
    fill(&mut memory.device_overwrite(&healthy, 0..32).unwrap(), 3);
    assert!(!memory.valid_on(Location::Device(device.id()), 32..33));
    expect(&memory.device(&healthy, 32..64).unwrap(), 7);
    expect(&memory.device(&healthy, 0..32).unwrap(), 3);
    healthy.synchronize().unwrap();
    let all = [[3; 32], [7; 32]].concat();
    assert_eq!(*memory.host(0..64).unwrap(), all[..]);
}

/// Eight bytes of 7 on a device. The host has the first four, and the others are on their way to it, on a queue that
/// fails before they are there. Another queue, which fails too, uses the first four on the device.
fn on_the_way(first: &Arc<dyn Queue>, second: &Arc<dyn Queue>, use_it: fn(&SharedMem, &Arc<dyn Queue>)) -> SharedMem {
    let memory = SharedMem::new(8);
    fill(&mut memory.device_overwrite(second, 0..8).unwrap(), 7);
    assert_eq!(*memory.host(0..4).unwrap(), [7; 4]);
    use_it(&memory, first);
    drop(memory.device(second, 4..8).unwrap());
    break_queue(second);
    memory.prefetch_host(4..8).unwrap();
    break_queue(first);
    assert!(first.synchronize().is_err());
    memory
}

#[test]
fn a_copy_is_given_up_only_when_what_others_hold_has_arrived_there() {
    let (device, first, second) = two_queues();
    let third = device.queue().unwrap();
    let memory = on_the_way(&first, &second, |memory, queue| drop(memory.device(queue, 0..4).unwrap()));
    assert!(names(memory.device_mut(&third, 0..4), &first));
    expect(&memory.device(&third, 4..8).unwrap(), 7);
    third.synchronize().unwrap();
}

#[test]
fn a_block_is_replaced_only_when_what_others_hold_has_arrived_there() {
    let (device, first, second) = two_queues();
    let third = device.queue().unwrap();
    let memory = on_the_way(&first, &second, |memory, queue| fill(&mut memory.device_mut(queue, 0..4).unwrap(), 2));
    assert!(memory.device_overwrite(&third, 0..4).is_err());
    expect(&memory.device(&third, 4..8).unwrap(), 7);
    third.synchronize().unwrap();
}

/// Two devices hold the bytes, each by way of a queue that has failed. One of the two works again.
#[test]
fn a_copy_is_not_given_up_for_one_that_a_broken_queue_was_to_bring() {
    let (one, failing, _) = two_queues();
    let broken = one.sibling().queue().unwrap();
    let memory = SharedMem::new(8);
    fill(&mut memory.device_overwrite(&failing, 0..8).unwrap(), 7);
    break_queue(&broken);
    drop(memory.device(&broken, 0..8).unwrap());
    one.fail(Operation::Synchronize, 1, Fault::Refused);
    one.fail(Operation::Synchronize, 2, Fault::Refused);
    one.fail(Operation::Synchronize, 3, Fault::Refused);
    let read = (0..4).find_map(|_| memory.host(0..8).ok());
    assert_eq!(*read.expect("it works again"), [7; 8]);
}
