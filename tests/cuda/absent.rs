//! No GPU, in each way: an error that says why, never a panic, and everything else of the process goes on.

use std::process::Output;
use std::sync::Arc;

use fake_cuda::control::{self, Session, Setup, child};
use synced_mem::cuda::{Absent, Cuda, list};
use synced_mem::{Device, Queue};

pub(crate) fn expect_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the child has run no test");
}

/// Both ways to ask answer the same.
fn absent(setup: Setup) -> Absent {
    let _session = Session::start(setup);
    let absent = list().unwrap_err();
    assert_eq!(Cuda::open(0).unwrap_err(), absent);
    absent
}

fn usual() -> Setup {
    Setup::default()
}

#[test]
fn a_machine_without_a_driver() {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = child("absent::a_machine_without_a_driver", |child| {
        control::hide(child, folder.path()).unwrap();
    }) else {
        let absent = list().unwrap_err();
        assert!(matches!(absent, Absent::NoDriver { tried: ["libcuda.so", "libcuda.so.1"], .. }), "{absent:?}");
        assert_eq!(absent.to_string(), "no CUDA driver: libcuda.so, libcuda.so.1 cannot be loaded");
        assert_eq!(Cuda::open(0).unwrap_err(), absent);
        return;
    };
    expect_success(&output);
}

#[test]
fn a_driver_that_lacks_a_function() {
    let Some(output) = child("absent::a_driver_that_lacks_a_function", |_| {}) else {
        let folder = tempfile::tempdir().unwrap();
        control::load(&control::without("cuMemPoolTrimTo", folder.path()).unwrap());
        let absent = list().unwrap_err();
        assert!(matches!(absent, Absent::Incomplete { missing: "cuMemPoolTrimTo", .. }), "{absent:?}");
        assert_eq!(absent.to_string(), "the CUDA driver has no function cuMemPoolTrimTo");
        assert_eq!(Cuda::open(0).unwrap_err(), absent);
        return;
    };
    expect_success(&output);
}

/// An application's two steps: to open a GPU and to use it fail alike.
fn queue_of(ordinal: usize) -> Result<Arc<dyn Queue>, synced_mem::Error> {
    Cuda::open(ordinal)?.queue()
}

#[test]
fn an_absent_gpu_is_an_error_of_memory_too() {
    let _session = Session::start(usual());
    assert!(queue_of(0).is_ok());
    let error = queue_of(7).unwrap_err();
    assert!(matches!(error, synced_mem::Error::Absent { .. }), "{error:?}");
    assert_eq!(error.to_string(), Cuda::open(7).unwrap_err().to_string());
}

#[test]
fn the_stub_of_the_toolkit() {
    let absent = absent(Setup { init: 34, ..usual() });
    assert_eq!(absent, Absent::Stub);
    assert!(absent.to_string().contains("stub"));
}

#[test]
fn a_driver_that_is_too_old() {
    let absent = absent(Setup { version: 11_080, ..usual() });
    assert!(matches!(absent, Absent::TooOld { found: 11_080, needed: 12_000, .. }), "{absent:?}");
    assert_eq!(absent.to_string(), "the CUDA driver is too old: it knows CUDA 11.8, and 12.0 is needed");
}

#[test]
fn a_driver_without_a_gpu() {
    let absent = absent(Setup { devices: 0, ..usual() });
    assert!(matches!(absent, Absent::NoDevice { wanted: 0, found: 0, .. }), "{absent:?}");
    assert_eq!(absent.to_string(), "no GPU 0: the CUDA driver finds none");
}

#[test]
fn a_driver_that_will_not_start() {
    let absent = absent(Setup { init: 803, ..usual() });
    assert!(matches!(absent, Absent::Failed { call: "cuInit", code: 803, .. }), "{absent:?}");
}

#[test]
fn an_ordinal_that_is_too_large() {
    let _session = Session::start(usual());
    for wanted in [2, 3, usize::MAX] {
        let absent = Cuda::open(wanted).unwrap_err();
        assert_eq!(absent.to_string(), format!("no GPU {wanted}: the CUDA driver finds 2"));
        assert!(matches!(absent, Absent::NoDevice { found: 2, .. }), "{absent:?}");
    }
    assert!(Cuda::open(1).is_ok());
}

#[test]
fn what_a_driver_finds_is_listed() {
    let _session = Session::start(Setup { capability: 86, version: 12_040, memory: 1 << 29, ..usual() });
    let gpus = list().unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu.ordinal).collect::<Vec<_>>(), [0, 1]);
    let gpu = &gpus[1];
    assert_eq!((gpu.name.as_str(), gpu.capability, gpu.driver), ("Fake CUDA", (8, 6), 12_040));
    assert_eq!((gpu.total, gpu.free), (1 << 29, Some(1 << 29)));
}

#[test]
fn the_example_lists_the_gpus_or_says_what_to_do() {
    for (setup, expected) in [
        (
            Setup { version: 12_040, ..usual() },
            "0  Fake CUDA  capability 9.0  memory 1024 MiB, free 1024 MiB  CUDA 12.4\n\
             1  Fake CUDA  capability 9.0  memory 1024 MiB, free 1024 MiB  CUDA 12.4\n",
        ),
        (Setup { init: 34, ..usual() }, "toolkit's stub\n  help: install the driver of the NVIDIA GPU; where it is"),
        (Setup { devices: 0, ..usual() }, "finds none\n  help: `nvidia-smi` lists the GPUs; where it shows some, see"),
        (Setup { version: 11_080, ..usual() }, "12.0 is needed\n  help: update the driver of the NVIDIA GPU\n"),
        (
            Setup { init: 803, ..usual() },
            "cuInit: error 803\n  help: `nvidia-smi` may say more; after an update of the",
        ),
    ] {
        let _session = Session::start(setup);
        let report = crate::devices::report();
        assert!(report.contains(expected), "{report}");
    }
}
