//! Blobs as tensors of DLPack: the struct that a consumer takes holds the borrow, and its deleter ends the borrow.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use synced_mem::{Device, Queue};

use super::{CPU, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION, data_type};
use crate::blob::AnyBlob;
use crate::error::Error;
use crate::part::Part;

/// A tensor of DLPack that no consumer has yet. Dropped, the loan is over.
#[derive(Debug)]
pub struct Exported {
    /// Invariant: made by [`Exported::new`], and not handed out.
    managed: NonNull<DLManagedTensorVersioned>,
}

// SAFETY: the struct is this value's alone; it holds a guard or a token, which are `Send` (`lent`), and addresses.
unsafe impl Send for Exported {}
// SAFETY: through a shared reference nothing but the flags is to be had.
unsafe impl Sync for Exported {}

/// What a struct holds for its consumer.
struct Lent {
    /// The guard or the token, whose drop ends the borrow.
    _borrow: Box<dyn Any + Send>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// The bytes of an export.
struct Bytes {
    address: *mut c_void,
    device: DLDevice,
    flags: u64,
    borrow: Box<dyn Any + Send>,
}

impl AnyBlob {
    /// The data or the diff on a queue's device, for a consumer that reads the values in the order of that queue, such
    /// as one of the consumer's own stream (`synced_mem::cuda::Cuda::adopt_stream`). Missing bytes are brought there,
    /// and the queue waits for other work on them; no thread waits. Until the deleter is called writes of the values
    /// are conflicts; later accesses come after the work that the queue has then.
    ///
    /// ```
    /// use blob_core::{AnyBlob, DType, Part, Shape};
    ///
    /// let blob = AnyBlob::new(Shape::new([2, 3])?, DType::F32)?;
    /// let exported = blob.to_dlpack_host(Part::Data)?;
    /// // A consumer takes the pointer, and calls the deleter in the end. Here that is a blob again.
    /// let managed = exported.into_versioned();
    /// // SAFETY: the struct is one that was just made, and nobody else has it.
    /// let again = unsafe { AnyBlob::from_dlpack(managed, None)? };
    /// assert_eq!(again.shape(), blob.shape());
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Memory`] as [`View::device`](crate::View::device); [`Error::Dlpack`] where DLPack has no name for the
    /// device ([`Device::dlpack`]).
    pub fn to_dlpack(&self, part: Part, queue: &Arc<dyn Queue>) -> Result<Exported, Error> {
        let (device, range) = (named(queue.device())?, self.part(part).byte_range());
        let token = self.memory(part).device(queue, range)?;
        let address = address(token.arg().address());
        Ok(Exported::new(self, Bytes { address, device, flags: READ_ONLY, borrow: Box::new(token) }))
    }

    /// As [`to_dlpack`](Self::to_dlpack), for a consumer that may write the values: no other copy is valid afterwards,
    /// and until the deleter is called every access is a conflict.
    ///
    /// # Errors
    /// As [`to_dlpack`](Self::to_dlpack).
    pub fn to_dlpack_mut(&mut self, part: Part, queue: &Arc<dyn Queue>) -> Result<Exported, Error> {
        let (device, range) = (named(queue.device())?, self.part(part).byte_range());
        let mut token = self.memory(part).device_mut(queue, range)?;
        let address = address(token.arg_mut().address());
        Ok(Exported::new(self, Bytes { address, device, flags: 0, borrow: Box::new(token) }))
    }

    /// The data or the diff on the host, to be read. Until the deleter is called writes of the values are conflicts.
    ///
    /// # Errors
    /// [`Error::Memory`] as [`View::bytes`](crate::View::bytes).
    pub fn to_dlpack_host(&self, part: Part) -> Result<Exported, Error> {
        let bytes = self.memory(part).host(self.part(part).byte_range())?;
        let address = bytes.as_ptr().cast_mut().cast();
        Ok(Exported::new(self, Bytes { address, device: HOST, flags: READ_ONLY, borrow: Box::new(bytes) }))
    }

    /// As [`to_dlpack_host`](Self::to_dlpack_host), for a consumer that may write the values.
    ///
    /// # Errors
    /// As [`to_dlpack_host`](Self::to_dlpack_host).
    pub fn to_dlpack_host_mut(&mut self, part: Part) -> Result<Exported, Error> {
        let mut bytes = self.memory(part).host_mut(self.part(part).byte_range())?;
        let address = bytes.as_mut_ptr().cast();
        Ok(Exported::new(self, Bytes { address, device: HOST, flags: 0, borrow: Box::new(bytes) }))
    }
}

const HOST: DLDevice = DLDevice { device_type: CPU, device_id: 0 };

fn named(device: &dyn Device) -> Result<DLDevice, Error> {
    let named = device.dlpack().map(|(device_type, device_id)| DLDevice { device_type, device_id });
    named.ok_or_else(|| Error::Dlpack {
        reason: format!("no name for the device {:?}: export the host's copy with to_dlpack_host", device.name()),
    })
}

/// An address of a device, which the host does not follow.
fn address(of: u64) -> *mut c_void {
    ptr::without_provenance_mut(of as usize)
}

impl Exported {
    fn new(blob: &AnyBlob, bytes: Bytes) -> Self {
        let Bytes { address, device, flags, borrow } = bytes;
        let shape: Vec<i64> = blob.shape().dims().iter().map(|extent| *extent as i64).collect();
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        let mut lent = Box::new(Lent { _borrow: borrow, shape, strides });
        let dl_tensor = DLTensor {
            data: if blob.count() == 0 { ptr::null_mut() } else { address },
            device,
            ndim: lent.shape.len() as i32,
            dtype: data_type(blob.dtype()),
            shape: lent.shape.as_mut_ptr(),
            strides: lent.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        // The elements of the two lists stay where they are when their box becomes a pointer.
        let manager_ctx = Box::into_raw(lent).cast();
        let deleter = Some(delete_versioned as unsafe extern "C" fn(_));
        let managed = DLManagedTensorVersioned { version: VERSION, manager_ctx, deleter, flags, dl_tensor };
        Self { managed: NonNull::from(Box::leak(Box::new(managed))) }
    }

    /// Whether the consumer must not write.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: the struct lives as long as this value has not handed it out.
        unsafe { self.managed.as_ref() }.flags & READ_ONLY != 0
    }

    /// The struct, for a consumer that calls its deleter once.
    pub fn into_versioned(self) -> NonNull<DLManagedTensorVersioned> {
        let managed = self.managed;
        std::mem::forget(self);
        managed
    }

    /// The same as the older struct, for a consumer that calls its deleter once.
    ///
    /// # Errors
    /// [`Error::Dlpack`] where the consumer must not write, which the older struct cannot say: the loan is over then.
    pub fn into_legacy(self) -> Result<NonNull<DLManagedTensor>, Error> {
        if self.is_read_only() {
            let reason = "an older struct, which cannot say that the values must not be written: use into_versioned, or \
                          to_dlpack_mut";
            return Err(Error::Dlpack { reason: reason.into() });
        }
        // SAFETY: the struct is a box of `new`, and was handed to nobody.
        let versioned = unsafe { Box::from_raw(self.into_versioned().as_ptr()) };
        let DLManagedTensorVersioned { dl_tensor, manager_ctx, .. } = *versioned;
        let deleter = Some(delete_legacy as unsafe extern "C" fn(_));
        Ok(NonNull::from(Box::leak(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter }))))
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: no consumer has the struct (`managed`), so this is the one call.
        unsafe { delete_versioned(self.managed.as_ptr()) };
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: a consumer calls the deleter once, with the struct that `Exported::new` has boxed.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `Exported::new` has put a box of its own there, which nothing else takes.
    unsafe { end(managed.manager_ctx) };
}

unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: a consumer calls the deleter once, with the struct that `into_legacy` has boxed.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `Exported::new` has put a box of its own there, which nothing else takes.
    unsafe { end(managed.manager_ctx) };
}

/// Ends the borrow. An observer of the memory may panic, and nothing may unwind into the consumer.
///
/// # Safety
/// The pointer is that of a box of `Exported::new`, and is used here for the last time.
unsafe fn end(lent: *mut c_void) {
    // SAFETY: the caller says that `Exported::new` has leaked this box of a `Lent`, and that this is the last use of
    // the pointer: so the box is taken back once, and nothing refers to it.
    let lent = unsafe { Box::from_raw(lent.cast::<Lent>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(lent)));
}
