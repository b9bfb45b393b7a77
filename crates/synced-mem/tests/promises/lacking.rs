//! What a memory says that work on a range would have to fetch, at each place.

use std::ops::Range;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, DeviceId, Error, HostBuffer, SharedMem};

use super::device;

/// The host's share and those of the devices.
fn lacking(memory: &SharedMem, range: Range<usize>) -> (usize, Vec<(DeviceId, usize)>) {
    let lacking = memory.lacking(range).unwrap();
    let devices = lacking.devices.iter().map(|(queue, bytes)| (queue.device().id(), *bytes));
    (lacking.host, devices.collect())
}

#[test]
fn what_was_never_written_is_fetched_nowhere() {
    let (device, queue) = device();
    let memory = SharedMem::new(100);
    assert_eq!(lacking(&memory, 0..100), (0, vec![]));
    memory.host_overwrite(10..20).unwrap().fill(1);
    assert_eq!(lacking(&memory, 0..100), (0, vec![]));
    drop(memory.device(&queue, 15..18).unwrap());
    assert_eq!(lacking(&memory, 0..100), (0, vec![(device.id(), 7)]));
    assert_eq!(lacking(&memory, 12..17), (0, vec![(device.id(), 3)]));
    assert_eq!(lacking(&memory, 50..60), (0, vec![(device.id(), 0)]));
}

#[test]
fn each_place_lacks_what_only_others_hold() {
    let (first, queue) = device();
    let second = Loopback::new(Mode::Deferred);
    let other = second.queue().unwrap();
    let memory = SharedMem::from(vec![1; 100]);
    drop(memory.device_mut(&queue, 0..60).unwrap());
    drop(memory.device_mut(&other, 50..100).unwrap());
    assert_eq!(lacking(&memory, 0..100), (100, vec![(first.id(), 50), (second.id(), 50)]));
    assert_eq!(lacking(&memory, 40..60), (20, vec![(first.id(), 10), (second.id(), 10)]));
    assert_eq!(lacking(&memory, 7..7), (0, vec![(first.id(), 0), (second.id(), 0)]));
    drop(memory.host(0..30).unwrap());
    assert_eq!(lacking(&memory, 0..100).0, 70);
}

#[test]
fn adopted_bytes_are_the_hosts() {
    let memory = SharedMem::from(HostBuffer::from_owner(vec![1; 10]));
    assert_eq!(lacking(&memory, 0..10), (0, vec![]));
}

#[test]
fn a_range_outside_is_refused() {
    let error = SharedMem::new(8).lacking(4..9).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { len: 8, .. }), "{error}");
}
