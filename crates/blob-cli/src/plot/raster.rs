//! A picture in memory, and two ways to draw a tensor: as the filters of a convolution, or as an image.

use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use crate::elements::Value;
use crate::failure::Failure;

/// At most this many tiles are drawn, the first ones; more could not be told apart. A filter is one tile if its
/// channels are colours, otherwise one for each channel.
const MAX_TILES: usize = 1024;

/// The largest array that is loaded for a picture.
const MAX_BYTES: u64 = 256 << 20;

/// Smaller filters are enlarged until their longer side has at least this many pixels.
const MIN_TILE: usize = 24;

/// The colour of NaN and Inf; no finite value has it.
const NOT_FINITE: [u8; 3] = [255, 0, 255];

/// A picture: pixels of red, green, blue in row-major order.
pub(super) struct Raster {
    pub(super) width: usize,
    pub(super) pixels: Vec<[u8; 3]>,
}

/// The order of three colour channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelOrder {
    Bgr,
    Rgb,
}

impl ChannelOrder {
    /// The indices of the red, green and blue channel.
    fn channels(self) -> [usize; 3] {
        match self {
            Self::Bgr => [2, 1, 0],
            Self::Rgb => [0, 1, 2],
        }
    }
}

impl Raster {
    pub(super) fn height(&self) -> usize {
        self.pixels.len() / self.width.max(1)
    }

    /// The picture scaled down to at most this size; each pixel is the mean of a square of pixels.
    pub(super) fn shrunk(&self, columns: usize, rows: usize) -> Self {
        let height = self.height();
        let by = self.width.div_ceil(columns.max(1)).max(height.div_ceil(rows.max(1))).max(1);
        let (width, height) = (self.width / by.min(self.width.max(1)), height / by.min(height.max(1)));
        let mean = |x: usize, y: usize| {
            let mut sum = [0u64; 3];
            let rows = (y * by..(y + 1) * by).filter(|row| *row < self.height());
            let indices =
                rows.flat_map(|row| (x * by..((x + 1) * by).min(self.width)).map(move |at| row * self.width + at));
            let mut count = 0;
            for index in indices {
                count += 1;
                for (sum, channel) in sum.iter_mut().zip(self.pixels[index]) {
                    *sum += u64::from(channel);
                }
            }
            sum.map(|sum| (sum / count.max(1)) as u8)
        };
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| mean(x, y)).collect();
        Self { width, pixels }
    }
}

/// The colour of a value between the extremes: blue to white to red if both signs occur, else dark to light.
pub(super) fn colour(value: f64, (min, max): (f64, f64)) -> [u8; 3] {
    const SIGNED: [[f64; 3]; 3] = [[33.0, 102.0, 172.0], [247.0, 247.0, 247.0], [178.0, 24.0, 43.0]];
    const PLAIN: [[f64; 3]; 3] = [[68.0, 1.0, 84.0], [33.0, 145.0, 140.0], [253.0, 231.0, 37.0]];
    if !value.is_finite() {
        return NOT_FINITE;
    }
    let (stops, at) = match min < 0.0 && max > 0.0 {
        true => (SIGNED, 1.0 + value / max.max(-min)),
        false if max > min => (PLAIN, 2.0 * ((value - min) / (max - min))),
        false => (PLAIN, 0.0),
    };
    let at = at.clamp(0.0, 2.0);
    let from = (at as usize).min(1);
    let share = at - from as f64;
    std::array::from_fn(|i| (stops[from][i] + share * (stops[from + 1][i] - stops[from][i])).round() as u8)
}

/// Refuses an array without elements: the extents of its other axes can be of any size, and the picture as large.
pub(super) fn check_not_empty(entry: &Entry) -> Result<(), Failure> {
    match entry.dtype().is_some() && entry.shape().count() == 0 {
        true => Err(Failure::new(format!("{:?} has no values, and a picture at least one point", entry.name()))),
        false => Ok(()),
    }
}

/// Loads an array's values.
fn values(checkpoint: &Checkpoint, entry: &Entry) -> Result<Vec<f64>, Failure> {
    check_not_empty(entry)?;
    if entry.byte_len() > MAX_BYTES {
        let size = crate::units::bytes(entry.byte_len());
        let failure = Failure::new(format!("{:?} has {size}, which cannot be drawn as a picture", entry.name()));
        return Err(failure.help("--heatmap draws a tensor of any size"));
    }
    let dtype = checkpoint.array(entry)?.dtype;
    Ok(checkpoint.view(entry)?.chunks_exact(dtype.size()).map(|bytes| number(dtype, bytes)).collect())
}

/// An element as a number.
pub(super) fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match Value::read(dtype, bytes) {
        Value::Int(x) => x as f64,
        Value::Uint(x) => x as f64,
        Value::Single(x) => x.into(),
        Value::Double(x) => x,
        Value::Bool(x) => f64::from(u8::from(x)),
    }
}

/// The minimum and maximum of the finite values.
fn extremes(values: &[f64]) -> (f64, f64) {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(*value), max.max(*value)))
}

/// Draws filters N×C×H×W as tiles on one scale: in colour if they have three channels, else one grey tile per channel.
pub(super) fn filters(checkpoint: &Checkpoint, entry: &Entry, order: ChannelOrder) -> Result<Raster, Failure> {
    let [n, c, height, width] = *entry.shape().dims() else {
        let message = format!("{:?} is {}, and filters are N×C×H×W", entry.name(), entry.shape());
        return Err(Failure::new(message).help("--heatmap draws a tensor of any shape"));
    };
    let values = values(checkpoint, entry)?;
    let (min, max) = extremes(&values);
    let level = |value: f64| match value.is_finite() {
        true if max > min => Some(((value - min) / (max - min) * 255.0).round() as u8),
        true => Some(0),
        false => None,
    };
    let plane = height * width;
    let is_colour = c == 3;
    let tiles = if is_colour { n } else { n * c }.min(MAX_TILES);
    let across = (1..).find(|side| side * side >= tiles).unwrap_or(1).max(1);
    let scale = MIN_TILE.div_ceil(width.max(height).max(1)).max(1);
    let (tile_width, tile_height) = (width * scale + 1, height * scale + 1);
    let (whole_width, whole_height) = (across * tile_width + 1, tiles.div_ceil(across) * tile_height + 1);
    if whole_width.saturating_mul(whole_height) > 64 << 20 {
        let message = format!("{:?} is {}: these filters are too large for one picture", entry.name(), entry.shape());
        return Err(Failure::new(message));
    }
    let mut raster = Raster { width: whole_width, pixels: vec![[255; 3]; whole_width * whole_height] };
    for tile in 0..tiles {
        let (left, top) = (tile % across * tile_width + 1, tile / across * tile_height + 1);
        for pixel in 0..plane * scale * scale {
            let (x, y) = (pixel % (width * scale), pixel / (width * scale));
            let at = y / scale * width + x / scale;
            let channels = match is_colour {
                true => order.channels().map(|channel| level(values[(tile * 3 + channel) * plane + at])),
                false => [level(values[tile * plane + at]); 3],
            };
            raster.pixels[(top + y) * whole_width + left + x] = match channels {
                [Some(r), Some(g), Some(b)] => [r, g, b],
                _ => NOT_FINITE,
            };
        }
    }
    Ok(raster)
}

/// Draws an image C×H×W of one or three channels.
pub(super) fn image(checkpoint: &Checkpoint, entry: &Entry, order: ChannelOrder) -> Result<Raster, Failure> {
    let dims = entry.shape().dims();
    let first = dims.len().saturating_sub(3);
    let (channels, height, width) = match dims {
        [height, width] => (1, *height, *width),
        [.., c @ (1 | 3), height, width] if dims[..first].iter().all(|extent| *extent == 1) => (*c, *height, *width),
        _ => {
            let message =
                format!("{:?} is {}, and an image is C×H×W with one or three channels", entry.name(), entry.shape());
            return Err(Failure::new(message).help("--filters draws N×C×H×W, --heatmap any shape"));
        }
    };
    let values = values(checkpoint, entry)?;
    let (min, max) = extremes(&values);
    // Values from 0 to 255 are drawn as they are. Others are scaled, and so are values of at most 1: fractions.
    let is_bytes = min >= 0.0 && max <= 255.0 && max > 1.0;
    let level = |value: f64| match is_bytes {
        true => value.round() as u8,
        false if max > min => ((value - min) / (max - min) * 255.0).round() as u8,
        false => 0,
    };
    let plane = height * width;
    let pixels = (0..plane).map(|at| {
        let values = match channels {
            3 => order.channels().map(|channel| values[channel * plane + at]),
            _ => [values[at]; 3],
        };
        if values.iter().all(|value| value.is_finite()) { values.map(level) } else { NOT_FINITE }
    });
    Ok(Raster { width, pixels: pixels.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_shows_sign_and_magnitude() {
        assert_eq!(colour(-2.0, (-2.0, 1.0)), [33, 102, 172]);
        assert_eq!(colour(0.0, (-2.0, 1.0)), [247; 3]);
        assert_eq!(colour(2.0, (-1.0, 2.0)), [178, 24, 43]);
        assert_eq!(colour(5.0, (5.0, 9.0)), [68, 1, 84]);
        assert_eq!(colour(9.0, (5.0, 9.0)), [253, 231, 37]);
        assert_eq!(colour(5.0, (5.0, 5.0)), [68, 1, 84]);
        assert_eq!(colour(f64::NAN, (0.0, 1.0)), NOT_FINITE);
        assert_eq!(colour(0.0, (f64::INFINITY, f64::NEG_INFINITY)), [68, 1, 84]);
    }

    #[test]
    fn a_shrunk_picture_has_the_means() {
        let raster = Raster { width: 4, pixels: (0..16).map(|i| [i as u8 * 10; 3]).collect() };
        let small = raster.shrunk(2, 9);
        assert_eq!((small.width, small.height()), (2, 2));
        assert_eq!(small.pixels, [[25; 3], [45; 3], [105; 3], [125; 3]]);
        assert_eq!(raster.shrunk(9, 9).pixels, raster.pixels);
        assert_eq!(Raster { width: 0, pixels: Vec::new() }.shrunk(2, 2).height(), 0);
        assert_eq!(Raster { width: 100, pixels: vec![[1; 3]; 100] }.shrunk(10, 10).height(), 1);
    }
}
