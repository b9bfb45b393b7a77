//! The interface for tests: loads and controls the driver. A [`Session`] holds a lock, so that the
//! tests of a process run one at a time. A test that ends with reports left untaken fails. A
//! test must load the driver before anything else loads one.

use std::ffi::{CStr, CString, OsStr};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub use crate::setup::{Counts, Leaks, Setup, Traffic};

/// The driver, for one test at a time.
#[derive(Debug)]
pub struct Session {
    library: &'static Library,
    _turn: MutexGuard<'static, ()>,
}

/// The functions that the library exports for tests.
#[derive(Debug)]
struct Library {
    reset: extern "C" fn(Setup),
    reseed: extern "C" fn(u64),
    fail: extern "C" fn(*const u8, usize, u64, u32),
    fail_work: extern "C" fn(u64, u32),
    calls: extern "C" fn(*const u8, usize) -> u64,
    leaks: extern "C" fn(*mut Leaks),
    reports: extern "C" fn(*mut u8, usize) -> usize,
    counts: extern "C" fn(*const u8, usize, *mut Counts),
}

impl Session {
    /// Loads the driver, waits for other tests, and resets the driver.
    #[must_use]
    pub fn start(setup: Setup) -> Session {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let session = Session { library: library(), _turn: turn };
        session.reset(setup);
        session
    }

    /// Resets the driver. All handles that the program still holds become invalid.
    pub fn reset(&self, setup: Setup) {
        (self.library.reset)(setup);
    }

    /// Sets the seed that decides the order of streams, blocks and warps.
    pub fn reseed(&self, seed: u64) {
        (self.library.reseed)(seed);
    }

    /// Makes the `nth` call of an entry point from now on return a code; 1 is the next call, and an empty `name` counts
    /// all calls. A call that releases something still does so. Most codes from 700 on are errors from which a context
    /// never recovers.
    pub fn fail(&self, name: &str, nth: u64, code: u32) {
        (self.library.fail)(name.as_ptr(), name.len(), nth, code);
    }

    /// Makes the `nth` copy, fill, kernel, allocation or freeing that runs on a device fail the device's context.
    pub fn fail_work(&self, nth: u64, code: u32) {
        (self.library.fail_work)(nth, code);
    }

    /// The number of calls of an entry point; of all entry points if `name` is empty.
    #[must_use]
    pub fn calls(&self, name: &str) -> u64 {
        (self.library.calls)(name.as_ptr(), name.len())
    }

    /// The objects that were created and not released.
    #[must_use]
    pub fn leaks(&self) -> Leaks {
        let mut leaks = Leaks::default();
        (self.library.leaks)(&mut leaks);
        leaks
    }

    /// The counts of a kernel over all launches since the start.
    #[must_use]
    pub fn counts(&self, kernel: &str) -> Counts {
        let mut counts = Counts::default();
        (self.library.counts)(kernel.as_ptr(), kernel.len(), &mut counts);
        counts
    }

    /// Takes the reports of misuse so far.
    #[must_use]
    pub fn reports(&self) -> Vec<String> {
        let mut text = vec![0; 1 << 20];
        let len = (self.library.reports)(text.as_mut_ptr(), text.len());
        String::from_utf8_lossy(&text[..len]).lines().map(str::to_string).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let reports = self.reports();
        assert!(reports.is_empty() || std::thread::panicking(), "the driver reports: {reports:#?}");
    }
}

/// The library that cargo built for the test: it is in the folder of the test binary, and the name has no hash.
#[must_use]
pub fn file() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let folders = test.ancestors().skip(1).take(3);
    let files = folders.flat_map(|folder| [folder.to_path_buf(), folder.join("deps")]).map(|folder| folder.join(NAME));
    files.into_iter().find(|file| file.exists()).expect("cargo builds the driver beside the tests that depend on it")
}

const NAME: &str = "libfake_cuda.so";

/// Loads a file which then answers a later request for `libcuda.so`.
///
/// # Panics
/// Where the loader refuses the file.
pub fn load(file: &Path) {
    let path = CString::new(file.as_os_str().as_bytes()).expect("a path has no zero byte");
    // SAFETY: the library runs no code at loading.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "{}: {}", file.display(), loader_error());
}

fn loader_error() -> String {
    // SAFETY: the text is this thread's until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    // SAFETY: not null, so a text that ends with a zero byte.
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}

/// The library of this process.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        load(&file());
        // SAFETY: each name is exported by `entries/tests_side.rs` of this very crate with this signature.
        unsafe {
            Library {
                reset: mem::transmute::<usize, extern "C" fn(Setup)>(symbol(c"fake_cuda_reset")),
                reseed: mem::transmute::<usize, extern "C" fn(u64)>(symbol(c"fake_cuda_reseed")),
                fail: mem::transmute::<usize, extern "C" fn(*const u8, usize, u64, u32)>(symbol(c"fake_cuda_fail")),
                fail_work: mem::transmute::<usize, extern "C" fn(u64, u32)>(symbol(c"fake_cuda_fail_work")),
                calls: mem::transmute::<usize, extern "C" fn(*const u8, usize) -> u64>(symbol(c"fake_cuda_calls")),
                leaks: mem::transmute::<usize, extern "C" fn(*mut Leaks)>(symbol(c"fake_cuda_leaks")),
                reports: mem::transmute::<usize, extern "C" fn(*mut u8, usize) -> usize>(symbol(c"fake_cuda_reports")),
                counts: mem::transmute::<usize, extern "C" fn(*const u8, usize, *mut Counts)>(symbol(
                    c"fake_cuda_counts",
                )),
            }
        }
    })
}

/// The address of a function in the library that answers to `libcuda.so`.
///
/// # Panics
/// Where there is no such library, or no such function there.
#[must_use]
pub fn symbol(name: &CStr) -> usize {
    // SAFETY: the library is loaded already, so the loader only looks its name up; the name ends with a zero byte.
    let address = unsafe {
        let handle = libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
    };
    assert!(!address.is_null(), "{name:?} is not in the library that answers to libcuda.so");
    address as usize
}

/// Writes a copy of the driver that lacks an entry point, as an older driver would, and returns the file.
///
/// # Errors
/// Where the folder cannot be written to, or the entry point is not there.
pub fn without(name: &str, folder: &Path) -> std::io::Result<PathBuf> {
    let mut bytes = std::fs::read(file())?;
    let whole = [b"\0", name.as_bytes(), b"\0"].concat();
    let mut found = 0;
    while let Some(at) = bytes.windows(whole.len()).position(|window| window == whole) {
        // The name no longer matches the hash, so the loader does not find the library.
        bytes[at + 1] = b'-';
        found += 1;
    }
    if found == 0 {
        return Err(std::io::Error::other(format!("{name} is no entry point of the driver")));
    }
    let file = folder.join("libcuda.so");
    std::fs::write(&file, bytes)?;
    Ok(file)
}

/// Makes a child process find no driver, even on a machine that has one: the first files of that name are not
/// libraries.
///
/// # Errors
/// Where the folder cannot be written to.
pub fn hide(child: &mut Command, folder: &Path) -> std::io::Result<()> {
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(folder.join(name), "no library")?;
    }
    child.env("LD_LIBRARY_PATH", OsStr::new(folder));
    Ok(())
}

/// Runs one test of the test binary in a process of its own; `None` in that process itself.
///
/// # Panics
/// Where the process cannot be started.
pub fn child(test: &str, prepare: impl FnOnce(&mut Command)) -> Option<Output> {
    const VARIABLE: &str = "FAKE_CUDA_CHILD";
    if std::env::var(VARIABLE).as_deref() == Ok(test) {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(VARIABLE, test);
    prepare(&mut command);
    Some(command.output().unwrap())
}
