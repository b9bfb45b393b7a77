//! What a device is given for a piece of work: launches of kernels and the structs that they take. Pure: it knows no
//! queue.

pub(crate) mod launches;
pub(crate) mod params;
