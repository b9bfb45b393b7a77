//! Runs each case on the GPU. One phase measures the time in turn with the driver's copy and our own; another compares
//! the result with the host's. Prints a line for each time, which `report` reads and judges.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::At;
use synced_mem::cuda::Cuda;
use synced_mem::{Device, Queue};

use crate::Sizes;
use crate::cases::{self, Case, Op};
use crate::driver::Driver;
use crate::report::{COPY, MEMSET, OURS, OWN_COPY};
use crate::table::median;

/// Measures the cases from index `from` on whose names contain `part`, on the first GPU.
pub(crate) fn rows(sizes: &Sizes, from: usize, part: &str) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let (queue, driver) = (gpu.queue()?, Driver::new(&gpu)?);
    each(sizes, from, &gpu, |case| {
        if !case.name.contains(part) {
            return Ok(());
        }
        row(case, sizes, &queue, &driver).with_context(|| format!("{}: its time", case.name))
    })
}

/// Compares the results of the cases from index `from` on with the host's.
pub(crate) fn bits(sizes: &Sizes, from: usize) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let queue = gpu.queue()?;
    each(sizes, from, &gpu, |case| {
        let what = format!("{}: the host's bits", case.name);
        compare(case, &queue).with_context(|| what.clone())?;
        println!("check\t{what}\tpassed\tthe same");
        Ok(())
    })
}

/// Runs each case until one fails. An error of a GPU can stay in its context, so the caller continues after the last
/// case named, in a new process.
fn each(sizes: &Sizes, from: usize, gpu: &Cuda, work: impl Fn(&Case) -> Result<()>) -> Result<()> {
    for (index, case) in cases::all(sizes.bytes).iter().enumerate().skip(from) {
        println!("case\t{index}");
        work(case)?;
        gpu.trim()?;
    }
    Ok(())
}

fn row(case: &Case, sizes: &Sizes, queue: &Arc<dyn Queue>, driver: &Driver) -> Result<()> {
    let mut tensors = Tensors::new(case)?;
    let (mut from, mut to) = (driver.buffer(case.bytes())?, driver.buffer(case.bytes())?);
    // All three copy the same bytes. Copies of zeros would say little about other data.
    driver.upload(&tensors.x.data().bytes()?, &mut from, false)?;
    let x = same(&tensors.x)?;
    let mut copied = AnyBlob::new(x.shape().clone(), case.dtype)?;
    let them = if case.op == Op::Fill { MEMSET } else { COPY };
    let mut runs = [
        Run(OURS, &mut |batch| on(queue, batch, |gpu| tensors.run(gpu, case.op).map(drop))),
        Run(them, &mut |batch| match case.op {
            Op::Fill => driver.fill(&mut to, batch),
            _ => driver.copy(&from, &mut to, batch),
        }),
        Run(OWN_COPY, &mut |batch| on(queue, batch, |gpu| Ok(gpu.convert_into(&x, &mut copied, Part::Data)?))),
    ];
    in_turn(&mut runs, sizes, sizes.batch)?.iter().for_each(|time| time.print(&case.name));
    Ok(())
}

/// Runs an operation `batch` times on the queue, and waits for it.
fn on(queue: &Arc<dyn Queue>, batch: usize, mut once: impl FnMut(&At) -> Result<()>) -> Result<()> {
    let gpu = blob_ops::at(queue);
    (0..batch).try_for_each(|_| once(&gpu))?;
    Ok(queue.synchronize()?)
}

/// A name, and a function that runs an operation a number of times and waits for it.
pub(crate) struct Run<'a>(pub(crate) &'static str, pub(crate) &'a mut dyn FnMut(usize) -> Result<()>);

/// The seconds of one run, over all rounds.
pub(crate) struct Time {
    name: &'static str,
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Time {
    fn of(name: &'static str, seconds: &[f64]) -> Self {
        let (least, most) =
            seconds.iter().fold((f64::INFINITY, 0f64), |(least, most), s| (least.min(*s), most.max(*s)));
        Self { name, median: median(seconds.iter().copied()), least, most }
    }

    fn print(&self, case: &str) {
        println!("time\t{case}\t{}\t{:e}\t{:e}\t{:e}", self.name, self.median, self.least, self.most);
    }

    /// The rate for this many bytes: the median, and in brackets the slowest and the fastest round.
    pub(crate) fn rate(&self, bytes: usize) -> String {
        let [median, least, most] = [self.median, self.most, self.least].map(|seconds| bytes as f64 / seconds / 1e9);
        format!("{median:.1} GB/s ({least:.1} to {most:.1})")
    }
}

/// Measures rounds in which all runs take turns, each with `batch` repetitions before it waits. Warms up first, because
/// an idle GPU raises its clocks only after a while.
pub(crate) fn in_turn(runs: &mut [Run<'_>], sizes: &Sizes, batch: usize) -> Result<Vec<Time>> {
    let begin = Instant::now();
    loop {
        runs.iter_mut().try_for_each(|Run(_, run)| run(batch))?;
        if begin.elapsed() >= sizes.warm_up {
            break;
        }
    }
    let mut seconds = vec![Vec::new(); runs.len()];
    for _ in 0..sizes.rounds {
        for (Run(_, run), seconds) in runs.iter_mut().zip(&mut seconds) {
            let start = Instant::now();
            run(batch)?;
            seconds.push(start.elapsed().as_secs_f64() / batch as f64);
        }
    }
    Ok(runs.iter().zip(seconds).map(|(Run(name, _), seconds)| Time::of(name, &seconds)).collect())
}

/// The operands of a case. `out` is the result; arithmetic works on it in place, so there it starts as a copy of `x`.
struct Tensors {
    x: AnyBlob,
    parts: Vec<AnyBlob>,
    out: AnyBlob,
}

impl Tensors {
    fn new(case: &Case) -> Result<Self> {
        Self::of(case, noise(&Shape::new(&case.dims[..])?, case.dtype)?)
    }

    fn of(case: &Case, x: AnyBlob) -> Result<Self> {
        let shape = x.shape().clone();
        let empty = |shape: Shape, dtype| AnyBlob::new(shape, dtype).context("a tensor");
        let (mut parts, mut out) = (Vec::new(), empty(Shape::default(), DType::F32)?);
        match case.op {
            Op::Merge { parts: count } | Op::Split { parts: count } => {
                let (rows, len) = (case.dims[0], case.dims[1] / count);
                parts = (0..count).map(|_| empty(Shape::new([rows, len])?, case.dtype)).collect::<Result<_>>()?;
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

    /// Runs the operation. Returns the bits of a sum.
    fn run(&mut self, at: &At, op: Op) -> Result<Option<u64>> {
        let Self { x, parts, out } = self;
        let data = Part::Data;
        match op {
            Op::Merge { .. } => at.merge_into(&parts.iter().collect::<Vec<_>>(), 1, out)?,
            Op::Split { .. } => at.split_into(x, 1, &mut parts.iter_mut().collect::<Vec<_>>())?,
            Op::Permute(order) => at.permute_into(x, order, out)?,
            Op::Add => at.add(out, x, data)?,
            Op::Axpy => at.axpy(out, 0.5, x, data)?,
            Op::Scale => at.scale(out, 0.999, data)?,
            Op::Fill => at.fill(out, 1, data)?,
            Op::Convert(_) => at.convert_into(x, out, data)?,
            Op::Asum => return Ok(Some(at.asum(x, data)?.as_f64().to_bits())),
            Op::Sumsq => return Ok(Some(at.sumsq(x, data)?.as_f64().to_bits())),
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

/// A second tensor on the same memory.
fn same(x: &AnyBlob) -> Result<AnyBlob> {
    Ok(AnyBlob::from_parts(x.shape().clone(), x.dtype(), x.memory(Part::Data).clone(), None)?)
}

/// Runs the case on the GPU and on the host, and checks that the results are equal bit for bit.
fn compare(case: &Case, queue: &Arc<dyn Queue>) -> Result<()> {
    let mut tensors = Tensors::new(case)?;
    let mut host = Tensors::of(case, same(&tensors.x)?)?;
    let wanted = host.run(&blob_ops::at_host(), case.op)?;
    let found = tensors.run(&blob_ops::at(queue), case.op)?;
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

/// A tensor of pseudo-random values, which repeat after a long stretch. Floats are finite fractions.
fn noise(shape: &Shape, dtype: DType) -> Result<AnyBlob> {
    /// The bytes of a stretch. Not a power of two, so that no stride of a tensor leads from an element to its
    /// repetition; divisible by every dtype's size.
    const STRETCH: usize = (1 << 24) - 24;
    let len = shape.count() * dtype.size();
    let mut bytes = stretch(len.min(STRETCH).next_multiple_of(8), dtype)?;
    bytes.truncate(len);
    bytes.reserve_exact(len - bytes.len());
    while bytes.len() < len {
        bytes.extend_from_within(..STRETCH.min(len - bytes.len()));
    }
    Ok(AnyBlob::from_vec(shape.clone(), dtype, bytes)?)
}

fn stretch(len: usize, dtype: DType) -> Result<Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut bytes = |len: usize| {
        (0..len.div_ceil(8))
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_ne_bytes()
            })
            .take(len)
            .collect::<Vec<u8>>()
    };
    if !dtype.is_float() {
        return Ok(bytes(len));
    }
    let count = len / dtype.size();
    let small = AnyBlob::from_vec(Shape::new([count])?, DType::I8, bytes(count))?;
    let mut floats = blob_ops::convert(&small, dtype)?;
    blob_ops::scale(&mut floats, 0.37, Part::Data)?;
    let bytes = floats.data().bytes()?.to_vec();
    Ok(bytes)
}

/// Measures the small operation: the time in a series of calls, and the host's share of a call.
pub(crate) fn calls(sizes: &Sizes) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let queue = gpu.queue()?;
    let case = cases::small();
    let mut tensors = Tensors::new(&case)?;
    let mut run = |gpu: &At| tensors.run(gpu, case.op).map(drop);
    // The driver queues more calls than this before it makes the caller wait.
    let batch = 20 * sizes.batch;
    let times = in_turn(&mut [Run(OURS, &mut |batch| on(&queue, batch, &mut run))], sizes, batch)?;
    times.iter().for_each(|time| time.print(&case.name));
    let (mut host, place) = (Vec::new(), blob_ops::at(&queue));
    for _ in 0..sizes.rounds {
        let start = Instant::now();
        (0..batch).try_for_each(|_| run(&place))?;
        host.push(start.elapsed().as_secs_f64() / batch as f64);
        queue.synchronize()?;
    }
    println!("figure\thost time of {}, µs\t{:e}", case.name, 1e6 * median(host.into_iter()));
    Ok(())
}

/// Measures our own copy alone. Run before and after the peers, it shows how much the GPU itself changed in between.
pub(crate) fn copy(sizes: &Sizes, when: &str) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let queue = gpu.queue()?;
    let x = AnyBlob::from_vec(Shape::new([sizes.bytes])?, DType::U8, vec![1; sizes.bytes])?;
    let mut copied = AnyBlob::new(x.shape().clone(), x.dtype())?;
    for time in in_turn(
        &mut [Run(OWN_COPY, &mut |batch| {
            on(&queue, batch, |gpu| Ok(gpu.convert_into(&x, &mut copied, Part::Data)?))
        })],
        sizes,
        sizes.batch,
    )? {
        println!("about\tour own copy {when} the peers: {}", time.rate(2 * sizes.bytes));
    }
    Ok(())
}
