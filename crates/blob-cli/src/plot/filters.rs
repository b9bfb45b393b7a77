//! Draws a tensor that fits in memory: as the filters of a convolution, or as an image.

use blob_convert::report::elements::Value;
use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use super::raster::{Colours, NOT_FINITE, Picture, Raster, Scale, extremes};
use crate::failure::Failure;
use crate::units;

/// At most this many tiles are drawn, the first ones; more could not be told apart. A filter is one tile if its
/// channels are colours, otherwise one for each channel.
const MAX_TILES: usize = 1024;

/// The largest array that is loaded for a picture.
const MAX_BYTES: u64 = 256 << 20;

/// The most points of a picture.
const MAX_POINTS: usize = 64 << 20;

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

/// Refuses an array without elements: the extents of the other axes can be of any size, and the picture as large.
pub(super) fn check_not_empty(entry: &Entry) -> Result<(), Failure> {
    if entry.dtype().is_some() && entry.shape().count() == 0 {
        return Err(Failure::new(format!("{:?} has no values, and a picture at least one point", entry.name())));
    }
    Ok(())
}

/// Loads an array's values.
fn values(checkpoint: &Checkpoint, entry: &Entry) -> Result<Vec<f64>, Failure> {
    check_not_empty(entry)?;
    if entry.byte_len() > MAX_BYTES {
        let size = units::bytes(entry.byte_len());
        let failure = Failure::new(format!("{:?} has {size}, which cannot be drawn as a picture", entry.name()));
        return Err(failure.help("--heatmap draws a tensor of any size"));
    }
    let (needed, allowed) = (entry.shape().count() as u64 * size_of::<f64>() as u64, checkpoint.limits().max_alloc);
    if needed > allowed {
        let (needed, allowed) = (units::bytes(needed), units::bytes(allowed));
        let failure = Failure::new(format!("{:?} takes {needed} to draw: --max-alloc allows {allowed}", entry.name()));
        return Err(failure.help("--heatmap draws a tensor of any size"));
    }
    let dtype = checkpoint.spec(entry)?.dtype;
    Ok(checkpoint.view(entry)?.chunks_exact(dtype.size()).map(|bytes| number(dtype, bytes)).collect())
}

/// Refuses a picture of more than [`MAX_POINTS`].
fn check_points(entry: &Entry, width: usize, height: usize) -> Result<(), Failure> {
    if width.saturating_mul(height) <= MAX_POINTS {
        return Ok(());
    }
    Err(Failure::new(format!("{:?} is {}, which is too large for one picture", entry.name(), entry.shape())))
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

/// The colour of one or three channels; not finite if one of them is not.
fn colour(scale: &Scale, channels: [f64; 3]) -> Option<[u8; 3]> {
    let all_finite = channels.iter().all(|value| value.is_finite());
    Some(if all_finite { channels.map(|value| scale.colour(value)[0]) } else { NOT_FINITE })
}

/// Draws filters N×C×H×W as tiles on one scale, with a gap of one point between them: in colour if they have three
/// channels, else one grey tile per channel.
pub(super) fn filters(checkpoint: &Checkpoint, entry: &Entry, order: ChannelOrder) -> Result<Picture, Failure> {
    let [n, c, height, width] = *entry.shape().dims() else {
        let message = format!("{:?} is {}, and filters are N×C×H×W", entry.name(), entry.shape());
        return Err(Failure::new(message).help("--heatmap draws a tensor of any shape"));
    };
    let values = values(checkpoint, entry)?;
    let scale = Scale::grey(&values);
    let plane = height * width;
    let is_colour = c == 3;
    let all_tiles = if is_colour { n } else { n * c };
    let tiles = all_tiles.min(MAX_TILES);
    let across = (1..).find(|side| side * side >= tiles).unwrap_or(1).max(1);
    let (whole_width, whole_height) = (across * (width + 1) + 1, tiles.div_ceil(across) * (height + 1) + 1);
    check_points(entry, whole_width, whole_height)?;
    let mut raster = Raster { width: whole_width, pixels: vec![None; whole_width * whole_height] };
    for tile in 0..tiles {
        let (left, top) = (tile % across * (width + 1) + 1, tile / across * (height + 1) + 1);
        for at in 0..plane {
            let channels = if is_colour {
                order.channels().map(|channel| values[(tile * 3 + channel) * plane + at])
            } else {
                [values[tile * plane + at]; 3]
            };
            raster.pixels[(top + at / width) * whole_width + left + at % width] = colour(&scale, channels);
        }
    }
    let noun = if is_colour { "filter" } else { "plane" };
    let mut notes = Vec::new();
    if tiles < all_tiles {
        notes.push(format!("the first {} of {}", units::grouped(tiles as u64), units::plural(all_tiles as u64, noun)));
    }
    Ok(Picture { raster, scale, beyond: 0, notes })
}

/// Draws an image C×H×W of one or three channels.
pub(super) fn image(checkpoint: &Checkpoint, entry: &Entry, order: ChannelOrder) -> Result<Picture, Failure> {
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
    check_points(entry, width, height)?;
    let values = values(checkpoint, entry)?;
    let (min, max) = extremes(&values);
    // Values from 0 to 255 are drawn as they are. Others are scaled, and so are values of at most 1: fractions.
    let is_bytes = min >= 0.0 && max <= 255.0 && max > 1.0;
    let scale = if is_bytes { Scale { low: 0.0, high: 255.0, colours: Colours::Grey } } else { Scale::grey(&values) };
    let plane = height * width;
    let pixels = (0..plane).map(|at| {
        let channels = match channels {
            3 => order.channels().map(|channel| values[channel * plane + at]),
            _ => [values[at]; 3],
        };
        colour(&scale, channels)
    });
    let raster = Raster { width, pixels: pixels.collect() };
    Ok(Picture { raster, scale, beyond: 0, notes: Vec::new() })
}
