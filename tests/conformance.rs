//! The conformance suite of `synced-mem` passes on every loopback. On each wrong backend it fails in the check of the
//! promise that the backend breaks.

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
        for shares in [false, true] {
            let device = Loopback::new(mode);
            if shares {
                device.share_host();
            }
            assert_eq!(conformance::run(&*device), Ok(20), "{mode:?}");
            assert_eq!(device.report().misuses, [""; 0], "{mode:?}");
            assert_eq!((device.report().live_blocks, device.report().bytes_in_use), (0, 0), "{mode:?}");
        }
    }
}

#[test]
fn siblings_and_foreign_loopbacks_conform_in_pairs() {
    for mode in modes() {
        let device = Loopback::new(mode);
        for other in [device.sibling(), Loopback::new(mode), Loopback::new(Mode::Deferred)] {
            assert_eq!(conformance::run_pair(&*device, &*other), Ok(4), "{mode:?}");
            assert_eq!(device.report().misuses, [""; 0]);
            assert_eq!(other.report().misuses, [""; 0]);
        }
    }
}

/// Without a lie the wrapper passes, so every failure is caused by the lie.
#[test]
fn the_wrapper_itself_conforms() {
    let device = WrongDevice::new(Lie::None);
    assert_eq!(conformance::run(&*device), Ok(20));
    assert_eq!(conformance::run_pair(&*device, &*device.sibling()), Ok(4));
}

fn alone(lie: Lie) -> Result<usize, Failure> {
    conformance::run(&*WrongDevice::new(lie))
}

/// Each device passes alone; the pair fails.
fn paired(lie: Lie) -> Result<usize, Failure> {
    let device = WrongDevice::new(lie);
    let second: Arc<dyn Device> = device.sibling();
    assert_eq!(conformance::run(&*device), Ok(20), "{lie:?}");
    conformance::run_pair(&*device, &*second)
}

/// The number of the broken promise, the lie that breaks it, the check that detects it, and the run with that check.
type Found = (u8, Lie, &'static str, fn(Lie) -> Result<usize, Failure>);

const LIES: &[Found] = &[
    (1, Lie::ReusedId, "identity", alone),
    (1, Lie::OtherDevice, "identity", alone),
    (1, Lie::SameDeviceId, "identity of two", paired),
    (2, Lie::OutOfOrder, "order", alone),
    (2, Lie::ThreadBound, "threads", alone),
    (3, Lie::NoWait, "waiting", alone),
    (3, Lie::FirstWaitOnly, "waiting", alone),
    (3, Lie::NoWaitForOther, "waiting for the other", paired),
    (4, Lie::NoSynchronize, "synchronize", alone),
    (4, Lie::LazyWait, "synchronize covers waits", alone),
    (4, Lie::NoWaitForIdle, "synchronize covers waits", alone),
    (5, Lie::ShortUpload, "exact transfers", alone),
    (5, Lie::ShiftedUpload, "exact transfers", alone),
    (5, Lie::ShiftedDownload, "exact transfers", alone),
    (5, Lie::ShiftedFrom, "exact uploads from a function", alone),
    (5, Lie::ShortFrom, "exact uploads from a function", alone),
    (5, Lie::DeafFrom, "exact uploads from a function", alone),
    (5, Lie::ShortCopy, "exact copies", alone),
    (5, Lie::LongCopy, "exact copies", alone),
    (5, Lie::NoFill, "exact fills", alone),
    (5, Lie::LongFill, "exact fills", alone),
    (5, Lie::FalseWay, "copies between two", paired),
    (6, Lie::LateUpload, "host bytes", alone),
    (6, Lie::SecondDownload, "host bytes", alone),
    (6, Lie::ScribblingUpload, "host bytes", alone),
    (6, Lie::EarlyDone, "done with host bytes", alone),
    (6, Lie::EarlyArrival, "done with host bytes", alone),
    (6, Lie::StaleView, "views of host bytes", alone),
    (6, Lie::NoView, "views of host bytes", alone),
    (7, Lie::OverlappingBlocks, "allocation", alone),
    (7, Lie::SharedBlocks, "blocks are apart", alone),
    (7, Lie::EarlyFree, "free in order", alone),
    (7, Lie::AdoptionFrees, "adopt", alone),
    (8, Lie::DamagingError, "errors", alone),
    (8, Lie::PanickingError, "errors", alone),
    (8, Lie::ForeignError, "errors", alone),
    (9, Lie::UsesMemory, "innocence", alone),
    (9, Lie::HostBlockUsesMemory, "innocence", alone),
    (10, Lie::NoWayHome, "ways", alone),
    (10, Lie::FickleWays, "ways between two", paired),
];

#[test]
fn every_broken_promise_is_found() {
    for (promise, lie, check, run) in LIES {
        let failure = run(*lie).expect_err(&format!("{lie:?} passes"));
        assert_eq!((failure.promise, failure.check), (*promise, *check), "{lie:?}: {failure}");
    }
}

#[test]
fn a_failure_says_what_was_seen() {
    let failure = alone(Lie::NoSynchronize).expect_err("it does not synchronise");
    assert_eq!(failure.to_string(), format!("promise 4, check `synchronize`: {}", failure.message));
    assert!(failure.message.contains("is 0xee, not 0x01"), "{failure}");
}
