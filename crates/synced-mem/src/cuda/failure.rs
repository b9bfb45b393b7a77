//! A call of the driver that has failed, and whether the context is lost too. Asks the driver nothing: a name
//! comes from the bindings, because a driver that is in trouble is the wrong one to ask.

use std::fmt;

use cudarc::driver::sys::CUresult;

/// A call of the CUDA driver that has failed: the source of an [`Error::Device`](crate::Error::Device).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The driver's function.
    pub call: &'static str,
    /// The answer, a `CUresult`.
    pub code: u32,
    result: CUresult,
}

impl Failure {
    fn new(call: &'static str, result: CUresult) -> Self {
        Self { call, code: result as u32, result }
    }

    /// An allocation that has given nothing and said no error.
    pub(super) fn out_of_memory(call: &'static str) -> Self {
        Self::new(call, CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// A call in a forked process, where the driver does not work.
    pub(super) fn forked() -> Self {
        Self::new("fork", CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    /// A transfer that was ended by its caller, who has the reason.
    pub(super) fn ended() -> Self {
        Self::new("fill", CUresult::CUDA_ERROR_UNKNOWN)
    }

    pub(super) fn is_out_of_memory(&self) -> bool {
        self.result == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.result == CUresult::CUDA_ERROR_NOT_READY
    }

    /// Whether one context has access to the other already.
    pub(super) fn is_enabled_already(&self) -> bool {
        self.result == CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    }

    /// Whether a context that has answered so never works again.
    pub(super) fn is_sticky(&self) -> bool {
        // CUDA driver API, `CUresult`: "leaves the process in an inconsistent state", and codes that end a context.
        matches!(self.code, 4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 911)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} ({})", self.call, self.result, self.code)
    }
}

impl std::error::Error for Failure {}

/// The answer of a call of the driver.
pub(super) fn answer(call: &'static str, code: CUresult) -> Result<(), Failure> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Failure::new(call, code)),
    }
}
