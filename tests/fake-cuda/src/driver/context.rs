//! Devices and the primary contexts: which is current on a thread, which has failed, and whether an entry point may
//! still run.

use std::cell::Cell;

use super::{Driver, Kind};
use crate::abi::Code;

thread_local! {
    /// The handle of this thread's context; 0 is none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// One GPU.
#[derive(Default)]
pub(crate) struct Device {
    /// The reference count of the primary context.
    pub(crate) retained: u64,
    /// The error that the context returns to every call.
    pub(crate) failed: Option<Code>,
    /// The devices whose memory the context can access.
    pub(crate) peers: Vec<usize>,
}

/// Contexts have their own range of handles, so that no other handle is mistaken for one.
const FIRST_CONTEXT: usize = 0xC0DE_0000;
const CONTEXT_STEP: usize = 0x10;

/// The handle of a device's primary context.
pub(crate) fn handle(device: usize) -> usize {
    FIRST_CONTEXT + device * CONTEXT_STEP
}

/// This thread's context.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Makes a context this thread's.
pub(crate) fn set_current(context: usize) {
    CURRENT.set(context);
}

impl Driver {
    /// The device of a context that is retained.
    pub(crate) fn device_of(&self, context: usize) -> Result<usize, Code> {
        let device = context.wrapping_sub(FIRST_CONTEXT) / CONTEXT_STEP;
        match self.devices.get(device) {
            Some(Device { retained: 1.., .. }) if handle(device) == context => Ok(device),
            _ => Err(Code::INVALID_CONTEXT),
        }
    }

    /// The device of this thread's context.
    pub(crate) fn current_device(&self) -> Result<usize, Code> {
        self.device_of(current())
    }

    /// The device with this number.
    pub(crate) fn device(&self, ordinal: i32) -> Result<usize, Code> {
        usize::try_from(ordinal).ok().filter(|at| *at < self.devices.len()).ok_or(Code::INVALID_DEVICE)
    }

    /// Whether an entry point of this kind may run.
    pub(crate) fn is_ready(&self, kind: Kind) -> Result<(), Code> {
        match kind {
            Kind::Early => return Ok(()),
            _ if !self.is_initialised => return Err(Code::NOT_INITIALIZED),
            Kind::Ready => return Ok(()),
            Kind::Context | Kind::Release => {}
        }
        match self.current_device() {
            Ok(device) => self.devices[device].failed.map_or(Ok(()), Err),
            Err(code) if kind == Kind::Context => Err(code),
            Err(_) => Ok(()),
        }
    }

    /// Fails the context of a device: from now on every call returns this code.
    pub(crate) fn fail(&mut self, device: usize, code: Code) {
        self.devices[device].failed.get_or_insert(code);
        self.streams.abandon(device);
    }

    /// Fails this thread's context.
    pub(crate) fn fail_current(&mut self, code: Code) {
        if let Ok(device) = self.current_device() {
            self.fail(device, code);
        }
    }

    /// Retains a device's primary context, and returns the handle.
    pub(crate) fn retain_context(&mut self, device: usize) -> usize {
        self.devices[device].retained += 1;
        handle(device)
    }

    /// Releases a primary context. The last release destroys it, and clears the failure.
    pub(crate) fn release_context(&mut self, device: usize) -> Result<(), Code> {
        let state = &mut self.devices[device];
        match state.retained {
            0 => return Err(self.refuse(Code::INVALID_CONTEXT, format!("context {device} is released too often"))),
            1 => *state = Device::default(),
            _ => state.retained -= 1,
        }
        Ok(())
    }
}
