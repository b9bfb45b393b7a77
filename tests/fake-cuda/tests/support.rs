//! Calls of the loaded driver, and a child process for what ends a process.

use std::ffi::CString;

use fake_cuda::control::{self, Session, Setup};

/// Calls an entry point by name; the arguments' types are those that the call is written with.
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let address = crate::support::address(stringify!($name));
        // SAFETY: the library exports the name with C's interface, which the arguments here follow.
        let call: extern "C" fn($(crate::support::any!($arg)),*) -> u32 = unsafe { std::mem::transmute(address) };
        call($($arg),*)
    }};
}
pub(crate) use cu;

/// The type that the argument has.
macro_rules! any {
    ($arg:expr) => {
        _
    };
}
pub(crate) use any;

/// Calls an entry point that must succeed.
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(crate::support::cu!($name($($arg),*)), 0, stringify!($name))
    };
}
pub(crate) use ok;

pub(crate) fn address(name: &str) -> usize {
    control::symbol(&CString::new(name).unwrap())
}

/// One device's context and streams on a fresh driver.
pub(crate) struct Gpu {
    pub(crate) session: Session,
    pub(crate) context: usize,
}

impl Gpu {
    pub(crate) fn start(setup: Setup) -> Gpu {
        let session = Session::start(setup);
        ok!(cuInit(0u32));
        let mut gpu = Gpu { session, context: 0 };
        gpu.context = gpu.context_of(0);
        gpu
    }

    pub(crate) fn seed(seed: u64) -> Gpu {
        Gpu::start(Setup { seed, ..Setup::default() })
    }

    /// Makes a device's context this thread's.
    pub(crate) fn context_of(&self, device: i32) -> usize {
        let mut context = 0usize;
        ok!(cuDevicePrimaryCtxRetain(&raw mut context, device));
        ok!(cuCtxSetCurrent(context));
        context
    }

    pub(crate) fn stream(&self) -> usize {
        let mut stream = 0usize;
        ok!(cuStreamCreate(&raw mut stream, 1u32));
        stream
    }

    pub(crate) fn event(&self) -> usize {
        let mut event = 0usize;
        ok!(cuEventCreate(&raw mut event, 2u32));
        event
    }

    pub(crate) fn block(&self, len: usize) -> u64 {
        let mut address = 0u64;
        ok!(cuMemAlloc_v2(&raw mut address, len));
        address
    }

    pub(crate) fn pinned(&self, bytes: &[u8]) -> &'static mut [u8] {
        let mut start = 0usize;
        ok!(cuMemHostAlloc(&raw mut start, bytes.len(), 0u32));
        // SAFETY: a new block of this length, which the tests free no earlier than they stop using it.
        let block = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, bytes.len()) };
        block.copy_from_slice(bytes);
        block
    }

    /// A block that holds these bytes.
    pub(crate) fn filled(&self, bytes: &[u8]) -> u64 {
        let address = self.block(bytes.len());
        ok!(cuMemcpyHtoD_v2(address, bytes.as_ptr(), bytes.len()));
        address
    }

    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; len];
        ok!(cuMemcpyDtoH_v2(bytes.as_mut_ptr(), address, len));
        bytes
    }
}
