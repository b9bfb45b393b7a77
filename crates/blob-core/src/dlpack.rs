//! Tensors handed to other libraries and taken from them without a copy, by DLPack: torch, jax, cupy, candle, burn.
//!
//! The structs are those of dlpack.h 1.1. [`AnyBlob::to_dlpack`] exports what a queue's device has and
//! [`AnyBlob::to_dlpack_host`] what the host has; the borrow lasts until the consumer calls the deleter.
//! [`AnyBlob::from_dlpack`] imports. Both kinds of struct are made and taken: the versioned one, and the older one
//! without flags. No capsule of Python is known here.
//!
//! [`AnyBlob::to_dlpack`]: crate::AnyBlob::to_dlpack
//! [`AnyBlob::to_dlpack_host`]: crate::AnyBlob::to_dlpack_host
//! [`AnyBlob::from_dlpack`]: crate::AnyBlob::from_dlpack

mod export;
mod import;
mod strided;

use std::ffi::c_void;

use crate::dtype::DType;

pub use export::Exported;
pub use import::Managed;

/// `kDLCPU`.
pub const CPU: i32 = 1;
/// `kDLCUDA`.
pub const CUDA: i32 = 2;
/// `kDLCUDAHost`: memory of the host that a GPU reads too.
pub const CUDA_HOST: i32 = 3;

/// The version of the structs here.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// `DLPACK_FLAG_BITMASK_READ_ONLY`: the consumer must not write.
pub const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`: the producer shares the values with nobody.
pub const IS_COPIED: u64 = 1 << 1;

/// Where the values lie.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDevice {
    /// The kind: [`CPU`], [`CUDA`], [`CUDA_HOST`], or another.
    pub device_type: i32,
    /// Which of the kind.
    pub device_id: i32,
}

/// The type of an element.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    /// Signed, unsigned, float, bfloat, bool.
    pub code: u8,
    /// The size in bits.
    pub bits: u8,
    /// 1 unless the element is a vector.
    pub lanes: u16,
}

/// The values.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The first byte, `byte_offset` before the first element.
    pub data: *mut c_void,
    /// Where they lie.
    pub device: DLDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// `ndim` extents.
    pub shape: *mut i64,
    /// `ndim` strides in elements, or null where the tensor is contiguous.
    pub strides: *mut i64,
    /// See `data`.
    pub byte_offset: u64,
}

/// A tensor with the function that ends its loan, as before DLPack 1.0: without flags.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The values.
    pub dl_tensor: DLTensor,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Ends the loan; called once, from any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A version of DLPack.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Structs of another one have another layout.
    pub major: u32,
    /// The features.
    pub minor: u32,
}

/// A tensor with the function that ends its loan.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version that the producer has followed.
    pub version: DLPackVersion,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Ends the loan; called once, from any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// [`READ_ONLY`], [`IS_COPIED`].
    pub flags: u64,
    /// The values.
    pub dl_tensor: DLTensor,
}

/// DLPack's type of an element.
pub fn data_type(dtype: DType) -> DLDataType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
    };
    DLDataType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

/// The dtype of DLPack's type of an element; none where a blob has no such elements.
pub fn dtype(of: DLDataType) -> Option<DType> {
    DType::ALL.iter().find(|dtype| data_type(**dtype) == of).copied()
}
