//! Computes the cost of an access from the addresses of the threads that take part.

use crate::setup::Traffic;

/// The bytes of a sector, the unit of transfers from global memory.
const SECTOR: u64 = 32;
const BANKS: usize = 32;
const BANK_BYTES: u64 = 4;
/// The bytes that shared memory serves in one transaction.
const SHARED_BYTES: usize = 128;

/// Counts one access to global memory. Each address is aligned to the access's length, so accesses never overlap
/// partially, and each is within one sector.
pub(super) fn note_global(traffic: &mut Traffic, addresses: &mut [u64], len: usize) {
    traffic.accesses += addresses.len() as u64;
    traffic.bytes += (addresses.len() * len) as u64;
    addresses.sort_unstable();
    let (mut address, mut sector) = (None, None);
    for each in addresses.iter() {
        traffic.distinct += if address == Some(*each) { 0 } else { len as u64 };
        traffic.sectors += u64::from(sector != Some(*each / SECTOR));
        (address, sector) = (Some(*each), Some(*each / SECTOR));
    }
}

/// The number of transactions in which shared memory serves one access. Each bank serves one word at a time, and wide
/// accesses are split into halves or quarters of a warp.
pub(super) fn bank_conflict(addresses: &[u64], len: usize) -> u64 {
    let group = SHARED_BYTES / len.max(BANK_BYTES as usize);
    let parts = addresses.chunks(group).map(|addresses| {
        let mut words: Vec<u64> = addresses
            .iter()
            .flat_map(|address| address / BANK_BYTES..(address + len as u64).div_ceil(BANK_BYTES))
            .collect();
        words.sort_unstable();
        words.dedup();
        let mut banks = [0; BANKS];
        for word in words {
            banks[word as usize % BANKS] += 1;
        }
        banks.into_iter().max().unwrap_or_default()
    });
    parts.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Efficiency of 32 threads, each at a multiple of a distance.
    fn efficiency(distance: u64, len: usize) -> f64 {
        let mut traffic = Traffic::default();
        let mut addresses: Vec<u64> = (0..32).map(|lane| 256 + lane * distance).collect();
        note_global(&mut traffic, &mut addresses, len);
        traffic.efficiency()
    }

    #[test]
    fn sectors_of_rows_and_columns() {
        assert_eq!([efficiency(4, 4), efficiency(16, 16), efficiency(1, 1), efficiency(2, 2)], [1.0; 4]);
        assert_eq!(
            [efficiency(8, 4), efficiency(128, 4), efficiency(128, 16), efficiency(4, 1)],
            [0.5, 0.125, 0.5, 0.25]
        );
        // All threads read the same word: one sector, 4 bytes of it.
        assert_eq!(efficiency(0, 4), 0.125);
    }

    #[test]
    fn banks_of_rows_and_columns() {
        let conflict =
            |distance: u64, len| bank_conflict(&(0..32).map(|lane| lane * distance).collect::<Vec<_>>(), len);
        assert_eq!([conflict(4, 4), conflict(8, 8), conflict(16, 16), conflict(1, 1), conflict(0, 4)], [1; 5]);
        assert_eq!([conflict(132, 4), conflict(128, 4), conflict(8, 4), conflict(128, 16)], [1, 32, 2, 8]);
    }
}
