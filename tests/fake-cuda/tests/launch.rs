//! A device with a module on it: uploads, launches that must be sound, or whose reports are wanted.

use std::ffi::CString;

use fake_cuda::control::Counts;

use crate::support::{Gpu, cu, ok};

pub(crate) const SAMPLES: &str = include_str!("data/samples.ptx");

/// The sample kernels' text with one part replaced, which must stand there.
pub(crate) fn edited(kernel: &str, part: &str, replacement: &str) -> String {
    let start = SAMPLES.find(&format!(".entry {kernel}(")).unwrap();
    let end = start + SAMPLES[start..].find("\n}\n").unwrap();
    let body = &SAMPLES[start..end];
    assert!(body.contains(part), "{part:?} is not in {kernel}");
    [&SAMPLES[..start], &body.replacen(part, replacement, 1), &SAMPLES[end..]].concat()
}

/// A kernel's parameter.
#[derive(Clone)]
pub(crate) enum Arg {
    U32(u32),
    U64(u64),
    Bytes(Vec<u8>),
}

impl Arg {
    /// The parameters as the PTX lays them out: each at a multiple of its own length.
    pub(crate) fn layout(args: &[Arg]) -> Vec<u8> {
        let mut all = Vec::new();
        for arg in args {
            let (align, bytes) = match arg {
                Arg::U32(value) => (4, value.to_le_bytes().to_vec()),
                Arg::U64(value) => (8, value.to_le_bytes().to_vec()),
                Arg::Bytes(bytes) => (8, bytes.clone()),
            };
            all.resize(all.len().next_multiple_of(align), 0);
            all.extend(bytes);
        }
        all
    }
}

pub(crate) struct Bench {
    pub(crate) gpu: Gpu,
    module: usize,
    stream: usize,
}

impl Bench {
    pub(crate) fn samples() -> Bench {
        Bench::new(SAMPLES)
    }

    pub(crate) fn new(ptx: &str) -> Bench {
        let gpu = Gpu::seed(0);
        let (mut module, stream, text) = (0usize, gpu.stream(), CString::new(ptx).unwrap());
        assert_eq!(cu!(cuModuleLoadData(&raw mut module, text.as_ptr())), 0, "{:?}", gpu.session.reports());
        Bench { gpu, module, stream }
    }

    pub(crate) fn reseed(&self, seed: u64) {
        self.gpu.session.reseed(seed);
    }

    pub(crate) fn upload(&self, values: &[u32]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.gpu.filled(&bytes)
    }

    pub(crate) fn block(&self, len: usize) -> u64 {
        self.gpu.block(len)
    }

    pub(crate) fn download(&self, address: u64, count: usize) -> Vec<u32> {
        let bytes = self.gpu.read(address, 4 * count);
        bytes.chunks_exact(4).map(|part| u32::from_le_bytes(part.try_into().unwrap())).collect()
    }

    pub(crate) fn download_u64(&self, address: u64, count: usize) -> Vec<u64> {
        let words = self.download(address, 2 * count);
        words.chunks_exact(2).map(|pair| u64::from(pair[1]) << 32 | u64::from(pair[0])).collect()
    }

    pub(crate) fn counts(&self, kernel: &str) -> Counts {
        self.gpu.session.counts(kernel)
    }

    /// Launches a kernel with its parameters in one buffer; the result of the launch.
    pub(crate) fn launch(&self, kernel: &str, grid: [u32; 3], block: [u32; 3], params: &[u8]) -> u32 {
        let (mut function, name) = (0usize, CString::new(kernel).unwrap());
        ok!(cuModuleGetFunction(&raw mut function, self.module, name.as_ptr()));
        let len = params.len();
        let extra = [1, params.as_ptr() as usize, 2, &raw const len as usize, 0];
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let no_params: *const usize = std::ptr::null();
        cu!(cuLaunchKernel(function, gx, gy, gz, bx, by, bz, 0u32, self.stream, no_params, extra.as_ptr()))
    }

    /// Launches a kernel and waits for it; it must leave no report.
    pub(crate) fn run(&self, kernel: &str, grid: [u32; 3], block: [u32; 3], args: &[Arg]) {
        assert_eq!(self.launch(kernel, grid, block, &Arg::layout(args)), 0, "{kernel}");
        let result = cu!(cuStreamSynchronize(self.stream));
        let reports = self.gpu.session.reports();
        assert!(result == 0 && reports.is_empty(), "{kernel}: {result} {reports:#?}");
    }

    /// Launches a kernel and waits for it: the result, and what was reported.
    pub(crate) fn reports(&self, kernel: &str, grid: [u32; 3], block: [u32; 3], args: &[Arg]) -> (u32, Vec<String>) {
        let result = match self.launch(kernel, grid, block, &Arg::layout(args)) {
            0 => cu!(cuStreamSynchronize(self.stream)),
            refused => refused,
        };
        (result, self.gpu.session.reports())
    }
}
