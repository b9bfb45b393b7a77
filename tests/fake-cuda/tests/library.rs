//! The library as a file: it answers to the driver's name, lacks an entry point on demand, and can be hidden.

use std::ffi::{CStr, CString};

use fake_cuda::control::{self, Session, Setup, child};

use crate::support::{Gpu, cu};

/// The address of a name in what the loader gives for `libcuda.so`.
fn in_driver(library: &CStr, name: &str) -> Option<usize> {
    let name = CString::new(name).unwrap();
    // SAFETY: both texts end with a zero byte, and the handle is used only where there is one.
    let address = unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
    };
    (!address.is_null()).then_some(address as usize)
}

#[test]
fn a_request_for_the_drivers_name_is_answered_by_it() {
    let _session = Session::start(Setup::default());
    assert!(in_driver(c"libcuda.so", "fake_cuda_reset").is_some());
    assert_eq!(in_driver(c"libcuda.so", "cuInit"), Some(control::symbol(c"cuInit")));
}

#[test]
fn it_wins_over_a_driver_that_is_installed() {
    // A library of that name which the loader would find, but which lacks an entry point.
    let folder = tempfile::tempdir().unwrap();
    control::without("cuInit", folder.path()).unwrap();
    let test = "library::it_wins_over_a_driver_that_is_installed";
    for is_loaded in ["yes", "no"] {
        let Some(output) = child(test, |command| {
            command.env("LD_LIBRARY_PATH", folder.path()).env("IS_LOADED", is_loaded);
        }) else {
            let is_loaded = std::env::var("IS_LOADED").as_deref() == Ok("yes");
            let _session = is_loaded.then(|| Session::start(Setup::default()));
            assert_eq!(in_driver(c"libcuda.so", "cuInit").is_some(), is_loaded);
            assert!(in_driver(c"libcuda.so", "cuMemPoolCreate").is_some());
            return;
        };
        assert!(output.status.success(), "{is_loaded} {output:?}");
    }
}

#[test]
fn an_entry_point_can_be_missing() {
    let Some(output) = child("library::an_entry_point_can_be_missing", |_| {}) else {
        let folder = tempfile::tempdir().unwrap();
        control::load(&control::without("cuMemPoolCreate", folder.path()).unwrap());
        assert!(in_driver(c"libcuda.so", "cuMemPoolDestroy").is_some());
        assert!(in_driver(c"libcuda.so", "cuMemPoolCreate").is_none());
        assert!(control::without("cuNothing", folder.path()).is_err());
        return;
    };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_machine_without_a_driver() {
    let folder = tempfile::tempdir().unwrap();
    let test = "library::a_machine_without_a_driver";
    let Some(output) = child(test, |command| control::hide(command, folder.path()).unwrap()) else {
        assert!(in_driver(c"libcuda.so", "cuInit").is_none());
        assert!(in_driver(c"libcuda.so.1", "cuInit").is_none());
        return;
    };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_stub_an_old_driver_and_no_device() {
    let session = Session::start(Setup { init: 34, version: 11_080, ..Setup::default() });
    let mut version = 0i32;
    assert_eq!(cu!(cuDriverGetVersion(&raw mut version)), 0);
    assert_eq!((version, cu!(cuInit(0u32))), (11_080, 34));
    session.reset(Setup { devices: 0, ..Setup::default() });
    assert_eq!(cu!(cuInit(0u32)), 100);
}

#[test]
fn the_host_cannot_touch_device_memory() {
    let Some(output) = child("library::the_host_cannot_touch_device_memory", |_| {}) else {
        let gpu = Gpu::seed(0);
        let address = gpu.block(100);
        // SAFETY: none; the process is to end here.
        let byte = unsafe { std::ptr::read_volatile(address as *const u8) };
        unreachable!("read {byte}");
    };
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the host touches device memory"), "{output:?}");
}
