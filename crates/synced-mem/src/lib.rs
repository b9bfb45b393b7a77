//! One buffer, any number of copies, moved only when needed.
//!
//! This crate knows bytes and places. The crate does not know shapes, element types, files or kernels.
//!
//! * [`SyncedMem`] has one owner: the compiler checks the borrows, and slices are plain slices.
//! * [`SharedMem`] has any number of handles: byte ranges are borrowed at run time, a conflict is an error at once.
//! * [`Device`] and [`Queue`] are what a backend implements; [`loopback`] is one, of host memory, for tests.
#![doc = include_str!("../README.md")]
//!
//! # What is valid where
//!
//! Each copy (the host's own memory, adopted read-only bytes, each device's) has a set of valid byte ranges, V(copy).
//! So has the [`Origin`] of a memory that was made of one, such as a range of a file: it is a copy that is only read.
//!
//! | access to `range` of a copy | moved before it | V afterwards | needs |
//! |---|---|---|---|
//! | read | what V(copy) lacks of the range: from where it is valid; zeros where nothing was ever written | V(copy) ∪ range | `&self` |
//! | write | as a read | range in V(copy) alone | `&mut self`, or no other borrow of the range |
//! | overwrite | nothing | range in V(copy) alone | as a write |
//! | evict | what only this copy holds: to the host, or from the host to a device; from the origin to the host | V(copy) ∖ range | `&mut self`, or no borrow there |
//! | adopt | nothing | everything in V(adopted) alone | as a write of everything |
//!
//! A set has at most 256 ranges, and fewer in a memory of less than 16 KiB (16 up to 1 KiB). Up to there nothing moves
//! but what is asked for. Beyond that a range on the host is given up that another copy holds too; where plain slices
//! forbid that, and on a device, the smallest gap is closed by moving its bytes, or, where they are being written, a
//! range given up there. No gap is closed with bytes that would have to be read from an origin, so that a memory with
//! an origin, written at many places, has a range for each. [`SyncedMem::head`] is Caffe's view.
//!
//! A state changes only after its action has succeeded, and every byte ever written is valid in some copy.
//!
//! # Who may still be using a copy
//!
//! Work on a queue outlives the borrow it was launched under. So each copy remembers which queue reads or writes which
//! range. An access that conflicts with that waits for an event recorded *then*, at the tail of that queue: behind
//! everything that was launched. With one queue there are no events at all; leaked guards and tokens do no harm.
//!
//! A copy on a device remembers at most 64 such uses (by queue, reading or writing) that could be over: beyond that the
//! oldest queues are synchronised and forgotten, so a queue for each request is no leak. Uses under a live token stay.
//!
//! # When a queue fails
//!
//! A queue is taken for broken when synchronising it has failed twice in a row. The error names it, and it is refused
//! work. Nothing else waits for it: bytes that are valid in another copy stay usable everywhere. Where it may still use
//! a copy, that copy is given up if others hold its bytes, or, on the host, replaced unless a guard writes there; what
//! is left to the queue is leaked once and counted in [`Stats::leaks`]. Bytes that it alone was to deliver are an error
//! until they are overwritten. 64 such queues are remembered, and of older ones what they may still read on the host.
//! What no access has asked for, such as merging ranges and giving memory back, may fail too: nothing is lost by it, it
//! is counted in [`Stats::failures`], and an observer is told.
//!
//! # Who may call what from where
//!
//! | code that is not this crate's | when it runs | what it may do with memories |
//! |---|---|---|
//! | an owner's `as_ref` | once, on adoption, with nothing locked | use any |
//! | an owner's destructor, an observer's | after the work of the call that let it go, with nothing locked | use any, this one included; but the borrow that this call returns stands already |
//! | [`Origin::read`] | with the memory's lock released | use any but this one |
//! | an origin's destructor | as an owner's | as an owner's |
//! | [`Observer::event`] | after the work of the call it tells of, with nothing locked | use any, this one included; drop its last handle |
//! | [`Queue::synchronize`], [`Queue::wait_for`], [`Queue::make_room`] | with the memory's lock released | use none, but wait for code that does, such as a kernel |
//! | a [`Block`]'s destructor | with the memory's lock released | use none |
//! | all else of a [`Device`] or a [`Queue`] | with the memory's lock held | use none, nor wait for code that does |
//! | a kernel of the loopback | see [`loopback::launch`] | use any, but not wait for its own end |
//!
//! Nothing of this runs while a borrow is being checked, but a call that waits has entered its own borrow before: what
//! is in conflict with that gets [`Error::Conflict`] at once. The work of a memory's end is done by the thread that
//! drops the last handle.
//!
//! # After a fork
//!
//! A child process has the memories of its parent, but not the threads that may have been using them. So there, on
//! Linux, each access to a memory, pool, budget, loopback or GPU from before the fork is [`Error::Forked`], a call that
//! cannot return that panics with its text, and a destructor leaks. Lock-free reads go on: [`SyncedMem::host`] and
//! [`SharedMem::host`] of all bytes, where the parent has read all. Memories that are made in the child work, and GPUs
//! where the parent has asked for none.
//!
//! # GPUs
//!
//! With the feature `cuda` the module `cuda` is a backend for NVIDIA's: `Cuda::open(0)` gives a [`Device`], and
//! `cuda::launch` runs kernels of PTX text on what tokens borrow. It loads the driver when it is asked for, and needs
//! no toolkit. Without a driver (of CUDA 12.0 at least) opening is an error that says why; nothing else changes.
//!
//! # For those who know Caffe
//!
//! | `caffe::SyncedMemory` | here |
//! |---|---|
//! | `SyncedMemory(size)`, `size()` | [`SyncedMem::new`], [`len`](SyncedMem::len); [`SharedMem::new`] |
//! | `cpu_data()` | [`host`](SyncedMem::host) |
//! | `mutable_cpu_data()` | [`host_mut`](SyncedMem::host_mut); [`host_overwrite`](SyncedMem::host_overwrite) where all is written, which moves nothing |
//! | `gpu_data()`, `mutable_gpu_data()` | [`device`](SyncedMem::device), [`device_mut`](SyncedMem::device_mut), [`device_overwrite`](SyncedMem::device_overwrite) |
//! | `set_cpu_data(p)` | [`adopt`](SyncedMem::adopt) of a vector, of bytes [with an owner](HostBuffer::from_owner), or of [raw ones](HostBuffer::from_raw) |
//! | `set_gpu_data(p)` | [`adopt_device`](SyncedMem::adopt_device) |
//! | `async_gpu_push(stream)` | [`upload`](SyncedMem::upload); and back: [`prefetch_host`](SyncedMem::prefetch_host) |
//! | `head()` | [`head`](SyncedMem::head) |
//! | `shared_ptr`, `Blob::ShareData` | [`SharedMem`], cloned |
//! | `gpu_shape()` of a blob | left out: kernels take plans as parameters |
//!
//! Different on purpose: failures are errors, not aborts. `async_gpu_push` leaves Caffe in the state SYNCED before the
//! copy has happened; here an access that needs the bytes waits for them. Adopted bytes are read-only unless adopted
//! otherwise. Several devices are coherent, where Caffe reads another device's memory or dies. A device that is not the
//! current one does not matter, because every access names its queue. There is no mode of the thread: code that wants
//! the device asks for it.
//!
//! # For those who know NeoML
//!
//! | `CDnnBlob::GetBuffer` | here |
//! |---|---|
//! | `GetBuffer(pos, size, true)` … `ReleaseBuffer(ptr, false)` (`TDnnBlobBufferAccess::Read`) | [`SharedMem::host`] of that range |
//! | `GetBuffer(pos, size, false)` … `ReleaseBuffer(ptr, true)` (`Write`) | [`SharedMem::host_overwrite`] |
//! | `GetBuffer(pos, size, true)` … `ReleaseBuffer(ptr, true)` (`ReadWrite`) | [`SharedMem::host_mut`] |
//! | `GetBuffer(pos, size, false)` … `ReleaseBuffer(ptr, false)` | nothing is read or kept: nothing to call |
//! | `TransferDataToThisThread` | nothing: memory belongs to no thread |
//! | `GetCurrentMemoryUsage`, `GetPeakMemoryUsage`, `GetMemoryInPools`, `CleanUp` | [`SyncedMem::stats`], [`Device::meter`], [`HostPool`] |
//!
//! Different on purpose: the position is honoured on every backend; guards end in any order, on any thread; writing
//! through a guard takes effect on devices too; a range outside the memory is an error, not a null pointer.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod access;
mod borrow;
mod budget;
mod coherence;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
pub mod cuda;
#[allow(unsafe_code)]
mod device;
mod engine;
mod error;
mod host;
mod ledger;
#[allow(unsafe_code)]
pub mod loopback;
mod meter;
mod origin;
#[allow(unsafe_code)]
mod owned;
mod shared;
mod stats;
mod sync;

pub use access::{Access, DeviceId, Head, Location, QueueId};
pub use borrow::{Arg, DeviceMut, DeviceRef};
pub use budget::Budget;
pub use device::{Block, Device, Host, HostBlock, Queue};
pub use engine::state::Lacking;
pub use error::Error;
pub use host::buffer::HostBuffer;
pub use host::pool::{HostPool, PoolStats};
pub use ledger::BudgetStats;
pub use meter::Meter;
pub use origin::{Origin, OriginError};
pub use owned::SyncedMem;
pub use owned::scope::{LentMut, Scope, scope};
pub use shared::SharedMem;
pub use shared::guards::{HostMut, HostRef};
pub use stats::{Event, EventKind, Observer, Stats, Traffic};
