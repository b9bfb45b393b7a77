//! Host bytes that a transfer is done with are free at once, whatever else its queue has to do; and what a transfer may
//! read during its call has arrived before.

use std::sync::Arc;

use synced_mem::loopback::{Fault, Loopback, Mode, Operation};
use synced_mem::{Device, Error, Location, Queue, SharedMem, SyncedMem, scope};

use super::{device, expect, fill};

/// A device whose transfers take effect within the call.
fn immediate() -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Immediate);
    let queue = device.queue().unwrap();
    (device, queue)
}

/// How often the host has waited for a device.
fn waits(device: &Loopback) -> u64 {
    device.calls(Operation::Synchronize)
}

#[test]
fn refilling_a_batch_waits_only_where_an_upload_is_pending() {
    for (mode, wanted) in [(Mode::Immediate, 0), (Mode::Deferred, 7)] {
        let device = Loopback::new(mode);
        let queue = device.queue().unwrap();
        let mut batch = SyncedMem::new(4096);
        let work = SharedMem::new(64);
        for round in 1..=8 {
            batch.host_overwrite(..).unwrap().fill(round);
            expect(&batch.device(&queue, ..).unwrap(), round);
            fill(&mut work.device_overwrite(&queue, ..).unwrap(), round);
        }
        assert_eq!(waits(&device), wanted, "{mode:?}");
        drop(batch);
        queue.synchronize().unwrap();
        assert_eq!(device.report().misuses, [""; 0]);
    }
}

#[test]
fn bytes_that_have_come_back_are_read_without_a_wait() {
    let (device, queue) = immediate();
    let memory = SharedMem::new(4096);
    fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 5);
    assert_eq!(memory.host(..).unwrap()[..], [5; 4096]);
    memory.host_mut(8..16).unwrap().fill(6);
    assert_eq!(waits(&device), 0);
}

#[test]
fn lent_slices_are_uploaded_and_filled_without_a_wait() {
    let (device, queue) = immediate();
    let mut bytes = vec![3; 512];
    scope(|scope| {
        let mut lent = scope.lend_mut(&mut bytes);
        expect(&lent.device(&queue, ..)?, 3);
        fill(&mut lent.device_mut(&queue, ..)?, 4);
        assert_eq!(lent.host(..)?, [4; 512]);
        assert_eq!(waits(&device), 0);
        Ok::<(), Error>(())
    })
    .unwrap()
    .unwrap();
    assert_eq!(bytes, [4; 512]);
}

/// A download that was cut short has not delivered, though its work is over.
#[test]
fn a_download_that_ended_half_way_is_not_taken_for_done() {
    let (device, queue) = immediate();
    let memory = SharedMem::new(4096);
    fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 5);
    device.fail(Operation::Download, 1, Fault::BrokenOff);
    assert!(memory.host(..).is_err());
    assert!(!memory.valid_on(Location::Host, ..));
}

/// Between two devices without a way the bytes pass through the host. The second may read them during the call, so they
/// are there before, and it is not told to wait for the first.
#[test]
fn bytes_on_their_way_have_arrived_before_they_are_uploaded() {
    let (near, first) = device();
    let (far, second) = device();
    let memory = SharedMem::new(4096);
    fill(&mut memory.device_overwrite(&first, ..).unwrap(), 5);
    memory.prefetch_host(..).unwrap();
    assert_eq!(waits(&near), 0);
    let token = memory.device(&second, ..).unwrap();
    assert_eq!((waits(&near), far.calls(Operation::Wait), far.calls(Operation::Upload)), (1, 0, 1));
    expect(&token, 5);
    drop(token);
    second.synchronize().unwrap();
}
