//! Scattered accesses move what they touch: at most twice as many bytes, for up to 256 ranges.

use std::ops::Range;

use synced_mem::{SharedMem, Stats, SyncedMem};

use super::{device, fill};

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
    let kinds = [stats.uploads(), stats.downloads(), stats.device_copies()];
    kinds.iter().map(|traffic| traffic.bytes()).sum()
}

const COUNTS: [usize; 6] = [1, 16, 17, 64, 255, 256];

#[test]
fn rows_read_on_the_host_bring_themselves() {
    for count in COUNTS {
        let (_device, queue) = device();
        let mut owned = SyncedMem::new(LEN);
        fill(&mut owned.device_overwrite(&queue).unwrap(), 6);
        let shared = SharedMem::new(LEN);
        fill(&mut shared.device_overwrite(&queue, 0..LEN).unwrap(), 6);
        let mut held = Vec::new();
        for row in rows(count) {
            assert_eq!(owned.host_range(row.clone()).unwrap(), [6; ROW]);
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
        let memory = SharedMem::from_vec(vec![6; LEN]);
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
