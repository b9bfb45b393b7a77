//! Where operations run, which bytes they transfer, and their refusals before anything changes.

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::Error;
use fake_cuda::control::{Session, Setup};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Location, Queue};

use crate::{expect_no_leaks, gpu, seed};

fn ones(count: usize) -> AnyBlob {
    let bytes = vec![1.0f32; count].iter().flat_map(|one| one.to_ne_bytes()).collect();
    AnyBlob::from_vec(Shape::new([count]).unwrap(), DType::F32, bytes).unwrap()
}

/// A blob whose only valid copy is on the queue's device.
fn on_device(queue: &Arc<dyn Queue>, count: usize) -> AnyBlob {
    let mut blob = ones(count);
    drop(blob.data_mut().device(queue).unwrap());
    blob
}

fn is_on(blob: &AnyBlob, place: Location) -> bool {
    blob.memory(Part::Data).valid_on(place, ..)
}

#[test]
fn what_is_on_a_device_is_worked_on_there_and_nothing_moves() {
    let (_session, gpu, queue) = gpu(seed(1));
    let device = Location::Device(gpu.id());
    let (mut y, x) = (on_device(&queue, 1000), on_device(&queue, 1000));
    let moved = || (gpu.meter().stats().uploads, gpu.meter().stats().downloads);
    let before = moved();
    blob_ops::add(&mut y, &x, Part::Data).unwrap();
    blob_ops::scale(&mut y, 2, Part::Data).unwrap();
    let merged = blob_ops::merge(&[&y, &x], 0).unwrap();
    let narrow = blob_ops::convert(&merged, DType::F16).unwrap();
    assert!(is_on(&narrow, device) && !is_on(&narrow, Location::Host));
    assert_eq!(moved(), before);
    // Only the sum of each block is downloaded, and no element.
    assert_eq!(blob_ops::asum(&merged, Part::Data).unwrap(), blob_ops::Scalar::F(5000.0));
    let (_, back) = moved();
    assert_eq!((back.bytes - before.1.bytes, back.count - before.1.count), (8, 1));
    assert!(!is_on(&merged, Location::Host));
}

#[test]
fn what_is_on_the_host_stays_there_unless_a_place_is_named() {
    let (_session, gpu, queue) = gpu(seed(1));
    let device = Location::Device(gpu.id());
    let (mut y, x) = (ones(1000), ones(1000));
    blob_ops::add(&mut y, &x, Part::Data).unwrap();
    assert!(!is_on(&y, device));
    blob_ops::at(&queue).add(&mut y, &x, Part::Data).unwrap();
    assert!(is_on(&y, device) && !is_on(&y, Location::Host) && is_on(&x, Location::Host));
    blob_ops::at_host().add(&mut y, &x, Part::Data).unwrap();
    assert!(!is_on(&y, device));
    assert_eq!(y.data().elements::<f32>().unwrap()[999], 4.0);
    // Without inputs, the output decides where the operation runs.
    let mut filled = on_device(&queue, 1000);
    blob_ops::fill(&mut filled, 3, Part::Data).unwrap();
    assert!(is_on(&filled, device) && !is_on(&filled, Location::Host));
}

/// Blobs that both places hold, `y` with the output's role: whoever used them last has the next operation.
#[test]
fn a_tie_goes_to_the_place_that_was_used_last() {
    let (_session, gpu, queue) = gpu(seed(1));
    let device = Location::Device(gpu.id());
    let (mut y, x) = (ones(1000), ones(1000));
    for blob in [&y, &x] {
        blob.upload(&queue).unwrap();
        assert!(is_on(blob, device) && is_on(blob, Location::Host));
    }
    // Reads on the host count for nothing.
    assert_eq!(blob_ops::asum(&y, Part::Data).unwrap().as_f64(), 1000.0);
    assert_eq!(y.data().elements::<f32>().unwrap()[0], 1.0);
    let moved = gpu.meter().stats().uploads;
    blob_ops::add(&mut y, &x, Part::Data).unwrap();
    assert!(is_on(&y, device) && !is_on(&y, Location::Host), "worked on where it was uploaded to");
    // A fresh output was used nowhere: the first input decides.
    assert_eq!(x.data().elements::<f32>().unwrap()[0], 1.0);
    let merged = blob_ops::merge(&[&x, &x], 0).unwrap();
    assert!(is_on(&merged, device) && !is_on(&merged, Location::Host));
    assert_eq!(gpu.meter().stats().uploads, moved, "nothing moved for either");
    // A write on the host counts, here of bytes that the operation does not read.
    let mut object = AnyBlob::new(Shape::new([2, 1, 1, 1, 1, 1, 4]).unwrap(), DType::F32).unwrap();
    blob_ops::at(&queue).fill(&mut object, 1, Part::Data).unwrap();
    assert_eq!(object.data().elements::<f32>().unwrap()[7], 1.0);
    object.data_mut().range(0..4).unwrap().elements::<f32>().unwrap().fill(2.0);
    blob_ops::fill_object(&mut object, 1, 3, Part::Data).unwrap();
    assert!(object.memory(Part::Data).valid_on(Location::Host, ..));
}

#[test]
fn the_output_decides_a_tie_before_the_inputs() {
    let (_session, gpu, queue) = gpu(seed(1));
    let (x, mut out) = (ones(4), ones(8));
    x.upload(&queue).unwrap();
    out.upload(&queue).unwrap();
    // Written on the host last, though not in the bytes that are converted into.
    out.data_mut().range(4..).unwrap().elements::<f32>().unwrap().fill(2.0);
    out.reshape(Shape::new([4]).unwrap()).unwrap();
    blob_ops::convert_into(&x, &mut out, Part::Data).unwrap();
    assert!(!out.memory(Part::Data).valid_on(Location::Device(gpu.id()), 0..16));
}

#[test]
fn a_place_holds_on_any_thread() {
    let (_session, gpu, queue) = gpu(seed(1));
    let (mut y, x, place) = (ones(1000), ones(1000), blob_ops::at(&queue));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| place.add(&mut y, &x, Part::Data)).unwrap();
    assert!(is_on(&y, Location::Device(gpu.id())) && !is_on(&y, Location::Host));
}

#[test]
fn statistics_run_on_the_host_and_leave_the_place() {
    let (_session, gpu, queue) = gpu(seed(1));
    let mut blob = on_device(&queue, 1000);
    assert_eq!(blob_ops::stats(&blob, Part::Data).unwrap().count, 1000);
    assert_eq!(blob_ops::at(&queue).stats(&blob, Part::Data).unwrap().count, 1000);
    blob_ops::scale(&mut blob, 2, Part::Data).unwrap();
    assert!(is_on(&blob, Location::Device(gpu.id())) && !is_on(&blob, Location::Host));
}

/// The sum of two blobs that only the queue's device has, added at that queue: on the host, as there are no kernels.
fn expect_host_work(queue: &Arc<dyn Queue>) {
    let (mut y, x) = (on_device(queue, 10), on_device(queue, 10));
    blob_ops::at(queue).add(&mut y, &x, Part::Data).unwrap();
    assert!(is_on(&y, Location::Host) && is_on(&x, Location::Host));
    assert_eq!(y.data().elements::<f32>().unwrap()[9], 2.0);
    // Nor is the device ever chosen, though it was asked for last.
    [&y, &x].into_iter().for_each(|blob| blob.upload(queue).unwrap());
    blob_ops::add(&mut y, &x, Part::Data).unwrap();
    assert_eq!(y.data().elements::<f32>().unwrap()[9], 3.0);
}

#[test]
fn a_device_without_kernels_is_worked_for_on_the_host() {
    let (_session, _gpu, _queue) = gpu(seed(1));
    expect_host_work(&Loopback::new(Mode::Immediate).queue().unwrap());
}

#[test]
fn a_gpu_older_than_the_kernels_is_worked_for_on_the_host() {
    let (_session, gpu, queue) = gpu(Setup { capability: 61, ..seed(1) });
    assert_eq!(gpu.capability(), (6, 1));
    expect_host_work(&queue);
}

/// CUDA_ERROR_INVALID_PTX.
const INVALID_PTX: u32 = 218;

#[test]
fn refused_kernels_leave_every_operand_as_it_was() {
    let (session, gpu, queue) = gpu(seed(1));
    let (mut y, x) = (on_device(&queue, 1000), ones(1000));
    session.fail("cuModuleLoadDataEx", 1, INVALID_PTX);
    let refused = blob_ops::at(&queue).add(&mut y, &x, Part::Data).unwrap_err();
    assert!(matches!(refused, Error::Device { op: "add", .. }), "{refused}");
    assert!(refused.to_string().contains("218"), "{refused}");
    // Not even an input was moved.
    assert!(!is_on(&x, Location::Device(gpu.id())));
    blob_ops::at(&queue).add(&mut y, &x, Part::Data).unwrap();
    assert_eq!(y.data().elements::<f32>().unwrap()[..], [2.0; 1000]);
}

/// Several operations, each of which needs the results of the one before.
fn sum_of_merged(queue: &Arc<dyn Queue>, y: &mut AnyBlob, x: &AnyBlob) -> Result<f64, Error> {
    let gpu = blob_ops::at(queue);
    gpu.add(y, x, Part::Data)?;
    let merged = gpu.merge(&[y, x], 0)?;
    Ok(gpu.asum(&merged, Part::Data)?.as_f64())
}

/// Every driver call fails in turn: an error or the right result, inputs as they were, no panic.
#[test]
fn any_call_may_fail() {
    let mut failed = 0;
    for nth in 1.. {
        let (session, gpu, queue) = gpu(seed(nth));
        let (mut y, x) = (ones(300), ones(300));
        session.fail("", nth, 999);
        let found = sum_of_merged(&queue, &mut y, &x);
        match &found {
            Ok(sum) => assert_eq!(*sum, 900.0),
            Err(_) => failed += 1,
        }
        assert_eq!(x.data().elements::<f32>().unwrap()[..], [1.0; 300], "call {nth}");
        let calls = session.calls("");
        drop((y, x, queue, gpu));
        expect_no_leaks(&session);
        if calls < nth {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn a_kernel_is_looked_up_once() {
    let (session, _gpu, queue) = gpu(seed(1));
    let (mut y, x) = (on_device(&queue, 1000), on_device(&queue, 1000));
    for _ in 0..10 {
        blob_ops::add(&mut y, &x, Part::Data).unwrap();
    }
    assert_eq!((session.calls("cuModuleLoadDataEx"), session.calls("cuModuleGetFunction")), (1, 1));
    assert_eq!(session.calls("cuLaunchKernel"), 10);
}

/// Loses the GPU, and lets its queue find that out.
fn lose(session: &Session, queue: &Arc<dyn Queue>) {
    let block = queue.alloc(8).unwrap();
    session.fail_work(1, 700);
    // SAFETY: within the block, which lives.
    unsafe { queue.fill(&*block, 0, 8) }.unwrap();
    queue.synchronize().unwrap_err();
}

#[test]
fn a_lost_gpu_gets_no_work_that_the_host_can_do() {
    let (session, gpu, queue) = gpu(seed(1));
    let (mut y, x) = (ones(1000), ones(1000));
    [&y, &x].into_iter().for_each(|blob| blob.upload(&queue).unwrap());
    queue.synchronize().unwrap();
    assert!(!gpu.is_lost());
    lose(&session, &queue);
    assert!(gpu.is_lost());
    // A tie, and the GPU was asked for last.
    blob_ops::add(&mut y, &x, Part::Data).unwrap();
    assert_eq!(y.data().elements::<f32>().unwrap()[..], [2.0; 1000]);
}

#[test]
fn a_lost_gpu_refuses_work_before_an_output_is_claimed() {
    let (session, _gpu, queue) = gpu(seed(1));
    let (mut y, x) = (ones(1000), ones(1000));
    // The kernel is loaded, so no driver call stands before the launch.
    blob_ops::at(&queue).add(&mut y, &x, Part::Data).unwrap();
    assert_eq!(y.data().elements::<f32>().unwrap()[0], 2.0);
    queue.synchronize().unwrap();
    lose(&session, &queue);
    let refused = blob_ops::at(&queue).add(&mut y, &x, Part::Data).unwrap_err();
    assert!(matches!(refused, Error::Device { op: "add", .. }), "{refused}");
    assert_eq!(y.data().elements::<f32>().unwrap()[..], [2.0; 1000]);
}
