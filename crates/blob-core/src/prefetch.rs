//! Bringing the data of several blobs to a device before they are needed. Relies on `View::upload` for each.

use std::sync::Arc;

use synced_mem::Queue;

use crate::blob::AnyBlob;
use crate::error::Error;

/// Starts bringing the data of blobs to the queue's device, in order, as many as take `ahead` bytes together; one at
/// least, where there is one. Returns how many blobs that are. Bytes that are there already count, and move no more.
///
/// A loop over layers calls it with the layers to come, on a queue of its own: the reads and transfers of the next
/// layers go on beside the work on this one. Below a [`Budget`](synced_mem::Budget), `ahead` and the layer that is
/// worked on have to fit into the budget together.
///
/// ```
/// use blob_core::{AnyBlob, DType, Shape, prefetch};
/// use synced_mem::Device;
/// use synced_mem::loopback::{Loopback, Mode};
///
/// let queue = Loopback::new(Mode::Deferred).queue()?;
/// let layers = [(); 3].map(|()| AnyBlob::from_vec(Shape::new([4])?, DType::U8, vec![7; 4]));
/// let layers = layers.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(prefetch(&layers, &queue, 9)?, 2);
/// # Ok::<(), blob_core::Error>(())
/// ```
///
/// # Errors
/// As [`View::device`](crate::View::device).
pub fn prefetch<'a>(
    blobs: impl IntoIterator<Item = &'a AnyBlob>,
    queue: &Arc<dyn Queue>,
    ahead: usize,
) -> Result<usize, Error> {
    let (mut count, mut bytes) = (0, 0_usize);
    for blob in blobs {
        bytes = bytes.saturating_add(blob.byte_len());
        if count > 0 && bytes > ahead {
            break;
        }
        blob.upload(queue)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use synced_mem::loopback::{Loopback, Mode};
    use synced_mem::{Device, Location};

    use super::*;
    use crate::{DType, Part, Shape};

    #[test]
    fn as_many_blobs_come_as_fit_and_one_at_least() {
        let device = Loopback::new(Mode::Deferred);
        let (queue, place) = (device.queue().unwrap(), Location::Device(device.id()));
        let blobs = || {
            [8, 8, 1, 100].map(|len| AnyBlob::from_vec(Shape::new([len]).unwrap(), DType::U8, vec![1; len]).unwrap())
        };
        for (ahead, wanted) in [(0, 1), (15, 1), (16, 2), (17, 3), (116, 3), (117, 4), (usize::MAX, 4)] {
            let blobs = blobs();
            assert_eq!(prefetch(&blobs, &queue, ahead).unwrap(), wanted, "{ahead}");
            let there: Vec<_> = blobs.iter().map(|blob| blob.memory(Part::Data).valid_on(place, ..)).collect();
            assert_eq!(there, [true, wanted > 1, wanted > 2, wanted > 3]);
        }
        assert_eq!(prefetch([], &queue, 9).unwrap(), 0);
    }
}
