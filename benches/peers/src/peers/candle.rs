//! `candle-core` on the CPU, which always runs these operations on one thread.
//!
//! A merge writes into touched memory by `slice_set`, a fill by `const_set`. No other operation takes a destination, so
//! the allocation and deallocation of its result are timed too: a caller's loop pays for both.

use anyhow::Result;
use candle_core::scalar::Scalar;
use candle_core::{Device, Tensor};

use super::{Peer, Work, prepared};
use crate::cases::{Case, Op};
use crate::input::Input;
use crate::naive::SCALE;

pub(super) struct Candle;

impl Peer for Candle {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn threads(&self) -> usize {
        1
    }

    fn prepare<'a>(&'a self, case: &Case, input: &'a Input) -> Result<Option<Box<dyn Work + 'a>>> {
        let x = || tensor(&input.values, &case.dims);
        Ok(Some(match case.op.clone() {
            Op::Merge { axis, .. } => merge(case, input, axis)?,
            Op::Split { axis, parts } => split(x()?, axis, parts)?,
            Op::Permute(order) => {
                let view = x()?.permute(order)?;
                // `contiguous` would copy nothing if the swapped axes have length one.
                fresh(move || view.force_contiguous())
            }
            Op::Add => {
                let (x, y) = (x()?, x()?);
                fresh(move || &y + &x)
            }
            Op::Scale => {
                let x = x()?;
                fresh(move || x.affine(SCALE.into(), 0.0))
            }
            Op::Asum => {
                let x = x()?;
                fresh(move || x.abs()?.sum_all())
            }
            Op::Sumsq => {
                let x = x()?;
                fresh(move || x.sqr()?.sum_all())
            }
            Op::Fill => prepared(x()?, |y: &mut Tensor| Ok(y.const_set(Scalar::from(1_f32))?), row_major),
        }))
    }
}

fn tensor(values: &[f32], shape: &[usize]) -> candle_core::Result<Tensor> {
    Tensor::from_slice(values, shape, &Device::Cpu)
}

fn merge<'a>(case: &Case, input: &Input, axis: usize) -> Result<Box<dyn Work + 'a>> {
    let mut shape = case.dims.clone();
    shape[axis] /= input.parts.len();
    let parts = input.parts.iter().map(|part| tensor(part, &shape));
    let parts: Vec<Tensor> = parts.collect::<Result<_, _>>()?;
    let out = tensor(&vec![0.0; input.values.len()], &case.dims)?;
    Ok(prepared(
        out,
        move |out: &mut Tensor| {
            for (index, part) in parts.iter().enumerate() {
                out.slice_set(part, axis, index * shape[axis])?;
            }
            Ok(())
        },
        row_major,
    ))
}

fn split<'a>(x: Tensor, axis: usize, parts: usize) -> Result<Box<dyn Work + 'a>> {
    let views = x.chunk(parts, axis)?;
    Ok(prepared(
        Vec::new(),
        move |outs: &mut Vec<Tensor>| {
            outs.clear();
            for view in &views {
                outs.push(view.force_contiguous()?);
            }
            Ok(())
        },
        |outs| {
            let outs: Result<Vec<Vec<f32>>> = outs.iter().map(row_major).collect();
            Ok(outs?.concat())
        },
    ))
}

/// An operation that allocates its result. The previous result is freed first, so that there is one at a time.
fn fresh<'a>(operation: impl Fn() -> candle_core::Result<Tensor> + 'a) -> Box<dyn Work + 'a> {
    prepared(
        None,
        move |out: &mut Option<Tensor>| {
            *out = None;
            *out = Some(operation()?);
            Ok(())
        },
        |out| out.as_ref().map_or(Ok(Vec::new()), row_major),
    )
}

fn row_major(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}
