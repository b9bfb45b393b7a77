//! Giving a copy back: it goes only where every byte is somewhere else for certain, and readers never see what has gone.

use std::mem;

use synced_mem::{Device, Error, Head, Place, SharedMem, SyncedMem};

use super::{break_queue, device, expect, fill};

#[test]
fn what_was_read_without_a_lock_is_brought_again_after_its_copy_went() {
    let (device, queue) = device();
    let mut memory = SyncedMem::from_vec(vec![7; 64]);
    for index in 0..3 {
        memory.prefetch(&queue).unwrap();
        assert_eq!(memory.host().unwrap(), [7; 64]);
        match index {
            0 => memory.evict(Place::Host),
            1 => memory.evict_clean(Place::Host),
            _ => memory.evict_range(Place::Host, 0..64),
        }
        .unwrap();
        assert_eq!(memory.head(), Head::AtDevice);
        assert_eq!(memory.host().unwrap(), [7; 64]);
        assert_eq!(memory.stats().downloads().count(), index + 1);
    }
    assert_eq!(device.misuses(), [""; 0]);
}

#[test]
fn a_clean_eviction_refuses_where_it_would_have_to_move() {
    let (device, queue) = device();
    let place = Place::Device(device.id());
    let mut memory = SyncedMem::from_vec(vec![7; 64]);
    memory.prefetch(&queue).unwrap();
    memory.host_range_mut(8..9).unwrap().fill(1);
    let is_only = |result: Result<(), Error>, wanted: std::ops::Range<usize>| match result {
        Err(Error::OnlyCopy { range, .. }) => assert_eq!(range, wanted),
        other => panic!("{other:?}"),
    };
    is_only(memory.evict_clean(Place::Host), 8..9);
    fill(&mut memory.device_range_mut(&queue, 16..32).unwrap(), 2);
    is_only(memory.evict_clean(place), 16..32);
    assert_eq!(memory.host_range(16..32).unwrap(), [2; 16]);
    memory.evict_clean(place).unwrap();
    is_only(memory.evict_clean(Place::Host), 0..64);
    is_only(SyncedMem::from_vec(vec![1; 8]).evict(Place::Host), 0..8);
}

#[test]
fn the_host_keeps_what_a_broken_queue_was_to_upload() {
    let (_device, broken) = device();
    let memory = SharedMem::from_vec(vec![7; 16]);
    memory.prefetch(&broken, 0..16).unwrap();
    break_queue(&broken);
    assert!(memory.evict(Place::Host).is_err());
    assert_eq!(memory.host(0..16).unwrap()[..], [7; 16]);
}

#[test]
fn adopted_device_memory_is_read_after_what_was_enqueued_before() {
    let (device, queue) = device();
    let other = device.queue().unwrap();
    let outside = device.external(8).unwrap();
    let address = outside.address();
    // SAFETY: the block outlives both memories, and the first is only used to launch what the second waits for.
    let adopt = |owner| unsafe { SyncedMem::from_raw_device(&queue, address, 8, owner) };
    let mut writer = adopt(Box::new(())).unwrap();
    fill(&mut writer.device_overwrite(&queue).unwrap(), 4);
    mem::forget(writer);
    let memory = adopt(Box::new(outside)).unwrap();
    expect(&memory.device(&other).unwrap(), 4);
    other.synchronize().unwrap();
    assert_eq!(memory.host().unwrap(), [4; 8]);
}
