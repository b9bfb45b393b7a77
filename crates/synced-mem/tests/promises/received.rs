//! A copy from another memory that fails: what the target held before is what every place still gives.

use synced_mem::SharedMem;
use synced_mem::loopback::Operation;

use super::{device, expect, fill};

/// Both memories are valid on the device, the target on the host too. The copy is enqueued and then reported as failed, so
/// the device's copy of the target may hold anything.
#[test]
fn a_copy_that_fails_late_leaves_what_another_place_holds() {
    let (device, queue) = device();
    let (target, source) = (SharedMem::from_vec(vec![1; 64]), SharedMem::new(64));
    expect(&target.device(&queue, 0..64).unwrap(), 1);
    fill(&mut source.device_overwrite(&queue, 0..64).unwrap(), 2);
    device.fail_late(Operation::Copy, 1);
    assert!(target.copy_from(0, &source, 0..32).is_err());
    assert_eq!(target.host(0..64).unwrap()[..], [1; 64]);
    expect(&target.device(&queue, 0..64).unwrap(), 1);
    queue.synchronize().unwrap();
    // Tried again, it arrives.
    target.copy_from(0, &source, 0..32).unwrap();
    expect(&target.device(&queue, 0..32).unwrap(), 2);
    expect(&target.device(&queue, 32..64).unwrap(), 1);
    queue.synchronize().unwrap();
    assert_eq!(target.host(30..34).unwrap()[..], [2, 2, 1, 1]);
}
