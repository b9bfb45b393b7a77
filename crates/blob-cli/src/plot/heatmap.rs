//! Draws a heat map of a tensor of any size: the values are streamed, and each pixel is the mean of a block of them.

use blob_convert::{Watch, Watched};
use blob_io::{Checkpoint, Entry};

use super::raster::{Raster, check_not_empty, colour, number};
use crate::failure::Failure;

/// The bytes read at once.
const PIECE: usize = 256 << 10;

/// Draws the tensor as a matrix of at most `most.0` columns and `most.1` rows.
pub(super) fn heatmap(
    checkpoint: &Checkpoint,
    entry: &Entry,
    most: (usize, usize),
    watch: &dyn Watch,
) -> Result<Raster, Failure> {
    let dtype = checkpoint.array(entry)?.dtype;
    check_not_empty(entry)?;
    let (rows, columns) = matrix(entry.shape().dims());
    let (across, down) = (columns.div_ceil(most.0).max(1), rows.div_ceil(most.1).max(1));
    let (width, height) = (columns.div_ceil(across), rows.div_ceil(down));
    let mut cells = vec![(0.0f64, 0u32); width * height];
    let (mut row, mut column) = (0, 0);
    Watched::open(checkpoint, entry, watch)?.each(PIECE, |bytes| {
        for element in bytes.chunks_exact(dtype.size()) {
            let value = number(dtype, element);
            if value.is_finite() {
                let cell = &mut cells[row / down * width + column / across];
                *cell = (cell.0 + value, cell.1 + 1);
            }
            column += 1;
            if column == columns {
                (row, column) = (row + 1, 0);
            }
        }
        Ok(())
    })?;
    let means: Vec<f64> = cells.iter().map(|(sum, count)| sum / f64::from(*count)).collect();
    let finite = means.iter().filter(|mean| mean.is_finite());
    let extremes = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), x| (min.min(*x), max.max(*x)));
    Ok(Raster { width, pixels: means.iter().map(|mean| colour(*mean, extremes)).collect() })
}

/// The rows and columns of the matrix: the first axis longer than 1, and all axes after it.
fn matrix(dims: &[usize]) -> (usize, usize) {
    let squeezed: Vec<usize> = dims.iter().copied().filter(|extent| *extent != 1).collect();
    match &squeezed[..] {
        [] => (1, 1),
        [one] => (1, *one),
        [rows, others @ ..] => (*rows, others.iter().product()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_length_1_are_ignored() {
        for (dims, expected) in
            [(&[][..], (1, 1)), (&[7], (1, 7)), (&[1, 1, 20, 3], (20, 3)), (&[4, 1, 3, 2], (4, 6)), (&[0, 3], (0, 3))]
        {
            assert_eq!(matrix(dims), expected, "{dims:?}");
        }
    }
}
