//! A request as an operation carries it through the loop: with memory from outside, and with the share of a token. Data
//! alone: `coherence::plan` decides, `perform` acts.

use std::any::Any;
use std::sync::Arc;

use crate::coherence::plan::Request;
use crate::coherence::replicas::Slot;
use crate::device::Block;
use crate::device::token::DeviceRef;
use crate::engine::queue::QueueHandle;
use crate::host::buffer::HostBuffer;

/// A request, with the memory that it brings and the share of a token that it takes away.
pub(crate) struct Operation<'a> {
    pub(crate) request: Request<QueueHandle>,
    /// The entry of the borrow table under which the request is made.
    pub(crate) borrow: Option<u64>,
    pub(crate) brings: Option<Box<Brings<'a>>>,
    /// Whether the bytes are for another memory, so that the place of the last use stays.
    pub(crate) is_for_another: bool,
    /// The copy that the request is about, once known.
    pub(crate) slot: Option<Slot>,
    /// For a token without a guard: while the share is held, the use of the token is not over.
    pub(crate) hold: Option<Arc<()>>,
}

/// Bytes or memory from outside.
pub(crate) enum Brings<'a> {
    /// Bytes of another memory, on the queue of the request. As many as the request's range has.
    Bytes(&'a DeviceRef<'a>),
    /// As long as the memory.
    Buffer(HostBuffer),
    /// As long as the memory, of the queue's device. The owner keeps it.
    Block(QueueHandle, Box<dyn Block>, Box<dyn Any + Send + Sync>),
}

impl Operation<'_> {
    pub(crate) fn new(request: Request<QueueHandle>) -> Self {
        Self { request, borrow: None, brings: None, is_for_another: false, slot: None, hold: None }
    }
}
