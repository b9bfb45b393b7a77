//! Memories on devices: ways between them, and how little moves where use is scattered.

use synced_mem::loopback::{Loopback, Mode, Operation};
use synced_mem::{Device, Location, SharedMem, SyncedMem};

use super::{break_queue, device, expect, fill};

#[test]
fn asking_for_a_way_between_devices_touches_no_block() {
    let (near, far) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (near_queue, far_queue) = (near.queue().unwrap(), far.queue().unwrap());
    let memory = SharedMem::from(vec![7; 64]);
    drop(memory.device_mut(&near_queue, 0..64).unwrap());
    drop(memory.device(&far_queue, 0..64).unwrap());
    // What was asked is in no use, so the block goes at once.
    memory.evict(Location::Device(near.id()), ..).unwrap();
    drop(near_queue);
    assert_eq!(*memory.host(0..64).unwrap(), [7; 64]);
    drop(memory);
    far_queue.synchronize().unwrap();
    for device in [near, far] {
        assert_eq!(device.calls(Operation::Copy), 0);
        assert_eq!(device.report().misuses, [""; 0]);
        assert_eq!(device.report().live_blocks, 0);
    }
}

/// The memory's length, so that what is scattered lies far apart.
const TABLE: usize = 4 << 20;

#[test]
fn rows_that_are_read_far_apart_are_all_that_moves() {
    let queue = Loopback::new(Mode::Immediate).queue().unwrap();
    for rows in [17, 64, 256] {
        let mut owned = SyncedMem::new(TABLE);
        drop(owned.device_overwrite(&queue, ..).unwrap());
        let shared = SharedMem::new(TABLE);
        drop(shared.device_overwrite(&queue, 0..TABLE).unwrap());
        for row in (0..rows).map(|row| row * (TABLE / rows)) {
            owned.host(row..row + 256).unwrap();
            shared.host(row..row + 256).unwrap();
        }
        assert_eq!(owned.stats().downloads.bytes, 256 * rows as u64);
        assert_eq!(shared.stats().downloads.bytes, 256 * rows as u64);
    }
}

#[test]
fn of_many_rows_that_are_read_the_host_gives_up_old_ones_and_moves_no_gap() {
    let queue = Loopback::new(Mode::Immediate).queue().unwrap();
    let memory = SharedMem::new(TABLE);
    drop(memory.device_overwrite(&queue, 0..TABLE).unwrap());
    let held = memory.host(0..16).unwrap();
    for row in (1..1000).map(|row| row * 4096) {
        memory.host(row..row + 16).unwrap();
    }
    assert_eq!(memory.stats().downloads.bytes, 16 * 1000);
    assert!(memory.valid_on(Location::Host, 0..16), "held");
    drop(held);
}

#[test]
fn another_backend_is_left_alone_where_the_host_has_the_bytes() {
    let (one, two) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (first, second) = (one.queue().unwrap(), two.queue().unwrap());
    let memory = SyncedMem::from(vec![7; 8]);
    memory.device(&second, ..).unwrap();
    break_queue(&second);
    let pending = two.report().pending;
    drop(memory.device(&first, ..).unwrap());
    assert_eq!((two.report().pending, memory.stats().avoided.count), (pending, 0));
}

/// A block may be in use until now, in the order of the queue that allocated it.
#[test]
fn zeros_of_another_queue_come_after_the_work_that_left_the_block() {
    let (device, queue) = device();
    device.reuse_blocks();
    let other = device.queue().unwrap();
    let first = SharedMem::new(64);
    fill(&mut first.device_overwrite(&queue, ..).unwrap(), 7);
    drop(first);
    let memory = SharedMem::new(64);
    drop(memory.device_overwrite(&queue, 0..8).unwrap());
    let token = memory.device(&other, 8..16).unwrap();
    other.synchronize().unwrap();
    queue.synchronize().unwrap();
    expect(&token, 0);
    other.synchronize().unwrap();
}
