//! The bound on the ranges of a copy: what is given up for it, and what must not be.

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, HostBuffer, Location, SharedMem, SyncedMem};

/// How many ranges are valid at a place.
fn ranges(memory: &SharedMem, place: Location) -> usize {
    let is_valid = |cell| memory.valid_on(place, cell..cell + 1);
    (0..memory.len()).filter(|cell| is_valid(*cell) && (*cell == 0 || !is_valid(*cell - 1))).count()
}

#[test]
fn where_gaps_are_being_written_a_range_that_is_not_borrowed_is_given_up() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let memory = SharedMem::from((0..96).collect::<Vec<u8>>());
    memory.device(&queue, 0..96).unwrap();
    // The smallest range of the host's, so it would be the first to go.
    let borrowed = memory.host(1..2).unwrap();
    let written = [0, 2].into_iter().chain((6..90).step_by(4));
    let guards: Vec<_> = written.map(|cell| memory.device_mut(&queue, cell..cell + 1).unwrap()).collect();
    assert!(guards.len() > 20);
    assert_eq!(ranges(&memory, Location::Host), 16);
    assert!(memory.valid_on(Location::Host, 1..2));
    assert_eq!(*borrowed, [1]);
    drop((borrowed, guards));
    let expected: Vec<u8> = (0..96).collect();
    assert_eq!(*memory.host(0..96).unwrap(), expected);
}

#[test]
fn the_range_of_a_token_is_no_gap_to_close() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let mut memory = SyncedMem::from(vec![1; 128]);
    for start in (1..65).step_by(4) {
        drop(memory.device_mut(&queue, start..start + 2).unwrap());
    }
    let mut token = memory.device_mut(&queue, 100..101).unwrap();
    launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut().fill(3)).unwrap();
    assert_eq!(memory.host(..).unwrap()[99..102], [1, 3, 1]);
}

#[test]
fn the_range_of_a_slice_that_may_be_written_is_no_gap_to_close() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let mut memory = SyncedMem::from(vec![1; 128]);
    memory.device(&queue, ..).unwrap();
    for start in (1..65).step_by(4) {
        memory.host_mut(start..start + 2).unwrap().fill(2);
    }
    memory.host_mut(100..101).unwrap().fill(3);
    let place = Location::Device(device.id());
    assert!(!memory.valid_on(place, 100..101));
    // Another gap was closed for it.
    assert!(memory.valid_on(place, 0..4));
}

#[test]
fn the_hosts_bound_holds_after_the_others_were_tidied() {
    let (device, foreign) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (queue, other) = (device.queue().unwrap(), foreign.queue().unwrap());
    let memory = SharedMem::from(vec![1; 96]);
    drop(memory.device_mut(&queue, 3..9).unwrap());
    // Closing a gap of the foreign copy brings a byte to the host, in the midst of a gap of its own.
    for start in (0..37).step_by(2) {
        drop(memory.device_overwrite(&other, start..start + 1).unwrap());
        assert!(ranges(&memory, Location::Host) <= 16, "after {start}");
    }
}

#[test]
fn the_hosts_bound_holds_after_adopted_bytes_came_to_it() {
    let devices = [(); 3].map(|()| Loopback::new(Mode::Deferred));
    let queues = devices.each_ref().map(|device| device.queue().unwrap());
    let memory = SharedMem::new(96);
    memory.adopt(HostBuffer::from_owner(vec![1; 96])).unwrap();
    // One adopted byte, three on a device, of which the host takes the middle one; sixteen ranges of each in the end.
    for (index, start) in (1..61).step_by(4).enumerate() {
        drop(memory.device_overwrite(&queues[index % 3], start..start + 3).unwrap());
        memory.host_overwrite(start + 1..start + 2).unwrap().fill(2);
    }
    drop(memory.device_overwrite(&queues[0], 93..96).unwrap());
    memory.host_overwrite(94..95).unwrap().fill(2);
    assert_eq!(memory.stats().downloads.count, 0);
    // The adopted bytes have a range too many: one goes to the host, which then has one too many and closes a gap.
    drop(memory.device_overwrite(&queues[0], 80..81).unwrap());
    assert_eq!(memory.stats().downloads.count, 1);
}
