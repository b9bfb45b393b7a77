//! A suite that every backend must pass: the promises of `Queue`, tested through raw calls, a check for each promise.
//! Relies on `device` for the promises and on nothing of any backend.
//! Leaves out a promise that raw calls cannot show: that a backend never waits for code that uses a memory.
//!
//! You call the suite in one line of a test:
//!
//! ```
//! use synced_mem::{conformance, loopback};
//!
//! let device = loopback::Loopback::new(loopback::Mode::Deferred);
//! conformance::run(&*device)?;
//! conformance::run_pair(&*device, &*device.sibling())?;
//! # Ok::<(), conformance::Failure>(())
//! ```

mod blocks;
mod bytes;
mod order;
mod pair;
#[allow(unsafe_code)]
mod probe;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Device, Error};
use probe::Bench;

/// A promise that a backend does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The check that failed.
    pub check: &'static str,
    /// The number of the promise of [`Queue`](crate::Queue) that the check tests.
    pub promise: u8,
    /// The observation.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, promise, message } = self;
        write!(f, "promise {promise}, check `{check}`: {message}")
    }
}

impl std::error::Error for Failure {}

/// Tests a device; returns the number of passed checks. The device must have no other user meanwhile.
///
/// The suite takes less than 100 MiB of the device's memory, and about a second.
///
/// # Errors
/// The first check that failed. Blocks and host bytes of that check are leaked, because the device may still use them.
pub fn run(device: &dyn Device) -> Result<usize, Failure> {
    run_all(ALONE, device, device)
}

/// Tests the promises of two devices to each other, of one backend or of two, each of which has passed [`run`].
///
/// # Errors
/// As [`run`].
pub fn run_pair(first: &dyn Device, second: &dyn Device) -> Result<usize, Failure> {
    run_all(PAIR, first, second)
}

/// A test of one promise.
struct Check {
    name: &'static str,
    promise: u8,
    run: fn(&Bench<'_>) -> Result<(), Flaw>,
}

/// The fault, in words.
struct Flaw(String);

impl From<Error> for Flaw {
    fn from(error: Error) -> Self {
        Flaw(format!("failed where nothing was wrong: {error}"))
    }
}

const fn check(name: &'static str, promise: u8, run: fn(&Bench<'_>) -> Result<(), Flaw>) -> Check {
    Check { name, promise, run }
}

/// In an order such that each relies only on what an earlier one has tested, so that a broken promise fails the check
/// that it belongs to: those before `exact transfers` look at the middle of their bytes alone, `synchronize` at one
/// operation between two synchronisations, and `allocation` at no bytes.
const ALONE: &[Check] = &[
    check("identity", 1, blocks::identity),
    check("ways", 10, blocks::ways),
    check("allocation", 7, blocks::allocation),
    check("synchronize", 4, order::synchronize),
    check("order", 2, order::order),
    check("waiting", 3, order::waiting),
    check("synchronize covers waits", 4, order::synchronize_covers_waits),
    check("exact transfers", 5, bytes::transfers),
    check("exact uploads from a function", 5, bytes::filled),
    check("exact copies", 5, bytes::copies),
    check("exact fills", 5, bytes::fills),
    check("host bytes", 6, bytes::host_bytes),
    check("done with host bytes", 6, bytes::done),
    check("views of host bytes", 6, bytes::views),
    check("blocks are apart", 7, blocks::apart),
    check("free in order", 7, blocks::free_in_order),
    check("adopt", 7, blocks::adopt),
    check("errors", 8, blocks::errors),
    check("threads", 2, order::threads),
    check("innocence", 9, order::innocence),
];

const PAIR: &[Check] = &[
    check("identity of two", 1, pair::identity),
    check("ways between two", 10, pair::ways),
    check("waiting for the other", 3, pair::waiting),
    check("copies between two", 5, pair::copies),
];

fn run_all(checks: &[Check], first: &dyn Device, second: &dyn Device) -> Result<usize, Failure> {
    for Check { name, promise, run } in checks {
        run_one(*run, first, second).map_err(|Flaw(message)| Failure { check: name, promise: *promise, message })?;
    }
    Ok(checks.len())
}

/// A backend's panic is a flaw like any other: promise 8 has errors only.
fn run_one(run: impl Fn(&Bench<'_>) -> Result<(), Flaw>, first: &dyn Device, second: &dyn Device) -> Result<(), Flaw> {
    let bench = Bench::new(first, second);
    match catch_unwind(AssertUnwindSafe(|| run(&bench))) {
        Ok(result) => result?,
        Err(panic) => return Err(Flaw(format!("panicked: {}", words(panic.as_ref())))),
    }
    bench.clear()
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words")
}

/// Fails with `message` unless `holds`.
fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Flaw> {
    if holds { Ok(()) } else { Err(Flaw(message())) }
}
