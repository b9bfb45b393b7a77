//! A failure does not spread: what another copy holds can be read, written and brought anywhere, whatever queue has failed.

use std::sync::Arc;

use synced_mem::{Device, Place, Queue, SharedMem, SyncedMem};

use super::{break_queue, device, expect, fill};

/// A memory whose bytes are on the host, and were on their way to a device when the queue broke.
fn on_the_way_to_a_broken_queue() -> (SharedMem, Arc<dyn Queue>, Arc<dyn Queue>) {
    let (device, broken) = device();
    let healthy = device.queue().unwrap();
    let memory = SharedMem::from_vec(vec![7; 16]);
    memory.prefetch(&broken, 0..16).unwrap();
    break_queue(&broken);
    assert!(broken.synchronize().is_err());
    (memory, broken, healthy)
}

#[test]
fn the_host_reads_and_writes_what_it_holds_though_a_queue_broke_on_it() {
    let (memory, _broken, _) = on_the_way_to_a_broken_queue();
    assert_eq!(memory.host(0..16).unwrap()[..], [7; 16]);
    memory.host_mut(0..8).unwrap().fill(1);
    memory.host_overwrite(8..9).unwrap().fill(2);
    assert_eq!(memory.host(7..10).unwrap()[..], [1, 2, 7]);
    memory.host_mut(0..16).unwrap().fill(3);
    assert_eq!(memory.host(0..16).unwrap()[..], [3; 16]);
}

#[test]
fn a_healthy_queue_of_the_same_device_gets_what_the_host_holds() {
    let (memory, _broken, healthy) = on_the_way_to_a_broken_queue();
    expect(&memory.device(&healthy, 0..16).unwrap(), 7);
    healthy.synchronize().unwrap();
    fill(&mut memory.device_mut(&healthy, 0..4).unwrap(), 1);
    assert_eq!(memory.host(2..6).unwrap()[..], [1, 1, 7, 7]);
}

#[test]
fn a_device_with_a_broken_queue_can_be_left() {
    let (memory, broken, _) = on_the_way_to_a_broken_queue();
    let place = Place::Device(broken.device().id());
    let _ = memory.evict(place);
    assert_eq!(memory.host_mut(0..16).unwrap()[..], [7; 16]);
    let other = super::device().1;
    expect(&memory.device(&other, 0..16).unwrap(), 7);
    other.synchronize().unwrap();
}

#[test]
fn who_overwrites_everything_on_a_fresh_queue_needs_nothing_of_the_broken_one() {
    let (device, broken) = device();
    let mut memory = SyncedMem::new(16);
    fill(&mut memory.device_overwrite(&broken).unwrap(), 1);
    break_queue(&broken);
    assert!(broken.synchronize().is_err());
    let fresh = device.queue().unwrap();
    fill(&mut memory.device_overwrite(&fresh).unwrap(), 2);
    assert_eq!(memory.host().unwrap(), [2; 16]);
    fresh.synchronize().unwrap();
    memory.host_overwrite().unwrap().fill(3);
    expect(&memory.device(&fresh).unwrap(), 3);
    fresh.synchronize().unwrap();
}
