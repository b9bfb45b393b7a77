//! Each case on the GPU: its result compared with the host's, then its time beside the driver's copy and our own, in turn.
//! It prints a line for each time, which `report` reads; it judges nothing.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use blob_core::{AnyBlob, DType, Part, Shape};
use synced_mem::cuda::Cuda;
use synced_mem::{Device, Queue};

use crate::Sizes;
use crate::cases::{self, Case, Op};
use crate::driver::Driver;
use crate::report::{COPY, MEMSET, OURS, OWN_COPY};
use crate::table::median;

/// All rows, on the first GPU.
pub(crate) fn rows(sizes: &Sizes) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let queue = gpu.queue()?;
    let driver = Driver::new(&*queue)?;
    for case in cases::all(sizes.bytes) {
        let done = row(&case, sizes, &queue, &driver);
        println!("check\t{}: the host's bits\t{}", case.name, crate::words(done.map(|()| "the same".to_string())));
        gpu.trim()?;
    }
    Ok(())
}

fn row(case: &Case, sizes: &Sizes, queue: &Arc<dyn Queue>, driver: &Driver) -> Result<()> {
    let mut tensors = Tensors::new(case)?;
    compare(case, &mut tensors, queue)?;
    let (from, to) = (queue.alloc(case.bytes())?, queue.alloc(case.bytes())?);
    // The driver's stream is another one, and the blocks are there when ours has got to them.
    queue.synchronize()?;
    driver.upload(&tensors.x.data().bytes()?, &*from, false)?;
    let is_fill = case.op == Op::Fill;
    // The same bytes for all three.
    let x = AnyBlob::from_parts(Shape::new(&case.dims[..])?, case.dtype, tensors.x.memory(Part::Data).clone(), None)?;
    let mut copied = AnyBlob::new(tensors.x.shape().clone(), case.dtype)?;
    let mut ours = || blob_ops::on(queue, || tensors.run(case.op)).map(drop);
    let mut theirs = || if is_fill { driver.fill(&*to) } else { driver.copy(&*from, &*to) };
    let mut own_copy = || Ok(blob_ops::on(queue, || blob_ops::convert_into(&x, &mut copied, Part::Data))?);
    let (wait, wait_for_driver) = (|| Ok(queue.synchronize()?), || driver.wait());
    let them = if is_fill { MEMSET } else { COPY };
    let mut runs: Vec<Run<'_>> =
        vec![(OURS, &mut ours, &wait), (them, &mut theirs, &wait_for_driver), (OWN_COPY, &mut own_copy, &wait)];
    for (who, seconds) in in_turn(&mut runs, sizes.rounds, sizes.batch)? {
        println!("time\t{}\t{who}\t{seconds:e}", case.name);
    }
    Ok(())
}

/// Who, what is done, and how to wait for it.
type Run<'a> = (&'static str, &'a mut dyn FnMut() -> Result<()>, &'a dyn Fn() -> Result<()>);

/// Seconds of one run each: the median over rounds in which all take turns, each `batch` times and then waited for.
pub(crate) fn in_turn(runs: &mut [Run<'_>], rounds: usize, batch: usize) -> Result<Vec<(&'static str, f64)>> {
    let mut seconds = vec![Vec::new(); runs.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for ((_, run, wait), seconds) in runs.iter_mut().zip(&mut seconds) {
            let start = Instant::now();
            for _ in 0..batch {
                run()?;
            }
            wait()?;
            if round > 0 {
                seconds.push(start.elapsed().as_secs_f64() / batch as f64);
            }
        }
    }
    Ok(runs.iter().zip(seconds).map(|((who, ..), seconds)| (*who, median(seconds.into_iter()))).collect())
}

/// The operands of a case. The whole of a merge, and what begins as a copy of `x`, is `out`.
struct Tensors {
    x: AnyBlob,
    parts: Vec<AnyBlob>,
    out: AnyBlob,
}

impl Tensors {
    fn new(case: &Case) -> Result<Self> {
        let shape = Shape::new(&case.dims[..])?;
        let x = noise(&shape, case.dtype)?;
        let empty = |shape: Shape, dtype| AnyBlob::new(shape, dtype).context("a tensor");
        let (mut parts, mut out) = (Vec::new(), empty(Shape::scalar(), DType::F32)?);
        match case.op {
            Op::Merge { parts: count } | Op::Split { parts: count } => {
                let (rows, len) = (case.dims[0], case.dims[1] / count);
                let part = || empty(Shape::new([rows, len])?, case.dtype);
                parts = (0..count).map(|_| part()).collect::<Result<_>>()?;
                if matches!(case.op, Op::Merge { .. }) {
                    let mut all: Vec<_> = parts.iter_mut().collect();
                    blob_ops::split_into(&x, 1, &mut all)?;
                    out = empty(shape, case.dtype)?;
                }
            }
            Op::Permute(order) => {
                let dims: Vec<_> = order.iter().map(|axis| case.dims[*axis]).collect();
                out = empty(Shape::new(dims)?, case.dtype)?;
            }
            Op::Convert(to) => out = empty(shape, to)?,
            Op::Add | Op::Axpy | Op::Scale | Op::Fill => {
                out = AnyBlob::from_vec(shape, case.dtype, x.data().bytes()?.to_vec())?;
            }
            Op::Asum | Op::Sumsq => {}
        }
        Ok(Self { x, parts, out })
    }

    /// Runs the operation; gives the bits of a sum.
    fn run(&mut self, op: Op) -> Result<Option<u64>> {
        let Self { x, parts, out } = self;
        let data = Part::Data;
        match op {
            Op::Merge { .. } => blob_ops::merge_into(&parts.iter().collect::<Vec<_>>(), 1, out)?,
            Op::Split { .. } => blob_ops::split_into(x, 1, &mut parts.iter_mut().collect::<Vec<_>>())?,
            Op::Permute(order) => blob_ops::permute_into(x, order, out)?,
            Op::Add => blob_ops::add(out, x, data)?,
            Op::Axpy => blob_ops::axpy(out, 0.5, x, data)?,
            Op::Scale => blob_ops::scale(out, 0.999, data)?,
            Op::Fill => blob_ops::fill(out, 1, data)?,
            Op::Convert(_) => blob_ops::convert_into(x, out, data)?,
            Op::Asum => return Ok(Some(blob_ops::asum(x, data)?.as_f64().to_bits())),
            Op::Sumsq => return Ok(Some(blob_ops::sumsq(x, data)?.as_f64().to_bits())),
        }
        Ok(None)
    }

    fn outputs(&self, op: Op) -> Vec<&AnyBlob> {
        match op {
            Op::Split { .. } => self.parts.iter().collect(),
            _ => vec![&self.out],
        }
    }
}

/// Once here and once on the host, from the same bytes: every bit is the same.
fn compare(case: &Case, tensors: &mut Tensors, queue: &Arc<dyn Queue>) -> Result<()> {
    let mut host = Tensors::new(case)?;
    let wanted = blob_ops::on_host(|| host.run(case.op))?;
    let found = blob_ops::on(queue, || tensors.run(case.op))?;
    ensure!(found == wanted, "the sum is {found:x?} in bits, on the host {wanted:x?}");
    for (found, wanted) in tensors.outputs(case.op).into_iter().zip(host.outputs(case.op)) {
        let (found, wanted) = (found.data().bytes()?, wanted.data().bytes()?);
        if found[..] != wanted[..] {
            let at = found.iter().zip(&wanted[..]).position(|(found, wanted)| found != wanted);
            anyhow::bail!("byte {} differs from the host's", at.unwrap_or(0));
        }
    }
    Ok(())
}

/// Bytes without a pattern; of floats, fractions that are finite.
fn noise(shape: &Shape, dtype: DType) -> Result<AnyBlob> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    let bytes = |len: usize, word: &mut dyn FnMut() -> [u8; 8]| {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(word());
        }
        bytes.truncate(len);
        bytes
    };
    if !dtype.is_float() {
        return Ok(AnyBlob::from_vec(shape.clone(), dtype, bytes(shape.count() * dtype.size(), &mut word))?);
    }
    let small = AnyBlob::from_vec(shape.clone(), DType::I8, bytes(shape.count(), &mut word))?;
    blob_ops::on_host(|| {
        let mut floats = blob_ops::convert(&small, dtype)?;
        blob_ops::scale(&mut floats, 0.37, Part::Data)?;
        Ok(floats)
    })
}

/// The small operation: its time in a row of calls, and what a call takes of the host alone.
pub(crate) fn calls(sizes: &Sizes) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let queue = gpu.queue()?;
    let case = cases::small();
    let mut tensors = Tensors::new(&case)?;
    let mut run = || blob_ops::on(&queue, || tensors.run(case.op)).map(drop);
    // Fewer than what a driver queues before it makes the caller wait.
    let batch = 20 * sizes.batch;
    let mut host = Vec::new();
    for _ in 0..=sizes.rounds {
        queue.synchronize()?;
        let start = Instant::now();
        for _ in 0..batch {
            run()?;
        }
        host.push(start.elapsed().as_secs_f64() / batch as f64);
    }
    println!("figure\thost time of {}, µs\t{:e}", case.name, 1e6 * median(host.into_iter().skip(1)));
    let wait = || Ok(queue.synchronize()?);
    let mut runs: Vec<Run<'_>> = vec![(OURS, &mut run, &wait)];
    for (who, seconds) in in_turn(&mut runs, sizes.rounds, batch)? {
        println!("time\t{}\t{who}\t{seconds:e}", case.name);
    }
    Ok(())
}
