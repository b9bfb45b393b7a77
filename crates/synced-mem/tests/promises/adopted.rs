//! Memory that comes from outside: used in place, ready when its queue is, given back after its last use.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use synced_mem::loopback::launch;
use synced_mem::{Access, Device, Error, Event, EventKind, HostBuffer, Location, SharedMem, SyncedMem};

use super::{break_queue, device, expect, fill};

#[test]
fn readers_see_adopted_device_memory_at_once() {
    let (device, queue) = device();
    let mut memory = SyncedMem::from(vec![1; 8]);
    assert_eq!(memory.host(..).unwrap(), [1; 8]);
    let outside = device.external(8).unwrap();
    outside.with_bytes(|bytes| bytes.fill(3));
    let address = outside.address();
    // SAFETY: the block is the owner's, and has no other user.
    unsafe { memory.adopt_device(&queue, address, 8, Box::new(outside)) }.unwrap();
    assert_eq!(memory.host(..).unwrap(), [3; 8]);
}

#[test]
fn device_memory_of_another_length_is_refused() {
    let (device, queue) = device();
    let mut memory = SyncedMem::from(vec![1; 8]);
    for len in [7, 9] {
        let outside = device.external(len).unwrap();
        let address = outside.address();
        // SAFETY: the block is the owner's, and has no other user.
        let adopted = unsafe { memory.adopt_device(&queue, address, len, Box::new(outside)) };
        assert!(matches!(adopted, Err(Error::WrongLength { .. })));
    }
    assert!(!memory.valid_on(Location::Device(device.id()), ..));
    assert_eq!(memory.host(..).unwrap(), [1; 8]);
}

#[test]
fn adopted_device_memory_is_read_after_what_was_enqueued_before() {
    let (device, queue) = device();
    let other = device.queue().unwrap();
    let outside = device.external(8).unwrap();
    let address = outside.address();
    let adopt = |owner| {
        let mut memory = SyncedMem::new(8);
        // SAFETY: the block outlives both memories, and the first is only used to launch what the second waits for.
        unsafe { memory.adopt_device(&queue, address, 8, owner) }.map(|()| memory)
    };
    let mut writer = adopt(Box::new(())).unwrap();
    fill(&mut writer.device_overwrite(&queue, ..).unwrap(), 4);
    mem::forget(writer);
    let memory = adopt(Box::new(outside)).unwrap();
    expect(&memory.device(&other, ..).unwrap(), 4);
    other.synchronize().unwrap();
    assert_eq!(memory.host(..).unwrap(), [4; 8]);
}

#[test]
fn adopted_batches_do_not_pile_up() {
    struct Batch(Arc<AtomicUsize>, [u8; 8]);
    impl AsRef<[u8]> for Batch {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    impl Drop for Batch {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (_device, queue) = device();
    let alive = Arc::new(AtomicUsize::new(0));
    let mut memory = SyncedMem::new(8);
    for batch in 0..100 {
        alive.fetch_add(1, Ordering::SeqCst);
        memory.adopt(HostBuffer::from_owner(Batch(alive.clone(), [batch; 8]))).unwrap();
        memory.device(&queue, ..).unwrap();
        queue.synchronize().unwrap();
        assert!(alive.load(Ordering::SeqCst) <= 4);
    }
}

/// Bytes behind a raw pointer, given back by the last who knows it.
struct Raw(usize);

impl Raw {
    fn new() -> (NonNull<u8>, Self) {
        let bytes = NonNull::from(Box::leak(Box::new([5u8; 64]))).cast::<u8>();
        (bytes, Self(bytes.as_ptr().expose_provenance()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let bytes = std::ptr::with_exposed_provenance_mut::<[u8; 64]>(self.0);
        // SAFETY: `new` leaked this box, and only this takes it back.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

#[test]
fn raw_host_bytes_are_used_in_place_and_given_back_after_their_last_use() {
    let (_device, queue) = device();
    for access in [Access::Read, Access::Write] {
        let (bytes, owner) = Raw::new();
        // SAFETY: the bytes are the owner's, in a box that is not its own, and have no other user.
        let mut memory = unsafe { SyncedMem::from(HostBuffer::from_raw(bytes, 64, access, Box::new(owner))) };
        assert_eq!(memory.host(..).unwrap().as_ptr(), bytes.as_ptr().cast_const());
        let in_place = memory.host_mut(..).unwrap().as_ptr() == bytes.as_ptr().cast_const();
        assert_eq!(in_place, access == Access::Write);
        memory.device(&queue, ..).unwrap();
        // The upload is still to be made.
        memory.adopt(vec![1; 64]).unwrap();
        let (bytes, owner) = Raw::new();
        // SAFETY: the bytes are the owner's, in a box that is not its own, and have no other user.
        memory.adopt(unsafe { HostBuffer::from_raw(bytes, 64, access, Box::new(owner)) }).unwrap();
        let shared = SharedMem::from(memory);
        assert_eq!(shared.host(60..64).unwrap()[..], [5; 4]);
        let (bytes, owner) = Raw::new();
        // SAFETY: the bytes are the owner's, in a box that is not its own, and have no other user.
        shared.adopt(unsafe { HostBuffer::from_raw(bytes, 64, access, Box::new(owner)) }).unwrap();
        drop(shared);
        queue.synchronize().unwrap();
    }
}

#[test]
fn adopted_device_memory_is_ready_when_its_queue_is_and_leaks_with_it() {
    let (device, queue) = device();
    let other = device.queue().unwrap();
    let outside = device.external(8).unwrap();
    outside.with_bytes(|bytes| bytes.fill(3));
    let (address, mut memory) = (outside.address(), SyncedMem::new(8));
    // SAFETY: the block is the owner's, and has no other user.
    unsafe { memory.adopt_device(&queue, address, 8, Box::new(outside)) }.unwrap();
    // SAFETY: refused, because there is nothing at that address.
    assert!(unsafe { memory.adopt_device(&queue, 12, 8, Box::new(())) }.is_err());
    drop(memory.device(&other, ..).unwrap());
    assert_eq!(memory.host(..).unwrap(), [3; 8]);
    let leaks = Arc::new(AtomicUsize::new(0));
    let counter = leaks.clone();
    memory.set_observer(Arc::new(move |event: &Event| {
        let is_leak = event.kind == EventKind::Leak;
        counter.fetch_add(usize::from(is_leak), Ordering::SeqCst);
    }));
    drop(memory.device_mut(&queue, ..).unwrap());
    break_queue(&queue);
    drop(memory);
    assert_eq!(leaks.load(Ordering::SeqCst), 1);
    assert_eq!(device.report().misuses.len(), 1, "the address that was refused");
}

#[test]
fn an_adoption_inside_a_kernel_leaks_no_block_of_a_working_queue() {
    let (device, queue) = device();
    let (other, third) = (device.queue().unwrap(), device.queue().unwrap());
    let memory = SharedMem::new(64);
    fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 1);
    expect(&memory.device(&other, ..).unwrap(), 1);
    let outside = device.external(64).unwrap();
    outside.with_bytes(|bytes| bytes.fill(2));
    let (own, ready_on, address) = (memory.clone(), queue.clone(), outside.address());
    launch(&*third, [], move |_| {
        // No queue may be waited for in here, and the old block is to be freed after the work of two.
        // SAFETY: the block is the owner's, and has no other user.
        unsafe { own.adopt_device(&ready_on, address, 64, Box::new(outside)) }.unwrap();
    })
    .unwrap();
    third.synchronize().unwrap();
    assert_eq!(memory.stats().leaks.count, 0);
    assert_eq!(*memory.host(0..1).unwrap(), [2]);
    drop(memory);
    queue.synchronize().unwrap();
    assert_eq!((device.report().live_blocks, device.report().misuses), (0, vec![]));
}
