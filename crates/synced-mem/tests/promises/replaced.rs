//! Memory that takes another's place, or goes: nothing is freed that a queue still uses.

use synced_mem::loopback::{Fault, Operation, launch};
use synced_mem::{Device, SharedMem, SyncedMem, scope};

use super::poison::FREED;
use super::{device, expect, fill};

#[test]
fn a_block_is_freed_after_all_who_use_it_though_waits_fail() {
    for failing in [&[][..], &[1], &[2], &[1, 1], &[3]] {
        let (device, owner) = device();
        let readers = [(); 3].map(|()| device.queue().unwrap());
        let memory = SharedMem::new(16);
        fill(&mut memory.device_overwrite(&owner, 0..16).unwrap(), 9);
        for reader in &readers {
            expect(&memory.device(reader, 0..16).unwrap(), 9);
        }
        failing.iter().for_each(|nth| device.fail(Operation::Wait, *nth, Fault::Refused));
        drop(memory);
        owner.synchronize().unwrap();
        for reader in &readers {
            assert_eq!(reader.synchronize().map_err(|e| e.to_string()), Ok(()));
        }
        assert_eq!(device.report().misuses, [""; 0], "failing: {failing:?}");
    }
}

#[test]
fn who_did_not_allocate_waits_for_who_did() {
    let (device, owner) = device();
    let other = device.queue().unwrap();
    let mut memory = SyncedMem::new(16);
    fill(&mut memory.device_overwrite(&owner, 0..4).unwrap(), 1);
    let before = device.calls(Operation::Wait);
    // Other bytes of the block: it may have been another memory's until now, in the order of `owner`.
    fill(&mut memory.device_overwrite(&other, 8..12).unwrap(), 2);
    assert_eq!(device.calls(Operation::Wait), before + 1);
}

#[test]
fn a_buffer_that_stands_for_a_lent_slice_stays_while_its_queue_may_use_it() {
    let (device, queue) = device();
    let mut bytes = [1; 4096];
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    scope(|scope| {
        let mut lent = scope.lend_mut(&mut bytes);
        device.fail(Operation::Synchronize, 1, Fault::Refused);
        // The upload is enqueued, and waiting for it fails.
        assert!(lent.device(&queue, ..).is_err());
        let mut token = lent.device_overwrite(&queue, ..).unwrap();
        let notes = seen.clone();
        launch(&*queue, [token.arg_mut()], move |args| notes.lock().unwrap().extend_from_slice(args[0].bytes()))
            .unwrap();
    })
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4096);
    let freed = seen.iter().filter(|byte| **byte == FREED).count();
    assert_eq!(freed, 0, "the queue read freed memory");
}
