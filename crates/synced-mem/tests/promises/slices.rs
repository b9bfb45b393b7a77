//! `&self` only adds valid copies: what is valid somewhere stays so while plain slices and tokens live, and a slice
//! stays where it is, however scattered the reads beside it are and whatever fails meanwhile.

use std::ops::Range;
use std::sync::Arc;

use synced_mem::loopback::{Fault, Loopback, Operation, launch};
use synced_mem::{Device, Error, Location, Queue, SyncedMem};

use super::{break_queue, device, fill};

const LEN: usize = 8 << 10;

/// More ranges than any copy keeps without closing gaps or giving ranges up.
fn scattered() -> impl Iterator<Item = Range<usize>> {
    (0..600).map(|cell| 13 * cell + 1..13 * cell + 2 + cell % 3)
}

fn pattern() -> Vec<u8> {
    (0..LEN).map(|byte| (byte * 7 % 251) as u8).collect()
}

/// A memory whose newest bytes are the device's alone.
fn on_device(queue: &Arc<dyn Queue>) -> SyncedMem {
    let mut memory = SyncedMem::new(LEN);
    let mut token = memory.device_overwrite(queue, ..).unwrap();
    launch(&**queue, [token.arg_mut()], |args| args[0].bytes_mut().copy_from_slice(&pattern())).unwrap();
    drop(token);
    memory
}

/// The second transfer from now on fails: the one asked for is the first, the one that closes a gap comes after it.
/// Where no gap was closed, a later read fails instead, and is tried again.
fn read_while_gaps_stay_open<T>(
    device: &Loopback,
    operation: Operation,
    mut read: impl FnMut() -> Result<T, Error>,
) -> T {
    device.fail(operation, 2, Fault::Refused);
    for _ in 0..10 {
        if let Ok(done) = read() {
            return done;
        }
    }
    panic!("every attempt fails");
}

/// Makes the device hold many ranges of a memory that the host holds whole.
fn crowd(memory: &SyncedMem, device: &Loopback, queue: &Arc<dyn Queue>) {
    for range in scattered() {
        read_while_gaps_stay_open(device, Operation::Upload, || memory.device(queue, range.clone()).map(drop));
    }
}

fn assert_all_valid(memory: &SyncedMem, place: Location) {
    for range in scattered() {
        let valid = memory.valid_on(place, range.clone());
        assert!(valid, "{range:?} was given up at {place}");
    }
}

#[test]
fn a_slice_stays_while_ranges_are_read_to_the_host() {
    let (device, queue) = device();
    let memory = on_device(&queue);
    let mut held = Vec::new();
    for range in scattered() {
        let bytes = read_while_gaps_stay_open(&device, Operation::Download, || memory.host(range.clone()));
        held.push((range, bytes));
        let (first, bytes) = &held[0];
        assert!(memory.valid_on(Location::Host, first.clone()));
        assert_eq!(*bytes, &pattern()[first.clone()]);
    }
    assert_all_valid(&memory, Location::Host);
    for (range, bytes) in held {
        assert_eq!(bytes, &pattern()[range.clone()]);
        assert_eq!(memory.host(range).unwrap().as_ptr(), bytes.as_ptr());
    }
    assert_eq!(memory.host(..).unwrap(), pattern());
    assert_eq!(memory.stats().downloads.bytes, LEN as u64, "each byte came once");
}

#[test]
fn a_token_stays_while_ranges_are_read_on_its_device() {
    let (device, queue) = device();
    let memory = SyncedMem::from(pattern());
    let held = memory.host(5..500).unwrap();
    crowd(&memory, &device, &queue);
    assert!(memory.stats().failures.count > 0, "gaps that could not be closed are counted");
    assert_all_valid(&memory, Location::Device(device.id()));
    assert_eq!(held, &pattern()[5..500]);
    assert_eq!(memory.host(..).unwrap().as_ptr(), held.as_ptr().wrapping_sub(5));
}

#[test]
fn a_token_stays_while_all_is_read_or_prefetched_to_the_host() {
    let reads: [fn(&SyncedMem); 3] = [
        |memory| drop(memory.host(..)),
        |memory| drop(memory.prefetch_host(..)),
        |memory| drop(memory.prefetch_host(3..9)),
    ];
    for read in reads {
        let (device, queue) = device();
        let memory = SyncedMem::from(pattern());
        crowd(&memory, &device, &queue);
        device.fail(Operation::Upload, 1, Fault::Refused);
        read(&memory);
        assert_all_valid(&memory, Location::Device(device.id()));
    }
}

#[test]
fn what_another_queue_delivered_stays_though_an_earlier_one_breaks() {
    let (one, first) = device();
    let second = one.sibling().queue().unwrap();
    let mut memory = SyncedMem::new(8);
    fill(&mut memory.device_overwrite(&first, ..).unwrap(), 1);
    memory.prefetch_host(0..4).unwrap();
    fill(&mut memory.device_overwrite(&second, 0..4).unwrap(), 2);
    let held = memory.host(0..4).unwrap();
    memory.prefetch_host(4..8).unwrap();
    break_queue(&first);
    let _ = memory.host(4..8);
    assert!(memory.valid_on(Location::Host, 0..4));
    assert_eq!(memory.host(0..4).unwrap().as_ptr(), held.as_ptr());
    assert_eq!(held, [2; 4]);
}
