//! `ndarray`: all operations write into touched memory. One thread uses `assign` and similar methods; several threads
//! use the parallel iterators, over elements to compute and over chunks of an outer axis to copy.
//!
//! `concatenate` and `stack` allocate their result, so a merge assigns each part to its slice of the destination
//! instead. There is no sum of magnitudes: one pass writes them into touched scratch memory, and `sum` adds them up.

use anyhow::Result;
use ndarray::parallel::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use ndarray::{ArrayD, ArrayView1, ArrayViewD, ArrayViewMutD, Axis, IxDyn, Zip};
use rayon::ThreadPool;

use super::{Peer, Work, prepared};
use crate::cases::{Case, Op};
use crate::input::Input;
use crate::naive::SCALE;

pub(super) struct NdArray {
    /// `None` for one thread, which does not call the parallel methods.
    pool: Option<ThreadPool>,
}

impl NdArray {
    pub(super) fn new(threads: usize) -> Result<NdArray> {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = (threads > 1).then(|| builder.build()).transpose()?;
        Ok(NdArray { pool })
    }
}

impl Peer for NdArray {
    fn name(&self) -> &'static str {
        "ndarray"
    }

    fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    fn prepare<'a>(&'a self, case: &Case, input: &'a Input) -> Result<Option<Box<dyn Work + 'a>>> {
        let x = ArrayViewD::from_shape(IxDyn(&case.dims), &input.values)?;
        Ok(Some(match &case.op {
            Op::Merge { axis, .. } => self.merge(case, input, *axis)?,
            Op::Split { axis, parts } => self.split(x, *axis, *parts),
            Op::Permute(order) => self.permute(x.permuted_axes(order.as_slice())),
            Op::Add => self.in_place(x.clone(), move |pool, y| match pool {
                None => *y += &x,
                Some(pool) => pool.install(|| Zip::from(y).and(&x).par_for_each(|y, x| *y += x)),
            }),
            Op::Scale => self.in_place(x, |pool, y| match pool {
                None => *y *= SCALE,
                Some(pool) => pool.install(|| y.par_mapv_inplace(|value| value * SCALE)),
            }),
            Op::Fill => self.in_place(x, |pool, y| match pool {
                None => y.fill(1.0),
                Some(pool) => pool.install(|| y.par_map_inplace(|value| *value = 1.0)),
            }),
            Op::Asum => self.asum(x),
            Op::Sumsq => self.sumsq(&input.values),
        }))
    }
}

impl NdArray {
    fn merge<'a>(&'a self, case: &Case, input: &'a Input, axis: usize) -> Result<Box<dyn Work + 'a>> {
        let mut shape = case.dims.clone();
        shape[axis] /= input.parts.len();
        let parts = input.parts.iter().map(|part| ArrayViewD::from_shape(IxDyn(&shape), part));
        let parts: Vec<ArrayViewD<f32>> = parts.collect::<Result<_, _>>()?;
        let out = ArrayD::<f32>::zeros(IxDyn(&case.dims));
        Ok(prepared(
            out,
            move |out: &mut ArrayD<f32>| {
                let mut rest = out.view_mut();
                for part in &parts {
                    let (slice, after) = rest.split_at(Axis(axis), part.len_of(Axis(axis)));
                    self.assign(slice, part.view());
                    rest = after;
                }
                Ok(())
            },
            |out| Ok(row_major(out)),
        ))
    }

    fn split<'a>(&'a self, x: ArrayViewD<'a, f32>, axis: usize, parts: usize) -> Box<dyn Work + 'a> {
        let len = x.len_of(Axis(axis)) / parts;
        let mut shape = x.raw_dim();
        shape[axis] = len;
        let outs = vec![ArrayD::<f32>::zeros(shape); parts];
        prepared(
            outs,
            move |outs: &mut Vec<ArrayD<f32>>| {
                for (out, view) in outs.iter_mut().zip(x.axis_chunks_iter(Axis(axis), len)) {
                    self.assign(out.view_mut(), view);
                }
                Ok(())
            },
            |outs| Ok(outs.iter().flat_map(row_major).collect()),
        )
    }

    fn permute<'a>(&'a self, view: ArrayViewD<'a, f32>) -> Box<dyn Work + 'a> {
        let out = ArrayD::<f32>::zeros(view.raw_dim());
        prepared(
            out,
            move |out: &mut ArrayD<f32>| {
                self.assign(out.view_mut(), view.view());
                Ok(())
            },
            |out| Ok(row_major(out)),
        )
    }

    fn assign(&self, mut out: ArrayViewMutD<f32>, from: ArrayViewD<f32>) {
        match &self.pool {
            None => out.assign(&from),
            Some(pool) => pool.install(|| {
                // On a short last axis, the element-wise parallel `Zip` is several times slower than `assign`.
                let threads = pool.current_num_threads();
                let axis = out.shape().iter().position(|&side| side >= threads);
                let axis = Axis(axis.unwrap_or(0));
                let len = out.len_of(axis).div_ceil(threads).max(1);
                out.axis_chunks_iter_mut(axis, len)
                    .into_par_iter()
                    .zip(from.axis_chunks_iter(axis, len))
                    .for_each(|(mut out, from)| out.assign(&from));
            }),
        }
    }

    /// An operation on `y`, which starts as a copy of `x`.
    fn in_place<'a>(
        &'a self,
        x: ArrayViewD<'a, f32>,
        step: impl Fn(Option<&ThreadPool>, &mut ArrayD<f32>) + 'a,
    ) -> Box<dyn Work + 'a> {
        prepared(
            x.to_owned(),
            move |y: &mut ArrayD<f32>| {
                step(self.pool.as_ref(), y);
                Ok(())
            },
            |y| Ok(row_major(y)),
        )
    }

    fn asum<'a>(&'a self, x: ArrayViewD<'a, f32>) -> Box<dyn Work + 'a> {
        let state = (ArrayD::<f32>::zeros(x.raw_dim()), 0.0);
        prepared(
            state,
            move |(scratch, sum): &mut (ArrayD<f32>, f32)| {
                *sum = match &self.pool {
                    None => {
                        scratch.zip_mut_with(&x, |out, value| *out = value.abs());
                        scratch.sum()
                    }
                    Some(pool) => pool.install(|| {
                        let magnitudes = Zip::from(&mut *scratch).and(&x);
                        magnitudes.par_for_each(|out, value| *out = value.abs());
                        let rows = scratch.axis_iter(Axis(0)).into_par_iter();
                        rows.map(|row| row.sum()).sum()
                    }),
                };
                Ok(())
            },
            |(_, sum)| Ok(vec![*sum]),
        )
    }

    fn sumsq<'a>(&'a self, x: &'a [f32]) -> Box<dyn Work + 'a> {
        let x = ArrayView1::from(x);
        prepared(
            0.0,
            move |sum: &mut f32| {
                *sum = match &self.pool {
                    None => x.dot(&x),
                    Some(pool) => pool.install(|| {
                        let length = x.len().div_ceil(pool.current_num_threads()).max(1);
                        let chunks = x.axis_chunks_iter(Axis(0), length).into_par_iter();
                        chunks.map(|chunk| chunk.dot(&chunk)).sum()
                    }),
                };
                Ok(())
            },
            |sum| Ok(vec![*sum]),
        )
    }
}

fn row_major(array: &ArrayD<f32>) -> Vec<f32> {
    array.iter().copied().collect()
}
