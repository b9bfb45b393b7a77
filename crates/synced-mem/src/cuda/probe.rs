//! Whether there is a CUDA driver, asked before any other call: the bindings panic where a library or a
//! function is missing. It looks for some of the names that the bindings look for, so that what is found here they find
//! too.

use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use super::failure::{Failure, answer};
use crate::error::Error;
use crate::sync::first::First;

/// The oldest driver that serves: that of CUDA 12.0, as `cuDriverGetVersion` has it.
const OLDEST: u32 = 12_000;

/// The names of the library.
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so", "libcuda.so.1"] };

/// Every function of the driver that this crate calls.
const FUNCTIONS: &[&str] = &[
    "cuCtxEnablePeerAccess", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxSynchronize", "cuDeviceCanAccessPeer",
    "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceGetName", "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain", "cuDeviceTotalMem_v2", "cuDriverGetVersion", "cuEventCreate", "cuEventDestroy_v2",
    "cuEventRecord", "cuEventSynchronize", "cuFuncGetAttribute", "cuFuncSetAttribute", "cuInit", "cuLaunchKernel",
    "cuLaunchKernelEx", "cuMemAllocFromPoolAsync", "cuMemAlloc_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuMemFree_v2",
    "cuMemGetInfo_v2", "cuMemHostAlloc", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
    "cuMemcpyPeerAsync", "cuMemsetD8Async", "cuModuleGetFunction", "cuModuleLoadDataEx", "cuModuleUnload",
    "cuPointerGetAttribute", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamQuery", "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Why there is no such GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absent {
    /// There is no driver: none of these libraries can be loaded.
    #[non_exhaustive]
    NoDriver {
        /// The names that were tried.
        tried: &'static [&'static str],
    },
    /// The library is the toolkit's stub, which is for linking and does nothing.
    Stub,
    /// The driver has fewer GPUs.
    #[non_exhaustive]
    NoDevice {
        /// The ordinal that was asked for.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// The driver is too old.
    #[non_exhaustive]
    TooOld {
        /// The newest CUDA that the driver knows: 12040 for 12.4.
        found: u32,
        /// The oldest that serves.
        needed: u32,
    },
    /// The driver lacks a function that the version should have.
    #[non_exhaustive]
    Incomplete {
        /// The function.
        missing: &'static str,
    },
    /// This process was forked from one that has asked for GPUs: the driver does not work here.
    Forked,
    /// The driver has refused a call.
    #[non_exhaustive]
    Failed {
        /// The driver's function.
        call: &'static str,
        /// The answer, a `CUresult`.
        code: u32,
    },
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::NoDriver { tried } => write!(f, "no CUDA driver: {} cannot be loaded", tried.join(", ")),
            Absent::Stub => f.write_str("no CUDA driver: the library found is the toolkit's stub"),
            Absent::NoDevice { wanted, found: 0 } => write!(f, "no GPU {wanted}: the CUDA driver finds none"),
            Absent::NoDevice { wanted, found } => write!(f, "no GPU {wanted}: the CUDA driver finds {found}"),
            Absent::TooOld { found, needed } => {
                let cuda = |version: &u32| format!("{}.{}", version / 1000, version % 1000 / 10);
                write!(f, "the CUDA driver is too old: it knows CUDA {}, and {} is needed", cuda(found), cuda(needed))
            }
            Absent::Incomplete { missing } => write!(f, "the CUDA driver has no function {missing}"),
            Absent::Forked => {
                f.write_str("the CUDA driver does not work in a process forked from one that has used it")
            }
            Absent::Failed { call, code } => write!(f, "the CUDA driver refuses {call}: error {code}"),
        }
    }
}

impl std::error::Error for Absent {}

/// So that one `?` serves to open a GPU and to use it.
impl From<Absent> for Error {
    fn from(absent: Absent) -> Self {
        Error::Absent { source: Box::new(absent) }
    }
}

impl From<Failure> for Absent {
    fn from(failure: Failure) -> Self {
        Absent::Failed { call: failure.call, code: failure.code }
    }
}

/// The version of the driver, which is there, is initialised and has all functions.
pub(super) fn driver() -> Result<u32, Absent> {
    static ASKED: First = First::new();
    if !ASKED.is_current() {
        return Err(Absent::Forked);
    }
    // For as long as the process runs, like the bindings' own: a library that has answered is never unloaded.
    static LIBRARY: OnceLock<Result<Library, Absent>> = OnceLock::new();
    LIBRARY.get_or_init(library).as_ref().map_err(Absent::clone)?;
    // SAFETY: the function is there (`library`), and takes no flags yet.
    let started = answer("cuInit", unsafe { sys::cuInit(0) });
    started.map_err(|failure| match failure.code {
        34 => Absent::Stub,
        100 => Absent::NoDevice { wanted: 0, found: 0 },
        _ => failure.into(),
    })?;
    let mut version = 0;
    // SAFETY: the call writes a number to the given place.
    answer("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    match u32::try_from(version).unwrap_or(0) {
        found if found < OLDEST => Err(Absent::TooOld { found, needed: OLDEST }),
        version => Ok(version),
    }
}

/// The number of GPUs.
pub(super) fn count() -> Result<usize, Absent> {
    let mut count = 0;
    // SAFETY: the call writes a number to the given place.
    answer("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The library, if every function is there.
fn library() -> Result<Library, Absent> {
    // SAFETY: loading the driver runs the driver's start code, which the bindings would run as well.
    let mut found = NAMES.iter().filter_map(|name| unsafe { Library::new(*name) }.ok());
    let library = found.next().ok_or(Absent::NoDriver { tried: NAMES })?;
    // SAFETY: the address is not called.
    let missing = FUNCTIONS.iter().find(|name| unsafe { library.get::<unsafe extern "C" fn()>(**name) }.is_err());
    match missing {
        None => Ok(library),
        Some(missing) => Err(version(&library).map_or(Absent::Incomplete { missing }, |found| {
            if found < OLDEST { Absent::TooOld { found, needed: OLDEST } } else { Absent::Incomplete { missing } }
        })),
    }
}

/// The version of a library that may lack other functions.
fn version(library: &Library) -> Option<u32> {
    let mut version = 0;
    // SAFETY: every driver has this function with this signature; the call needs no start, and writes one number.
    let code = unsafe {
        let call = library.get::<unsafe extern "C" fn(*mut i32) -> u32>("cuDriverGetVersion").ok()?;
        call(&mut version)
    };
    u32::try_from(version).ok().filter(|_| code == 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::FUNCTIONS;

    /// A function of the bindings that the driver lacks would panic where it is called.
    #[test]
    fn every_function_that_is_called_is_looked_for() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
        let mut called = BTreeSet::new();
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for call in text.split("sys::cu").skip(1) {
                let name: String = call.chars().take_while(|at| at.is_alphanumeric() || *at == '_').collect();
                called.insert(format!("cu{name}"));
            }
        }
        called.remove("cu");
        assert_eq!(called, FUNCTIONS.iter().map(|name| (*name).to_string()).collect());
    }
}
