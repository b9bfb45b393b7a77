//! The operations that `ops` measures, ready to run again and again on memory that is there already.
//!
//! Times nothing.

use std::hint::black_box;

use blob_core::{AnyBlob, DType, Shape};
use blob_ops::Part;

use crate::cases::Op;

/// Values that differ.
pub(crate) fn blob(dims: &[usize]) -> AnyBlob {
    let shape = Shape::new(dims).expect("a shape");
    let mut blob = AnyBlob::new(shape, DType::F32).expect("it fits");
    let mut values = blob.data_mut::<f32>().expect("memory");
    for (i, value) in values.iter_mut().enumerate() {
        *value = i as f32;
    }
    drop(values);
    blob
}

/// One run of the operation, into blobs that are there already.
pub(crate) fn prepare<'a>(op: &'a Op, whole: &'a AnyBlob) -> Box<dyn FnMut() + Send + 'a> {
    let equal = |axis: usize, parts: usize| vec![whole.shape().dims()[axis] / parts; parts];
    match op {
        &Op::Merge { axis, parts } => {
            let parts = blob_ops::split(whole, axis, &equal(axis, parts)).expect("parts");
            let mut out = blob(whole.shape().dims());
            Box::new(move || {
                let parts: Vec<&AnyBlob> = parts.iter().collect();
                blob_ops::merge_into(&parts, axis, &mut out).expect("merged");
            })
        }
        &Op::Split { axis, parts } => {
            let mut parts = blob_ops::split(whole, axis, &equal(axis, parts)).expect("parts");
            Box::new(move || {
                let mut parts: Vec<&mut AnyBlob> = parts.iter_mut().collect();
                blob_ops::split_into(whole, axis, &mut parts).expect("split");
            })
        }
        Op::Permute(order) => {
            let mut out = blob_ops::permute(whole, order).expect("permuted");
            Box::new(move || blob_ops::permute_into(whole, order, &mut out).expect("permuted"))
        }
        Op::Asum => Box::new(|| {
            black_box(blob_ops::asum(whole, Part::Data).expect("a sum"));
        }),
        Op::Sumsq => Box::new(|| {
            black_box(blob_ops::sumsq(whole, Part::Data).expect("a sum"));
        }),
        Op::Add | Op::Scale | Op::Fill => in_place(op, whole),
    }
}

/// As [`prepare`], for what changes a blob where it is.
fn in_place<'a>(op: &Op, whole: &'a AnyBlob) -> Box<dyn FnMut() + Send + 'a> {
    let mut y = blob(whole.shape().dims());
    match op {
        Op::Add => Box::new(move || blob_ops::add(&mut y, whole, Part::Data).expect("added")),
        // Another factor would end in subnormals or Inf.
        Op::Scale => Box::new(move || blob_ops::scale(&mut y, -1, Part::Data).expect("scaled")),
        _ => Box::new(move || blob_ops::fill(&mut y, 1, Part::Data).expect("filled")),
    }
}
