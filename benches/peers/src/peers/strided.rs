//! `strided-perm`, whose one operation copies between strided views; it writes into touched memory. A merge copies each
//! part into a view of the destination, a split copies views of the source. The element-wise cases are not measured.

use anyhow::Result;
use strided_perm::copy_into;
use strided_view::{StridedView, StridedViewMut, row_major_strides};
use threadteam::{Exec, Pool};

use super::{Peer, Work, prepared};
use crate::cases::{Case, Op};
use crate::input::Input;

pub(super) struct StridedPerm {
    threads: usize,
    /// `None` for one thread.
    pool: Option<Pool>,
}

impl StridedPerm {
    pub(super) fn new(threads: usize) -> Result<StridedPerm> {
        let builder = Pool::builder().threads(threads);
        let pool = (threads > 1).then(|| builder.build()).transpose()?;
        Ok(StridedPerm { threads, pool })
    }

    fn exec(&self) -> Result<Exec<'_>> {
        Ok(match &self.pool {
            None => Exec::serial(),
            Some(pool) => Exec::new(pool, self.threads)?,
        })
    }
}

impl Peer for StridedPerm {
    fn name(&self) -> &'static str {
        "strided-perm"
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn prepare<'a>(&'a self, case: &Case, input: &'a Input) -> Result<Option<Box<dyn Work + 'a>>> {
        Ok(match &case.op {
            Op::Merge { axis, .. } => Some(self.merge(case, input, *axis)),
            Op::Split { axis, parts } => Some(self.split(case, input, *axis, *parts)),
            Op::Permute(order) => Some(self.permute(case, input, order)?),
            Op::Add | Op::Scale | Op::Asum | Op::Sumsq | Op::Fill => None,
        })
    }
}

impl StridedPerm {
    fn merge<'a>(&'a self, case: &Case, input: &'a Input, axis: usize) -> Box<dyn Work + 'a> {
        let slices = Slices::new(&case.dims, axis, input.parts.len());
        prepared(
            vec![0.0; input.values.len()],
            move |out: &mut Vec<f32>| {
                let dense = row_major_strides(&slices.shape);
                for (index, part) in input.parts.iter().enumerate() {
                    let from = StridedView::new(part, &slices.shape, &dense, 0)?;
                    let offset = slices.offset(index);
                    let mut to = StridedViewMut::new(out, &slices.shape, &slices.strides, offset)?;
                    copy_into(&mut to, &from, self.exec()?)?;
                }
                Ok(())
            },
            |out| Ok(out.clone()),
        )
    }

    fn split<'a>(&'a self, case: &Case, input: &'a Input, axis: usize, parts: usize) -> Box<dyn Work + 'a> {
        let slices = Slices::new(&case.dims, axis, parts);
        let outs = vec![vec![0.0; input.values.len() / parts]; parts];
        prepared(
            outs,
            move |outs: &mut Vec<Vec<f32>>| {
                let dense = row_major_strides(&slices.shape);
                for (index, out) in outs.iter_mut().enumerate() {
                    let offset = slices.offset(index);
                    let from = StridedView::new(&input.values, &slices.shape, &slices.strides, offset)?;
                    let mut to = StridedViewMut::new(out, &slices.shape, &dense, 0)?;
                    copy_into(&mut to, &from, self.exec()?)?;
                }
                Ok(())
            },
            |outs| Ok(outs.concat()),
        )
    }

    fn permute<'a>(&'a self, case: &Case, input: &'a Input, order: &[usize]) -> Result<Box<dyn Work + 'a>> {
        let strides = row_major_strides(&case.dims);
        let from: StridedView<f32> = StridedView::new(&input.values, &case.dims, &strides, 0)?;
        let from = from.permute(order)?;
        let dense = row_major_strides(from.dims());
        let out = vec![0.0; input.values.len()];
        Ok(prepared(
            out,
            move |out: &mut Vec<f32>| {
                let mut to = StridedViewMut::new(out, from.dims(), &dense, 0)?;
                Ok(copy_into(&mut to, &from, self.exec()?)?)
            },
            |out| Ok(out.clone()),
        ))
    }
}

/// Equal slices of a row-major tensor along an axis. They share a shape and the tensor's strides, and differ in offset.
struct Slices {
    shape: Vec<usize>,
    strides: Vec<isize>,
    axis: usize,
}

impl Slices {
    fn new(whole: &[usize], axis: usize, parts: usize) -> Slices {
        let strides = row_major_strides(whole).to_vec();
        let mut shape = whole.to_vec();
        shape[axis] /= parts;
        Slices { shape, strides, axis }
    }

    fn offset(&self, index: usize) -> isize {
        (index * self.shape[self.axis]) as isize * self.strides[self.axis]
    }
}
