//! Scattered accesses move what they touch: at most twice as many bytes, for up to 256 ranges.

use std::ops::Range;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Location, SharedMem, Stats, SyncedMem};

use super::{break_queue, device, fill};

const ROW: usize = 64;
const ROWS: usize = 4096;
const LEN: usize = ROW * ROWS;

/// Rows of a table, far from each other and in no order.
fn rows(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).map(|n| {
        let row = (n * 1_021) % ROWS;
        ROW * row..ROW * row + ROW
    })
}

fn moved(stats: &Stats) -> u64 {
    let kinds = [stats.uploads, stats.downloads, stats.device_copies];
    kinds.iter().map(|traffic| traffic.bytes).sum()
}

const COUNTS: [usize; 6] = [1, 16, 17, 64, 255, 256];

#[test]
fn rows_read_on_the_host_bring_themselves() {
    for count in COUNTS {
        let (_device, queue) = device();
        let mut owned = SyncedMem::new(LEN);
        fill(&mut owned.device_overwrite(&queue, ..).unwrap(), 6);
        let shared = SharedMem::new(LEN);
        fill(&mut shared.device_overwrite(&queue, 0..LEN).unwrap(), 6);
        let mut held = Vec::new();
        for row in rows(count) {
            assert_eq!(owned.host(row.clone()).unwrap(), [6; ROW]);
            held.push(shared.host(row).unwrap());
        }
        let touched = (count * ROW) as u64;
        for stats in [owned.stats(), shared.stats()] {
            assert!(moved(&stats) <= 2 * touched, "{count} rows: {stats:?}");
        }
        assert!(held.iter().all(|row| row[..] == [6; ROW]));
    }
}

#[test]
fn rows_read_on_a_device_bring_themselves() {
    for count in COUNTS {
        let (_device, queue) = device();
        let memory = SharedMem::from(vec![6; LEN]);
        for row in rows(count) {
            super::expect(&memory.device(&queue, row).unwrap(), 6);
        }
        queue.synchronize().unwrap();
        let (stats, touched) = (memory.stats(), (count * ROW) as u64);
        assert!(moved(&stats) <= 2 * touched, "{count} rows: {stats:?}");
    }
}

#[test]
fn rows_written_on_the_host_bring_nothing_else_back() {
    for count in COUNTS {
        let (_device, queue) = device();
        let memory = SharedMem::new(LEN);
        fill(&mut memory.device_overwrite(&queue, 0..LEN).unwrap(), 6);
        for row in rows(count) {
            memory.host_mut(row).unwrap().fill(7);
        }
        let (back, touched) = (moved(&memory.stats()), (count * ROW) as u64);
        assert!(back <= 2 * touched, "{count} rows: {back} bytes brought back");
        drop(memory.device(&queue, 0..LEN).unwrap());
        let there = moved(&memory.stats()) - back;
        assert!(there <= 2 * touched, "{count} rows: {there} bytes to the device");
        assert_eq!(memory.host(0..ROW).unwrap()[..], [7; ROW]);
    }
}

/// How many ranges are valid at a place.
fn ranges(len: usize, is_valid: impl Fn(Range<usize>) -> bool) -> usize {
    let valid = |cell: usize| is_valid(cell..cell + 1);
    (0..len).filter(|cell| valid(*cell) && (*cell == 0 || !valid(*cell - 1))).count()
}

#[test]
fn the_bound_gives_up_nothing_for_bytes_that_are_on_their_way() {
    let (device, queue) = device();
    let writer = device.queue().unwrap();
    let memory = SharedMem::new(96);
    fill(&mut memory.device_overwrite(&writer, 0..96).unwrap(), 7);
    writer.synchronize().unwrap();
    // The home is the broken queue from now on.
    drop(memory.device(&queue, 0..1).unwrap());
    break_queue(&queue);
    memory.prefetch_host(0..2).unwrap();
    let written = (0..20).map(|i| 2 + 3 * i..3 + 3 * i);
    let guards: Vec<_> = written.map(|range| memory.host_overwrite(range).unwrap()).collect();
    let place = Location::Device(device.id());
    assert!(memory.valid_on(place, 0..2));
    drop(guards);
}

#[test]
fn prefetching_and_evicting_piece_by_piece_keep_the_bound() {
    let device = Loopback::new(Mode::Immediate);
    let queue = device.queue().unwrap();
    let shared = SharedMem::new(400);
    drop(shared.device_mut(&queue, 0..400).unwrap());
    let mut owned = SyncedMem::from(vec![1; 400]);
    owned.device(&queue, ..).unwrap();
    let place = Location::Device(device.id());
    for start in (0..400).step_by(4) {
        shared.prefetch_host(start..start + 1).unwrap();
        owned.evict(place, start..start + 1).unwrap();
    }
    assert!(ranges(400, |range| shared.valid_on(Location::Host, range)) <= 16);
    assert!(ranges(400, |range| owned.valid_on(place, range)) <= 16);
}
