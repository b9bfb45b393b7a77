//! Modules and functions: PTX text that was loaded, the entries by handle, and the launches.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::work::Fault;
use super::{Driver, Work};
use crate::abi::{Code, MAX_BLOCK, MAX_GRID, MAX_SHARED, MAX_SHARED_ALLOWED, MAX_THREADS, PROCESSORS};
use crate::exec::{self, Launch};
use crate::ptx::{Kernel, Module};
use crate::setup::Counts;

/// The modules and functions by handle.
#[derive(Default)]
pub(crate) struct Modules {
    modules: BTreeMap<usize, Loaded>,
    functions: BTreeMap<usize, Arc<Kernel>>,
    /// The functions that were allowed more shared memory, with how much.
    allowed: BTreeMap<usize, usize>,
    next: usize,
    /// The counts of each kernel, by name.
    pub(crate) counts: BTreeMap<String, Counts>,
}

/// A module of one device.
struct Loaded {
    device: usize,
    module: Module,
    functions: Vec<usize>,
}

const FIRST_MODULE: usize = 0x40D0_0000;
const STEP: usize = 0x10;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: i32 = 8;
/// The highest PTX version that the driver of CUDA 12.0 supports.
const NEWEST_PTX: (u32, u32) = (8, 0);

impl Modules {
    fn handle(&mut self) -> usize {
        self.next += STEP;
        FIRST_MODULE + self.next
    }

    pub(crate) fn count(&self) -> usize {
        self.modules.len()
    }

    /// The kernel of a function's handle.
    pub(crate) fn kernel(&self, function: usize) -> Result<Arc<Kernel>, Code> {
        self.functions.get(&function).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// Sets an attribute of a function: how much dynamic shared memory the function may have.
    pub(crate) fn allow(&mut self, function: usize, attribute: i32, bytes: i32) -> Result<(), Code> {
        let (kernel, bytes) = (self.kernel(function)?, usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?);
        if attribute == MAX_DYNAMIC_SHARED {
            if kernel.shared + bytes > MAX_SHARED_ALLOWED {
                return Err(Code::INVALID_VALUE);
            }
            self.allowed.insert(function, bytes);
        }
        Ok(())
    }
}

impl Driver {
    /// Loads PTX text for the current device. The error has the compiler's message.
    pub(crate) fn load(&mut self, text: &str) -> Result<usize, (Code, String)> {
        let device = self.current_device().map_err(|code| (code, String::new()))?;
        let module = Module::parse(text).map_err(|error| {
            let log = format!("PTX: {error}");
            (self.refuse(Code::INVALID_PTX, &log), log)
        })?;
        if module.version > NEWEST_PTX {
            let (major, minor) = module.version;
            return Err((Code::UNSUPPORTED_PTX_VERSION, format!("PTX {major}.{minor} is not known to this compiler")));
        }
        if module.target > self.setup.capability {
            return Err((Code::NO_BINARY, format!("PTX for sm_{} or newer", module.target)));
        }
        let handle = self.modules.handle();
        self.modules.modules.insert(handle, Loaded { device, module, functions: Vec::new() });
        Ok(handle)
    }

    /// Ends a module and the functions.
    pub(crate) fn unload(&mut self, handle: usize) -> Result<(), Code> {
        let Some(loaded) = self.modules.modules.remove(&handle) else {
            return Err(self.refuse(Code::INVALID_HANDLE, "a module that was not loaded, or was unloaded"));
        };
        for function in loaded.functions {
            self.modules.allowed.remove(&function);
            if let Some(kernel) = self.modules.functions.remove(&function)
                && self.streams.runs(&kernel)
            {
                let text = format!("the module of {} is unloaded before a launch of it has run", kernel.name);
                self.reports.push(text);
            }
        }
        Ok(())
    }

    /// The handle of one of a module's entries.
    pub(crate) fn function(&mut self, module: usize, name: &str) -> Result<usize, Code> {
        let function = self.modules.handle();
        let loaded = self.modules.modules.get_mut(&module).ok_or(Code::INVALID_HANDLE)?;
        let kernel = loaded.module.kernel(name).ok_or(Code::NOT_FOUND)?;
        loaded.functions.push(function);
        self.modules.functions.insert(function, kernel);
        Ok(function)
    }

    /// Enqueues a kernel, if the grid, shared memory and parameters are within the limits.
    pub(crate) fn launch(&mut self, function: usize, launch: Launch, stream: usize) -> Result<(), Code> {
        let device = self.stream_device(stream)?;
        if !self.modules.modules.values().any(|loaded| loaded.device == device && loaded.functions.contains(&function))
        {
            return Err(self.refuse(Code::INVALID_HANDLE, "a function of another device, or of a module that is gone"));
        }
        let name = &launch.kernel.name;
        let fits = |sizes: [u32; 3], limits: [u32; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| (1..=limit).contains(size))
        };
        let threads = launch.block.iter().map(|size| u64::from(*size)).product::<u64>();
        if !fits(launch.grid, MAX_GRID) || !fits(launch.block, MAX_BLOCK) || threads > u64::from(MAX_THREADS) {
            let text =
                format!("{name}: a grid of {:?} blocks of {:?} threads is over the limits", launch.grid, launch.block);
            return Err(self.refuse(Code::INVALID_VALUE, text));
        }
        let allowed = self.modules.allowed.get(&function).copied().unwrap_or_default();
        if launch.kernel.shared + launch.shared > MAX_SHARED.max(launch.kernel.shared + allowed) {
            return Err(self.refuse(Code::INVALID_VALUE, format!("{name}: more shared memory than a block has")));
        }
        let blocks = launch.grid.iter().map(|size| u64::from(*size)).product::<u64>();
        if launch.is_cooperative && blocks > u64::from(PROCESSORS) {
            return Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let (given, wanted) = (launch.params.len(), launch.kernel.params);
        if given != wanted {
            let text = format!("{name}: {given} bytes of parameters, the PTX has {wanted}");
            return Err(self.refuse(Code::INVALID_VALUE, text));
        }
        self.enqueue(stream, Work::Launch(Arc::new(launch))).map(drop)
    }

    /// Runs a kernel to the end.
    pub(crate) fn run_kernel(&mut self, device: usize, launch: &Launch) -> Result<(), Fault> {
        let counts = self.modules.counts.entry(launch.kernel.name.clone()).or_default();
        let watch = exec::Watch { counts, reports: &mut self.reports, random: &mut self.random };
        exec::run(launch, self.memory.blocks(device), watch).map_err(|stop| Fault { code: stop.code, text: stop.text })
    }
}
