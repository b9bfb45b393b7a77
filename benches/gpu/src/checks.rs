//! Checks a GPU: the promises of a backend, and that every operation gives the host's bits. Also measures the first use
//! of each kernel file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::{Result, anyhow};
use blob_core::{AnyBlob, DType, Part, Shape};
use synced_mem::cuda::{Cuda, list};
use synced_mem::{Device, conformance};

use crate::operations::{self, Comparison};
use crate::words;

/// Runs the conformance suite on each GPU alone, and on the first two together.
pub(crate) fn conformance() -> Result<()> {
    let count = list()?.len();
    for ordinal in 0..count {
        let passed = conformance::run(&*Cuda::open(ordinal)?).map(|checks| format!("{checks} checks"));
        println!("check\tGPU {ordinal} keeps the promises of a backend\t{}", words(passed.map_err(Into::into)));
    }
    let name = "two GPUs keep them as a pair";
    match count {
        1 => println!("check\t{name}\tnot run on two\tthere is one GPU"),
        _ => {
            let passed = conformance::run_pair(&*Cuda::open(0)?, &*Cuda::open(1)?);
            let passed = passed.map(|checks| format!("{checks} checks"));
            println!("check\t{name}\t{}", words(passed.map_err(Into::into)));
        }
    }
    Ok(())
}

/// A name, and a function that compares the operations' results with the host's.
type Operation = (&'static str, fn(&Comparison<'_>));

const OPERATIONS: [Operation; 12] = [
    ("merges and splits", operations::merges_and_splits),
    ("more parts than a launch takes", operations::more_parts_than_a_launch_takes),
    ("permutations and transpositions", operations::permutations_and_transpositions),
    ("arithmetic", operations::arithmetic),
    ("fills", operations::fills),
    ("conversions of every pair", operations::conversions_of_every_pair),
    ("checked conversions", operations::checked_conversions_find_the_first),
    ("sums", operations::sums),
    ("squares before they are added", operations::squares_are_rounded_before_they_are_added),
    ("sums of many blocks", operations::sums_of_many_blocks),
    ("operands at every alignment", operations::operands_at_every_alignment),
    ("nothing to do", operations::nothing_to_do),
];

/// Compares operations on small tensors of every shape and dtype with the host.
pub(crate) fn small_operations() -> Result<()> {
    let queue = Cuda::open(0)?.queue()?;
    for (name, compare) in OPERATIONS {
        let check = Comparison::new(&queue, 1, &|_| {});
        let passed = catch_unwind(AssertUnwindSafe(|| compare(&check)));
        let passed = passed.map(|()| "the host's bits".to_string()).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            anyhow!(text.unwrap_or_else(|| "it panicked".to_string()))
        });
        println!("check\t{name}\t{}", words(passed));
    }
    Ok(())
}

/// The kernel files, in the order of the first use in [`first_use`].
pub(crate) const FILES: [&str; 10] =
    ["rows", "tiles", "packed", "narrow", "square", "element", "convert", "check", "floats", "integers"];

/// Measures one small operation of each kernel file, from the call to the result.
pub(crate) fn first_use(process: &str) -> Result<()> {
    let queue = Cuda::open(0)?.queue()?;
    // The tensors are allocated on the GPU before, so that only the kernels are measured.
    let tensor = |dtype: DType, dims: [usize; 2]| -> Result<AnyBlob> {
        let shape = Shape::new(dims)?;
        let bytes = vec![0; shape.count() * dtype.size()];
        let mut tensor = AnyBlob::from_vec(shape, dtype, bytes)?;
        drop(tensor.data_mut().device(&queue)?);
        Ok(tensor)
    };
    let (x, bytes, channels) =
        (&tensor(DType::F32, [64, 64])?, &tensor(DType::U8, [64, 64])?, &tensor(DType::F32, [3, 1024])?);
    let (mut y, mut half) = (tensor(DType::F32, [64, 64])?, AnyBlob::new(Shape::new([64, 64])?, DType::F16)?);
    queue.synchronize()?;
    let gpu = blob_ops::at(&queue);
    for file in FILES {
        let start = Instant::now();
        match file {
            "rows" => gpu.merge(&[x, x], 0).map(drop),
            "tiles" => gpu.transpose(x, 0, 1).map(drop),
            "packed" => gpu.transpose(bytes, 0, 1).map(drop),
            "narrow" => gpu.transpose(channels, 0, 1).map(drop),
            "square" => gpu.transpose_in_place(&mut y),
            "element" => gpu.add(&mut y, x, Part::Data),
            "convert" => gpu.convert_into(x, &mut half, Part::Data),
            "check" => gpu.convert_checked(x, DType::F16).map(drop),
            "floats" => gpu.asum(x, Part::Data).map(drop),
            _ => gpu.asum(bytes, Part::Data).map(drop),
        }?;
        queue.synchronize()?;
        let time = start.elapsed().as_secs_f64() * 1e3;
        println!("figure\tfirst use of {file}, {process}, ms\t{time:e}");
    }
    Ok(())
}
