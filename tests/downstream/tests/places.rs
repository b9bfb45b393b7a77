//! Blobs on devices as Caffe's users know them: pushed ahead of a layer, pinned, updated; and operations at a device of
//! a user's own, which has no kernels for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use blob_core::{AnyBlob, Blob, DType, Part, Shape};
use downstream::Ram;
use synced_mem::loopback::{self, KernelArg, Loopback, Mode};
use synced_mem::{Device, HostPool, Location};

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

/// A step of training: the weights are pushed, a layer's kernel writes their diff on the device, and `update`
/// subtracts.
#[test]
fn weights_are_pushed_to_a_device_and_updated() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, there) = (device.queue().unwrap(), Location::Device(device.id()));
    let mut weights = Blob::from_slice(shape(&[4]), &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    weights.upload(&queue).unwrap(); // async_gpu_push
    assert!([there, Location::Host].iter().all(|place| weights.memory(Part::Data).valid_on(*place, ..)));
    let pushed = device.meter().stats().uploads;
    let data = weights.part(Part::Data).device(&queue).unwrap(); // gpu_data
    let mut diff = weights.memory(Part::Diff).device_overwrite(&queue, ..).unwrap(); // mutable_gpu_diff
    loopback::launch(&*queue, [data.arg(), diff.arg_mut()], |args| {
        let [data, diff] = args else { panic!("two arguments") };
        halve(data.bytes(), diff);
    })
    .unwrap();
    drop((data, diff));
    assert_eq!(device.meter().stats().uploads, pushed, "all was there");
    blob_ops::update(&mut weights).unwrap();
    assert_eq!(*weights.data().unwrap(), [0.5, 1.0, 1.5, 2.0]);
    assert_eq!(*weights.diff().unwrap(), [0.5, 1.0, 1.5, 2.0]);
}

/// The work of a kernel on floats.
fn halve(from: &[u8], to: &mut KernelArg<'_>) {
    let from: Vec<f32> = from.chunks(4).map(|x| f32::from_ne_bytes([x[0], x[1], x[2], x[3]])).collect();
    let halves = from.iter().flat_map(|x| (x / 2.0).to_ne_bytes());
    to.bytes_mut().iter_mut().zip(halves).for_each(|(to, byte)| *to = byte);
}

#[test]
fn a_batch_lies_in_pinned_memory_whatever_its_size() {
    let (device, pinned) = Ram::with_pinned();
    let queue = device.queue().unwrap();
    let pool = HostPool::of(&device, 1 << 20);
    let mut batch = Blob::<f32>::new_in(shape(&[2, 3, 16, 16]), &pool).unwrap();
    batch.data_overwrite().unwrap().fill(0.5);
    batch.upload(&queue).unwrap();
    assert_eq!(pinned.load(Ordering::SeqCst), 1, "the data; the diff was not touched");
    // Grown, the batch is pinned again.
    batch.reshape(shape(&[8, 3, 16, 16])).unwrap();
    batch.data_overwrite().unwrap().fill(0.25);
    batch.diff_overwrite().unwrap().fill(1.0);
    assert_eq!((pinned.load(Ordering::SeqCst), pool.stats().misses), (3, 3), "one waits in the pool");
    drop(batch);
    let again = AnyBlob::new_in(shape(&[8, 3, 16, 16]), DType::F32, &pool).unwrap();
    assert_eq!(*again.data().elements::<f32>().unwrap(), vec![0.0; 6144]);
    assert_eq!((pinned.load(Ordering::SeqCst), pool.stats().hits), (3, 1));
}

/// Our device has memory and no kernels of `blob-ops`: the host works for it.
#[test]
fn operations_at_a_device_of_our_own_are_the_hosts() {
    let device = Ram::new();
    let queue: Arc<dyn synced_mem::Queue> = device.queue().unwrap();
    let mut left = Blob::from_slice(shape(&[2, 1]), &[1i32, 2]).unwrap();
    let right = Blob::from_slice(shape(&[2, 2]), &[3i32, 4, 5, 6]).unwrap();
    drop(left.part_mut(Part::Data).device(&queue).unwrap());
    right.upload(&queue).unwrap();
    let ours = blob_ops::at(&queue);
    ours.scale(&mut left, 10, Part::Data).unwrap();
    let merged = ours.merge(&[&left, &right], 1).unwrap();
    assert_eq!(*merged.data().elements::<i32>().unwrap(), [10, 3, 4, 20, 5, 6]);
    assert!(merged.memory(Part::Data).valid_on(Location::Host, ..));
    assert_eq!(ours.asum(&merged, Part::Data).unwrap(), blob_ops::Scalar::U(48));
    // A kernel of our own asks for the result where it runs.
    drop(merged.data().device(&queue).unwrap());
    assert!(merged.memory(Part::Data).valid_on(Location::Device(device.id()), ..));
}
