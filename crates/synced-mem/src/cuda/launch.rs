//! Kernels: programs of PTX text, loaded once for each GPU, and the one function that launches them. Relies on
//! tokens for what a kernel may touch, and on the text for how long a kernel's parameters are, which the driver does
//! not tell.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction_attribute};

use super::context::{Context, Limits};
use super::failure::answer;
use super::modules::{Found, Module, compile, find_or, lock};
use super::queue::CudaQueue;
use crate::device::Queue;
use crate::device::token::Arg;
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
#[derive(Debug)]
pub struct Loaded {
    program: &'static Program,
    context: Arc<Context>,
    module: Module,
}

/// A kernel on one GPU.
#[derive(Debug)]
pub struct Kernel {
    context: Arc<Context>,
    found: Found,
}

/// How many blocks a launch has along each axis, and how many threads each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
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
            compile(&text).map_err(|refused| {
                context.note(refused.failure);
                queue.error("load", refused.into_error())
            })
        })?;
        Ok(Some(Loaded { program: self, context: Arc::clone(context), module }))
    }
}

impl Loaded {
    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::Device`] where the program has none.
    pub fn kernel(&self, entry: &'static str) -> Result<Kernel, Error> {
        let Loaded { program, context, module } = self;
        // The driver is asked without the lock, because the kernel may be loaded then; asking twice gives the same one.
        let known = lock(&context.modules).kernel(program.ptx, entry);
        if let Some(found) = known {
            return Ok(Kernel { context: Arc::clone(context), found });
        }
        let absent = || Error::device(context.id, "kernel", format!("no kernel `{entry}` in `{}`", program.name));
        let params = params_of(program.ptx, entry).ok_or_else(absent)?;
        let name = CString::new(entry).map_err(|_| absent())?;
        let found = context.run("kernel", || {
            let mut function = ptr::null_mut();
            // SAFETY: the module is loaded as long as the context is retained; the name ends with a zero byte.
            let found = unsafe { sys::cuModuleGetFunction(&mut function, module.0, name.as_ptr()) };
            answer("cuModuleGetFunction", found)?;
            let (mut threads, most) = (0, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
            // SAFETY: the call writes a number.
            let told = unsafe { sys::cuFuncGetAttribute(&mut threads, most, function) };
            answer("cuFuncGetAttribute", told)?;
            Ok(Found { function, params, threads: u32::try_from(threads).unwrap_or(0) })
        })?;
        lock(&context.modules).add_kernel(program.ptx, entry, found);
        Ok(Kernel { context: Arc::clone(context), found })
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
    if let Some(what) = grid.beyond(&kernel.context.limits, kernel.found.threads) {
        return refused(what);
    }
    let (mut len, [x, y, z], [i, j, k]) = (params.len(), grid.blocks, grid.threads);
    let with = |number: usize| ptr::without_provenance_mut::<c_void>(number);
    let mut extra =
        [with(POINTER), params.as_ptr().cast_mut().cast(), with(SIZE), (&raw mut len).cast(), ptr::null_mut()];
    let extra = if params.is_empty() { ptr::null_mut() } else { extra.as_mut_ptr() };
    kernel.context.run("launch", || {
        let (function, stream) = (kernel.found.function, queue.stream().raw());
        // SAFETY: function and stream live and are of one context. The parameters are as long as the kernel reads and
        // are copied during the call. The bytes that the kernel touches are the caller's promise.
        let code = unsafe { sys::cuLaunchKernel(function, x, y, z, i, j, k, 0, stream, ptr::null_mut(), extra) };
        answer("cuLaunchKernel", code)
    })
}

impl Grid {
    /// The part that the GPU does not take.
    fn beyond(&self, limits: &Limits, threads: u32) -> Option<String> {
        let ends = |name: &str, sizes: [u32; 3], most: [u32; 3]| {
            let axes = sizes.iter().zip(most).zip(["x", "y", "z"]);
            let mut beyond = axes.filter(|((size, most), _)| **size == 0 || **size > *most);
            beyond.next().map(|((size, most), axis)| format!("{size} {name} along {axis}, and 1 to {most} are taken"))
        };
        let most = limits.threads_in_all.min(threads);
        let all: u64 = self.threads.iter().map(|size| u64::from(*size)).product();
        ends("blocks", self.blocks, limits.blocks)
            .or_else(|| ends("threads", self.threads, limits.threads))
            .or_else(|| (all > u64::from(most)).then(|| format!("{all} threads in a block, and {most} are taken")))
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
        let limits = Limits { blocks: [1 << 31, 65_535, 65_535], threads: [1024, 1024, 64], threads_in_all: 1024 };
        let beyond = |blocks, threads, most| Grid { blocks, threads }.beyond(&limits, most);
        assert_eq!(beyond([1 << 31, 65_535, 1], [256, 4, 1], 1024), None);
        let said =
            |beyond: Option<String>, what: &str| assert!(beyond.is_some_and(|said| said.starts_with(what)), "{what}");
        said(beyond([0, 1, 1], [1; 3], 1024), "0 blocks along x");
        said(beyond([1, 65_536, 1], [1; 3], 1024), "65536 blocks along y");
        said(beyond([1; 3], [1, 1, 65], 1024), "65 threads along z");
        said(beyond([1; 3], [1024, 2, 1], 1024), "2048 threads in a block, and 1024");
        said(beyond([1; 3], [512, 1, 1], 256), "512 threads in a block, and 256");
    }
}
