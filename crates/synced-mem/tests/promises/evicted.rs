//! Giving a copy back: it goes only where every byte is somewhere else for certain.

use std::sync::mpsc;
use std::thread;

use synced_mem::loopback::launch;
use synced_mem::{Device, Error, HostBuffer, Location, SharedMem, SyncedMem};

use super::{PATIENCE, break_queue, device, fill};

#[test]
fn a_clean_eviction_refuses_where_it_would_have_to_move() {
    let (device, queue) = device();
    let place = Location::Device(device.id());
    let mut memory = SyncedMem::from(vec![7; 64]);
    memory.device(&queue, ..).unwrap();
    memory.host_mut(8..9).unwrap().fill(1);
    let is_only = |result: Result<(), Error>, wanted: std::ops::Range<usize>| match result {
        Err(Error::OnlyCopy { range, .. }) => assert_eq!(range, wanted),
        other => panic!("{other:?}"),
    };
    is_only(memory.evict_clean(Location::Host, ..), 8..9);
    fill(&mut memory.device_mut(&queue, 16..32).unwrap(), 2);
    is_only(memory.evict_clean(place, ..), 16..32);
    assert_eq!(memory.host(16..32).unwrap(), [2; 16]);
    memory.evict_clean(place, ..).unwrap();
    is_only(memory.evict_clean(Location::Host, ..), 0..64);
    is_only(SyncedMem::from(vec![1; 8]).evict(Location::Host, ..), 0..8);
}

#[test]
fn the_host_keeps_what_a_broken_queue_was_to_upload() {
    for memory in [SharedMem::from(vec![7; 16]), SharedMem::from(HostBuffer::from_owner(vec![7; 16]))] {
        let (_device, broken) = device();
        memory.device(&broken, 0..16).unwrap();
        break_queue(&broken);
        assert!(memory.evict(Location::Host, ..).is_err());
        assert_eq!(memory.host(0..16).unwrap()[..], [7; 16]);
    }
}

#[test]
fn a_copy_on_its_way_is_nothing_to_rely_on() {
    let (device, queue) = device();
    let other = device.sibling().queue().unwrap();
    let mut memory = SyncedMem::new(8);
    fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 7);
    queue.synchronize().unwrap();
    break_queue(&other);
    memory.device(&other, ..).unwrap();
    // What the broken queue was to bring to the sibling is not taken for another copy: the bytes go to the host first.
    memory.evict(Location::Device(device.id()), ..).unwrap();
    assert_eq!(memory.host(..).unwrap(), [7; 8]);
}

#[test]
fn the_host_moves_to_the_device_that_holds_the_most_and_has_room() {
    let ((one, first), (two, second)) = (device(), device());
    let mut memory = SyncedMem::from(vec![7; 8]);
    memory.device(&first, ..).unwrap();
    memory.device(&second, ..).unwrap();
    memory.evict(Location::Device(one.id()), ..).unwrap();
    memory.host_mut(0..1).unwrap()[0] = 1;
    memory.evict(Location::Host, ..).unwrap();
    assert_eq!((one.report().live_blocks, two.report().live_blocks), (0, 1));
    // The one that is preferred has no room: the other has.
    memory.host_mut(..).unwrap().fill(2);
    memory.evict(Location::Device(two.id()), ..).unwrap();
    one.set_limit(0);
    memory.evict(Location::Host, ..).unwrap();
    assert_eq!(memory.host(..).unwrap(), [2; 8]);
}

#[test]
fn a_block_that_is_freed_while_another_thread_gives_one_back_goes_too() {
    let ((one, first), (two, second)) = (device(), device());
    let memory = SharedMem::from(vec![1; 8]);
    let external = one.external(8).unwrap();
    external.with_bytes(|bytes| bytes.fill(3));
    // SAFETY: its owner is the memory from now on.
    unsafe { memory.adopt_device(&first, external.address(), 8, Box::new(external)).unwrap() };
    drop(memory.host(..).unwrap());
    let ((starts, started), (ends, ended)) = (mpsc::channel(), mpsc::channel());
    let token = memory.device(&first, ..).unwrap();
    launch(&*first, [token.arg()], move |_| {
        starts.send(()).unwrap();
        ended.recv_timeout(PATIENCE).unwrap();
    })
    .unwrap();
    drop(token);
    let evicting = thread::spawn({
        let memory = memory.clone();
        // An adopted block goes back to its owner only when the kernel that uses it has ended.
        move || memory.evict(Location::Device(one.id()), ..).unwrap()
    });
    started.recv_timeout(PATIENCE).unwrap();
    memory.device(&second, ..).unwrap();
    second.synchronize().unwrap();
    memory.evict(Location::Device(two.id()), ..).unwrap();
    ends.send(()).unwrap();
    evicting.join().unwrap();
    assert_eq!(two.report().live_blocks, 0);
    assert_eq!(*memory.host(..).unwrap(), [3; 8]);
}
