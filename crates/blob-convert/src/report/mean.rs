//! The means of a mean image's channels, as for `mean_value` of a net's `transform_param`.

use blob_io::{Checkpoint, Format};

use crate::stats::measure_channels;
use crate::watch::Silent;

/// The bytes of the largest mean image that is read.
const LARGEST_IMAGE: u64 = 64 << 20;

/// The means of the channels of a mean image: a BlobProto of one, three or four channels, which Caffe subtracts from
/// images. `None` for any other file, and for one that cannot be read.
pub(super) fn mean_values(checkpoint: &Checkpoint) -> Option<Vec<f64>> {
    let ([image], Format::BlobProto) = (checkpoint.entries(), checkpoint.format()) else { return None };
    let (axis, sides) = match image.shape().dims() {
        [1, 1 | 3 | 4, sides @ ..] if sides.len() == 2 => (1, sides),
        [1 | 3 | 4, sides @ ..] if sides.len() == 2 => (0, sides),
        _ => return None,
    };
    if image.byte_len() > LARGEST_IMAGE || sides.iter().any(|side| *side < 2) {
        return None;
    }
    let channels = measure_channels(checkpoint, image, axis, None, &Silent).ok()?;
    channels.iter().map(|channel| channel.stats.mean).collect()
}
