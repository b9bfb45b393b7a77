//! A piece of work as a device's launches, with the structs that kernels take. Pure: knows no
//! queue.

pub(crate) mod launches;
pub(crate) mod params;
