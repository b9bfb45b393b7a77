//! Points of colours, and what of a tensor becomes them: the filters of a convolution, an image.

use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use crate::elements::Value;
use crate::failure::Failure;

/// More squares than this are not seen; the first ones are shown.
const MOST_TILES: usize = 1024;

/// The largest array that is held for a picture.
const MOST_BYTES: u64 = 256 << 20;

/// A filter's side in points, at least, where that keeps the picture small.
const TILE: usize = 24;

/// What is not finite: no value has it.
const ODD: [u8; 3] = [255, 0, 255];

/// A picture: rows of red, green, blue.
pub(super) struct Raster {
    pub(super) width: usize,
    pub(super) points: Vec<[u8; 3]>,
}

/// How three channels lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Bgr,
    Rgb,
}

impl Order {
    /// The channels of red, green and blue.
    fn channels(self) -> [usize; 3] {
        match self {
            Self::Bgr => [2, 1, 0],
            Self::Rgb => [0, 1, 2],
        }
    }
}

impl Raster {
    pub(super) fn height(&self) -> usize {
        self.points.len() / self.width.max(1)
    }

    /// The same with no more points than fit; each the mean of those in its place.
    pub(super) fn within(&self, columns: usize, rows: usize) -> Self {
        let height = self.height();
        let by = self.width.div_ceil(columns.max(1)).max(height.div_ceil(rows.max(1))).max(1);
        let (width, height) = (self.width / by.min(self.width.max(1)), height / by.min(height.max(1)));
        let mean = |x: usize, y: usize| {
            let mut sum = [0u64; 3];
            let rows = (y * by..(y + 1) * by).filter(|row| *row < self.height());
            let places =
                rows.flat_map(|row| (x * by..((x + 1) * by).min(self.width)).map(move |at| row * self.width + at));
            let mut count = 0;
            for place in places {
                count += 1;
                for (sum, part) in sum.iter_mut().zip(self.points[place]) {
                    *sum += u64::from(part);
                }
            }
            sum.map(|sum| (sum / count.max(1)) as u8)
        };
        let points = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| mean(x, y)).collect();
        Self { width, points }
    }
}

/// The colour of a value between the extremes: where both signs occur blue to white to red, else dark to light.
pub(super) fn colour(value: f64, (min, max): (f64, f64)) -> [u8; 3] {
    const SIGNED: [[f64; 3]; 3] = [[33.0, 102.0, 172.0], [247.0, 247.0, 247.0], [178.0, 24.0, 43.0]];
    const PLAIN: [[f64; 3]; 3] = [[68.0, 1.0, 84.0], [33.0, 145.0, 140.0], [253.0, 231.0, 37.0]];
    if !value.is_finite() {
        return ODD;
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

/// Refuses an array without values: its other extents may be of any size.
pub(super) fn holds_values(entry: &Entry) -> Result<(), Failure> {
    match entry.dtype().is_some() && entry.shape().count() == 0 {
        true => Err(Failure::new(format!("{:?} has no values, and a picture at least one point", entry.name()))),
        false => Ok(()),
    }
}

/// An array's values.
fn values(checkpoint: &Checkpoint, entry: &Entry) -> Result<Vec<f64>, Failure> {
    holds_values(entry)?;
    if entry.byte_len() > MOST_BYTES {
        let size = crate::units::bytes(entry.byte_len());
        let failure = Failure::new(format!("{:?} has {size}, which is no picture", entry.name()));
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

/// The least and the greatest finite value.
fn extremes(values: &[f64]) -> (f64, f64) {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(*value), max.max(*value)))
}

/// The filters N×C×H×W, all on one scale: three channels are a colour, of others each is a grey square.
pub(super) fn filters(checkpoint: &Checkpoint, entry: &Entry, order: Order) -> Result<Raster, Failure> {
    let [n, c, height, width] = *entry.shape().dims() else {
        let message = format!("{:?} is {}, and filters are N×C×H×W", entry.name(), entry.shape());
        return Err(Failure::new(message).help("--heatmap draws a tensor of any shape"));
    };
    let values = values(checkpoint, entry)?;
    let (min, max) = extremes(&values);
    let grey = |value: f64| match value.is_finite() {
        true if max > min => Some(((value - min) / (max - min) * 255.0).round() as u8),
        true => Some(0),
        false => None,
    };
    let plane = height * width;
    let is_colour = c == 3;
    let tiles = if is_colour { n } else { n * c }.min(MOST_TILES);
    let across = (1..).find(|side| side * side >= tiles).unwrap_or(1).max(1);
    let scale = TILE.div_ceil(width.max(height).max(1)).max(1);
    let (tile_width, tile_height) = (width * scale + 1, height * scale + 1);
    let (whole_width, whole_height) = (across * tile_width + 1, tiles.div_ceil(across) * tile_height + 1);
    if whole_width.saturating_mul(whole_height) > 64 << 20 {
        let message = format!("{:?} is {}: these filters are too large for one picture", entry.name(), entry.shape());
        return Err(Failure::new(message));
    }
    let mut raster = Raster { width: whole_width, points: vec![[255; 3]; whole_width * whole_height] };
    for tile in 0..tiles {
        let (left, top) = (tile % across * tile_width + 1, tile / across * tile_height + 1);
        for place in 0..plane * scale * scale {
            let (x, y) = (place % (width * scale), place / (width * scale));
            let at = y / scale * width + x / scale;
            let point = match is_colour {
                true => order.channels().map(|channel| grey(values[(tile * 3 + channel) * plane + at])),
                false => [grey(values[tile * plane + at]); 3],
            };
            let [Some(r), Some(g), Some(b)] = point else {
                raster.points[(top + y) * whole_width + left + x] = ODD;
                continue;
            };
            raster.points[(top + y) * whole_width + left + x] = [r, g, b];
        }
    }
    Ok(raster)
}

/// An image of one or three channels, each in a plane.
pub(super) fn image(checkpoint: &Checkpoint, entry: &Entry, order: Order) -> Result<Raster, Failure> {
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
    // Values beyond a byte's are no grey levels; up to 1 they are shares.
    let is_bytes = min >= 0.0 && max <= 255.0 && max > 1.0;
    let level = |value: f64| match is_bytes {
        true => value.round() as u8,
        false if max > min => ((value - min) / (max - min) * 255.0).round() as u8,
        false => 0,
    };
    let plane = height * width;
    let points = (0..plane).map(|at| {
        let values = match channels {
            3 => order.channels().map(|channel| values[channel * plane + at]),
            _ => [values[at]; 3],
        };
        if values.iter().all(|value| value.is_finite()) { values.map(level) } else { ODD }
    });
    Ok(Raster { width, points: points.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_tells_sign_and_size() {
        assert_eq!(colour(-2.0, (-2.0, 1.0)), [33, 102, 172]);
        assert_eq!(colour(0.0, (-2.0, 1.0)), [247; 3]);
        assert_eq!(colour(2.0, (-1.0, 2.0)), [178, 24, 43]);
        assert_eq!(colour(5.0, (5.0, 9.0)), [68, 1, 84]);
        assert_eq!(colour(9.0, (5.0, 9.0)), [253, 231, 37]);
        assert_eq!(colour(5.0, (5.0, 5.0)), [68, 1, 84]);
        assert_eq!(colour(f64::NAN, (0.0, 1.0)), ODD);
        assert_eq!(colour(0.0, (f64::INFINITY, f64::NEG_INFINITY)), [68, 1, 84]);
    }

    #[test]
    fn a_smaller_picture_has_the_means() {
        let raster = Raster { width: 4, points: (0..16).map(|i| [i as u8 * 10; 3]).collect() };
        let small = raster.within(2, 9);
        assert_eq!((small.width, small.height()), (2, 2));
        assert_eq!(small.points, [[25; 3], [45; 3], [105; 3], [125; 3]]);
        assert_eq!(raster.within(9, 9).points, raster.points);
        assert_eq!(Raster { width: 0, points: Vec::new() }.within(2, 2).height(), 0);
        assert_eq!(Raster { width: 100, points: vec![[1; 3]; 100] }.within(10, 10).height(), 1);
    }
}
