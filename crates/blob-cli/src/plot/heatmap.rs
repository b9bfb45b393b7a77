//! Draws a heat map of a tensor of any size: the values are streamed, and each pixel is the mean of a block.

use blob_convert::{Watch, Watched};
use blob_io::{Checkpoint, Entry};

use super::filters::{check_not_empty, number};
use super::raster::{Picture, Raster, Scale, extremes};
use crate::failure::Failure;
use crate::units;

/// The bytes read at once.
const PIECE: usize = 256 << 10;

/// Draws the tensor as a matrix of at most `most.0` columns and `most.1` rows.
///
/// A point with a value that is not finite shows that, whatever the other values are.
pub(super) fn heatmap(
    checkpoint: &Checkpoint,
    entry: &Entry,
    most: (usize, usize),
    watch: &dyn Watch,
) -> Result<Picture, Failure> {
    let dtype = checkpoint.spec(entry)?.dtype;
    check_not_empty(entry)?;
    let (rows, columns) = matrix(entry.shape().dims());
    let (across, down) = (columns.div_ceil(most.0).max(1), rows.div_ceil(most.1).max(1));
    let (width, height) = (columns.div_ceil(across), rows.div_ceil(down));
    let mut cells = vec![(0.0f64, 0u32); width * height];
    let (mut row, mut column) = (0, 0);
    Watched::open(checkpoint, entry, watch)?.each(PIECE, |bytes| {
        for element in bytes.chunks_exact(dtype.size()) {
            let value = number(dtype, element);
            let cell = &mut cells[row / down * width + column / across];
            *cell = (cell.0 + if value.is_finite() { value } else { f64::NAN }, cell.1 + 1);
            column += 1;
            if column == columns {
                (row, column) = (row + 1, 0);
            }
        }
        Ok(())
    })?;
    let means: Vec<f64> = cells.iter().map(|(sum, count)| sum / f64::from(*count)).collect();
    let scale = Scale::clipped(&means);
    let beyond = means.iter().filter(|mean| scale.is_beyond(**mean)).count();
    let raster = Raster { width, pixels: means.iter().map(|mean| Some(scale.colour(*mean))).collect() };
    Ok(Picture { raster, scale, beyond, notes: notes(across * down, beyond, &means) })
}

/// Facts that the colours do not show: points are means, and some values lie beyond the scale.
fn notes(values_per_point: usize, beyond: usize, means: &[f64]) -> Vec<String> {
    let mut notes = Vec::new();
    if values_per_point > 1 {
        notes.push(format!("each point is the mean of {} values", units::grouped(values_per_point as u64)));
    }
    if beyond > 0 {
        let (min, max) = extremes(means);
        let share = units::share(beyond as u64, means.len() as u64);
        let (min, max) = (units::number(min), units::number(max));
        notes.push(format!("{share} of the points are beyond the scale; all lie between {min} and {max}"));
    }
    notes
}

/// The rows and columns of the matrix: the first axis longer than 1, and all axes behind.
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
