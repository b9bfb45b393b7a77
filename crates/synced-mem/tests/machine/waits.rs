//! How often queues wait for one another: never with one queue, and not for what another wait has covered.

use synced_mem::SharedMem;
use synced_mem::loopback::{Loopback, Mode, Operation};
use synced_mem::{Device, Location};

#[test]
fn with_one_queue_nothing_ever_waits() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let memory = SharedMem::new(64);
    for start in [0, 16, 8] {
        drop(memory.device_mut(&queue, start..start + 16).unwrap());
        std::mem::forget(memory.device(&queue, 40..48).unwrap());
        memory.prefetch_host(0..32).unwrap();
        memory.host_mut(start..start + 4).unwrap().fill(1);
    }
    memory.evict(Location::Host, ..).unwrap();
    assert_eq!(device.calls(Operation::Wait), 0);
}

#[test]
fn a_write_is_waited_for_and_not_what_it_has_waited_for() {
    let device = Loopback::new(Mode::Deferred);
    let queues = [(); 3].map(|()| device.queue().unwrap());
    let memory = SharedMem::new(64);
    let waits: Vec<u64> = queues
        .iter()
        .map(|queue| {
            drop(memory.device_mut(queue, 0..64).unwrap());
            device.calls(Operation::Wait)
        })
        .collect();
    assert_eq!(waits, [0, 1, 2]);
}
