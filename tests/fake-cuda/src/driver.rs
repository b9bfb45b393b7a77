//! The driver's state behind the entry points: devices with the memory, streams, events, modules, and counters for the
//! tests. One lock guards all of it; kernels run while a synchronising call holds it. Each entry point goes through
//! [`call`], which counts the call, injects a planned failure, and refuses the call if the driver, the context or the
//! device is in the wrong state.

mod calls;
mod context;
mod modules;
mod pinned;
mod pools;
mod streams;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::Code;
use crate::memory::Memory;
use crate::random::Random;
use crate::setup::Setup;
pub(crate) use calls::{Calls, Kind};
pub(crate) use context::{current, handle as context_handle, set_current};
pub(crate) use pools::Pools;
pub(crate) use work::{Place, Work};

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

/// The state of the library.
pub(crate) struct Driver {
    pub(crate) setup: Setup,
    pub(crate) calls: Calls,
    pub(crate) is_initialised: bool,
    pub(crate) devices: Vec<context::Device>,
    pub(crate) memory: Memory,
    pub(crate) pools: Pools,
    pub(crate) pinned: pinned::Pinned,
    pub(crate) streams: streams::Streams,
    pub(crate) modules: modules::Modules,
    pub(crate) reports: Vec<String>,
    pub(crate) random: Random,
}

/// At most this many reports are kept: the first ones show the cause.
const MAX_REPORTS: usize = 64;

impl Driver {
    fn new(setup: Setup, memory: Memory) -> Driver {
        Driver {
            devices: (0..setup.devices).map(|_| context::Device::default()).collect(),
            calls: Calls::default(),
            is_initialised: false,
            memory,
            pools: pools::Pools::new(&setup),
            pinned: pinned::Pinned::default(),
            streams: streams::Streams::new(setup.devices as usize),
            modules: modules::Modules::default(),
            reports: Vec::new(),
            random: Random::new(setup.seed),
            setup,
        }
    }

    /// Resets the state. The driver stays initialised, because a program does so only once.
    pub(crate) fn reset(&mut self, setup: Setup) {
        self.pinned.free_all();
        let memory = std::mem::take(&mut self.memory).emptied();
        let is_initialised = self.is_initialised;
        *self = Driver { is_initialised, ..Driver::new(setup, memory) };
    }

    /// Reports a mistake to the tests.
    pub(crate) fn report(&mut self, text: impl Into<String>) {
        if self.reports.len() < MAX_REPORTS {
            self.reports.push(text.into());
        }
    }

    /// Reports a mistake, for which the call returns an error code.
    pub(crate) fn refuse(&mut self, code: Code, text: impl Into<String>) -> Code {
        self.report(text);
        code
    }
}

/// The driver, locked.
pub(crate) fn lock() -> Guard {
    let mut guard = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(|| Driver::new(Setup::from_environment(), Memory::default()));
    Guard(guard)
}

/// The lock, through which the driver is seen.
pub(crate) struct Guard(MutexGuard<'static, Option<Driver>>);

impl Guard {
    pub(crate) fn driver(&mut self) -> &mut Driver {
        self.0.as_mut().expect("made when it was locked")
    }
}

/// Runs an entry point: counts the call, injects a planned failure, and refuses what the state does not allow. Returns
/// a `CUresult`.
pub(crate) fn call(name: &'static str, kind: Kind, body: impl FnOnce(&mut Driver) -> Result<(), Code>) -> u32 {
    let mut guard = lock();
    let driver = guard.driver();
    let planned = driver.calls.enter(name);
    let is_ready = driver.is_ready(kind);
    let result = match (planned, is_ready) {
        // A call that releases something does so even on failure; otherwise each injected failure would be a leak.
        (Some(code), _) if kind == Kind::Release => body(driver).and(Err(code)),
        (Some(code), _) => Err(code),
        (None, Err(code)) if kind == Kind::Release && code.is_sticky() => body(driver).and(Err(code)),
        (None, Err(code)) => Err(code),
        (None, Ok(())) => body(driver),
    };
    if let Some(code) = planned.filter(|code| code.is_sticky()) {
        driver.fail_current(code);
    }
    result.err().map_or(0, |code| code.0)
}
