//! Memories on devices that do not reach each other.

use synced_mem::loopback::{Loopback, Mode, Operation};
use synced_mem::{Device, Place, SharedMem};

#[test]
fn asking_for_a_way_between_devices_touches_no_block() {
    let (near, far) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (near_queue, far_queue) = (near.queue().unwrap(), far.queue().unwrap());
    let memory = SharedMem::from_vec(vec![7; 64]);
    drop(memory.device_mut(&near_queue, 0..64).unwrap());
    drop(memory.device(&far_queue, 0..64).unwrap());
    // Whatever was asked is in no one's use, so the block goes at once.
    memory.evict(Place::Device(near.id())).unwrap();
    drop(near_queue);
    assert_eq!(*memory.host(0..64).unwrap(), [7; 64]);
    drop(memory);
    far_queue.synchronize().unwrap();
    for device in [near, far] {
        assert_eq!(device.calls(Operation::Copy), 0);
        assert_eq!(device.misuses(), [""; 0]);
        assert_eq!(device.live_blocks(), 0);
    }
}
