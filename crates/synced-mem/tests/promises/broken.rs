//! A queue that has failed takes nothing with it but what it alone was to deliver: what is valid elsewhere stays
//! usable, on every other queue, and what it may still touch is leaked within a bound.

use std::panic::panic_any;
use std::sync::{Arc, Weak, mpsc};
use std::thread;

use synced_mem::loopback::{Fault, Loopback, Mode, Operation, launch};
use synced_mem::{Device, Error, HostBuffer, Location, Queue, SharedMem, SyncedMem};

use super::{PATIENCE, break_queue, expect, fill};

/// A device with a queue that will fail and one that will not.
pub(crate) fn two_queues() -> (Arc<Loopback>, Arc<dyn Queue>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Deferred);
    let (broken, healthy) = (device.queue().unwrap(), device.queue().unwrap());
    (device, broken, healthy)
}

/// A memory of eight bytes of 1, valid on the host and, by way of a queue that has failed, on the device.
fn shared(broken: &Arc<dyn Queue>) -> SharedMem {
    let memory = SharedMem::from(vec![1; 8]);
    memory.device(broken, 0..8).unwrap();
    break_queue(broken);
    memory
}

/// The error names the queue.
pub(crate) fn names<T>(result: Result<T, Error>, queue: &Arc<dyn Queue>) -> bool {
    let name = queue.id().to_string();
    match result {
        Ok(_) => panic!("it works"),
        Err(error) => error.to_string().contains(&name),
    }
}

#[test]
fn batches_behind_a_broken_queue_are_bounded() {
    let (_device, broken, _) = two_queues();
    let memory = shared(&broken);
    let batches: Vec<Weak<Vec<u8>>> = (0..1000)
        .map(|_| {
            let batch = Arc::new(vec![7_u8; 8]);
            let (alive, owner) = (Arc::downgrade(&batch), Owner(batch));
            memory.adopt(HostBuffer::from_owner(owner)).unwrap();
            let _ = memory.device(&broken, 0..8);
            alive
        })
        .collect();
    let alive = batches.iter().filter(|batch| batch.strong_count() > 0);
    let alive = alive.count();
    assert!(alive <= 5, "{alive}");
    let leaks = memory.stats().leaks;
    assert!((1..=5).contains(&leaks.count), "{leaks:?}");
    assert_eq!(leaks.bytes, 8 * leaks.count);
}

struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn a_healthy_queue_reads_and_writes_what_the_host_holds() {
    for is_known in [false, true] {
        let (device, broken, healthy) = two_queues();
        let memory = shared(&broken);
        if is_known {
            // The memory learns of the failure here.
            memory.host_mut(0..8).unwrap().fill(2);
        } else {
            assert!(broken.synchronize().is_err());
        }
        let byte = 1 + u8::from(is_known);
        expect(&memory.device(&healthy, 0..8).unwrap(), byte);
        healthy.synchronize().unwrap();
        assert!(memory.valid_on(Location::Device(device.id()), ..));
        assert_eq!(&*memory.host(0..8).unwrap(), [byte; 8]);
        fill(&mut memory.device_mut(&healthy, 0..4).unwrap(), 5);
        assert_eq!(memory.host(2..6).unwrap()[..], [5, 5, byte, byte]);
        drop(memory);
        healthy.synchronize().unwrap();
        assert_eq!(device.report().misuses, [""; 0]);
    }
}

#[test]
fn what_is_valid_on_the_host_is_written_again_and_its_readers_see_what_they_saw() {
    for is_known in [false, true] {
        let (_device, broken, healthy) = two_queues();
        let memory = shared(&broken);
        assert!(!is_known || broken.synchronize().is_err());
        let seen = memory.host(0..4).unwrap();
        memory.host_mut(4..8).unwrap().fill(2);
        assert_eq!(*seen, [1; 4]);
        drop(seen);
        memory.host_mut(0..4).unwrap().fill(3);
        memory.host_overwrite(7..8).unwrap().fill(5);
        assert_eq!(&*memory.host(0..8).unwrap(), [3, 3, 3, 3, 2, 2, 2, 5]);
        fill(&mut memory.device_mut(&healthy, 0..8).unwrap(), 4);
        assert_eq!(&*memory.host(0..8).unwrap(), [4; 8]);
        assert_eq!(memory.stats().leaks.count, 1, "{:?}", memory.stats());
    }
}

#[test]
fn the_one_owner_writes_again_too() {
    let (_device, broken, healthy) = two_queues();
    let mut memory = SyncedMem::from(vec![1; 8]);
    memory.device(&broken, ..).unwrap();
    break_queue(&broken);
    memory.host_mut(..).unwrap()[0] = 2;
    assert_eq!(memory.host(..).unwrap()[..2], [2, 1]);
    fill(&mut memory.device_mut(&healthy, ..).unwrap(), 3);
    assert_eq!(memory.host(..).unwrap(), [3; 8]);
    assert_eq!(memory.stats().leaks.count, 1);
}

#[test]
fn a_guard_that_writes_keeps_its_buffer() {
    let (_device, broken, _) = two_queues();
    let memory = SharedMem::from(vec![1; 8]);
    memory.device(&broken, 0..4).unwrap();
    let mut writer = memory.host_mut(4..8).unwrap();
    break_queue(&broken);
    assert!(names(memory.host_mut(0..4), &broken));
    writer.fill(2);
    drop(writer);
    memory.host_mut(0..4).unwrap().fill(3);
    assert_eq!(&*memory.host(0..8).unwrap(), [3, 3, 3, 3, 2, 2, 2, 2]);
}

#[test]
fn a_fresh_queue_overwrites_what_a_broken_one_was_to_write() {
    let (device, broken, healthy) = two_queues();
    let memory = SharedMem::from(vec![1; 8]);
    fill(&mut memory.device_mut(&broken, 0..8).unwrap(), 2);
    break_queue(&broken);
    // No other place has these bytes, and the error names the queue that was to deliver them.
    assert!(names(memory.host(0..8), &broken));
    assert!(names(memory.device(&healthy, 0..8), &broken));
    assert!(names(memory.evict(Location::Device(device.id()), ..), &broken));
    assert!(names(memory.device_overwrite(&broken, 0..8), &broken));
    let mut token = memory.device_overwrite(&healthy, 0..8).unwrap();
    fill(&mut token, 3);
    drop(token);
    assert_eq!(&*memory.host(0..8).unwrap(), [3; 8]);
    healthy.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn bytes_that_a_broken_queue_alone_has_outlive_the_overwriting_of_others() {
    let (_device, broken, healthy) = two_queues();
    let memory = SharedMem::from(vec![1; 8]);
    fill(&mut memory.device_mut(&broken, 0..8).unwrap(), 2);
    break_queue(&broken);
    assert!(memory.host(0..8).is_err());
    assert!(names(memory.device_overwrite(&healthy, 0..4), &broken));
    assert!(names(memory.host(0..8), &broken));
    memory.host_overwrite(0..8).unwrap().fill(5);
    expect(&memory.device(&healthy, 0..8).unwrap(), 5);
    healthy.synchronize().unwrap();
}

#[test]
fn work_under_a_token_goes_on_where_its_copy_was_given_up() {
    let (device, broken, healthy) = two_queues();
    let memory = SharedMem::from(vec![1; 8]);
    memory.device(&broken, 0..8).unwrap();
    let token = memory.device(&healthy, 0..4).unwrap();
    break_queue(&broken);
    memory.host_mut(4..8).unwrap().fill(2);
    let fresh = device.queue().unwrap();
    fill(&mut memory.device_mut(&fresh, 4..8).unwrap(), 3);
    expect(&token, 1);
    drop(token);
    // What this queue frees it frees before the other has read it.
    assert!(broken.synchronize().is_err());
    healthy.synchronize().unwrap();
    assert_eq!(&*memory.host(0..8).unwrap(), [1, 1, 1, 1, 3, 3, 3, 3]);
    drop(memory);
    fresh.synchronize().unwrap();
    healthy.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn a_call_that_fails_once_breaks_nothing() {
    let (device, queue, other) = two_queues();
    let memory = SharedMem::from(vec![1; 8]);
    fill(&mut memory.device_mut(&queue, 0..8).unwrap(), 2);
    device.fail(Operation::Synchronize, 1, Fault::Refused);
    assert!(memory.host(0..8).is_err());
    device.fail(Operation::Wait, 1, Fault::Refused);
    assert!(memory.device(&other, 0..8).is_err());
    assert_eq!(memory.stats().leaks.count, 0);
    // Two failures in a row do, until the queue works again: nothing is lost.
    device.fail(Operation::Synchronize, 1, Fault::Refused);
    device.fail(Operation::Synchronize, 2, Fault::Refused);
    let _ = memory.host(0..8);
    assert_eq!(&*memory.host(0..8).unwrap(), [2; 8]);
    expect(&memory.device(&queue, 0..8).unwrap(), 2);
    expect(&memory.device(&other, 0..8).unwrap(), 2);
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn a_wait_that_is_refused_to_a_kernel_breaks_nothing() {
    let (device, queue, other) = two_queues();
    let memory = SharedMem::from(vec![1; 8]);
    let mut token = memory.device_mut(&queue, 0..4).unwrap();
    let shared = memory.clone();
    launch(&*queue, [token.arg_mut()], move |args| {
        args[0].bytes_mut().fill(2);
        for _ in 0..3 {
            assert!(matches!(shared.host(0..4), Err(Error::CalledFromKernel { .. })));
        }
        // The bytes that no queue brings are there.
        assert_eq!(*shared.host(4..8).unwrap(), [1; 4]);
        assert!(matches!(shared.device(&other, 0..4), Err(Error::CalledFromKernel { .. })));
    })
    .unwrap();
    drop(token);
    assert_eq!(*memory.host(0..8).unwrap(), [2, 2, 2, 2, 1, 1, 1, 1]);
    queue.synchronize().unwrap();
    assert_eq!(memory.stats().leaks.count, 0);
    // A download that is under way is not given up, and so not begun again.
    let (brought, before) = (SharedMem::from(vec![1; 8]), memory.clone());
    fill(&mut brought.device_mut(&queue, ..).unwrap(), 3);
    brought.prefetch_host(..).unwrap();
    let asked = brought.clone();
    launch(&*queue, [before.device(&queue, ..).unwrap().arg()], move |_| {
        assert!(matches!(asked.host(..), Err(Error::CalledFromKernel { .. })));
    })
    .unwrap();
    queue.synchronize().unwrap();
    assert_eq!((*brought.host(..).unwrap() == [3; 8], brought.stats().downloads.count), (true, 1));
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn what_an_owner_writes_is_not_left_behind_in_a_buffer_that_is_replaced() {
    let (_device, _, healthy) = two_queues();
    let (_foreign, broken, _) = two_queues();
    let mut memory = SyncedMem::from(vec![1; 1024]);
    drop(memory.device(&broken, 540..550).unwrap());
    fill(&mut memory.device_overwrite(&healthy, ..).unwrap(), 2);
    break_queue(&broken);
    // Seventeen bytes, apart, are one range too many. The smallest gap is where the broken queue may still read.
    let bytes = (0..17).map(|n| if n < 9 { 65 * n } else { 65 * n - 17 });
    for byte in bytes.clone() {
        memory.host_overwrite(byte..byte + 1).unwrap()[0] = 3;
    }
    for byte in bytes {
        assert_eq!(memory.host(byte..byte + 1).unwrap(), [3], "byte {byte}");
    }
    assert_eq!(memory.host(..).unwrap().iter().filter(|byte| **byte == 2).count(), 1024 - 17);
}

#[test]
fn bytes_come_from_where_no_broken_queue_was_to_bring_them() {
    let (device, broken, _) = two_queues();
    let healthy = device.sibling().queue().unwrap();
    let memory = SharedMem::new(8);
    fill(&mut memory.device_overwrite(&broken, 0..8).unwrap(), 2);
    memory.host_overwrite(0..4).unwrap().fill(3);
    memory.device(&broken, 0..4).unwrap();
    break_queue(&broken);
    assert!(names(memory.host(4..8), &broken));
    expect(&memory.device(&healthy, 0..4).unwrap(), 3);
    healthy.synchronize().unwrap();
}

#[test]
fn what_is_evicted_from_the_host_goes_to_a_device_that_works() {
    let (device, broken, _) = two_queues();
    let (other, _, healthy) = two_queues();
    let memory = shared(&broken);
    memory.device(&healthy, 0..8).unwrap();
    memory.host_mut(0..8).unwrap().fill(4);
    memory.evict(Location::Host, ..).unwrap();
    assert!(!memory.valid_on(Location::Device(device.id()), 0..1));
    assert!(memory.valid_on(Location::Device(other.id()), ..));
    assert_eq!(&*memory.host(0..8).unwrap(), [4; 8]);
}

#[test]
fn a_memory_that_more_broken_queues_have_used_than_are_remembered_works_again() {
    let (device, _, healthy) = two_queues();
    let devices = [device.sibling(), device];
    let memory = SharedMem::new(100);
    let mut queues = Vec::new();
    for (half, device) in [0..50, 50..100].into_iter().zip(&devices) {
        fill(&mut memory.device_overwrite(&device.queue().unwrap(), half.clone()).unwrap(), 1);
        for byte in half {
            let queue = device.queue().unwrap();
            drop(memory.device(&queue, byte..byte + 1).unwrap());
            memory.prefetch_host(byte..byte + 1).unwrap();
            queues.push(queue);
        }
    }
    queues.iter().for_each(break_queue);
    memory.host_overwrite(0..100).unwrap().fill(2);
    expect(&memory.device(&healthy, 0..100).unwrap(), 2);
    let fresh = devices[1].queue().unwrap();
    fill(&mut memory.device_overwrite(&fresh, 0..100).unwrap(), 3);
    assert_eq!(&*memory.host(0..100).unwrap(), [3; 100]);
    fresh.synchronize().unwrap();
}

#[test]
fn bytes_that_the_broken_queue_only_read_are_read_by_others() {
    let (device, broken, healthy) = two_queues();
    let memory = SharedMem::new(8);
    fill(&mut memory.device_overwrite(&healthy, 0..8).unwrap(), 6);
    expect(&memory.device(&broken, 0..8).unwrap(), 6);
    break_queue(&broken);
    assert!(broken.synchronize().is_err());
    let _ = memory.host(0..8);
    assert_eq!(&*memory.host(0..8).unwrap(), [6; 8]);
    healthy.synchronize().unwrap();
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn a_device_with_a_broken_queue_can_be_left() {
    let (device, broken, _) = two_queues();
    let memory = shared(&broken);
    let _ = memory.evict(Location::Device(device.id()), ..);
    assert_eq!(memory.host_mut(0..8).unwrap()[..], [1; 8]);
    let (_other, _, healthy) = two_queues();
    expect(&memory.device(&healthy, 0..8).unwrap(), 1);
    healthy.synchronize().unwrap();
}

/// A panic's payload whose destructor panics too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a payload's destructor");
        }
    }
}

#[test]
fn a_panic_that_panics_again_is_a_device_error() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let waiting = queue.device().queue().unwrap();
    let memory = {
        let mut memory = SyncedMem::new(1 << 16);
        drop(memory.device_overwrite(&queue, ..).unwrap());
        memory
    };
    launch(&*queue, [], |_| panic_any(Bomb)).unwrap();
    waiting.wait_for(&*queue).unwrap();
    // A download that will not have been made when the memory ends: the buffer is leaked, not freed under it.
    memory.prefetch_host(..).unwrap();
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(memory);
        let results = [queue.synchronize(), queue.synchronize(), waiting.synchronize()];
        done.send(results.map(|result| result.is_err())).unwrap();
    });
    assert_eq!(ended.recv_timeout(PATIENCE).expect("it hangs"), [true; 3]);
}

/// A wait inside a kernel that fails once, for a reason of its own, and is refused when asked again.
#[test]
fn a_refusal_behind_a_failure_does_not_break_a_queue() {
    let (device, queue, _) = two_queues();
    let kernels = Loopback::new(Mode::Deferred).queue().unwrap();
    let memory = SharedMem::from(vec![1; 64]);
    drop(memory.device(&queue, ..).unwrap());
    let (own, failing) = (memory.clone(), Arc::clone(&device));
    launch(&*kernels, [], move |_| {
        failing.fail(Operation::Synchronize, 1, Fault::Refused);
        // The upload still reads these bytes.
        assert!(own.host_mut(..).is_err());
    })
    .unwrap();
    kernels.synchronize().unwrap();
    memory.host_mut(..).unwrap().fill(2);
    // Memory that a broken queue may read is replaced, and leaked.
    assert_eq!((memory.stats().leaks.count, memory.stats().allocations.count), (0, 1));
}
