//! The kernels: committed PTX, loaded once per device, and the one place that launches them.
//!
//! Relies on `device/launches.rs` for addresses within the operands, as the tests in `tests/cuda` check.

#![allow(unsafe_code)]

use crate::device::launches::permute::{Form, form};
use crate::device::launches::{Limits, Span, launches};
use crate::device::params::THREADS;
use crate::work::Work;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::OnceLock;
use synced_mem::cuda::{Cuda, Grid, Loaded, Program, launch};
use synced_mem::{Arg, Error, Queue};

/// The kernels, in files that are each loaded at first use: a driver compiles one in a few tenths of a second.
macro_rules! programs {
    ($($name:ident $file:literal;)*) => {
        $(static $name: Program = Program::new($file, include_str!(concat!("../kernels/ptx/", $file, ".ptx")));)*
    };
}

programs! {
    ROWS "rows";
    TILES "tiles";
    PACKED "packed";
    NARROW "narrow";
    SQUARE "square";
    ELEMENT "element";
    CONVERT "convert";
    CHECK "check";
    FLOATS "floats";
    INTEGERS "integers";
}

/// Kernels of one queue's device.
pub(crate) struct Kernels(Loaded);

/// Whether there may be a queue that has kernels: whether a GPU was ever opened.
#[inline(always)]
pub(crate) fn is_possible() -> bool {
    synced_mem::cuda::was_used()
}

/// Lowers the limits of one launch, as `WORDS,PARTS`: for tests, which cannot wait for 2³⁰ words.
const SWITCH: &str = "BLOB_OPS_LAUNCH";

fn limits() -> Limits {
    static CHOSEN: OnceLock<Limits> = OnceLock::new();
    *CHOSEN.get_or_init(|| Limits::lowered(&std::env::var(SWITCH).unwrap_or_default()))
}

/// The least compute capability that the kernels are for.
const CAPABILITY: (u32, u32) = (7, 0);

/// Whether this queue's device has kernels.
pub(crate) fn has_kernels(queue: &dyn Queue) -> bool {
    let device: &dyn Any = queue.device();
    device.downcast_ref::<Cuda>().is_some_and(|gpu| gpu.capability() >= CAPABILITY)
}

impl Kernels {
    /// The kernels for this work. The queue [has](has_kernels) some.
    pub(crate) fn load(work: &Work, queue: &dyn Queue) -> Result<Kernels, Error> {
        let program = match work {
            Work::Rows { .. } => &ROWS,
            Work::Permute(plan) => match form(plan) {
                Form::Copy => &ROWS,
                Form::Tiles if plan.run < 4 => &PACKED,
                Form::Tiles => &TILES,
                Form::Narrow => &NARROW,
            },
            Work::Squares { .. } => &SQUARE,
            Work::Arithmetic { .. } | Work::Fill { .. } => &ELEMENT,
            Work::Convert { .. } => &CONVERT,
            Work::Check { .. } => &CHECK,
            Work::Sums { dtype, .. } if dtype.is_float() => &FLOATS,
            Work::Sums { .. } => &INTEGERS,
        };
        let loaded = program.load(queue)?;
        loaded.map(Kernels).ok_or_else(|| Error::device(queue.device().id(), "load", "kernels are for CUDA devices"))
    }

    /// Launches the work, whose kernels these are. The first of `uses` are its inputs, the others its outputs.
    pub(crate) fn run(&self, queue: &dyn Queue, work: &Work, uses: &[Arg<'_>], reads: usize) -> Result<(), Error> {
        let span = |arg: &Arg<'_>| Span { address: arg.address(), len: arg.range().len() };
        let spans = |args: &[Arg<'_>]| args.iter().map(span).collect::<SmallVec<[Span; 16]>>();
        let (inputs, outputs) = uses.split_at(reads);
        for each in launches(work, &spans(inputs), &spans(outputs), limits()) {
            let kernel = self.0.kernel(each.kernel)?;
            let grid = Grid { blocks: [each.blocks, 1, 1], threads: [THREADS, 1, 1] };
            // SAFETY: `launches` gives no address outside the spans, and writes to outputs only; the kernels touch what
            // their structs name, which the tests interpret access by access.
            unsafe { launch(queue, &kernel, grid, uses, &each.params.bytes())? };
        }
        Ok(())
    }
}
