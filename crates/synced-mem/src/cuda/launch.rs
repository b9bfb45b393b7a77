//! Kernels: programs of PTX text, loaded once for each GPU, and the one function that launches them. Relies on
//! tokens for what a kernel may touch, and on the text for how long a kernel's parameters are, which the driver does
//! not tell.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUfunction, CUfunction_attribute, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchConfig, CUstream,
};

use super::context::{Context, Limits};
use super::failure::{Failure, answer};
use super::image::{Image, Owned};
use super::modules::{Found, Module, compile, find_or, lock};
use super::queue::CudaQueue;
use crate::borrow::Arg;
use crate::device::Queue;
use crate::error::Error;

/// The kernels of one PTX text, as a `static`:
///
/// ```
/// use synced_mem::cuda::Program;
///
/// static SCALE: Program = Program::new("scale", "
/// .version 8.0
/// .target sm_70
/// .address_size 64
/// .visible .entry scale(.param .align 8 .b8 scale_param_0[16]) { ret; }
/// ");
/// ```
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    ptx: &'static str,
}

/// A program on one GPU.
#[derive(Debug, Clone)]
pub struct Loaded {
    context: Arc<Context>,
    code: Code,
}

/// Where the program's code is from, and who unloads it.
#[derive(Debug, Clone)]
enum Code {
    /// Kept until the GPU is dropped.
    Static(&'static Program, Module),
    /// Unloaded with the last handle.
    Owned(Arc<Owned>),
}

/// A kernel on one GPU.
#[derive(Debug)]
pub struct Kernel {
    context: Arc<Context>,
    found: Found,
    /// The program stays loaded while a kernel of it is there.
    _program: Option<Arc<Owned>>,
}

/// How many blocks a launch has along each axis, and how many threads each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grid {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of shared memory of each block beyond those that the kernel declares: its `extern __shared__` array.
    pub shared: u32,
    /// Whether all blocks run at once, so that they may wait for each other. The driver refuses more blocks than the
    /// GPU runs at once.
    pub is_cooperative: bool,
}

impl Program {
    /// The kernels of a PTX text; the name is for messages.
    pub const fn new(name: &'static str, ptx: &'static str) -> Self {
        Self { name, ptx }
    }

    /// The program on the queue's GPU, compiled the first time and then kept; `None` for a queue of another
    /// backend.
    ///
    /// Do this before any token is taken: a program that cannot be loaded, or a GPU that is known to be lost, then
    /// leaves all memories as they are.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses the text, with the compiler's own words, and for a lost GPU.
    pub fn load(&'static self, queue: &dyn Queue) -> Result<Option<Loaded>, Error> {
        let Some(queue) = CudaQueue::of(queue) else {
            return Ok(None);
        };
        let context = queue.context();
        let _here = context.enter().map_err(|failure| queue.error("load", failure))?;
        let module = find_or(&context.modules, self.ptx, || {
            let text = CString::new(self.ptx).map_err(|error| queue.error("load", error))?;
            compile(text.as_bytes_with_nul()).map_err(|refused| {
                context.note(refused.failure);
                queue.error("load", refused.into_error())
            })
        })?;
        Ok(Some(Loaded { context: Arc::clone(context), code: Code::Static(self, module) }))
    }
}

impl Loaded {
    /// A program whose code is had at run time, loaded on the queue's GPU; `None` for a queue of another backend. It is
    /// unloaded when the last of its handles and kernels is dropped, which waits for the GPU's work. The name is for
    /// messages. Do this before any token is taken, as [`Program::load`].
    ///
    /// # Errors
    /// As [`Program::load`]; [`Error::Device`] for a cubin that is cut short, too.
    pub fn of(queue: &dyn Queue, name: &str, image: Image<'_>) -> Result<Option<Self>, Error> {
        let Some(queue) = CudaQueue::of(queue) else {
            return Ok(None);
        };
        let code = Code::Owned(Arc::new(Owned::load(queue, name, image)?));
        Ok(Some(Self { context: Arc::clone(queue.context()), code }))
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::Device`] where the program has none, and for a cubin, which does not say how many bytes of parameters a
    /// kernel has: see [`kernel_of`](Self::kernel_of).
    pub fn kernel(&self, entry: &str) -> Result<Kernel, Error> {
        if let Code::Static(program, _) = &self.code
            // The driver is asked without the lock, because the kernel may be loaded then; asking twice gives the same.
            && let Some(found) = lock(&self.context.modules).kernel(program.ptx, entry)
        {
            return Ok(Kernel { context: Arc::clone(&self.context), found, _program: None });
        }
        let text = match &self.code {
            Code::Static(program, _) => Some(program.ptx),
            Code::Owned(owned) => owned.ptx.as_deref(),
        };
        let Some(text) = text else {
            return Err(
                self.refused(format!("`{}` does not say the bytes of the parameters of `{entry}`", self.name()))
            );
        };
        let params = params_of(text, entry).ok_or_else(|| self.absent(entry))?;
        self.kernel_of(entry, params)
    }

    /// The kernel of that name, which has so many bytes of parameters: of a cubin, that you know.
    ///
    /// # Errors
    /// [`Error::Device`] where the program has no such kernel.
    pub fn kernel_of(&self, entry: &str, params: usize) -> Result<Kernel, Error> {
        let name = CString::new(entry).map_err(|_| self.absent(entry))?;
        let module = match &self.code {
            Code::Static(_, module) => module.0,
            Code::Owned(owned) => owned.module.0,
        };
        let found = self.context.run("kernel", || {
            let mut function = ptr::null_mut();
            // SAFETY: the module is loaded as long as this handle lives; the name ends with a zero byte.
            let found = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
            answer("cuModuleGetFunction", found)?;
            let ask = |attribute| {
                let mut value = 0;
                // SAFETY: the function was just found; the call writes a number.
                answer("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) })?;
                Ok(u32::try_from(value).unwrap_or(0))
            };
            let threads = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
            let shared = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
            Ok(Found { function, params, threads, shared })
        })?;
        let _program = match &self.code {
            Code::Static(program, _) => {
                lock(&self.context.modules).add_kernel(program.ptx, entry, found);
                None
            }
            Code::Owned(owned) => Some(Arc::clone(owned)),
        };
        Ok(Kernel { context: Arc::clone(&self.context), found, _program })
    }

    fn name(&self) -> &str {
        match &self.code {
            Code::Static(program, _) => program.name,
            Code::Owned(owned) => &owned.name,
        }
    }

    fn absent(&self, entry: &str) -> Error {
        self.refused(format!("no kernel `{entry}` in `{}`", self.name()))
    }

    fn refused(&self, what: String) -> Error {
        Error::device(self.context.id, "kernel", what)
    }
}

/// Enqueues a kernel. `params` are the bytes of the parameters, laid out as the PTX declares; the bytes are copied.
///
/// Launch in order to write memories through tokens: make the tokens, put the addresses of their [`Arg`]s into the
/// parameters, and pass the arguments as `uses`. After a refusal nothing was enqueued.
///
/// # Safety
/// The kernel touches only the bytes of `uses`, each as its [`Arg::access`] says, and whatever else it is given lives
/// until the queue is synchronised.
///
/// # Errors
/// [`Error::WrongQueue`] for an argument of another queue. [`Error::Device`] for a queue that is not of the kernel's
/// GPU, a grid beyond the GPU's limits or without threads, or parameters of another length than the kernel has.
pub unsafe fn launch(
    queue: &dyn Queue,
    kernel: &Kernel,
    grid: Grid,
    uses: &[Arg<'_>],
    params: &[u8],
) -> Result<(), Error> {
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    let refused = |what: String| Err(Error::device(queue.device().id(), "launch", what));
    let Some(queue) = CudaQueue::of(queue).filter(|queue| Arc::ptr_eq(queue.context(), &kernel.context)) else {
        return refused("the kernel was loaded for another device".into());
    };
    if let Some(arg) = uses.iter().find(|arg| arg.queue() != queue.id()) {
        return Err(Error::WrongQueue { wanted: queue.id(), got: arg.queue() });
    }
    if params.len() != kernel.found.params {
        return refused(format!("{} bytes of parameters, the kernel has {}", params.len(), kernel.found.params));
    }
    if let Some(what) = grid.beyond(&kernel.context.limits, &kernel.found) {
        return refused(what);
    }
    let mut len = params.len();
    let with = |number: usize| ptr::without_provenance_mut::<c_void>(number);
    let mut extra =
        [with(POINTER), params.as_ptr().cast_mut().cast(), with(SIZE), (&raw mut len).cast(), ptr::null_mut()];
    let extra = if params.is_empty() { ptr::null_mut() } else { extra.as_mut_ptr() };
    kernel.context.run("launch", || {
        if grid.shared > 0 && kernel.found.shared + grid.shared > kernel.context.limits.shared {
            allow_shared(&kernel.found, kernel.context.limits.shared_at_most)?;
        }
        // SAFETY: function and stream live and are of one context. The parameters are as long as the kernel reads and
        // are copied during the call. The bytes that the kernel touches are the caller's promise.
        unsafe { enqueue(kernel.found.function, grid, queue.stream().raw(), extra) }
    })
}

/// Lets a kernel have more shared memory than it could without being asked for it. The most, so that launches of
/// several threads do not take it from each other.
fn allow_shared(found: &Found, most: u32) -> Result<(), Failure> {
    let (attribute, bytes) =
        (CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most - found.shared);
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    // SAFETY: the function lives as long as the kernel, which the caller has.
    answer("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(found.function, attribute, bytes) })
}

/// # Safety
/// Function and stream live and are of the calling thread's context; `extra` is null, or the parameters of the function
/// as `cuLaunchKernel` takes them; the caller has the rights to all that the kernel touches.
unsafe fn enqueue(function: CUfunction, grid: Grid, stream: CUstream, extra: *mut *mut c_void) -> Result<(), Failure> {
    let ([x, y, z], [i, j, k]) = (grid.blocks, grid.threads);
    if !grid.is_cooperative {
        // SAFETY: the caller says that function and stream live and are of this thread's context, that `extra` is null
        // or the function's parameters, and that the kernel may touch all that it touches.
        let code =
            unsafe { sys::cuLaunchKernel(function, x, y, z, i, j, k, grid.shared, stream, ptr::null_mut(), extra) };
        return answer("cuLaunchKernel", code);
    }
    let mut attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        pad: [0; 4],
        value: CUlaunchAttributeValue { cooperative: 1 },
    };
    let config = CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: i,
        blockDimY: j,
        blockDimZ: k,
        sharedMemBytes: grid.shared,
        hStream: stream,
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    // SAFETY: the caller says that function and stream live and are of this thread's context, that `extra` is null or
    // the function's parameters, and that the kernel may touch all that it touches. The configuration and its one
    // attribute, which outlive the call, are read during the call.
    answer("cuLaunchKernelEx", unsafe { sys::cuLaunchKernelEx(&config, function, ptr::null_mut(), extra) })
}

impl Grid {
    /// So many blocks along each axis of so many threads.
    pub const fn new(blocks: [u32; 3], threads: [u32; 3]) -> Self {
        Self { blocks, threads, shared: 0, is_cooperative: false }
    }

    /// The part that the GPU does not take.
    fn beyond(&self, limits: &Limits, found: &Found) -> Option<String> {
        let ends = |name: &str, sizes: [u32; 3], most: [u32; 3]| {
            let axes = sizes.iter().zip(most).zip(["x", "y", "z"]);
            let mut beyond = axes.filter(|((size, most), _)| **size == 0 || **size > *most);
            beyond.next().map(|((size, most), axis)| format!("{size} {name} along {axis}, and 1 to {most} are taken"))
        };
        let most = limits.threads_in_all.min(found.threads);
        let room = limits.shared_at_most.saturating_sub(found.shared);
        let all: u64 = self.threads.iter().map(|size| u64::from(*size)).product();
        ends("blocks", self.blocks, limits.blocks)
            .or_else(|| ends("threads", self.threads, limits.threads))
            .or_else(|| (all > u64::from(most)).then(|| format!("{all} threads in a block, and {most} are taken")))
            .or_else(|| {
                let asked = self.shared;
                (asked > room).then(|| format!("{asked} bytes of shared memory in a block, and {room} are left"))
            })
            .or_else(|| {
                let is_refused = self.is_cooperative && !limits.cooperates;
                is_refused.then(|| "the GPU does not run the blocks of a launch at once".to_string())
            })
    }
}

/// How many bytes of parameters an entry of a PTX text declares; `None` where there is no such entry.
fn params_of(ptx: &str, entry: &str) -> Option<usize> {
    let declared = ptx.match_indices(".entry").find_map(|(at, keyword)| {
        let rest = ptx[at + keyword.len()..].trim_start().strip_prefix(entry)?;
        rest.starts_with(|next: char| next == '(' || next == '{' || next == '.' || next.is_whitespace()).then_some(rest)
    })?;
    let Some(list) = declared.trim_start().strip_prefix('(') else {
        return Some(0);
    };
    let list = list.split(')').next()?;
    list.split(',').filter(|param| !param.trim().is_empty()).try_fold(0, |end: usize, param| {
        let (len, align) = param_of(param)?;
        end.checked_next_multiple_of(align)?.checked_add(len)
    })
}

/// The length and the alignment of one parameter, such as `.param .align 8 .b8 name[48]` or `.param .u64 name`.
fn param_of(param: &str) -> Option<(usize, usize)> {
    let words: Vec<&str> = param.split_whitespace().collect();
    let element = words.iter().find_map(|word| {
        let bits = word.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?.parse::<usize>().ok()?;
        (bits % 8 == 0).then_some(bits / 8)
    })?;
    // A `.ptr` has an alignment too: that of the bytes behind the pointer.
    let is_pointer = words.contains(&".ptr");
    let align = words.iter().position(|word| *word == ".align").filter(|_| !is_pointer);
    let align = align.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(element);
    let count = match words.last()?.split_once('[') {
        Some((_, count)) => count.strip_suffix(']')?.parse().ok()?,
        None => 1,
    };
    Some((element.checked_mul(count)?, align)).filter(|(_, align)| *align > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_laid_out_as_the_text_declares_them() {
        let ptx = "
            // a comment that only looks like an .entry
            .visible .entry one(\n\t.param .align 8 .b8 one_param_0[3880]\n)\n.maxntid 256, 1, 1\n{ ret; }
            .entry one_more ( .param .u8 a, .param .u64 .ptr .global .align 16 b, .param .f32 c, .param .b16 d[3] ) { ret; }
            .visible .entry none() { ret; }
            .entry bare { ret; }
            .entry strange( .param .texref a ) { ret; }";
        let params = |entry| params_of(ptx, entry);
        assert_eq!(params("one"), Some(3880));
        assert_eq!(params("one_more"), Some(8 + 8 + 4 + 6));
        assert_eq!((params("none"), params("bare")), (Some(0), Some(0)));
        assert_eq!((params("strange"), params("on"), params("one_mor")), (None, None, None));
    }

    #[test]
    fn a_grid_is_held_to_the_limits_of_the_gpu_and_of_the_kernel() {
        let (blocks, threads) = ([1 << 31, 65_535, 65_535], [1024, 1024, 64]);
        let (shared, shared_at_most) = (48 << 10, 227 << 10);
        let limits = Limits { blocks, threads, threads_in_all: 1024, shared, shared_at_most, cooperates: false };
        let of = |threads| Found { function: ptr::null_mut(), params: 0, threads, shared: 1024 };
        let beyond = |blocks, threads, most| Grid::new(blocks, threads).beyond(&limits, &of(most));
        assert_eq!(beyond([1 << 31, 65_535, 1], [256, 4, 1], 1024), None);
        let said =
            |beyond: Option<String>, what: &str| assert!(beyond.is_some_and(|said| said.starts_with(what)), "{what}");
        said(beyond([0, 1, 1], [1; 3], 1024), "0 blocks along x");
        said(beyond([1, 65_536, 1], [1; 3], 1024), "65536 blocks along y");
        said(beyond([1; 3], [1, 1, 65], 1024), "65 threads along z");
        said(beyond([1; 3], [1024, 2, 1], 1024), "2048 threads in a block, and 1024");
        said(beyond([1; 3], [512, 1, 1], 256), "512 threads in a block, and 256");
        let with = |shared, is_cooperative| Grid { shared, is_cooperative, ..Grid::new([1; 3], [1; 3]) };
        assert_eq!(with(226 << 10, false).beyond(&limits, &of(1024)), None);
        said(with(227 << 10, false).beyond(&limits, &of(1024)), "232448 bytes of shared memory in a block, and 231424");
        said(with(0, true).beyond(&limits, &of(1024)), "the GPU does not run the blocks");
    }
}
