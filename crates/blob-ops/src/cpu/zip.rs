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
