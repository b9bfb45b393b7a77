//! The kernels: committed PTX, loaded once per device, and the one place that launches them.
//!
//! Relies on `device/launches.rs` for addresses within the operands, as the tests in `tests/cuda` check.

#![allow(unsafe_code)]

use crate::device::launches::{Family, Limits, Span, launches};
use crate::device::params::THREADS;
use crate::work::Work;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::OnceLock;
use synced_mem::cuda::{Cuda, Grid, Loaded, Program, launch};
use synced_mem::{Arg, Error, Queue};

macro_rules! programs {
    ($($family:ident $file:literal;)*) => {
        /// The kernels, in files that are each loaded at first use: a driver compiles one in a few tenths of a second.
        fn program(family: Family) -> &'static Program {
            match family {
                $(Family::$family => {
                    static FILE: Program = Program::new($file, include_str!(concat!("../kernels/ptx/", $file, ".ptx")));
                    &FILE
                })*
            }
        }
    };
}

programs! {
    Rows "rows";
    Tiles "tiles";
    Packed "packed";
    Narrow "narrow";
    Squares "square";
    Elements "element";
    Conversions "convert";
    Checks "check";
    Floats "floats";
    Integers "integers";
}

/// Kernels of one queue's device, for one piece of work.
pub(crate) struct Kernels {
    family: Family,
    loaded: Loaded,
}

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

/// Whether work without a named place may go there: a GPU that is known to be lost would fail every launch.
pub(crate) fn is_at_work(queue: &dyn Queue) -> bool {
    let device: &dyn Any = queue.device();
    has_kernels(queue) && device.downcast_ref::<Cuda>().is_some_and(|gpu| !gpu.is_lost())
}

impl Kernels {
    /// The kernels for this work. The queue [has](has_kernels) some.
    pub(crate) fn load(work: &Work, queue: &dyn Queue) -> Result<Kernels, Error> {
        let family = Family::of(work);
        match program(family).load(queue)? {
            Some(loaded) => Ok(Kernels { family, loaded }),
            None => Err(Error::device(queue.device().id(), "load", "kernels are for CUDA devices")),
        }
    }

    /// Launches the work, whose kernels these are. The first of `uses` are its inputs, the others its outputs.
    pub(crate) fn run(&self, queue: &dyn Queue, work: &Work, uses: &[Arg<'_>], reads: usize) -> Result<(), Error> {
        let spans = uses.iter().map(|arg| Span { address: arg.address(), len: arg.range().len() });
        let spans: SmallVec<[Span; 16]> = spans.collect();
        let (inputs, outputs) = spans.split_at(reads);
        for each in launches(work, self.family, inputs, outputs, limits()) {
            let kernel = self.loaded.kernel(each.kernel)?;
            let grid = Grid::new([each.blocks, 1, 1], [THREADS, 1, 1]);
            // SAFETY: `launches` gives no address outside the spans, and writes to outputs only; the kernels touch what
            // their structs name, which the tests interpret access by access.
            unsafe { launch(queue, &kernel, grid, uses, each.params.bytes())? };
        }
        Ok(())
    }
}
