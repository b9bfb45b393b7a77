//! Tensors of DLPack as blobs: in place where that is sound, else copied. A producer's statements are checked before
//! they are used; its pointers are believed.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use synced_mem::{Access, HostBuffer, Queue, SharedMem};

use super::strided::Strided;
use super::{CPU, CUDA_HOST, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION, dtype};
use crate::blob::AnyBlob;
use crate::dtype::DType;
use crate::error::Error;
use crate::extents::{MAX_AXES, Shape};
use crate::part::Part;

/// A struct of DLPack that is lent: the versioned one or the older one.
pub trait Managed: sealed::Managed {}

impl Managed for DLManagedTensor {}
impl Managed for DLManagedTensorVersioned {}

mod sealed {
    use super::DLTensor;

    pub trait Managed: Sized + 'static {
        fn tensor(&self) -> &DLTensor;

        /// The flags; none of the older struct.
        fn flags(&self) -> Option<u64>;

        /// The major version, where it is stated.
        fn major(&self) -> Option<u32>;

        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
    }
}

impl sealed::Managed for DLManagedTensor {
    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn flags(&self) -> Option<u64> {
        None
    }

    fn major(&self) -> Option<u32> {
        None
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

impl sealed::Managed for DLManagedTensorVersioned {
    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn flags(&self) -> Option<u64> {
        Some(self.flags)
    }

    fn major(&self) -> Option<u32> {
        Some(self.version.major)
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// A tensor that is lent to us; dropped, it is given back.
struct Taken<M: Managed>(NonNull<M>);

// SAFETY: DLPack's deleter may be called from any thread, and nothing else is done with the struct after it was read.
unsafe impl<M: Managed> Send for Taken<M> {}
// SAFETY: a shared reference gives nothing but what is read of the struct, which nothing changes.
unsafe impl<M: Managed> Sync for Taken<M> {}

impl<M: Managed> Drop for Taken<M> {
    fn drop(&mut self) {
        // SAFETY: the struct is ours until its deleter is called (`from_dlpack`).
        if let Some(deleter) = unsafe { self.0.as_ref() }.deleter() {
            // SAFETY: this is the one call.
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

/// A tensor's statements, checked.
struct Stated {
    dtype: DType,
    shape: Shape,
    strides: Strided,
    /// The bytes from the lowest element to the end of the highest: their address, 0 if there are none, and number.
    start: usize,
    len: usize,
}

impl AnyBlob {
    /// A blob of a tensor of another library. The values stay where they are, and the tensor is given back with the
    /// last use of the blob, if the tensor is versioned and its elements lie row after row, at a multiple of their size
    /// on the host, or to be written on a device; otherwise they are copied, and the tensor is given back now. An error
    /// gives it back, too.
    ///
    /// Values on a device need a queue of that device, `ready_on`, behind whose work so far they are complete.
    ///
    /// # Safety
    /// * The struct is one that a producer has made as DLPack asks, and that nobody else has taken or will.
    /// * Until the deleter is called, the values are initialised, and written by nobody but this blob; nor read by
    ///   others, unless the tensor is read-only.
    ///
    /// # Errors
    /// [`Error::Dlpack`] where the statements contradict themselves, or no blob can be like that; [`Error::Memory`].
    pub unsafe fn from_dlpack<M: Managed>(
        tensor: NonNull<M>,
        ready_on: Option<&Arc<dyn Queue>>,
    ) -> Result<Self, Error> {
        let taken = Taken(tensor);
        // SAFETY: the struct lives until its deleter is called, which `taken` does.
        let managed = unsafe { tensor.as_ref() };
        if let Some(major) = managed.major().filter(|major| *major != VERSION.major) {
            return Err(contradicts(format!("version {major}; known is {}", VERSION.major)));
        }
        let device = managed.tensor().device;
        let is_host = device.device_type == CPU || device.device_type == CUDA_HOST;
        // SAFETY: the caller says that a producer has made the struct as DLPack asks: so `ndim` extents lie at `shape`,
        // and as many strides at `strides`, or null is there. They live as long as the struct, which `taken` keeps.
        let stated = unsafe { stated(managed.tensor())? };
        if stated.shape.count() == 0 {
            return Self::new(stated.shape, stated.dtype);
        }
        if !is_host {
            let is_ours = managed.flags().is_some_and(|flags| flags & READ_ONLY == 0);
            let queue = of_device(device, ready_on)?;
            // SAFETY: the caller promises the values, on that device as `of_device` has found.
            return unsafe { on_device(stated, queue, is_ours, taken) };
        }
        let first = managed.tensor().data.cast::<u8>().with_addr(stated.start);
        let first = NonNull::new(first).ok_or_else(|| contradicts("values at address 0"))?;
        match managed.flags() {
            Some(flags) if stated.strides.is_plain() && stated.start.is_multiple_of(stated.dtype.size()) => {
                let access = if flags & READ_ONLY == 0 { Access::Write } else { Access::Read };
                // SAFETY: the caller promises the values, which lie in these bytes and fill them, as they are plain.
                // They stay until the deleter is called, when `taken` is dropped.
                let bytes = unsafe { HostBuffer::from_raw(first, stated.strides.len(), access, Box::new(taken)) };
                Self::from_parts(stated.shape, stated.dtype, SharedMem::from(bytes), None)
            }
            _ => {
                let mut copy = Self::new(stated.shape, stated.dtype)?;
                stated.strides.gather(stated.dtype.size(), &mut copy.data_mut().overwrite_bytes()?, |at, out| {
                    // SAFETY: an element lies there, as the caller promises; `out` is as long, and memory of ours. The
                    // bytes between elements, which may be others' to write, are not read.
                    unsafe { first.add(at).copy_to_nonoverlapping(NonNull::from(out).cast(), stated.dtype.size()) };
                });
                Ok(copy)
            }
        }
    }
}

/// A blob of values on the queue's device: in place if they are `ours` to write and plain.
///
/// # Safety
/// The values are there as stated, complete behind the queue's work so far, until `taken` is dropped.
unsafe fn on_device<M: Managed>(
    stated: Stated,
    queue: &Arc<dyn Queue>,
    is_ours: bool,
    taken: Taken<M>,
) -> Result<AnyBlob, Error> {
    let Stated { dtype, shape, strides, start, len } = stated;
    let source = SharedMem::new(len);
    // SAFETY: the caller says that the values lie there, in memory of the queue's device, and stay until `taken`, which
    // the memory keeps, is dropped. Nobody else writes them, nor reads them where they are `ours`; otherwise `source`
    // is only read, and dropped before this function returns.
    unsafe { source.adopt_device(queue, start as u64, len, Box::new(taken))? };
    if strides.is_plain() && is_ours {
        return AnyBlob::from_parts(shape, dtype, source, None);
    }
    let mut copy = AnyBlob::new(shape, dtype)?;
    if strides.is_plain() {
        copy.memory(Part::Data).copy_from(0, &source, ..)?;
    } else {
        let (bytes, size) = (source.host(..)?, dtype.size());
        strides.gather(size, &mut copy.data_mut().overwrite_bytes()?, |at, out| {
            out.copy_from_slice(&bytes[at..at + size]);
        });
    }
    Ok(copy)
}

/// The queue, if it is one of that device.
fn of_device(device: DLDevice, ready_on: Option<&Arc<dyn Queue>>) -> Result<&Arc<dyn Queue>, Error> {
    let DLDevice { device_type, device_id } = device;
    let queue = ready_on.ok_or_else(|| contradicts("values on a device: give a queue of that device"))?;
    if queue.device().dlpack() == Some((device_type, device_id)) {
        return Ok(queue);
    }
    Err(contradicts(format!(
        "values on device {device_id} of kind {device_type}, and the queue is one of {:?}",
        queue.device().name()
    )))
}

/// Checks a tensor's statements. No value is read.
///
/// # Safety
/// `ndim` extents lie at `shape`, and as many strides at `strides`, where these are not null.
unsafe fn stated(tensor: &DLTensor) -> Result<Stated, Error> {
    let dtype = dtype(tensor.dtype).ok_or_else(|| {
        contradicts(format!("elements that no blob has: code {}, {} bits", tensor.dtype.code, tensor.dtype.bits))
    })?;
    let axes = usize::try_from(tensor.ndim).ok().filter(|axes| *axes <= MAX_AXES);
    let axes = axes.ok_or_else(|| contradicts(format!("{} axes; a blob has 0 to {MAX_AXES}", tensor.ndim)))?;
    if axes > 0 && tensor.shape.is_null() {
        return Err(contradicts("axes, but no shape"));
    }
    let list = |at: *mut i64| {
        // SAFETY: the caller promises as many numbers there; asked for a null pointer only of 0 axes.
        if axes == 0 { &[] } else { unsafe { slice::from_raw_parts(at, axes) } }
    };
    let dims: Result<Vec<usize>, _> = list(tensor.shape).iter().map(|extent| usize::try_from(*extent)).collect();
    let dims = dims.map_err(|_| contradicts("a negative extent"))?;
    let shape = Shape::new(&dims)?;
    let strides = (!tensor.strides.is_null()).then(|| list(tensor.strides));
    let strides = Strided::new(&dims, strides, dtype.size());
    let strides = strides.ok_or_else(|| contradicts("strides past all addresses"))?;
    if shape.count() == 0 {
        return Ok(Stated { dtype, shape, strides, start: 0, len: 0 });
    }
    if tensor.data.is_null() {
        return Err(contradicts("values, but no address"));
    }
    let first = usize::try_from(tensor.byte_offset).ok().and_then(|offset| tensor.data.addr().checked_add(offset));
    let start = first.and_then(|first| first.checked_sub(strides.below()));
    let start = start.filter(|start| start.checked_add(strides.len()).is_some());
    let start = start.ok_or_else(|| contradicts("values past all addresses"))?;
    let len = strides.len();
    Ok(Stated { dtype, shape, strides, start, len })
}

fn contradicts(what: impl Into<String>) -> Error {
    Error::Dlpack { reason: what.into() }
}
