//! The driver's numbers: results, attributes and limits, from `cuda.h` of CUDA 12.0.

use crate::setup::Setup;

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// The results that this driver returns or that a test can inject, with names.
const NAMES: &[(u32, &str)] = &[
    (0, "CUDA_SUCCESS\0"),
    (1, "CUDA_ERROR_INVALID_VALUE\0"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY\0"),
    (3, "CUDA_ERROR_NOT_INITIALIZED\0"),
    (4, "CUDA_ERROR_DEINITIALIZED\0"),
    (34, "CUDA_ERROR_STUB_LIBRARY\0"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE\0"),
    (100, "CUDA_ERROR_NO_DEVICE\0"),
    (101, "CUDA_ERROR_INVALID_DEVICE\0"),
    (200, "CUDA_ERROR_INVALID_IMAGE\0"),
    (201, "CUDA_ERROR_INVALID_CONTEXT\0"),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU\0"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE\0"),
    (217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED\0"),
    (218, "CUDA_ERROR_INVALID_PTX\0"),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION\0"),
    (304, "CUDA_ERROR_OPERATING_SYSTEM\0"),
    (400, "CUDA_ERROR_INVALID_HANDLE\0"),
    (500, "CUDA_ERROR_NOT_FOUND\0"),
    (600, "CUDA_ERROR_NOT_READY\0"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS\0"),
    (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\0"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT\0"),
    (704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED\0"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED\0"),
    (714, "CUDA_ERROR_HARDWARE_STACK_ERROR\0"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION\0"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS\0"),
    (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE\0"),
    (718, "CUDA_ERROR_INVALID_PC\0"),
    (719, "CUDA_ERROR_LAUNCH_FAILED\0"),
    (720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE\0"),
    (801, "CUDA_ERROR_NOT_SUPPORTED\0"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH\0"),
    (999, "CUDA_ERROR_UNKNOWN\0"),
];

impl Code {
    pub(crate) const INVALID_VALUE: Code = Code(1);
    pub(crate) const OUT_OF_MEMORY: Code = Code(2);
    pub(crate) const NOT_INITIALIZED: Code = Code(3);
    pub(crate) const NO_DEVICE: Code = Code(100);
    pub(crate) const INVALID_DEVICE: Code = Code(101);
    pub(crate) const INVALID_CONTEXT: Code = Code(201);
    pub(crate) const INVALID_IMAGE: Code = Code(200);
    pub(crate) const NO_BINARY: Code = Code(209);
    pub(crate) const PEER_ACCESS_UNSUPPORTED: Code = Code(217);
    pub(crate) const INVALID_PTX: Code = Code(218);
    pub(crate) const UNSUPPORTED_PTX_VERSION: Code = Code(222);
    pub(crate) const INVALID_HANDLE: Code = Code(400);
    pub(crate) const NOT_FOUND: Code = Code(500);
    pub(crate) const NOT_READY: Code = Code(600);
    pub(crate) const ILLEGAL_ADDRESS: Code = Code(700);
    pub(crate) const LAUNCH_TIMEOUT: Code = Code(702);
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Code = Code(704);
    pub(crate) const MISALIGNED: Code = Code(716);
    pub(crate) const LAUNCH_FAILED: Code = Code(719);
    pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: Code = Code(720);
    pub(crate) const NOT_SUPPORTED: Code = Code(801);

    /// Whether a context returns this result to every later call.
    pub(crate) fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 700 | 702 | 714..=719)
    }

    /// The name with the final zero byte, for C.
    pub(crate) fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }
}

pub(crate) const WARP: usize = 32;
pub(crate) const MAX_THREADS: u32 = 1024;
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(crate) const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
pub(crate) const MAX_SHARED: usize = 48 * 1024;
/// Bytes of shared memory of a block where the function has been allowed them.
pub(crate) const MAX_SHARED_ALLOWED: usize = 227 * 1024;
/// The processors of a GPU. This driver runs one block on each at once.
pub(crate) const PROCESSORS: u32 = 132;

/// `CUdevice_attribute` by number, as on an H100, unless the configuration decides it. Attributes that are not listed
/// are 0.
pub(crate) fn attribute(number: i32, setup: &Setup) -> Option<i32> {
    let Setup { has_pools, capability, shares_host, .. } = *setup;
    let at = |of: [u32; 3], index: i32| of[index as usize] as i32;
    Some(match number {
        1 => MAX_THREADS as i32,
        2..=4 => at(MAX_BLOCK, number - 2),
        5..=7 => at(MAX_GRID, number - 5),
        8 => MAX_SHARED as i32,
        9 => 65_536,
        10 => WARP as i32,
        12 | 82 => 65_536,
        13 => 1_980_000,
        16 => PROCESSORS as i32,
        95 => 1,
        18 | 88 => i32::from(shares_host),
        19 | 31 | 41 => 1,
        33 => 1,
        38 => 50 << 20,
        39 => 2048,
        40 => 3,
        75 => (capability / 10) as i32,
        76 => (capability % 10) as i32,
        81 => 228 * 1024,
        97 => MAX_SHARED_ALLOWED as i32,
        106 => 32,
        115 => i32::from(has_pools),
        // CU_DEVICE_ATTRIBUTE_MAX of the newest header lies below 200.
        _ if !(1..200).contains(&number) => return None,
        _ => 0,
    })
}
