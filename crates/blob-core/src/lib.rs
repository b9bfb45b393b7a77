//! The meaning of a tensor's bytes: shape, dtype, and the blob that holds data and diff.
//!
//! This crate does not know kernels, file formats or any GPU's interface.
//!
//! * [`Shape`]: 0 to 32 extents, row-major, with a count that fits.
//! * [`Axis`]: how an axis is named: by number, from the end, by Caffe's names ([`Nchw`]) or NeoML's ([`BlobDim`]).
//! * [`Dims7`]: the seven extents of a NeoML blob. [`DType`], [`Element`]: the type of an element.
//! * [`AnyBlob`], [`Blob`]: a shape, a dtype, data and diff. [`Window`]: some steps of one, in place.
//! * [`View`], [`ViewMut`]: the elements of any of these, of the data or the diff ([`Part`]), all or a range.
//! * `dlpack` and, for property tests, `strategies`, behind features: tensors of other libraries; random blobs.
#![doc = include_str!("../README.md")]
//!
//! A [`Blob`] is an [`AnyBlob`] whose dtype the compiler knows, and derefs to that. [`WindowRef`] and [`WindowMut`] are
//! borrowed windows, [`Window`] keeps a blob alive and moves.
//!
//! Each gives [`View`]s of data and diff to read and [`ViewMut`]s to write, and a view gives
//! elements as [`Ref`] and [`RefMut`], bytes, a range, one element, or a token for a device. Where all is
//! written and nothing read, `overwrite` moves nothing. Blobs can share memory, so each of these can fail with a
//! conflict. A `Blob`'s own [`data`](Blob::data), [`data_mut`](Blob::data_mut) and
//! [`data_overwrite`](Blob::data_overwrite) are the elements.
//!
//! # For those who know Caffe's `Blob`
//!
//! | `caffe::Blob` | here |
//! |---|---|
//! | `Reshape`, `ReshapeLike` | [`AnyBlob::reshape`] to a shape, or to a clone of another blob's |
//! | `shape(i)`, `CanonicalAxisIndex`, `count(a, b)` | [`Shape::extent`], [`Shape::axis`], [`Shape::count_range`] |
//! | `num()`, `channels()`, `LegacyShape`, `shape_string()` | [`Nchw`], [`Shape::legacy_extent`], [`Shape::shape_string`] |
//! | `offset`, `data_at`, `diff_at` | [`Shape::offset`], of a legacy blob that of [`Shape::legacy_pad_right`]; [`View::at`] of a [`part`](AnyBlob::part): strict |
//! | `cpu_data`, `mutable_cpu_data` | [`Blob::data`], [`Blob::data_mut`], [`Blob::data_overwrite`]; `elements` of [`AnyBlob::data`] and [`AnyBlob::data_mut`] |
//! | `cpu_diff`, `mutable_cpu_diff` | [`Blob::diff`], [`Blob::diff_mut`], [`Blob::diff_overwrite`]; of [`AnyBlob::diff`] and [`AnyBlob::diff_mut`] |
//! | `gpu_data`, `mutable_gpu_data` | [`View::device`], [`ViewMut::device`], [`ViewMut::overwrite_device`] |
//! | `async_gpu_push` | [`AnyBlob::upload`]; from pinned memory, [`AnyBlob::new_in`] |
//! | `set_cpu_data`, `set_gpu_data` | [`AnyBlob::replace_memory`], which other sharers do not see; `adopt_*` of [`AnyBlob::memory`], which they do |
//! | `CopyFrom`, `ShareData`, `ShareDiff` | [`AnyBlob::copy_from`], [`AnyBlob::share`] of a [`Part`] |
//! | `Update`, `asum_*`, `sumsq_*`, `scale_*` | crate `blob-ops` |
//!
//! # For those who know NeoML's `CDnnBlob`
//!
//! | `CDnnBlob` | here |
//! |---|---|
//! | `CBlobDesc`, `Create*Blob`, `Create*ImageBlob` | [`Dims7`], which lists the layouts, and [`AnyBlob::new`]; `DimSize` is `dims[BlobDim::Height]` |
//! | `GetObjectCount`, `GetObjectSize`, `GetGeometricalSize` | of [`Dims7::try_from`] its shape: [`Dims7::object_count`], [`Dims7::object_size`], [`Dims7::geometric_size`] |
//! | `GetBuffer`, `CDnnBlobBuffer` with `Read`, `Write`, `ReadWrite` | [`View::range`] and its [`elements`](View::elements); of [`ViewMut::range`] [`overwrite`](ViewMut::overwrite), [`elements`](ViewMut::elements) |
//! | `CreateWindowBlob`, `SetParentPos`, `ShiftParentPos` | [`AnyBlob::make_window`], [`Window::set_pos`], [`Window::shift`] |
//! | `GetCopy`, `GetClone`, `ReinterpretDimensions` | [`AnyBlob::try_clone`], [`AnyBlob::new`] of its shape, [`AnyBlob::reinterpret`] |
//! | `MergeByDim`, `SplitByDim`, `GetTransposed`, `Add`, `Fill`, `Clear` | crate `blob-ops` |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

// From the ground up: `dtype`, `extents`, `names`, `part`; `error`; `parse`, `shape`; `guards`; `view`; `blob`;
// `typed`, `window`; `in_place`; `prefetch`; `dlpack`.
mod blob;
#[cfg(feature = "dlpack")]
#[allow(unsafe_code)]
pub mod dlpack;
mod dtype;
mod error;
mod extents;
#[allow(unsafe_code)]
mod guards;
mod in_place;
mod names;
mod parse;
mod part;
mod prefetch;
mod shape;
mod typed;
mod view;
mod window;

#[cfg(any(test, feature = "proptest"))]
pub mod strategies;

pub use blob::AnyBlob;
pub use dtype::{DType, Element};
pub use error::Error;
pub use extents::{MAX_AXES, Shape};
pub use guards::{Ref, RefMut};
pub use in_place::BlobMut;
pub use names::{BlobDim, Nchw};
pub use part::Part;
pub use prefetch::prefetch;
pub use shape::axis::Axis;
pub use shape::dims7::Dims7;
pub use typed::Blob;
pub use view::{View, ViewMut};
pub use window::{Window, WindowMut, WindowRef, Windows};
