//! Tensors of DLPack, out and in: the borrow lasts as long as the loan, every loan ends once, what is not plain is
//! copied, and statements that contradict themselves are errors.
#![cfg(feature = "dlpack")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blob_core::dlpack::{
    CPU, CUDA, CUDA_HOST, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    READ_ONLY, VERSION, data_type, dtype,
};
use blob_core::{AnyBlob, DType, Error, Part, Shape};
use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, Queue};

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

fn queue() -> Arc<dyn Queue> {
    Loopback::new(Mode::Deferred).queue().unwrap()
}

/// A blob of the bytes 0, 1, 2, …
fn counted(dims: &[usize], dtype: DType) -> AnyBlob {
    let mut blob = AnyBlob::new(shape(dims), dtype).unwrap();
    blob.data_mut().overwrite_bytes().unwrap().iter_mut().zip(0..).for_each(|(byte, at)| *byte = at);
    blob
}

fn bytes(blob: &AnyBlob) -> Vec<u8> {
    blob.data().bytes().unwrap().to_vec()
}

fn is_conflict<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Memory(synced_mem::Error::Conflict { .. })))
}

fn end(managed: NonNull<DLManagedTensorVersioned>) {
    // SAFETY: the struct is one that was just exported, and this is the one call.
    unsafe { managed.as_ref().deleter.unwrap()(managed.as_ptr()) };
}

// ---- out ----

#[test]
fn an_export_states_the_tensor_and_borrows_the_values() {
    for &of in DType::ALL {
        let mut blob = counted(&[2, 1, 3], of);
        let managed = blob.to_dlpack_host(Part::Data).unwrap().into_versioned();
        // SAFETY: the struct lives until its deleter is called.
        let DLManagedTensorVersioned { version, flags, dl_tensor: tensor, .. } = unsafe { managed.as_ref() };
        assert_eq!((*version, *flags, tensor.ndim, tensor.byte_offset), (VERSION, READ_ONLY, 3, 0));
        assert_eq!((tensor.device, dtype(tensor.dtype)), (DLDevice { device_type: CPU, device_id: 0 }, Some(of)));
        // SAFETY: as many numbers as axes, and the values, until the deleter is called.
        unsafe {
            assert_eq!(slice::from_raw_parts(tensor.shape, 3), [2, 1, 3]);
            assert_eq!(slice::from_raw_parts(tensor.strides, 3), [3, 3, 1]);
            assert_eq!(slice::from_raw_parts(tensor.data.cast::<u8>(), 6 * of.size()), bytes(&blob));
        }
        assert!(is_conflict(blob.data_mut().bytes()));
        assert!(blob.diff_mut().bytes().is_ok());
        end(managed);
        assert!(blob.data_mut().bytes().is_ok());
    }
}

#[test]
fn a_consumer_may_write_what_was_exported_to_be_written() {
    let mut blob = counted(&[4], DType::U8);
    let managed = blob.to_dlpack_host_mut(Part::Data).unwrap().into_versioned();
    assert!(is_conflict(blob.data().bytes()));
    // SAFETY: the values may be written until the deleter is called.
    unsafe {
        assert_eq!(managed.as_ref().flags, 0);
        managed.as_ref().dl_tensor.data.cast::<u8>().add(2).write(77);
    }
    end(managed);
    assert_eq!(bytes(&blob), [0, 1, 77, 3]);
}

#[test]
fn an_older_struct_is_for_what_may_be_written_alone() {
    let mut blob = counted(&[4], DType::U8);
    let refused = blob.to_dlpack_host(Part::Data).unwrap().into_legacy().unwrap_err();
    assert!(refused.to_string().contains("use into_versioned, or to_dlpack_mut"), "{refused}");
    let exported = blob.to_dlpack_host_mut(Part::Data).unwrap();
    assert!(!exported.is_read_only());
    let managed = exported.into_legacy().unwrap();
    assert!(is_conflict(blob.data().bytes()));
    // SAFETY: the struct lives until this one call of its deleter.
    unsafe { managed.as_ref().deleter.unwrap()(managed.as_ptr()) };
    assert_eq!(bytes(&blob), [0, 1, 2, 3]);
}

#[test]
fn an_export_that_nobody_takes_ends_and_one_of_no_values_borrows_none() {
    let mut blob = counted(&[4], DType::U8);
    drop(blob.to_dlpack_host_mut(Part::Data).unwrap());
    assert!(blob.data_mut().bytes().is_ok());
    let mut empty = AnyBlob::new(shape(&[2, 0]), DType::F32).unwrap();
    let managed = empty.to_dlpack_host_mut(Part::Data).unwrap().into_versioned();
    // SAFETY: the struct lives until its deleter is called.
    assert!(unsafe { managed.as_ref() }.dl_tensor.data.is_null());
    assert!(empty.data_mut().bytes().is_ok());
    end(managed);
}

/// The consumer is this crate too: its kernel runs on the tensor in the order of the queue, with no copy.
#[test]
fn a_device_hands_its_values_over_in_the_order_of_a_queue() {
    let device = Loopback::new(Mode::Deferred);
    let [ours, theirs] = [device.queue().unwrap(), device.queue().unwrap()];
    let mut blob = counted(&[8], DType::U8);
    let mut token = blob.data_mut().device(&ours).unwrap();
    launch(&*ours, [token.arg_mut()], |args| args[0].bytes_mut()[0] = 50).unwrap();
    drop(token);
    let managed = blob.to_dlpack_mut(Part::Data, &theirs).unwrap().into_versioned();
    // SAFETY: the struct was just made, and nobody else has it.
    let mut consumer = unsafe { AnyBlob::from_dlpack(managed, Some(&theirs)) }.unwrap();
    assert!(is_conflict(blob.data().bytes()));
    let mut token = consumer.data_mut().device(&theirs).unwrap();
    launch(&*theirs, [token.arg_mut()], |args| args[0].bytes_mut()[1] += 60).unwrap();
    drop(token);
    assert_eq!(consumer.memory(Part::Data).stats().uploads.count, 0);
    drop(consumer);
    assert_eq!(bytes(&blob), [50, 61, 2, 3, 4, 5, 6, 7]);
    assert_eq!(device.report().misuses, [""; 0]);
}

#[test]
fn values_of_a_device_that_may_not_be_written_are_copied_there() {
    let queue = queue();
    let mut blob = counted(&[8], DType::U8);
    let managed = blob.to_dlpack(Part::Data, &queue).unwrap().into_versioned();
    // SAFETY: the struct was just made, and nobody else has it.
    let copy = unsafe { AnyBlob::from_dlpack(managed, Some(&queue)) }.unwrap();
    // The loan is over.
    blob.data_mut().bytes().unwrap().fill(9);
    let stats = copy.memory(Part::Data).stats();
    assert_eq!((stats.uploads.count, stats.downloads.count, stats.device_copies.bytes), (0, 0, 8));
    assert_eq!(bytes(&copy), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn another_device_or_none_is_refused_and_the_loan_ends() {
    let (queue, other) = (queue(), queue());
    let mut blob = counted(&[8], DType::U8);
    for ready_on in [None, Some(&other)] {
        let managed = blob.to_dlpack(Part::Data, &queue).unwrap().into_versioned();
        // SAFETY: the struct was just made, and nobody else has it.
        let refused = unsafe { AnyBlob::from_dlpack(managed, ready_on) }.unwrap_err();
        assert!(refused.to_string().contains("device"), "{refused}");
        assert!(blob.data_mut().bytes().is_ok());
    }
}

// ---- in ----

/// A producer that counts how often its deleter was called.
struct Producer {
    values: Vec<u32>,
    dims: Vec<i64>,
    strides: Option<Vec<i64>>,
    ended: Arc<AtomicUsize>,
}

unsafe extern "C" fn ends<M>(managed: *mut M)
where
    M: Own,
{
    // SAFETY: the struct of `lend`, once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the box of `lend`, once.
    let producer = unsafe { Box::from_raw(managed.context().cast::<Producer>()) };
    producer.ended.fetch_add(1, Ordering::Relaxed);
}

trait Own {
    fn context(&self) -> *mut c_void;
}

impl Own for DLManagedTensor {
    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Own for DLManagedTensorVersioned {
    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Producer {
    fn new(count: u32, dims: &[i64], strides: Option<&[i64]>) -> Self {
        let (dims, strides) = (dims.to_vec(), strides.map(<[i64]>::to_vec));
        Self { values: (0..count).collect(), dims, strides, ended: Arc::default() }
    }

    /// A tensor whose first element is the value `first`.
    fn tensor(&mut self, first: usize) -> DLTensor {
        DLTensor {
            data: self.values.as_mut_ptr().cast(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: self.dims.len() as i32,
            dtype: data_type(DType::U32),
            shape: self.dims.as_mut_ptr(),
            strides: self.strides.as_mut().map_or(ptr::null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: first as u64 * 4,
        }
    }

    fn lend(self, first: usize, flags: u64) -> NonNull<DLManagedTensorVersioned> {
        let mut own = Box::new(self);
        let dl_tensor = own.tensor(first);
        let (manager_ctx, deleter) = (Box::into_raw(own).cast(), Some(ends as unsafe extern "C" fn(_)));
        let managed = DLManagedTensorVersioned { version: VERSION, manager_ctx, deleter, flags, dl_tensor };
        NonNull::from(Box::leak(Box::new(managed)))
    }

    fn lend_older(self, first: usize) -> NonNull<DLManagedTensor> {
        let mut own = Box::new(self);
        let dl_tensor = own.tensor(first);
        let (manager_ctx, deleter) = (Box::into_raw(own).cast(), Some(ends as unsafe extern "C" fn(_)));
        NonNull::from(Box::leak(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter })))
    }
}

#[test]
fn a_plain_tensor_is_taken_in_place_and_given_back_once() {
    for (flags, kind) in [(0, CPU), (READ_ONLY, CPU), (0, CUDA_HOST)] {
        let producer = Producer::new(8, &[2, 3], None);
        let (ended, address) = (producer.ended.clone(), producer.values.as_ptr());
        let mut managed = producer.lend(1, flags);
        // SAFETY: nobody else has the struct.
        unsafe { managed.as_mut() }.dl_tensor.device.device_type = kind;
        // SAFETY: nobody else has the struct, and nothing else uses the values.
        let mut blob = unsafe { AnyBlob::from_dlpack(managed, None) }.unwrap();
        assert_eq!(blob.data().elements::<u32>().unwrap().as_ptr(), address.wrapping_add(1));
        assert_eq!((blob.shape().dims(), blob.dtype()), (&[2, 3][..], DType::U32));
        blob.data_mut().elements::<u32>().unwrap()[5] = 99;
        assert_eq!(*blob.data().elements::<u32>().unwrap(), [1, 2, 3, 4, 5, 99]);
        // SAFETY: the values stay until the deleter is called, which a write of read-only values does not change here.
        let theirs = (flags == 0).then(|| unsafe { address.add(6).read() });
        assert_eq!(theirs, (flags == 0).then_some(99));
        drop(blob);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }
}

/// Extents, strides, the first element, and how many values there are.
type Copied = (&'static [i64], Option<&'static [i64]>, usize, u32);

const COPIED: [Copied; 6] = [
    (&[3, 2], Some(&[1, 3]), 0, 6),
    (&[2, 3], Some(&[8, 2]), 1, 16),
    (&[4], Some(&[-1]), 3, 4),
    (&[2, 2, 2], Some(&[-4, 2, -1]), 5, 8),
    (&[3, 2], Some(&[0, 1]), 2, 8),
    (&[2, 1, 2], Some(&[-2, 1 << 40, 1]), 2, 4),
];

#[test]
fn strided_tensors_are_copied_and_given_back_at_once() {
    for (dims, strides, first, count) in COPIED {
        let producer = Producer::new(count, dims, strides);
        let ended = producer.ended.clone();
        // SAFETY: nobody else has the struct, and nothing else uses the values.
        let blob = unsafe { AnyBlob::from_dlpack(producer.lend(first, 0), None) }.unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        let mut expected = Vec::new();
        let index: Vec<usize> = dims.iter().map(|extent| *extent as usize).collect();
        for at in 0..shape(&index).count() {
            let place = shape(&index).index(at).unwrap();
            let steps = place.iter().zip(strides.unwrap()).map(|(step, stride)| *step as i64 * stride);
            expected.push((first as i64 + steps.sum::<i64>()) as u32);
        }
        assert_eq!(*blob.data().elements::<u32>().unwrap(), expected, "{dims:?} {strides:?}");
    }
}

#[test]
fn an_older_struct_and_values_at_an_odd_address_are_copied() {
    let producer = Producer::new(4, &[4], None);
    let ended = producer.ended.clone();
    // SAFETY: nobody else has the struct, and nothing else uses the values.
    let blob = unsafe { AnyBlob::from_dlpack(producer.lend_older(0), None) }.unwrap();
    assert_eq!((ended.load(Ordering::Relaxed), &*blob.data().elements::<u32>().unwrap()), (1, &[0, 1, 2, 3][..]));
    let producer = Producer::new(4, &[3], None);
    let ended = producer.ended.clone();
    let mut managed = producer.lend(0, 0);
    // SAFETY: nobody else has the struct.
    unsafe { managed.as_mut() }.dl_tensor.byte_offset = 1;
    // SAFETY: nobody else has the struct, and nothing else uses the values.
    let blob = unsafe { AnyBlob::from_dlpack(managed, None) }.unwrap();
    let little = [1 << 24, 2 << 24, 3 << 24].map(|value: u32| u32::from_ne_bytes(value.to_le_bytes()));
    assert_eq!((ended.load(Ordering::Relaxed), &*blob.data().elements::<u32>().unwrap()), (1, &little[..]));
}

/// A change of a sound tensor of 2 × 3 of 6 values, and a word of the error.
type Lie = (fn(&mut DLManagedTensorVersioned), &'static str);

const LIES: [Lie; 17] = [
    (|lie| lie.version = DLPackVersion { major: 2, minor: 0 }, "version 2"),
    (|lie| lie.version.major = 0, "version 0"),
    (|lie| lie.dl_tensor.ndim = -1, "-1 axes"),
    (|lie| lie.dl_tensor.ndim = i32::MAX, "axes"),
    (|lie| lie.dl_tensor.ndim = 33, "33 axes"),
    (|lie| lie.dl_tensor.shape = ptr::null_mut(), "no shape"),
    (|lie| lie.dl_tensor.data = ptr::null_mut(), "no address"),
    (|lie| lie.dl_tensor.dtype = DLDataType { code: 2, bits: 8, lanes: 1 }, "elements that no blob has"),
    (|lie| lie.dl_tensor.dtype.lanes = 4, "elements that no blob has"),
    (|lie| lie.dl_tensor.dtype.code = 5, "elements that no blob has"),
    (|lie| lie.dl_tensor.byte_offset = u64::MAX, "past all addresses"),
    (|lie| set(lie.dl_tensor.shape, -3), "a negative extent"),
    (|lie| set(lie.dl_tensor.shape, i64::MAX), "overflows"),
    (|lie| set(lie.dl_tensor.shape, i64::MAX / 4), "past all addresses"),
    (|lie| set(lie.dl_tensor.strides, i64::MAX), "strides past all addresses"),
    (|lie| set(lie.dl_tensor.strides, i64::MIN), "strides past all addresses"),
    (|lie| set(lie.dl_tensor.strides, -(i64::MAX / 8)), "past all addresses"),
];

fn set(list: *mut i64, number: i64) {
    // SAFETY: a list of the producer's, which has two numbers, and which nobody else has.
    unsafe { list.write(number) };
}

#[test]
fn statements_that_contradict_themselves_are_errors_and_the_loan_ends_once() {
    for (nth, (change, word)) in LIES.into_iter().enumerate() {
        let producer = Producer::new(6, &[2, 3], Some(&[3, 1]));
        let ended = producer.ended.clone();
        let mut managed = producer.lend(0, 0);
        // SAFETY: nobody else has the struct.
        change(unsafe { managed.as_mut() });
        // SAFETY: nobody else has the struct. The pointers are true, or null.
        let refused = unsafe { AnyBlob::from_dlpack(managed, None) }.unwrap_err().to_string();
        assert!(refused.contains(word), "{nth}: {refused}");
        assert_eq!(ended.load(Ordering::Relaxed), 1, "{nth}");
    }
    let mut managed = Producer::new(6, &[6], None).lend(0, 0);
    // SAFETY: nobody else has the struct.
    unsafe { managed.as_mut() }.dl_tensor.device = DLDevice { device_type: CUDA, device_id: 7 };
    // SAFETY: nobody else has the struct; no value is read.
    let refused = unsafe { AnyBlob::from_dlpack(managed, None) }.unwrap_err();
    assert!(refused.to_string().contains("give a queue of that device"), "{refused}");
}

#[test]
fn a_tensor_without_values_or_axes_is_one_like_any_other() {
    let producer = Producer::new(1, &[], None);
    // SAFETY: nobody else has the struct, and nothing else uses the value.
    let scalar = unsafe { AnyBlob::from_dlpack(producer.lend(0, 0), None) }.unwrap();
    assert_eq!((scalar.shape().dims(), &*scalar.data().elements::<u32>().unwrap()), (&[][..], &[0][..]));
    let producer = Producer::new(0, &[3, 0], Some(&[i64::MAX, i64::MIN]));
    let ended = producer.ended.clone();
    // SAFETY: nobody else has the struct, which has no values.
    let empty = unsafe { AnyBlob::from_dlpack(producer.lend(0, 0), None) }.unwrap();
    assert_eq!((empty.shape().dims(), ended.load(Ordering::Relaxed)), (&[3, 0][..], 1));
}
