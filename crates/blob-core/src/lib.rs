//! What the bytes of a tensor mean: its shape, its dtype, and the blob that holds its data and its diff.
//!
//! This crate does not know kernels, file formats or any GPU's interface.
//!
//! * [`Shape`]: 0 to 32 extents, row-major, with a count that fits.
//! * [`Axis`]: how an axis is named: by number, from the end, by Caffe's names ([`Nchw`]) or NeoML's ([`BlobDim`]).
//! * [`Dims7`]: the seven extents of a NeoML blob.
//! * [`DType`] and [`Element`]: what one element is, at run time and at compile time.
//! * [`AnyBlob`], [`Blob`]: a shape, a dtype, data and diff; the second with its dtype proven. [`Window`]: its steps.
//! * `strategies`, behind feature `proptest`: shapes, dims, dtypes, blobs and windows for property tests.
//!
//! ```
//! use blob_core::{AnyBlob, Blob, DType, Shape};
//!
//! let shape = Shape::new([2, 3])?;
//! let mut blob = Blob::from_slice(shape, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! blob.data_mut()?[4] *= 10.0;
//! assert!(!blob.has_diff()); // not allocated before it is touched
//! let any: AnyBlob = blob.into_any();
//! assert_eq!((any.dtype(), any.shape().to_string()), (DType::F32, "2×3".to_string()));
//! assert_eq!(any.data::<f32>()?[4], 50.0);
//! assert!(any.data::<f64>().is_err());
//! # Ok::<(), blob_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod axis;
mod blob;
mod buffer;
mod dims7;
mod dtype;
mod error;
mod part;
mod shape;
#[cfg(any(test, feature = "proptest"))]
pub mod strategies;
#[allow(unsafe_code)]
mod typed;
mod window;

pub use axis::{Axis, BlobDim, Nchw};
pub use blob::{AnyBlob, Parts};
pub use dims7::Dims7;
pub use dtype::{DType, Element};
pub use error::Error;
pub use shape::{MAX_AXES, Shape};
pub use typed::{Blob, Ref, RefMut};
pub use window::{Window, WindowMut, WindowRef, Windows};
