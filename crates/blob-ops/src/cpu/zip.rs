//! Interleaving: from N rows of entries to one row of N-tuples, and back. Small merges, splits, and NCHW to NHWC are
//! these.
//!
//! ```text
//! zip:   row[i] = (part0[i], part1[i], …)            unzip: (part0[i], part1[i], …) = row[i]
//! ```
//! Written for the vectoriser, which makes shuffles of loops whose N and width it knows.

/// `row[i][k] = parts[k][i]`, as many as `row` holds.
#[inline(always)]
pub(crate) fn zip<const W: usize, const N: usize>(parts: [&[u8]; N], row: &mut [u8]) {
    let row = row.as_chunks_mut::<W>().0.as_chunks_mut::<N>().0;
    let parts = parts.map(|part| &part.as_chunks::<W>().0[..row.len()]);
    for (i, tuple) in row.iter_mut().enumerate() {
        for k in 0..N {
            tuple[k] = parts[k][i];
        }
    }
}

/// `parts[k][i] = row[i][k]`, as many as `row` holds.
#[inline(always)]
pub(crate) fn unzip<const W: usize, const N: usize>(row: &[u8], parts: [&mut [u8]; N]) {
    let row = row.as_chunks::<W>().0.as_chunks::<N>().0;
    let parts = parts.map(|part| &mut part.as_chunks_mut::<W>().0[..row.len()]);
    for (i, tuple) in row.iter().enumerate() {
        for k in 0..N {
            parts[k][i] = tuple[k];
        }
    }
}

/// Tuples that [`unzip_short`] takes apart in a loop of known length.
const TUPLES: usize = 16;

/// As [`unzip`], where the rows are short: the vectoriser's loop takes those of less than 64 entries one by one. f32
/// over memcpy's time, this way and the other: B (5, 6), rows of 64 entries, 1.3 and 1.5, but B (0, 6), long rows, 2.3
/// and 1.7 (AMD EPYC Zen 4, 256 MiB); B (5, 6) 1.02 and 1.40 (Intel Xeon, AVX-512, 128 MiB).
#[inline(always)]
pub(crate) fn unzip_short<const W: usize, const N: usize>(row: &[u8], parts: [&mut [u8]; N]) {
    let row = row.as_chunks::<W>().0.as_chunks::<N>().0;
    let parts = parts.map(|part| &mut part.as_chunks_mut::<W>().0[..row.len()]);
    let (blocks, rest) = row.as_chunks::<TUPLES>();
    for (block, tuples) in blocks.iter().enumerate() {
        for k in 0..N {
            let part: &mut [[u8; W]; TUPLES] =
                parts[k][block * TUPLES..].first_chunk_mut().expect("as long as the row");
            for i in 0..TUPLES {
                part[i] = tuples[i][k];
            }
        }
    }
    let done = row.len() - rest.len();
    for (i, tuple) in rest.iter().enumerate() {
        for k in 0..N {
            parts[k][done + i] = tuple[k];
        }
    }
}
