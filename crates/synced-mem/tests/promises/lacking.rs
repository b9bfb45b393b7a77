//! What a memory says that work on a range would have to fetch, at each place.

use std::ops::Range;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, DeviceId, Error, HostBuffer, Location, SharedMem};

use super::device;
use super::tape::Tape;

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
fn the_last_place_is_where_a_write_or_a_device_asked() {
    let (device, queue) = device();
    let there = Some(Location::Device(device.id()));
    let memory = SharedMem::new(10);
    let last = || memory.lacking(..).unwrap().last;
    drop(memory.host(..).unwrap());
    assert_eq!(last(), None, "a read on the host counts for nothing");
    drop(memory.device(&queue, 2..3).unwrap());
    assert_eq!(last(), there);
    drop(memory.host(..).unwrap());
    memory.prefetch_host(..).unwrap();
    assert_eq!(last(), there);
    drop(memory.host_mut(0..1).unwrap());
    assert_eq!(last(), Some(Location::Host));
    drop(memory.device_overwrite(&queue, ..).unwrap());
    assert_eq!(last(), there);
    memory.copy_from(0, &SharedMem::from(vec![1; 4]), ..).unwrap();
    assert_eq!(last(), Some(Location::Host), "copied where the source was");
    drop(memory.host_overwrite(..).unwrap());
    assert_eq!(SharedMem::from(vec![1; 4]).lacking(..).unwrap().last, Some(Location::Host));
}

#[test]
fn a_copy_leaves_the_last_place_of_its_source() {
    let (device, queue) = device();
    let (source, target) = (SharedMem::from(vec![1; 4]), SharedMem::new(4));
    source.device(&queue, ..).unwrap();
    drop(source.host_mut(0..1).unwrap());
    drop(target.device_overwrite(&queue, ..).unwrap());
    target.copy_from(1, &source, 1..).unwrap();
    assert!(!target.valid_on(Location::Host, 1..), "copied on the device");
    assert_eq!(source.lacking(..).unwrap().last, Some(Location::Host));
    assert_eq!(target.lacking(..).unwrap().last, Some(Location::Device(device.id())));
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

#[test]
fn what_the_origin_alone_has_is_read_from_there() {
    let (device, queue) = device();
    let memory = SharedMem::of(Tape::new(100));
    let from_origin = |range| memory.lacking(range).unwrap().from_origin;
    assert_eq!((lacking(&memory, 0..100), from_origin(0..100)), ((100, vec![]), 100));
    drop(memory.device(&queue, 10..20).unwrap());
    assert_eq!((lacking(&memory, 0..100), from_origin(0..100)), ((100, vec![(device.id(), 90)]), 90));
    memory.host_overwrite(50..60).unwrap().fill(1);
    assert_eq!((lacking(&memory, 40..60), from_origin(40..60)), ((10, vec![(device.id(), 20)]), 10));
    memory.evict(Location::Origin, ..).unwrap();
    assert_eq!(from_origin(0..100), 0);
}
