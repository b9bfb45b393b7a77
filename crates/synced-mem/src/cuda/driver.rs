//! Calls of the driver about a GPU, or in the calling thread's context, as functions of Rust. Knows no context of
//! ours.

use std::ptr::{self, NonNull};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUevent, CUpointer_attribute};

use super::failure::{Failure, answer};

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for all contexts.
const PORTABLE: u32 = 1;

/// Waits for all work in the calling thread's context.
pub(super) fn wait_for_all() -> Result<(), Failure> {
    // SAFETY: the call takes nothing.
    answer("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
}

/// A GPU's handle.
pub(super) fn device(ordinal: usize) -> Result<CUdevice, Failure> {
    let mut device = 0;
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    // SAFETY: the call writes a handle, and returns an error for an ordinal without a GPU.
    answer("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal) })?;
    Ok(device)
}

/// An attribute of a GPU that is a count.
pub(super) fn attribute(device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, Failure> {
    let mut value = 0;
    // SAFETY: the call writes a number.
    answer("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The compute capability of a GPU: (9, 0) for 9.0.
pub(super) fn capability(device: CUdevice) -> Result<(u32, u32), Failure> {
    use CUdevice_attribute as A;
    let major = attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

/// The name of a GPU.
pub(super) fn name(device: CUdevice) -> Result<String, Failure> {
    let mut bytes = [0u8; 256];
    // SAFETY: the call writes at most the given number of bytes, the last one zero.
    let code = unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), bytes.len() as i32, device) };
    answer("cuDeviceGetName", code)?;
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The bytes of memory that a GPU has.
pub(super) fn total_memory(ordinal: usize) -> Result<usize, Failure> {
    let (mut total, device) = (0, device(ordinal)?);
    // SAFETY: the call writes a number.
    answer("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut total, device) })?;
    Ok(total)
}

/// Free bytes and all bytes, of the calling thread's context.
pub(super) fn memory_here() -> Result<(u64, u64), Failure> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the call writes two numbers.
    answer("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok((free as u64, total as u64))
}

/// The kind of memory at an address, a `CUmemorytype`.
pub(super) fn memory_type(address: u64) -> Result<u32, Failure> {
    of_address(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
}

/// The ordinal of the GPU that an address belongs to.
pub(super) fn ordinal(address: u64) -> Result<u32, Failure> {
    of_address(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
}

fn of_address(attribute: CUpointer_attribute, address: u64) -> Result<u32, Failure> {
    let mut value = 0u32;
    // SAFETY: the attributes that the callers name are numbers of 32 bits.
    let code = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
    answer("cuPointerGetAttribute", code).map(|()| value)
}

/// An event without a time.
pub(super) fn new_event() -> Result<CUevent, Failure> {
    const DISABLE_TIMING: u32 = 2;
    let mut event = ptr::null_mut();
    // SAFETY: the call writes a handle.
    answer("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, DISABLE_TIMING) })?;
    Ok(event)
}

/// `len` pinned bytes, in the calling thread's context.
pub(super) fn pin(len: usize) -> Result<NonNull<u8>, Failure> {
    let mut start = ptr::null_mut();
    // SAFETY: the call writes an address.
    answer("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut start, len, PORTABLE) })?;
    NonNull::new(start.cast()).ok_or(Failure::out_of_memory("cuMemHostAlloc"))
}

/// Frees an address of [`pin`], once, when no transfer uses the memory.
pub(super) fn unpin(start: NonNull<u8>) -> Result<(), Failure> {
    // SAFETY: the address came from `pin`, no transfer uses the memory, and the caller gives the address up, so that
    // the memory is freed once.
    answer("cuMemFreeHost", unsafe { sys::cuMemFreeHost(start.as_ptr().cast()) })
}
