//! A device of a user's own passes the conformance suite, and carries the bytes of a memory and the parts of a merge.

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Shape};
use downstream::Ram;
use synced_mem::loopback::{self, Loopback, Mode};
use synced_mem::{Queue, SharedMem, conformance};

#[test]
fn a_device_of_our_own_conforms() {
    let (device, other) = (Ram::new(), Ram::new());
    let loopback = Loopback::new(Mode::Deferred);
    conformance::run(&*device).unwrap();
    conformance::run_pair(&*device, &*other).unwrap();
    conformance::run_pair(&*device, &*loopback).unwrap();
    conformance::run_pair(&*loopback, &*device).unwrap();
}

#[test]
fn a_memory_moves_to_our_device_and_back() {
    let device = Ram::new();
    let queue = device.queue().unwrap();
    let memory = SharedMem::from((0..100).collect::<Vec<u8>>());
    drop(memory.device_mut(&queue, 10..20).unwrap());
    assert_eq!(memory.host(0..100).unwrap()[..], (0..100).collect::<Vec<u8>>());
    let traffic = device.meter().stats();
    assert_eq!((traffic.uploads.bytes, traffic.downloads.bytes), (10, 10));
    // The loopback runs kernels on its own queues only.
    let refused = loopback::launch(&*queue, [], |_| unreachable!()).unwrap_err();
    assert!(matches!(refused, synced_mem::Error::Device { op: "launch", .. }));
}

/// A blob of four floats whose newest bytes are a kernel's, in the device's memory.
fn on_the_device(queue: &Arc<dyn Queue>, value: f32) -> AnyBlob {
    let mut blob = AnyBlob::new(Shape::new([2, 2]).unwrap(), DType::F32).unwrap();
    let mut token = blob.data_mut().overwrite_device(queue).unwrap();
    loopback::launch(&**queue, [token.arg_mut()], move |args| {
        args[0].bytes_mut().chunks_mut(4).for_each(|cell| cell.copy_from_slice(&value.to_ne_bytes()));
    })
    .unwrap();
    drop(token);
    blob
}

#[test]
fn a_merge_takes_its_parts_from_device_memory() {
    let device = Loopback::new(Mode::Deferred);
    let queue = synced_mem::Device::queue(&*device).unwrap();
    let parts = [on_the_device(&queue, 1.0), on_the_device(&queue, 2.0)];
    let merged = blob_ops::merge(&[&parts[0], &parts[1]], 1).unwrap();
    assert_eq!(merged.shape().dims(), [2, 4]);
    assert_eq!(*merged.data().elements::<f32>().unwrap(), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
    // The result goes to the device in turn.
    drop(merged.data().device(&queue).unwrap());
    assert_eq!(synced_mem::Device::meter(&*device).stats().uploads.bytes, 32);
}
