//! The conformance suite of `synced-mem` passes every loopback, and finds the broken promise of each wrong backend in
//! the check that the promise belongs to.

use std::sync::Arc;

use synced_mem::Device;
use synced_mem::conformance::{self, Failure};
use synced_mem::loopback::{Loopback, Mode};

mod wrong;

use wrong::{Lie, WrongDevice};

fn modes() -> impl Iterator<Item = Mode> {
    let random = (0..4).map(Mode::Random);
    [Mode::Immediate, Mode::Deferred].into_iter().chain(random)
}

#[test]
fn every_mode_of_the_loopback_conforms() {
    for mode in modes() {
        let device = Loopback::new(mode);
        assert_eq!(conformance::run(&*device), Ok(17), "{mode:?}");
        assert_eq!(device.misuses(), [""; 0], "{mode:?}");
        assert_eq!((device.live_blocks(), device.bytes_in_use()), (0, 0), "{mode:?}");
    }
}

#[test]
fn siblings_and_foreign_loopbacks_conform_in_pairs() {
    for mode in modes() {
        let device = Loopback::new(mode);
        for other in [device.sibling(), Loopback::new(mode), Loopback::new(Mode::Deferred)] {
            assert_eq!(conformance::run_pair(&*device, &*other), Ok(4), "{mode:?}");
            assert_eq!(device.misuses(), [""; 0]);
            assert_eq!(other.misuses(), [""; 0]);
        }
    }
}

/// Without a lie the wrapper conforms, so that what is found is the lie.
#[test]
fn the_wrapper_itself_conforms() {
    let device = WrongDevice::new(Lie::None);
    assert_eq!(conformance::run(&*device), Ok(17));
    assert_eq!(conformance::run_pair(&*device, &*device.sibling()), Ok(4));
}

fn alone(lie: Lie) -> Result<usize, Failure> {
    conformance::run(&*WrongDevice::new(lie))
}

/// Each device passes alone; together they fail.
fn paired(lie: Lie) -> Result<usize, Failure> {
    let device = WrongDevice::new(lie);
    let second: Arc<dyn Device> = device.sibling();
    assert_eq!(conformance::run(&*device), Ok(17), "{lie:?}");
    conformance::run_pair(&*device, &*second)
}

#[track_caller]
fn assert_found(promise: u8, lies: &[(Lie, &str)], run: fn(Lie) -> Result<usize, Failure>) {
    for (lie, check) in lies {
        let failure = run(*lie).expect_err(&format!("{lie:?} passes"));
        assert_eq!((failure.promise(), failure.check()), (promise, *check), "{lie:?}: {failure}");
    }
}

#[test]
fn broken_identities_are_found() {
    let lies = [(Lie::ReusedId, "identity"), (Lie::OtherDevice, "identity")];
    assert_found(1, &lies, alone);
    assert_found(1, &[(Lie::SameDeviceId, "identity of two")], paired);
}

#[test]
fn broken_order_is_found() {
    let lies = [(Lie::OutOfOrder, "order"), (Lie::ThreadBound, "threads")];
    assert_found(2, &lies, alone);
}

#[test]
fn broken_waiting_is_found() {
    let lies = [(Lie::NoWait, "waiting"), (Lie::FirstWaitOnly, "waiting")];
    assert_found(3, &lies, alone);
    assert_found(3, &[(Lie::NoWaitForOther, "waiting for the other")], paired);
}

#[test]
fn broken_synchronisation_is_found() {
    let lies = [
        (Lie::NoSynchronize, "synchronize"),
        (Lie::LazyWait, "synchronize covers waits"),
        (Lie::NoWaitForIdle, "synchronize covers waits"),
    ];
    assert_found(4, &lies, alone);
}

#[test]
fn inexact_transfers_are_found() {
    let lies = [
        (Lie::ShortUpload, "exact transfers"),
        (Lie::ShiftedUpload, "exact transfers"),
        (Lie::ShiftedDownload, "exact transfers"),
        (Lie::ShortCopy, "exact copies"),
        (Lie::LongCopy, "exact copies"),
        (Lie::NoFill, "exact fills"),
        (Lie::LongFill, "exact fills"),
    ];
    assert_found(5, &lies, alone);
    assert_found(5, &[(Lie::FalseWay, "copies between two")], paired);
}

#[test]
fn touched_host_bytes_are_found() {
    let lies =
        [(Lie::LateUpload, "host bytes"), (Lie::SecondDownload, "host bytes"), (Lie::ScribblingUpload, "host bytes")];
    assert_found(6, &lies, alone);
}

#[test]
fn broken_allocation_is_found() {
    let lies = [
        (Lie::OverlappingBlocks, "allocation"),
        (Lie::SharedBlocks, "blocks are apart"),
        (Lie::EarlyFree, "free in order"),
        (Lie::AdoptionFrees, "adopt"),
    ];
    assert_found(7, &lies, alone);
}

#[test]
fn damaging_errors_are_found() {
    let lies = [(Lie::DamagingError, "errors"), (Lie::PanickingError, "errors"), (Lie::ForeignError, "errors")];
    assert_found(8, &lies, alone);
}

#[test]
fn a_memory_in_the_backend_is_found() {
    assert_found(9, &[(Lie::UsesMemory, "innocence")], alone);
}

#[test]
fn broken_ways_are_found() {
    assert_found(10, &[(Lie::NoWayHome, "ways")], alone);
    assert_found(10, &[(Lie::FickleWays, "ways between two")], paired);
}

#[test]
fn a_failure_says_what_was_seen() {
    let failure = alone(Lie::NoSynchronize).expect_err("it does not synchronise");
    assert_eq!(failure.to_string(), format!("promise 4, check `synchronize`: {}", failure.message()));
    assert!(failure.message().contains("is 0xee, not 0x01"), "{failure}");
}
