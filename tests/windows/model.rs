//! Compares windows of random blobs with a model that is a plain vector of the blob's bytes. It relies on the
//! strategies of `blob-core` for blobs of every dtype, and for steps of them.

use std::ops::Range;

use blob_core::strategies::windows;
use blob_core::{AnyBlob, Part};
use proptest::prelude::*;
use synced_mem::loopback::{self, Mode};

use super::queue;

/// The range of the bytes of some steps in a vector with the whole blob.
fn bytes(blob: &AnyBlob, steps: &Range<usize>) -> Range<usize> {
    let step: usize = blob.shape().dims()[1..].iter().product();
    let size = step * blob.dtype().size();
    steps.start * size..steps.end * size
}

proptest! {
    /// Borrowed, owned and nested windows, and copies of them, are the same slice of the blob's bytes.
    #[test]
    fn a_window_is_a_slice_of_the_blob((blob, steps) in windows(4, 300), cut in any::<(u16, u16)>()) {
        let all = blob.data().bytes().unwrap().to_vec();
        let diff = blob.has_diff().then(|| blob.diff().bytes().unwrap().to_vec());
        let len = steps.len();
        let (a, b) = (usize::from(cut.0) % (len + 1), usize::from(cut.1) % (len + 1));
        let inside = a.min(b)..a.max(b);
        let nested = steps.start + inside.start..steps.start + inside.end;

        let window = blob.window(steps.clone()).unwrap();
        prop_assert_eq!(window.part(Part::Data).byte_range(), bytes(&blob, &steps));
        let mut owned = blob.make_window(len).unwrap();
        let mut inner = owned.make_window(inside.len()).unwrap();
        inner.set_pos(inside.start).unwrap();
        owned.set_pos(steps.start).unwrap();
        let views = [
            (window, &steps),
            (owned.as_ref(), &steps),
            (window.window(inside).unwrap(), &nested),
            (inner.as_ref(), &nested),
        ];
        for (view, steps) in views {
            prop_assert_eq!(view.steps(), steps.clone());
            prop_assert_eq!(view.shape(), blob.shape().with_extent(0, steps.len()).unwrap());
            let copy = view.to_blob().unwrap();
            prop_assert_eq!(&*copy.data().bytes().unwrap(), &all[bytes(&blob, steps)]);
            if let Some(diff) = &diff {
                prop_assert_eq!(&*copy.diff().bytes().unwrap(), &diff[bytes(&blob, steps)]);
            }
            prop_assert!(copy.has_diff() <= diff.is_some());
        }
    }

    /// A write through a window, on the host or on a device, changes exactly the window's bytes.
    #[test]
    fn a_write_through_a_window_stays_inside((mut blob, steps) in windows(3, 200), device in any::<bool>()) {
        let mut expected = blob.data().bytes().unwrap().to_vec();
        let range = bytes(&blob, &steps);
        expected[range].fill(1);
        if device {
            let queue = queue(Mode::Deferred);
            let mut window = blob.window_mut(steps).unwrap();
            let mut token = window.part_mut(Part::Data).device(&queue).unwrap();
            loopback::launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut().fill(1)).unwrap();
        } else {
            let mut ones = AnyBlob::new(blob.window(steps.clone()).unwrap().shape(), blob.dtype()).unwrap();
            ones.data_mut().bytes().unwrap().fill(1);
            let whole = 0..steps.len();
            let (mut window, ones) = (blob.window_mut(steps).unwrap(), ones);
            window.copy_from(ones.window(whole).unwrap(), Part::Data).unwrap();
        }
        prop_assert_eq!(&*blob.data().bytes().unwrap(), &expected[..]);
    }
}
