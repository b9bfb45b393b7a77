//! Failures that were told in advance, limits, and queues that fail for good: nothing is lost, nothing wrong is valid,
//! and what may still be in use at the end is leaked, which the observer is told.

use std::sync::Arc;

use proptest::prelude::*;
use synced_mem::loopback::{Fault, Loopback, Mode, Operation, launch};
use synced_mem::{Device, Error, EventKind, Location, Queue, SharedMem, SyncedMem};

use crate::cases;
use crate::harness::observed::Watch;
use crate::harness::op::{failing, modes};
use crate::harness::world::{Rules, World};

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn no_failure_loses_or_invents_a_byte(mode in modes(), program in failing(false)) {
        World::new(mode, 20, Rules::FAILING).run(&program);
    }

    #[test]
    fn no_failure_loses_a_byte_of_an_origin(mode in modes(), program in failing(true)) {
        World::of_origins(mode, 20, Rules::PANICKING).run(&program);
    }

    #[test]
    fn queues_that_fail_for_ever_make_errors_and_no_wrong_bytes(mode in modes(), program in failing(true)) {
        World::new(mode, 20, Rules::PANICKING).run(&program);
    }
}

fn deferred() -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    (device, queue)
}

fn break_queue(queue: &dyn Queue) {
    launch(queue, [], |_| std::panic::resume_unwind(Box::new("broken"))).unwrap();
}

#[test]
fn a_buffer_that_a_broken_queue_may_still_read_is_leaked_and_said_to_be() {
    let (_device, queue) = deferred();
    let memory = SharedMem::new(8);
    let watch = Watch::over(&memory);
    memory.host_overwrite(0..8).unwrap().fill(1);
    memory.device(&queue, 0..8).unwrap();
    break_queue(&*queue);
    drop(memory);
    assert!(!watch.has_leaks());
    watch.let_go();
    assert!(watch.has_leaks(), "{:?}", EventKind::Leak);
}

#[test]
fn a_failed_download_leaves_the_device_as_the_one_that_holds_the_bytes() {
    let (device, queue) = deferred();
    let mut memory = SyncedMem::new(8);
    let mut token = memory.device_overwrite(&queue, ..).unwrap();
    launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut().fill(7)).unwrap();
    for operation in [Operation::Download, Operation::Synchronize] {
        device.fail(operation, 1, Fault::Refused);
        assert!(matches!(memory.host(..), Err(Error::Device { .. })));
        assert!(!memory.valid_on(Location::Host, ..) && memory.valid_on(Location::Device(device.id()), ..));
    }
    assert_eq!(memory.host(..).unwrap(), [7; 8]);
}

#[test]
fn an_eviction_that_fails_evicts_nothing() {
    let (device, queue) = deferred();
    let mut memory = SyncedMem::new(8);
    let mut token = memory.device_overwrite(&queue, ..).unwrap();
    launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut().fill(7)).unwrap();
    drop(token);
    let place = Location::Device(device.id());
    for operation in [Operation::Download, Operation::Synchronize] {
        device.fail(operation, 1, Fault::Refused);
        assert!(memory.evict(place, ..).is_err());
        assert!(memory.valid_on(place, ..));
    }
    memory.evict(place, ..).unwrap();
    assert_eq!((device.report().live_blocks, memory.host(..).unwrap()), (0, &[7; 8][..]));
    for operation in [Operation::Alloc, Operation::Upload, Operation::Synchronize] {
        device.fail(operation, 1, Fault::Refused);
        assert!(memory.evict(Location::Host, ..).is_err());
        assert!(memory.valid_on(Location::Host, ..));
    }
    memory.evict(Location::Host, ..).unwrap();
    assert!(!memory.valid_on(Location::Host, ..));
    assert_eq!(memory.host(..).unwrap(), [7; 8]);
}

#[test]
fn a_device_without_room_is_an_error_and_changes_nothing() {
    let (device, queue) = deferred();
    device.set_limit(7);
    let mut memory = SyncedMem::from(vec![3; 8]);
    assert!(matches!(memory.device(&queue, ..), Err(Error::DeviceOutOfMemory { bytes: 8, .. })));
    assert!(memory.device_overwrite(&queue, ..).is_err());
    assert_eq!(memory.host(..).unwrap(), [3; 8]);
    device.set_limit(8);
    memory.device(&queue, ..).unwrap();
    assert!(memory.valid_on(Location::Device(device.id()), ..));
}
