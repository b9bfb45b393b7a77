//! Blobs whose data is on a device only: inputs are brought to the host and stay valid there, outputs are not moved.
//!
//! The device is `synced-mem`'s loopback. Operations on the host are right elsewhere; here only what moves is checked.

use crate::{
    Argument, Error, Mismatch, Scalar, add, asum, fill, fill_object, merge_into, split_into, split_objects_into,
    transpose_into, update,
};
use blob_core::{AnyBlob, DType, Part, Shape};
use std::sync::Arc;
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Head, Location, Queue, SharedMem};

fn queue() -> Arc<dyn Queue> {
    Loopback::new(Mode::Deferred).queue().unwrap()
}

/// Values that only the device has: uploaded, then dropped from the host.
fn on_device(queue: &Arc<dyn Queue>, dims: &[usize], values: &[f32]) -> AnyBlob {
    let bytes = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let blob = AnyBlob::from_vec(Shape::new(dims).unwrap(), DType::F32, bytes).unwrap();
    leave_host(blob.memory(Part::Data), queue);
    blob
}

fn leave_host(memory: &SharedMem, queue: &Arc<dyn Queue>) {
    memory.device(queue, 0..memory.len()).unwrap();
    memory.evict(Location::Host, ..).unwrap();
    assert_eq!(memory.head(), Head::AtDevice);
}

fn downloads(memory: &SharedMem) -> (u64, u64) {
    let downloads = memory.stats().downloads;
    (downloads.count, downloads.bytes)
}

/// Brought to the host once, all of it, and still valid on the device.
fn was_read(blob: &AnyBlob) {
    let memory = blob.memory(Part::Data);
    assert_eq!(downloads(memory), (1, blob.byte_len() as u64));
    assert_eq!(memory.head(), Head::Synced);
}

/// Not brought to the host, whose copy is now the only one.
fn was_overwritten(blob: &AnyBlob) {
    assert_eq!(downloads(blob.memory(Part::Data)), (0, 0));
    assert_eq!(blob.memory(Part::Data).head(), Head::AtHost);
}

#[test]
fn a_merge_downloads_its_parts_and_not_its_output() {
    let queue = queue();
    let left = on_device(&queue, &[2, 1], &[1.0, 2.0]);
    let right = on_device(&queue, &[2, 2], &[3.0, 4.0, 5.0, 6.0]);
    let mut out = on_device(&queue, &[2, 3], &[9.0; 6]);
    merge_into(&[&left, &right], 1, &mut out).unwrap();
    was_read(&left);
    was_read(&right);
    was_overwritten(&out);
    assert_eq!(*out.data().elements::<f32>().unwrap(), [1.0, 3.0, 4.0, 2.0, 5.0, 6.0]);
}

#[test]
fn a_split_downloads_the_blob_and_not_its_parts() {
    let queue = queue();
    let blob = on_device(&queue, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let mut parts = [0, 1].map(|_| on_device(&queue, &[2, 1], &[9.0; 2]));
    split_into(&blob, 1, &mut parts.iter_mut().collect::<Vec<_>>()).unwrap();
    was_read(&blob);
    parts.iter().for_each(was_overwritten);
    assert_eq!(*parts[1].data().elements::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn a_transpose_downloads_its_input_and_not_its_output() {
    let queue = queue();
    let blob = on_device(&queue, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let mut out = on_device(&queue, &[2, 2], &[9.0; 4]);
    transpose_into(&blob, 0, 1, &mut out).unwrap();
    was_read(&blob);
    was_overwritten(&out);
    assert_eq!(*out.data().elements::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
}

#[test]
fn an_addition_downloads_both_and_leaves_the_sum_on_the_host_only() {
    let queue = queue();
    let x = on_device(&queue, &[3], &[1.0, 2.0, 3.0]);
    let mut y = on_device(&queue, &[3], &[10.0, 20.0, 30.0]);
    add(&mut y, &x, Part::Data).unwrap();
    was_read(&x);
    assert_eq!(downloads(y.memory(Part::Data)), (1, 12));
    assert_eq!(y.memory(Part::Data).head(), Head::AtHost);
    assert_eq!(*y.data().elements::<f32>().unwrap(), [11.0, 22.0, 33.0]);
}

#[test]
fn a_sum_downloads_once_and_a_second_one_nothing() {
    let queue = queue();
    let x = on_device(&queue, &[3], &[1.0, -2.0, 3.0]);
    for _ in 0..2 {
        assert_eq!(asum(&x, Part::Data).unwrap(), Scalar::F(6.0));
        was_read(&x);
    }
}

#[test]
fn a_fill_downloads_nothing_and_of_one_object_leaves_the_others_where_they_are() {
    let queue = queue();
    let mut y = on_device(&queue, &[2, 1, 1, 1, 1, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    fill_object(&mut y, 1, 7, Part::Data).unwrap();
    assert_eq!(downloads(y.memory(Part::Data)), (0, 0));
    assert_eq!(*y.data().elements::<f32>().unwrap(), [1.0, 2.0, 7.0, 7.0]);
    assert_eq!(downloads(y.memory(Part::Data)), (1, 8));
    let mut y = on_device(&queue, &[2], &[1.0, 2.0]);
    fill(&mut y, 7, Part::Data).unwrap();
    was_overwritten(&y);
}

#[test]
fn an_update_downloads_data_and_diff() {
    let queue = queue();
    let mut y = on_device(&queue, &[2], &[1.0, 2.0]);
    y.diff_mut().elements::<f32>().unwrap().fill(0.5);
    leave_host(y.memory(Part::Diff), &queue);
    update(&mut y).unwrap();
    assert_eq!(downloads(y.memory(Part::Data)), (1, 8));
    assert_eq!(downloads(y.memory(Part::Diff)), (1, 8));
    assert_eq!(y.memory(Part::Diff).head(), Head::Synced);
    assert_eq!(*y.data().elements::<f32>().unwrap(), [0.5, 1.5]);
}

/// Only the device has the first part's bytes when the second is refused: they are still there, and no byte has moved.
#[test]
fn a_split_that_is_refused_loses_nothing() {
    let queue = queue();
    let dims = |parts| [parts, 1, 1, 1, 1, 1, 2];
    let blob = on_device(&queue, &dims(2), &[1.0; 4]);
    let objects = on_device(&queue, &[1, 1, 1, 1, 1, 1, 4], &[1.0; 4]);
    let mut first = on_device(&queue, &dims(1), &[7.0, 8.0]);
    let mut second = on_device(&queue, &dims(1), &[9.0; 2]);
    let memory = second.memory(Part::Data).clone();
    let reader = memory.host(0..4).unwrap();
    for result in [
        split_into(&blob, 0, &mut [&mut first, &mut second]),
        split_objects_into(&objects, &mut [&mut first, &mut second]),
    ] {
        assert!(matches!(result, Err(Error::Memory { argument: Argument::Part(1), .. })), "{result:?}");
        assert_eq!(first.memory(Part::Data).head(), Head::AtDevice);
    }
    drop(reader);
    let shared = AnyBlob::from_parts(first.shape().clone(), DType::F32, first.memory(Part::Data).clone(), None);
    let result = split_into(&blob, 0, &mut [&mut first, &mut shared.unwrap()]);
    assert!(
        matches!(
            result,
            Err(Error::Mismatch {
                argument: Argument::Part(1),
                mismatch: Mismatch::Shared { with: Argument::Part(0), .. },
                ..
            })
        ),
        "{result:?}"
    );
    assert_eq!(first.memory(Part::Data).head(), Head::AtDevice);
    assert_eq!(*first.data().elements::<f32>().unwrap(), [7.0, 8.0]);
    let untouched = AnyBlob::new(first.shape().clone(), DType::F32);
    let mut untouched = untouched.unwrap();
    let _reader = memory.host(0..4).unwrap();
    assert!(split_into(&blob, 0, &mut [&mut untouched, &mut second]).is_err());
    assert!(!untouched.memory(Part::Data).is_initialized());
}
